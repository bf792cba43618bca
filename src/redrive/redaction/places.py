# SPDX-License-Identifier: Apache-2.0
"""Find secrets by what surrounds them: tables of places, and one search for all of them.

A place is a webhook's path, the flag of a command, a line of `.pgpass` or the child of a `secrets:` block. The tables are in
`shapes.py` and `surroundings.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from redrive.redaction.placeholders import Sentinels

LONG_MIN: Final = 2_048
"""In a longer text, only the lines with a needle are searched."""


class Place(NamedTuple):
    """Where to find secrets of one kind."""

    needle: str
    """A part of every text with such a secret."""
    kind: str
    pattern: re.Pattern[str]
    """The secret is the last group, or the whole match."""
    around: re.Pattern[str] | None = None
    """What the pattern is searched in, such as the line of a command; the whole text if None."""
    is_secret: Callable[[re.Match[str]], bool] | None = None
    is_far: bool = False
    """Whether a match may span several lines, or the needle be on another line."""


class Places:
    """A table of places."""

    __slots__ = ("_by_needle", "_needles")

    def __init__(self, places: Iterable[Place]) -> None:
        """Take the rows of the table."""
        self._by_needle: dict[str, list[Place]] = {}
        for place in places:
            self._by_needle.setdefault(place.needle, []).append(place)
        self._needles = tuple(self._by_needle)

    def redact(self, text: str, sentinels: Sentinels) -> str:
        """Replace the secrets at every place."""
        # Every text is searched for every needle, so this loop has nothing else in it.
        for needle in [needle for needle in self._needles if needle in text]:
            for place in self._by_needle[needle]:
                sought, hide = place.around or place.pattern, partial(_replaced, place, sentinels, {})
                if len(text) < LONG_MIN or place.is_far or "\\\n" in text:
                    text = sought.sub(hide, text)
                else:
                    text = _in_lines(text, needle, partial(sought.sub, hide))
        return text


def _in_lines(text: str, needle: str, replace: Callable[[str], str]) -> str:
    """Apply a replacement to the lines with the needle, adjacent ones together, with their line ends, which a pattern may need."""
    pieces: list[str] = []
    done = 0
    at = text.find(needle)
    while at >= 0:
        start, end = max(text.rfind("\n", done, at), done), at
        while at >= 0 and text.find("\n", end, at) < 0:
            end = text.find("\n", at) + 1 or len(text)
            at = text.find(needle, end)
        pieces += (text[done:start], replace(text[start:end]))
        done = end
    return "".join((*pieces, text[done:]))


def _replaced(place: Place, sentinels: Sentinels, seen: dict[str, str], found: re.Match[str]) -> str:
    """Return the replacement of a match; an identical one is processed once."""
    whole = found[0]
    if whole not in seen:
        hide = partial(_hidden, place, sentinels)
        seen[whole] = place.pattern.sub(hide, whole) if place.around else hide(found)
    return seen[whole]


def _hidden(place: Place, sentinels: Sentinels, found: re.Match[str]) -> str:
    """Return a match with a sentinel in place of its secret; quotes around the secret stay, escaped or not."""
    if place.is_secret and not place.is_secret(found):
        return found[0]
    group = found.lastindex or 0
    secret = found[group]
    shown = secret.replace(secret.strip("'\"\\"), sentinels.redacted(place.kind), 1)
    return (
        found[0][: found.start(group) - found.start()] + shown + found[0][found.end(group) - found.start() :]
    )
