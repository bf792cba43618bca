# SPDX-License-Identifier: Apache-2.0
"""Find secrets by what surrounds them: tables of places, and one search for all of them.

A place is a webhook's path, the flag of a command, a line of `.pgpass` or the child of a `secrets:` block. The tables are in
`shapes.py`, `command_lines.py` and `blocks.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from redrive.redaction.placeholders import Sentinels


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
                text = (place.around or place.pattern).sub(partial(_replaced, place, sentinels, {}), text)
        return text


def _replaced(place: Place, sentinels: Sentinels, seen: dict[str, str], found: re.Match[str]) -> str:
    """Return the replacement of a match; an identical one is processed once."""
    whole = found[0]
    if whole not in seen:
        hide = partial(_hidden, place, sentinels)
        seen[whole] = place.pattern.sub(hide, whole) if place.around else hide(found)
    return seen[whole]


def _hidden(place: Place, sentinels: Sentinels, found: re.Match[str]) -> str:
    """Return a match with a sentinel in place of its secret; quotes around the secret stay."""
    if place.is_secret and not place.is_secret(found):
        return found[0]
    group = found.lastindex or 0
    secret = found[group]
    shown = secret.replace(secret.strip("'\""), sentinels.redacted(place.kind), 1)
    return (
        found[0][: found.start(group) - found.start()] + shown + found[0][found.end(group) - found.start() :]
    )
