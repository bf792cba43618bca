# SPDX-License-Identifier: Apache-2.0
"""Find known secrets, unencoded and in every encoding of `encodings`, and replace them by their placeholders.

Compile once, search many texts. A few literals are searched one by one in C, which is also the fastest way for very long ones.
Many are found at once, in a time that hardly depends on their number or similarity: an occurrence of eight characters contains
one of every fifth four-character piece of a text, so only those pieces are looked up in a table. Literals with the same first
eight characters form a sorted group; one binary search finds the longest one at a position. Overlapping occurrences are replaced
together, so that no rest of the later one remains.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final

from redrive.redaction.literals.encodings import base64_cores, encodings_of, lower_escapes
from redrive.redaction.placeholders import Sentinels

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


LITERAL_MIN: Final = 4
"""Shorter literals are ignored: they would match everywhere."""

ENCODED_MIN: Final = 8
"""Shorter encoded forms are not searched: they would match by accident."""

ONE_BY_ONE_MAX: Final = 64
"""Up to this many forms are searched one by one."""

SAMPLED_MAX: Final = 4_096
"""Longer forms are always searched one by one: a payload has few of them, and the cost of the index grows with the length."""

_BASE64: Final = "[A-Za-z0-9+/_-]"
_BASE64_SIGNS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_-"
_AROUND_MAX: Final = 512
_ROW: Final = 60
"""Base64 is wrapped at 64 or 76 columns; a first row after other text may be shorter."""
_ROW_ENDS: Final = (
    ("\n", re.compile(rf"\n(?<={_BASE64}{{{_ROW - 1}}}[A-Za-z0-9+/_\r-]\n)")),
    ("\\n", re.compile(rf"\\n(?<={_BASE64}{{{_ROW}}}\\n)")),
)
"""Line ends, real and escaped, each with the test that must match before wrapped base64 is searched."""
_ROWS: Final = re.compile(rf"{_BASE64}{{{_ROW},76}}+(?:(?:\r?\n[ \t|]*+|\\n){_BASE64}{{1,76}}+)+={{0,2}}")
_ROW_END: Final = re.compile(r"\r?\n[ \t|]*|\\n")


class Literals:
    """A compiled set of literals and their placeholders."""

    __slots__ = ("_few", "_samples", "_shown", "_wide")

    def __init__(self, literals: Mapping[str, str]) -> None:
        """Compile every literal of at least `LITERAL_MIN` characters in all its encodings."""
        self._shown = {literal: shown for literal, shown in literals.items() if len(literal) >= LITERAL_MIN}
        self._wide: set[str] = set()
        for literal, shown in tuple(self._shown.items()):
            cores = [form for form in base64_cores(literal) if len(form) >= ENCODED_MIN]
            self._wide.update(cores)
            for form in (*encodings_of(literal), *cores):
                if len(form) >= ENCODED_MIN:
                    self._shown.setdefault(form, shown)
        if len(self._shown) <= ONE_BY_ONE_MAX:
            self._few = tuple(self._shown)
            self._samples = None
        else:
            self._few = tuple(form for form in self._shown if not HEAD <= len(form) <= SAMPLED_MAX)
            self._samples = SampleIndex(form for form in self._shown if HEAD <= len(form) <= SAMPLED_MAX)

    def replace(self, text: str, sentinels: Sentinels) -> str:
        """Replace every literal in `text` by the sentinel of its placeholder."""
        if not self._shown:
            return text
        spans = [*self._spans(text)]
        if (small := lower_escapes(text)) != text:
            # In addition to the plain text: a percent sign need not start an escape.
            spans += self._spans(small)
        if any(end in text and row_end.search(text) for end, row_end in _ROW_ENDS):
            spans += self._wrapped(text)
        if spans and (placeholders := sentinels.spans(text)):
            spans = [*_around_placeholders(spans, placeholders)]
        # Of the matches at one position the longest comes first and determines the placeholder.
        spans.sort(key=lambda span: (span[0], -span[1]))
        return sentinels.replace(text, spans, self._shown.__getitem__)

    def _spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the span of each form; of base64, including the base64 characters around it."""
        around = (0, 0)
        for start, end, form in self._occurrences(text):
            if form in self._wide:
                around = _widened(text, start, end, around)
                yield (*around, form)
            else:
                yield start, end, form

    def _occurrences(self, text: str) -> Iterator[tuple[int, int, str]]:
        for form in self._few:
            if form in text:
                yield from ((start, end, form) for start, end in _runs(text, form))
        if self._samples is not None:
            yield from ((start, start + len(form), form) for start, form in self._samples.found_in(text))

    def _wrapped(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the span of all the rows of wrapped base64 that contains a form."""
        for block in _ROWS.finditer(text):
            rows = _ROW_END.sub("", block[0])
            yield from ((*block.span(), form) for _, _, form in self._spans(rows) if form in self._wide)


def _around_placeholders(
    spans: list[tuple[int, int, str]], placeholders: list[tuple[int, int]]
) -> Iterator[tuple[int, int, str]]:
    """Yield the spans that cover other text than placeholders, each with the whole of the placeholders that it touches.

    A value may contain a placeholder, because a text that was redacted before became a value. A span within a placeholder is a
    word such as `redacted`, and stays.
    """
    for first, last, form in spans:
        start, end = first, last
        outside = end - start
        place = bisect_right(placeholders, start, key=itemgetter(1))
        while place < len(placeholders) and (touched := placeholders[place])[0] < end:
            outside -= min(end, touched[1]) - max(start, touched[0])
            start, end = min(start, touched[0]), max(end, touched[1])
            place += 1
        if outside >= LITERAL_MIN:
            yield start, end, form


def _runs(text: str, form: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of a form, overlapping occurrences joined."""
    size = len(form)
    start = text.find(form)
    while start >= 0:
        end = start + size
        if text.find(form, start + 1, end + size - 1) >= 0:
            end = _last_end(text, form, start)
        yield start, end
        start = text.find(form, end)


def _last_end(text: str, form: str, start: int) -> int:
    """Return the end of the chain of overlapping occurrences that begins at `start`.

    Each step takes the last occurrence that begins inside the current one, by a search in the reversed text, so that two steps
    advance by the length of the form; stepping from each occurrence to the next would be quadratic in `aaaa`.
    """
    size, length = len(form), len(text)
    text, form = text[::-1], form[::-1]
    end = start + size
    while (at := text.find(form, max(length - end - size + 1, 0), length - start - 1)) >= 0:
        start, end = length - at - size, length - at
    return end


def _widened(text: str, start: int, end: int, around: tuple[int, int]) -> tuple[int, int]:
    """Extend a span by the base64 characters on both sides, except those already covered by `around`."""
    done = end
    if around[0] <= start < around[1]:
        start, done = around[0], max(around[1], end)
    else:
        left = text[max(0, start - _AROUND_MAX) : start]
        start -= len(left) - len(left.rstrip(_BASE64_SIGNS))
    right = text[done : end + _AROUND_MAX]
    return start, done + len(right) - len(right.lstrip(_BASE64_SIGNS))
