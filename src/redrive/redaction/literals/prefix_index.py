# SPDX-License-Identifier: Apache-2.0
"""Many literals found at once, in a time that hardly depends on how many they are or how much they look alike.

Any occurrence of eight characters covers one of every fifth places of a text, so only those places are looked up in a table of
four-character pieces. Literals that begin with the same eight characters are kin: they stand in order, and one search in that order
finds the longest that stands at a place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

HEAD: Final = 8
"""Shorter literals cannot be found by samples."""

_PIECE: Final = 4
_STRIDE: Final = HEAD - _PIECE + 1


class Kin:
    """Literals that begin alike, in order.

    What stands next before a text in their order, or else one of those that it begins with itself, is the longest literal that the
    text begins with. Of a literal that begins with hundreds of others, each knows the next shorter one and one much shorter, so
    that a few steps lead to any of them.
    """

    __slots__ = ("_far", "_forms", "_longest", "_shorter")

    def __init__(self, forms: Iterable[str]) -> None:
        """Put the forms in order; the empty one, with which everything begins, is the first."""
        self._forms = ["", *sorted(forms)]
        self._longest = max(map(len, self._forms))
        self._shorter = [0]
        self._far = [0]
        depths = [0]
        inside = [0]
        for place, form in enumerate(self._forms[1:], 1):
            while not form.startswith(self._forms[inside[-1]]):
                inside.pop()
            shorter = inside[-1]
            far = self._far[shorter]
            is_even = depths[shorter] - depths[far] == depths[far] - depths[self._far[far]]
            self._shorter.append(shorter)
            self._far.append(self._far[far] if is_even else shorter)
            depths.append(depths[shorter] + 1)
            inside.append(place)

    def at(self, text: str, start: int) -> str:
        """Return the longest of the forms that stands in `text` at `start`; an empty one if none does."""
        forms = self._forms
        place = bisect_right(forms, text[start : start + self._longest]) - 1
        while not text.startswith(forms[place], start):
            far = self._far[place]
            place = self._shorter[place] if text.startswith(forms[far], start) else far
        return forms[place]


class Samples:
    """A table of literals of at least `HEAD` characters, to be looked up by samples of a text."""

    __slots__ = ("_heads", "_pieces")

    def __init__(self, forms: Iterable[str]) -> None:
        """Compile the forms, no two of which are the same."""
        heads: dict[str, list[str]] = {}
        for form in forms:
            heads.setdefault(form[:HEAD], []).append(form)
        self._pieces: dict[str, set[int]] = {}
        for head in heads:
            for offset in range(_STRIDE):
                self._pieces.setdefault(head[offset : offset + _PIECE], set()).add(offset)
        # Most heads have one form only, which needs no order.
        self._heads: dict[str, str | Kin] = {
            head: forms[0] if len(forms) == 1 else Kin(forms) for head, forms in heads.items()
        }

    def found_in(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield every place where a form begins, with the longest that begins there."""
        pieces, heads = self._pieces, self._heads
        for place in range(0, len(text), _STRIDE):
            for offset in pieces.get(text[place : place + _PIECE], ()):
                start = max(place - offset, 0)
                kin = heads.get(text[start : start + HEAD])
                if kin is not None:
                    form = kin.at(text, start) if isinstance(kin, Kin) else kin
                    if form and text.startswith(form, start):
                        yield start, form
