# SPDX-License-Identifier: Apache-2.0
"""Find personal data in a text: e-mail addresses, phone numbers, cards, IBANs and national ids.

Shapes are found here, checksums are in `numbers.py`. A run of digits counts only with a valid checksum or after a word that names
it; ids, timestamps, versions, coordinates and amounts stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from redrive.redaction.personal import numbers
from redrive.redaction.personal.numbers import is_phone, redact_lettered_numbers
from redrive.redaction.placeholders import SENTINEL, Sentinels
from redrive.redaction.places import Place, Places

DIGITS_MIN: Final = 9
"""The fewest digits of a phone number, a card or a national id of digits only."""

CONTEXT_MAX: Final = 40
"""How far before a number the word that names it may be."""

_DOMAIN: Final = re.compile(
    rf"@(?:(?:[^\W_](?:[\w-]{{0,61}}[^\W_])?\.){{1,6}}([^\W\d_]{{2,24}}|xn--[a-z0-9-]{{2,24}})(?![\w-])(?!\.[A-Za-z]|[(@])|[{SENTINEL}])"
)
# Addresses with an escaped or encoded sign between name and domain.
_ENCODED_EMAILS: Final = Places(
    Place(sign, "email", re.compile(before + sign + r"(?:[\w-]{1,63}\.){1,6}[A-Za-z]{2,24}(?![\w-])"))
    for sign, before in (
        ("u0040", r"(?<![\w.+-])[\w.+-]{1,64}\\{1,2}"),
        ("&#64;", r"(?<![\w.+-])[\w.+-]{1,64}"),
        ("%40", r"(?:(?<![\w.%+-])|(?<=%[23][0-9A-Fa-f]))[\w.+-]{1,64}"),
    )
)
_NOT_PEOPLE: Final = frozenset({"git", "svn", "hg", "gitlab", "gitea"})
_NOT_DOMAINS: Final = frozenset(
    "png jpg jpeg gif svg webp ico css js ts tsx jsx mjs json yaml yml html xml toml service socket target timer mount slice"
    " scope device path swap local_domain dot shape".split()
)
_DIGITS: Final = bytes(100 if byte in b"0123456789" else 32 for byte in range(256))
# Typographic spaces and dashes have no byte of their own in the shape; they become question marks.
_SEPARATORS: Final = b" -./()+\xa0?"
_PLAIN_SIGNS: Final = str.maketrans(
    {**dict.fromkeys("\u00a0\u2007\u2009\u202f", " "), **dict.fromkeys("\u2010\u2011\u2012\u2013", "-")}
)
# Every IBAN and national insurance number has five digits in a row, ignoring separators; every other number here more.
_SOME: Final = b"d" * 5
_ENOUGH: Final = b"d" * DIGITS_MIN
# A number: digits with at most three separators between them. Matching stops at its end, so each digit is read once. The signs
# before it are not in the pattern, so that the search for a digit runs in C.
_NUMBER: Final = re.compile(r"[0-9](?>(?:[ .()/\u00a0\u2007\u2009\u202f\u2010-\u2013-]{0,3}[0-9]){8,40})")
_PARTS: Final = re.compile(f"[^ ]{{{DIGITS_MIN},}}")
_CARD: Final = re.compile(
    r"[0-9]{12,19}|[0-9]{4}([ ./-])[0-9]{4}\1[0-9]{4}\1[0-9]{1,7}|[0-9]{4}[ -][0-9]{6}[ -][0-9]{4,5}"
    r"|(?:[0-9]{4}[ -]){4}[0-9]{3}|[0-9]{4}(?: {0,2}[0-9]{4}){3}"
)
# The word must be right before the number: no other number and no sentinel in between.
_SSN_WORD: Final = re.compile(rf"(?:ssn|\bsocial)[^0-9{SENTINEL}]{{0,20}}\Z")
_RRN_WORD: Final = re.compile(rf"(?:rrn|resident|jumin|주민)[^0-9{SENTINEL}]{{0,20}}\Z")
_NATIONAL_IDS: Final[tuple[tuple[int, str, Callable[[str], bool], re.Pattern[str] | None], ...]] = (
    # The count of digits, how the number is written, its check, and the word that it needs before it.
    (9, r"[0-9]{3}-[0-9]{2}-[0-9]{4}", numbers.is_ssn, None),
    (9, r"[0-9]{3}([- .]?)[0-9]{2}\1[0-9]{4}", numbers.is_ssn, _SSN_WORD),
    (11, r"[0-9]{11}|[0-9]{2}([ /])[0-9]{3}\1[0-9]{3}\1[0-9]{3}", numbers.is_german_tax_id, None),
    (13, r"[0-9]{6}-[1-8][0-9]{6}", numbers.is_rrn, None),
    (13, r"[0-9]{6} ?[1-8][0-9]{6}", numbers.is_clear_rrn, None),
    (13, r"[0-9]{6} ?[1-8][0-9]{6}", numbers.is_rrn, _RRN_WORD),
    (15, r"[12][ -]?(?:[0-9]{2}[ -]?){3}[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{2}", numbers.is_nir, None),
)
_NO_SIGNS: Final = str.maketrans("", "", " +./()-")
# Before a number, these characters make it part of something longer: an amount, an id, a version, a path, a date.
_GLUE: Final = "_.$+-"


def redact_personal(text: str, sentinels: Sentinels) -> str:
    """Replace all personal data."""
    text = _ENCODED_EMAILS.redact(text, sentinels)
    if "@" in text:
        text = sentinels.replace(text, _emails(text))
    shape = text.encode("latin-1", "replace").translate(_DIGITS, _SEPARATORS)
    if _SOME in shape:
        text = redact_lettered_numbers(text, sentinels)
    if _ENOUGH in shape:
        text = sentinels.replace(text, _numbers(text))
    return text


def _emails(text: str) -> Iterator[tuple[int, int, str]]:
    done = 0
    for domain in _DOMAIN.finditer(text):
        at = domain.start()
        local = _local_before(text, max(done, at - 64), at)
        if local and _is_address(text, at - len(local), local, domain):
            # A domain that was hidden before stays hidden as what it was.
            done = domain.end() if domain.lastindex else at
            yield at - len(local), done, "email"


def _local_before(text: str, floor: int, at: int) -> str:
    """Return the local part of an address whose `@` is at `at`."""
    start = at
    while start > floor and (text[start - 1].isalnum() or text[start - 1] in "._%+'-"):
        start -= 1
    return text[start:at].lstrip(".-%+'")


def _is_address(text: str, start: int, local: str, domain: re.Match[str]) -> bool:
    """Return whether it is a person's address, not a git remote, a systemd unit or a file name."""
    following = text[domain.end() : domain.end() + 2]
    if text.endswith("://", 0, start) or following in (":/", ":~"):
        return False
    if local.lower() in _NOT_PEOPLE and following[:1] in (":", "/"):
        return False
    return domain.lastindex is None or domain[1].lower() not in _NOT_DOMAINS


