# SPDX-License-Identifier: Apache-2.0
"""Known secrets, found as they are and in every form of `forms`, and replaced by their placeholders.

Compile once, search many texts. A few literals are looked for one by one with the C library's search, which is also the fastest for
very long ones; many are found by the samples of `kin`. All occurrences count, those too that begin inside another one: what they
cover together is replaced, so that nothing of the later one is left behind the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from redrive.redaction.literals.encodings import cores_of, forms_of, lowered
from redrive.redaction.literals.prefix_index import HEAD, Samples
from redrive.redaction.placeholders import Marks

LITERAL_MIN: Final = 4
"""Shorter literals are ignored: they would hide half of every text."""

ENCODED_MIN: Final = 8
"""A shorter encoded form is not looked for: it would turn up by accident."""

ONE_BY_ONE_MAX: Final = 64
"""Up to this many forms are searched one by one."""

SAMPLED_MAX: Final = 4_096
"""Longer forms are always searched one by one: a payload holds few of them, and the cost of samples grows with the length."""

_BASE64: Final = "[A-Za-z0-9+/_-]"
_BASE64_SIGNS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_-"
_AROUND_MAX: Final = 512
_ROW: Final = 60
"""Base64 is wrapped at 64 or 76 columns; what is left of a first row after other text may be shorter."""
_ROW_ENDS: Final = (
    ("\n", re.compile(rf"\n(?<={_BASE64}{{{_ROW - 1}}}[A-Za-z0-9+/_\r-]\n)")),
    ("\\n", re.compile(rf"\\n(?<={_BASE64}{{{_ROW}}}\\n)")),
)
"""Line ends, real and escaped, each with what must match before base64 in rows is looked for."""
_ROWS: Final = re.compile(rf"{_BASE64}{{{_ROW},76}}+(?:(?:\r?\n[ \t|]*+|\\n){_BASE64}{{1,76}}+)+={{0,2}}")
_ROW_END: Final = re.compile(r"\r?\n[ \t|]*|\\n")


class Literals:
    """A compiled set of literals, each with the placeholder that stands for it."""

    __slots__ = ("_few", "_samples", "_shown", "_wide")

    def __init__(self, literals: Mapping[str, str]) -> None:
        """Compile every literal of at least `LITERAL_MIN` characters in all its forms."""
        self._shown = {literal: shown for literal, shown in literals.items() if len(literal) >= LITERAL_MIN}
        self._wide: set[str] = set()
        for literal, shown in tuple(self._shown.items()):
            for form in forms_of(literal):
                if len(form) >= ENCODED_MIN:
                    self._shown.setdefault(form, shown)
            for form in cores_of(literal):
                if len(form) >= ENCODED_MIN:
                    self._shown.setdefault(form, shown)
                    self._wide.add(form)
        if len(self._shown) <= ONE_BY_ONE_MAX:
            self._few = tuple(self._shown)
            self._samples = None
        else:
            self._few = tuple(form for form in self._shown if not HEAD <= len(form) <= SAMPLED_MAX)
            self._samples = Samples(form for form in self._shown if HEAD <= len(form) <= SAMPLED_MAX)

    def replace(self, text: str, marks: Marks) -> str:
        """Put the marks of the placeholders in place of every literal in `text`."""
        if not self._shown:
            return text
        spans = [*self._spans(text)]
        if (small := lowered(text)) != text:
            # As well, and not instead: what follows a percent sign need not be an escape.
            spans += self._spans(small)
        if any(end in text and row_end.search(text) for end, row_end in _ROW_ENDS):
            spans += self._wrapped(text)
        if not spans:
            return text
        # Of those that begin at the same place the longest comes first and gives its name.
        spans.sort(key=lambda span: (span[0], -span[1]))
        pieces: list[str] = []
        done = 0
        for start, end, form in spans:
            if start >= done:
                pieces += (text[done:start], marks.put(self._shown[form]))
            done = max(done, end)
        pieces.append(text[done:])
        return "".join(pieces)

    def _spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield where each form stands, base64 with the rest of the base64 text around it."""
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
        """Yield where base64 in rows holds a form, all the rows of it."""
        for block in _ROWS.finditer(text):
            rows = _ROW_END.sub("", block[0])
            yield from ((*block.span(), form) for _, _, form in self._spans(rows) if form in self._wide)


def _runs(text: str, form: str) -> Iterator[tuple[int, int]]:
    """Yield where a form stands, occurrences that overlap as one."""
    size = len(form)
    start = text.find(form)
    while start >= 0:
        end = start + size
        if text.find(form, start + 1, end + size - 1) >= 0:
            end = _last_end(text, form, start)
        yield start, end
        start = text.find(form, end)


def _last_end(text: str, form: str, start: int) -> int:
    """Return where the last of the occurrences ends that follow the one at `start`, each beginning inside the one before.

    Of those that begin inside one the last is looked for, in the text turned around: two steps then go ahead by the form's length,
    where steps from one to the next take forever in `aaaa`.
    """
    size, length = len(form), len(text)
    text, form = text[::-1], form[::-1]
    end = start + size
    while (at := text.find(form, max(length - end - size + 1, 0), length - start - 1)) >= 0:
        start, end = length - at - size, length - at
    return end


def _widened(text: str, start: int, end: int, around: tuple[int, int]) -> tuple[int, int]:
    """Return a span with the signs of base64 on both sides of it; those `around` another one are not read again."""
    done = end
    if around[0] <= start < around[1]:
        start, done = around[0], max(around[1], end)
    else:
        left = text[max(0, start - _AROUND_MAX) : start]
        start -= len(left) - len(left.rstrip(_BASE64_SIGNS))
    right = text[done : end + _AROUND_MAX]
    return start, done + len(right) - len(right.lstrip(_BASE64_SIGNS))
