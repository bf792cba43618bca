# SPDX-License-Identifier: Apache-2.0
"""The plainest assignments, judged in one look: `name=value`, `name: value`, `"name": "value"`, all letters and digits.

A text made to be slow holds a hundred thousand of them, no two alike. Here is only what can be said without a doubt, and the
same as `judgement.py` would say; anything else is left to it. `tests/unit/redaction/test_plain.py` compares the two.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.named.lines import in_source, is_in_string
from redrive.redaction.named.names import NAME_CHARACTERS, Telling, is_telling, telling
from redrive.redaction.named.repeats import Judged
from redrive.redaction.named.spans import Span
from redrive.redaction.named.values import RANDOM_MIN, is_random
from redrive.redaction.named.vocabulary import INERT_WORDS
from redrive.redaction.placeholders import MARK

CLEAR_MIN: Final = 7
"""Shorter values with digits may be small numbers, such as `0x1f`, and are looked at more closely."""

PLAIN: Final = re.compile(
    rf"""
    ([A-Za-z0-9_\-]{{0,48}}+)
    (?:
      (\\?["'])? ([ ]?[=:][ ]?) (\\?["'])?
      (?: ([{MARK}])(?=[\s"'`,;&)\]}}\\]|\Z)
        | ([A-Za-z0-9]{{1,200}}+) (?(4)(?=\4)|(?=\s(?!(?<=[ ])[=|])|\Z|[,;](?:\s|\Z))) )
      | (?![\w\u0e00-\u0e7f\-])
    )
    """,
    re.VERBOSE,
)
"""Tried at a stem: the rest of the name, its closing quote, the separator, the opening quote, a mark or a plain value.

What follows the value must end it, and must not make a type of it as in `key: str = x`. Where nothing of the kind follows,
only the rest of the name is matched.
"""

NOTHING_PLAIN: Final = 1
"""The last group of a match that is only the rest of a name."""

_CLOSE, _SEPARATOR, _OPEN, _HIDDEN, _VALUE = 2, 3, 4, 5, 6
# A query parameter, and what may be a resource such as `arn:...:secret:`, have rules of their own.
_ODD_BEFORE: Final = frozenset("?&:")
_TALLIES: Final = ("pass", "PASS")
_SHORT_NAME: Final = 5
_KINDS: Final = frozenset({"password", "secret"})
_INNER_DIGIT: Final = re.compile("[0-9][A-Za-z0-9]")
_SMALL: Final = re.compile(r"[0-9]{1,2}|0x[0-9a-fA-F]{1,4}")
_LINE_ENDS: Final = ("", "\n", "\r")


def judged_plainly(text: str, floor: int, hit: int, plain: re.Match[str]) -> Judged | None:
    """Return what stands at a name that `PLAIN` matched; None when that takes a closer look."""
    looked_at, value = plain.end(1), plain.end(_SEPARATOR)
    if plain.lastindex == _HIDDEN:
        # Hidden before, as most values of a second round are.
        return Judged(looked_at, value, None)
    start = floor + len(text[floor:hit].rstrip(NAME_CHARACTERS))
    before = text[start - 1 : start]
    # A short word after a space may belong to the word before it, as in `API key: ...`; a test run says how many `pass`.
    is_short = before == " " and looked_at - start <= _SHORT_NAME
    name = text[start:looked_at]
    if is_short or before in _ODD_BEFORE or name in _TALLIES:
        return None
    said = telling(name.strip("-."))
    if said is None:
        return Judged(looked_at, value, None)
    is_secret = _is_secret(plain, said, name, start)
    if is_secret is None:
        return None
    if not is_secret or _closes_string(text, start, plain):
        return Judged(looked_at, value, None)
    return Judged(
        looked_at, value, (Span(plain.start(_VALUE), plain.end(), plain[_OPEN] is not None), said.kind)
    )


def _is_secret(plain: re.Match[str], said: Telling, name: str, start: int) -> bool | None:
    """Decide for a value of letters and digits; None when it could be read in more than one way."""
    value = plain[_VALUE]
    if not said.certain:
        return len(value) >= RANDOM_MIN and is_random(value)
    # More words may belong to it: `passphrase: four words 2gether again`.
    is_phrase = ":" in plain[_SEPARATOR] and plain.string.startswith(" ", plain.end())
    if is_phrase or said.kind not in _KINDS:
        return None
    if value.lower() in INERT_WORDS:
        return False
    if _INNER_DIGIT.search(value):
        # No variable, type or word of a sentence has a digit before its last place. A number of a parser may.
        is_clear = len(value) >= CLEAR_MIN or said.kind == "password" or plain[_OPEN] is not None
        return True if is_clear else _SMALL.fullmatch(value) is None
    return _is_secret_word(plain, name, start)


def _is_secret_word(plain: re.Match[str], name: str, start: int) -> bool | None:
    """Decide for letters, with or without a last digit, that a certain name announces."""
    text, value, end = plain.string, plain[_VALUE], plain.end()
    if value.isdigit() or not value.strip("xX") or is_telling(value):
        return None
    if plain[_OPEN]:
        return None if value == name else True
    return not in_source(text, start) if text[end : end + 1] in _LINE_ENDS else None


def _closes_string(text: str, start: int, plain: re.Match[str]) -> bool:
    quote = plain[_OPEN]
    return quote in ("'", '"') and plain[_CLOSE] is None and is_in_string(text, start, quote)
