# SPDX-License-Identifier: Apache-2.0
"""A message without the values of its job, for fingerprints only: what one job holds tells no causes apart.

The redactor has marked what is secret and the longer strings of a payload; shorter ones it leaves, since they are too common to
be hidden. Here marks and short strings alike give way to one word, so that the length of a value makes no group. That errs now
and then, and towards merging: a cause in many groups hides its size, and who replays one of them brings back a part of it. Two
causes become one group only if stage, code, classes, place in the code and every other word are the same too.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Final, cast

QUOTED: Final = "0000000"
"""Stands for every value: a number to `core.normalise` wherever it stands, and too long for a code. So a number, an id and a name
in the same place of a message are one group as well."""
QUOTED_MIN: Final = 2
"""Country and language codes count; single letters are too common."""

_FEW_MAX: Final = 64
"""So many values are looked for one by one first: most messages quote none, and that is known soonest so."""
_MARK: Final = re.compile(r"<(?:payload|redacted)(?::[^<>]*)?>")
_PLACES: Final = re.compile(rf"{_MARK.pattern}|(?<!\w)\w|[^\w\s]")
"""A mark, or where a value may begin: never inside a word."""
_INSIDE_WORD: Final = re.compile(r"(?<=\w)(?=\w)")
_COMMON: Final = frozenset(
    """about after all already an and any are as at be been before but by can cannot could denied empty error errors expired failed
    failure fails for found from had has have if in into invalid is it its may missing must no nor not of on only or out over
    refused should than that the their then there this timeout to too under unknown was were when which while will with without
    would""".split()
)
"""Words that messages of failures are made of. A payload that holds one of them is rarer than a message that says it of itself, and
then the jobs with such a payload would part from those without. In capitals they are codes: `NO` is a country."""


def short_values(value: object, *, shorter_than: int) -> set[str]:
    """Return the strings of a decoded value that are shorter than that and may stand in a message as values.

    Keys are names of the program. Whole numbers are left to `core.normalise`, which knows a status and an errno by the word before.
    """
    found: set[str] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, str):
            if len(current) < shorter_than and _may_be_quoted(bare := current.strip()):
                found.add(bare)
        elif isinstance(current, dict):
            waiting += cast("dict[str, object]", current).values()
        elif isinstance(current, list):
            waiting += cast("list[object]", current)
    return found


def _may_be_quoted(text: str) -> bool:
    if len(text) < QUOTED_MIN or (text if text.isupper() else text.lower()) in _COMMON:
        return False
    return not text.lstrip("+-").isdigit() and any(sign.isalnum() for sign in text)


def without_values(message: str, values: AbstractSet[str]) -> str:
    """Return a redacted message with one word for every mark in it and for each of the values that stands there as a whole word.

    Pieces of the message are looked up among the values, the longest first, so that very many values cost no more than a few.
    """
    if len(values) <= _FEW_MAX:
        values = {value for value in values if value in message}
    if not values:
        return _MARK.sub(QUOTED, message)
    lengths = sorted({len(value) for value in values}, reverse=True)
    pieces: list[str] = []
    done = 0
    for place in _PLACES.finditer(message):
        start = place.start()
        if start < done:
            continue
        end = place.end()
        if end - start == 1:
            end = _end_of_value(message, start, values, lengths)
        if end:
            pieces += (message[done:start], QUOTED)
            done = end
    pieces.append(message[done:])
    return "".join(pieces)


def _end_of_value(message: str, start: int, values: AbstractSet[str], lengths: list[int]) -> int:
    """Return where the longest value that stands at this place ends; 0 if none does."""
    for length in lengths:
        piece = message[start : start + length]
        end = start + len(piece)
        if piece in values and not _INSIDE_WORD.match(message, end):
            return end
    return 0
