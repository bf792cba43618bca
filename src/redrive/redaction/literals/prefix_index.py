# SPDX-License-Identifier: Apache-2.0
"""Find many literals at once, in a time that hardly depends on their number or similarity.

An occurrence of eight characters contains one of every fifth four-character piece of a text, so only those pieces are looked up in
a table. Literals with the same first eight characters form a sorted group; one binary search finds the longest one at a position.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

HEAD: Final = 8
"""Shorter literals cannot be found by sampling."""

_PIECE: Final = 4
_STRIDE: Final = HEAD - _PIECE + 1


class PrefixGroup:
    """Literals with the same beginning, sorted.

    The longest literal that a text starts with is its predecessor in this order, or one of the literals that the predecessor starts
    with. Each literal has a link to the next shorter one and to a much shorter one, so that a few steps reach any of them.
    """

    __slots__ = ("_far", "_forms", "_longest", "_shorter")

    def __init__(self, forms: Iterable[str]) -> None:
        """Sort the forms; the empty one, with which everything starts, is the first."""
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
        """Return the longest form in `text` at `start`; an empty string if there is none."""
        forms = self._forms
        place = bisect_right(forms, text[start : start + self._longest]) - 1
        while not text.startswith(forms[place], start):
            far = self._far[place]
            place = self._shorter[place] if text.startswith(forms[far], start) else far
        return forms[place]

    def prefixes(self, form: str) -> Iterator[str]:
        """Yield a form and all the forms it starts with, the longest first."""
        place = bisect_left(self._forms, form)
        while place:
            yield self._forms[place]
            place = self._shorter[place]


class SampleIndex:
    """An index of literals of at least `HEAD` characters, looked up by samples of a text."""

    __slots__ = ("_heads", "_pieces")

    def __init__(self, forms: Iterable[str]) -> None:
        """Compile the forms, which must be distinct."""
        heads: dict[str, list[str]] = {}
        for form in forms:
            heads.setdefault(form[:HEAD], []).append(form)
        # The offsets of a piece are bytes, because a set for each piece would need much memory.
        self._pieces: dict[str, bytes] = {}
        for head in heads:
            for offset in range(_STRIDE):
                offsets = self._pieces.get(piece := head[offset : offset + _PIECE], b"")
                if offset not in offsets:
                    self._pieces[piece] = offsets + bytes([offset])
        # Most heads have only one form, which needs no sorting.
        self._heads: dict[str, str | PrefixGroup] = {
            head: forms[0] if len(forms) == 1 else PrefixGroup(forms) for head, forms in heads.items()
        }

    def found_in(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield every position where a form starts, with the longest form there."""
        pieces, heads = self._pieces, self._heads
        for place in range(0, len(text), _STRIDE):
            for offset in pieces.get(text[place : place + _PIECE], b""):
                start = max(place - offset, 0)
                group = heads.get(text[start : start + HEAD])
                if group is not None:
                    form = group.at(text, start) if isinstance(group, PrefixGroup) else group
                    if form and text.startswith(form, start):
                        yield start, form

    def forms_in(self, text: str) -> set[str]:
        """Return every form that occurs in the text."""
        found: set[str] = set()
        for _, longest in self.found_in(text):
            group = self._heads[longest[:HEAD]]
            for form in group.prefixes(longest) if isinstance(group, PrefixGroup) else (longest,):
                if form in found:
                    break
                found.add(form)
        return found
