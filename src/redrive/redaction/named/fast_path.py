# SPDX-License-Identifier: Apache-2.0
"""A fast path for the simplest assignments of letters and digits: `name=value`, `name: value`, `"name": "value"`.

A text built to be slow has a hundred thousand different ones. This module decides only clear cases, exactly as `judgement.py`
would, and leaves the others to it. `tests/unit/redaction/test_plain.py` compares the two.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.named.lines import in_source
from redrive.redaction.named.names import NAME_CHARACTERS, NameMeaning, is_secret_name, meaning_of_name
from redrive.redaction.named.repeats import NameDecision
from redrive.redaction.named.spans import Span
from redrive.redaction.named.values import RANDOM_MIN, is_random
from redrive.redaction.named.vocabulary import INERT_WORDS
from redrive.redaction.placeholders import SENTINEL

CLEAR_MIN: Final = 7
"""Shorter values with digits may be small numbers such as `0x1f`; the slow path decides about them."""

PLAIN: Final = re.compile(
    rf"""
    ([A-Za-z0-9_\-]{{0,48}}+)
    (?:
      (\\?["'])? ([ ]?[=:][ ]?) (\\?["'])?
      (?: ([{SENTINEL}])(?=[\s"'`,;&)\]}}\\]|\Z)
        | ([A-Za-z0-9]{{1,200}}+) (?(4)(?=\4(?![\w$@\#^~]))|(?=\s(?!(?<=[ ])[=|])|\Z|[,;](?:\s|\Z))) )
      | (?![\w\u0e00-\u0e7f\-])
    )
    """,
    re.VERBOSE,
)
"""Tried at a stem: the rest of the name, its closing quote, the separator, the opening quote, a sentinel or a plain value.

The text after the value must end it, and must not make it a type as in `key: str = x`. Otherwise only the rest of the name
matches.
"""

NOTHING_PLAIN: Final = 1
"""The last group of a match of only the rest of a name."""

_SEPARATOR, _OPEN, _HIDDEN, _VALUE = 3, 4, 5, 6
# A query parameter, and what may be a resource such as `arn:...:secret:`, have rules of their own.
_ODD_BEFORE: Final = frozenset("?&:")
_TALLIES: Final = ("pass", "PASS")
_SHORT_NAME: Final = 5
_KINDS: Final = frozenset({"password", "secret"})
_INNER_DIGIT: Final = re.compile("[0-9][A-Za-z0-9]")
_SMALL: Final = re.compile(r"[0-9]{1,2}|0x[0-9a-fA-F]{1,4}")
_LINE_ENDS: Final = ("", "\n", "\r")


def decide_fast(text: str, floor: int, hit: int, plain: re.Match[str]) -> NameDecision | None:
    """Return the decision about a name that `PLAIN` matched; None when the slow path must decide."""
    looked_at, value = plain.end(1), plain.end(_SEPARATOR)
    if plain.lastindex == _HIDDEN:
        # Replaced before, as most values in a second round.
        return NameDecision(looked_at, value, None)
    start = floor + len(text[floor:hit].rstrip(NAME_CHARACTERS))
    before = text[start - 1 : start]
    # A short word after a space may belong to the word before it, as in `API key: ...`; test runners print counts of `pass`.
    is_short = before == " " and looked_at - start <= _SHORT_NAME
    name = text[start:looked_at]
    if is_short or before in _ODD_BEFORE or name in _TALLIES:
        return None
    meaning = meaning_of_name(name.strip("-."))
    if meaning is None:
        return NameDecision(looked_at, value, None)
    is_secret = _is_secret(plain, meaning, name, start)
    if is_secret is None:
        return None
    if not is_secret:
        return NameDecision(looked_at, value, None)
    return NameDecision(
        looked_at, value, (Span(plain.start(_VALUE), plain.end(), plain[_OPEN] is not None), meaning.kind)
    )


def _is_secret(plain: re.Match[str], meaning: NameMeaning, name: str, start: int) -> bool | None:
    """Decide about a value of letters and digits; None when it is ambiguous."""
    value = plain[_VALUE]
    if not meaning.certain:
        return len(value) >= RANDOM_MIN and is_random(value)
    # More words may belong to the value: `passphrase: four words 2gether again`.
    is_phrase = ":" in plain[_SEPARATOR] and plain.string.startswith(" ", plain.end())
    if is_phrase or meaning.kind not in _KINDS:
        return None
    if value.lower() in INERT_WORDS:
        return False
    if _INNER_DIGIT.search(value):
        # No variable, type or word of a sentence has a digit before its last character. A parser's number may.
        is_clear = len(value) >= CLEAR_MIN or meaning.kind == "password" or plain[_OPEN] is not None
        return True if is_clear else _SMALL.fullmatch(value) is None
    return _is_secret_word(plain, name, start)


def _is_secret_word(plain: re.Match[str], name: str, start: int) -> bool | None:
    """Decide about letters, with or without a last digit, after a certain name."""
    text, value, end = plain.string, plain[_VALUE], plain.end()
    if value.isdigit() or not value.strip("xX") or is_secret_name(value):
        return None
    if plain[_OPEN]:
        return None if value == name else True
    return not in_source(text, start) if text[end : end + 1] in _LINE_ENDS else None