def _numbers(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the personal numbers of digits only, given their context."""
    for found in _NUMBER.finditer(text):
        end = found.end()
        signs = text[max(0, found.start() - 2) : found.start()]
        start = found.start() - len(signs) + len(signs.rstrip("+("))
        whole = text[start:end]
        # A bracket that does not close inside the number belongs to the sentence or opens a call.
        is_opened = whole.startswith("(") and whole.count("(") > whole.count(")")
        if text[end : end + 1].isalnum() or (start > 0 and not is_opened and _is_glued(text, start)):
            continue
        # The name of a function does not name its argument: `call(20240611123456)`.
        is_called = is_opened and text[max(0, start - 1) : start].isalnum()
        before = "" if is_called else text[max(0, start - CONTEXT_MAX) : start]
        start += is_opened
        if kind := kind_of_number(text[start:end], before):
            yield start, end, kind
        elif " " in whole:
            # Two numbers may be side by side, as in a table.
            for part in _PARTS.finditer(text, start, end):
                if kind := kind_of_number(part[0], before):
                    yield *part.span(), kind


def _is_glued(text: str, start: int) -> bool:
    """Return whether the character before a number makes it part of something longer."""
    last = text[start - 1]
    if last in "/:":
        return text[max(0, start - 2) : start - 1].isdecimal()
    if last == "#":
        # `card#4111...` names what follows; `order #4111...` counts.
        return not text[max(0, start - 2) : start - 1].isalpha()
    return last.isalnum() or last in _GLUE


def kind_of_number(whole: str, before: str) -> str | None:
    """Return the kind of personal number that `whole` is, given the text before it; None when it is none."""
    whole = whole.translate(_PLAIN_SIGNS)
    digits = whole.translate(_NO_SIGNS)
    if len(digits) < DIGITS_MIN:
        return None
    context = before.lower()
    if _CARD.fullmatch(whole) and numbers.is_card(digits):
        return "card"
    for count, shape, is_valid, word in _NATIONAL_IDS:
        is_named = count == len(digits) and (word is None or word.search(context))
        if is_named and re.fullmatch(shape, whole) and is_valid(digits):
            return "national-id"
    return "phone" if is_phone(whole, digits, context) else None
