# SPDX-License-Identifier: Apache-2.0
"""Personal numbers with letters in them: IBANs, British national insurance numbers, and the French number of Corsicans.

Capitals are rare enough to be looked at one by one; for letters in lower case the shape of the text is searched first.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.personal import numbers
from redrive.redaction.placeholders import Marks

NEAR_MAX: Final = 40
"""How far before a number in lower case the words `national insurance` may stand."""

_APART: Final = r"[ .\u00a0\u202f-]"
_LETTERED: Final = re.compile(
    r"[A-Z](?:(?<![A-Za-z0-9][A-Z])|(?<=IBAN[A-Z]))[A-Z]"
    rf"(?:[0-9]{{2}}(?:{_APART}?[A-Z0-9]){{11,32}}|(?:[ -]?[0-9]{{2}}){{3}}[ -]?[A-D](?![A-Za-z0-9_]))"
)
# One byte for each character, so that a search in C finds where two letters and two digits start a word.
_KINDS: Final = bytes(
    ord("a")
    if 97 <= byte <= 122
    else ord("d")
    if 48 <= byte <= 57
    else ord("A")
    if 65 <= byte <= 90
    else ord(" ")
    for byte in range(256)
)
_STARTS: Final = (b" aadd", b" aa dd")
_LOWER: Final = re.compile(r"[a-z]{2}[0-9]{2}(?:[ -]?[a-z0-9]){11,32}")
_NINO: Final = re.compile(r"(?!BG|GB|KN|NK|NT|TN|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z][0-9]{6}[A-D]")
_NINO_AHEAD: Final = re.compile(r"[a-z]{2}(?: ?[0-9]{2}){3} ?[a-d](?![A-Za-z0-9_])")
_NINO_WORD: Final = re.compile(r"\bni(?:no|[ _-]?(?:number|no\b))|insurance", re.IGNORECASE)
_CORSICA: Final = re.compile(
    r"[12][ -]?[0-9]{2}[ -]?[0-9]{2}[ -]?2[ABab][ -]?[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{2}(?![0-9A-Za-z])"
)
_SIGNS: Final = str.maketrans("", "", " .-\u00a0\u202f")


def redact_lettered(text: str, marks: Marks) -> str:
    """Put a mark in place of every number with letters that a checksum or its shape vouches for."""
    text = _LETTERED.sub(lambda found: _upper(found, marks), text)
    text = _redact_lower(text, marks)
    if "2A" in text or "2B" in text or " 2a " in text or " 2b " in text:
        text = _CORSICA.sub(lambda found: _corsican(found, marks), text)
    return text


def _upper(found: re.Match[str], marks: Marks) -> str:
    """Judge a number that starts with two capital letters."""
    whole = found[0]
    is_inside = found.start() > 0 and found.string[found.start() - 1] == "_"
    if _NINO.fullmatch(whole.translate(_SIGNS)) and not is_inside:
        return marks.redacted("national-id")
    end = _iban_end(whole)
    return whole if end is None else marks.redacted("iban") + whole[end:]


def _redact_lower(text: str, marks: Marks) -> str:
    """Put marks in place of numbers whose letters are in lower case."""
    kinds = b" " + text.encode("latin-1", "replace").translate(_KINDS)
    pieces: list[str] = []
    done = 0
    for start in _starts(kinds):
        found = _lower(text, start) if start >= done else None
        if found is not None:
            pieces += (text[done:start], marks.redacted(found[1]))
            done = found[0]
    pieces.append(text[done:])
    return "".join(pieces)


def _starts(kinds: bytes) -> list[int]:
    """Return where a word of two letters is followed by two digits, in order."""
    starts: list[int] = []
    for shape in _STARTS:
        at = kinds.find(shape)
        while at >= 0:
            # The text is one place behind its kinds, and a start one after the space before it.
            starts.append(at)
            at = kinds.find(shape, at + 1)
    starts.sort()
    return starts


def _lower(text: str, start: int) -> tuple[int, str] | None:
    """Return where the number that starts here ends, and its kind."""
    found = _LOWER.match(text, start)
    end = _iban_end(found[0]) if found else None
    if end is not None:
        return start + end, "iban"
    nino = _NINO_AHEAD.match(text, start)
    return (nino.end(), "national-id") if nino and _is_lower_nino(text, start, nino[0]) else None


def _is_lower_nino(text: str, start: int, whole: str) -> bool:
    """Tell a national insurance number in lower case, which only a word before it can vouch for."""
    is_shaped = _NINO.fullmatch(whole.replace(" ", "").upper()) is not None
    return is_shaped and _NINO_WORD.search(text, max(0, start - NEAR_MAX), start) is not None


def _iban_end(whole: str) -> int | None:
    """Return where the IBAN ends that `whole` starts with; None when it does not."""
    compact = whole.translate(_SIGNS).upper()
    length = numbers.iban_length(compact[:2])
    if length is None or len(compact) < length or not numbers.is_iban(compact[:length]):
        return None
    last = [place for place, sign in enumerate(whole) if sign.isalnum()][length - 1]
    return None if whole[last + 1 : last + 2].isalnum() else last + 1


def _corsican(found: re.Match[str], marks: Marks) -> str:
    compact = found[0].translate(_SIGNS)
    return marks.redacted("national-id") if numbers.is_nir(compact) else found[0]
