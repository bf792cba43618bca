# SPDX-License-Identifier: Apache-2.0
"""Known secrets, found as they are and as they look after percent, JSON, HTML and base64 encoding.

Compile once, search many texts. A few literals are looked for one by one with the C library's search; many are found by
sampling: any occurrence of eight characters covers one of every fifth places of the text, so only those places are looked
up in a table of four-character pieces. The longest literal at a place wins.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

from redrive.core.redact.marks import Marks
from redrive.core.redact.values import is_random

LITERAL_MIN: Final = 4
"""Shorter literals are ignored: they would hide half of every text."""

ENCODED_MIN: Final = 8
"""A shorter encoded form is not looked for: it would turn up by accident."""

ONE_BY_ONE_MAX: Final = 64
"""Up to this many forms are searched one by one."""

_PIECE: Final = 4
_HEAD: Final = 8
_STRIDE: Final = _HEAD - _PIECE + 1
_ESCAPE: Final = re.compile("%[0-9A-F]{2}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]*")
_BASE64_SIGNS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_-"
_AROUND_MAX: Final = 512
_SHARED_MAX: Final = 1_024
"""Two literals that share more than this at their ends are not looked for: every length is tried, and literals may be long."""


class Literals:
    """A compiled set of literals, each with the placeholder that stands for it."""

    __slots__ = ("_few", "_heads", "_pieces", "_shown", "_wide")

    def __init__(self, literals: Mapping[str, str]) -> None:
        """Compile every literal of at least `LITERAL_MIN` characters in all its forms."""
        self._shown: dict[str, str] = {}
        self._wide: set[str] = set()
        for literal, shown in literals.items():
            if len(literal) >= LITERAL_MIN:
                self._shown[literal] = shown
        for literal in tuple(self._shown):
            self._add_forms(literal)
        is_few = len(self._shown) <= ONE_BY_ONE_MAX
        self._few = tuple(form for form in self._shown if is_few or len(form) < _HEAD)
        self._heads: dict[str, list[int]] = {}
        self._pieces: dict[str, set[int]] = {}
        if not is_few:
            for form in self._shown:
                self._index(form)
            for lengths in self._heads.values():
                lengths.sort(reverse=True)

    def replace(self, text: str, marks: Marks) -> str:
        """Put the marks of the placeholders in place of every literal in `text`."""
        present = [form for form in self._few if form in text]
        if self._heads:
            present += {text[start:end] for start, end in self._sampled(text)}
        if not present:
            return text
        present.sort(key=len, reverse=True)
        text = self._widened(text, present, marks)
        chains = _chains(present)
        pieces: list[str] = []
        done = 0
        for found in re.finditer("|".join(map(re.escape, present)), text):
            if found.start() >= done:
                pieces += (text[done : found.start()], self._mark(found[0], marks))
                done = _chained(text, found[0], found.end(), chains)
        pieces.append(text[done:])
        return "".join(pieces)

    def _mark(self, form: str, marks: Marks) -> str:
        return marks.put(self._shown[form])

    def _add_forms(self, literal: str) -> None:
        shown = self._shown[literal]
        forms: list[str] = []
        if not _PLAIN.fullmatch(literal):
            forms += (quote(literal, safe=""), quote(literal), quote_plus(literal))
            escaped = json.dumps(literal)[1:-1]
            forms += (
                escaped,
                json.dumps(literal, ensure_ascii=False)[1:-1],
                json.dumps(escaped)[1:-1],
                repr(literal)[1:-1],
                html.escape(literal),
            )
            forms += [_ESCAPE.sub(lambda found: found[0].lower(), form) for form in forms[:3]]
        if "\n" in literal:
            # Written again with other line ends, or indented, only the lines are the same.
            forms.append(literal.replace("\n", "\r\n"))
            forms += (line for line in map(str.strip, literal.split("\n")) if is_random(line))
        for form in forms:
            if len(form) >= ENCODED_MIN:
                self._shown.setdefault(form, shown)
        for form in _base64_cores(literal):
            if len(form) >= ENCODED_MIN:
                self._shown.setdefault(form, shown)
                self._wide.add(form)

    def _index(self, form: str) -> None:
        if len(form) < _HEAD:
            return
        lengths = self._heads.setdefault(form[:_HEAD], [])
        if len(form) not in lengths:
            lengths.append(len(form))
        for offset in range(_STRIDE):
            self._pieces.setdefault(form[offset : offset + _PIECE], set()).add(offset)

    def _sampled(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where literals stand, the longest at each place."""
        pieces, heads, shown = self._pieces, self._heads, self._shown
        for place in range(0, len(text), _STRIDE):
            for offset in pieces.get(text[place : place + _PIECE], ()):
                start = place - offset
                for length in heads.get(text[max(start, 0) : start + _HEAD], ()):
                    if text[start : start + length] in shown:
                        yield start, start + length
                        break

    def _widened(self, text: str, present: list[str], marks: Marks) -> str:
        """Replace base64 forms together with the rest of the base64 text that they stand in."""
        wide = [form for form in present if form in self._wide]
        if not wide:
            return text
        pieces: list[str] = []
        done = 0
        for found in re.finditer("|".join(map(re.escape, wide)), text):
            if found.start() < done:
                continue
            left = text[max(done, found.start() - _AROUND_MAX) : found.start()]
            right = text[found.end() : found.end() + _AROUND_MAX]
            start = found.start() - (len(left) - len(left.rstrip(_BASE64_SIGNS)))
            end = found.end() + len(right) - len(right.lstrip(_BASE64_SIGNS))
            pieces += (text[done:start], self._mark(found[0], marks))
            done = end
        pieces.append(text[done:])
        return "".join(pieces)


def _chains(forms: list[str]) -> dict[str, list[tuple[str, int]]]:
    """Return, for each form, those that may start before it ends, with the length of what they share."""
    if len(forms) > ONE_BY_ONE_MAX:
        return {}
    chains: dict[str, list[tuple[str, int]]] = {}
    for form in forms:
        for other in forms:
            longest = min(len(form) - 1, len(other) - 1, _SHARED_MAX)
            shared = (size for size in range(longest, 0, -1) if form.endswith(other[:size]))
            chains.setdefault(form, []).extend((other, size) for size in shared if other != form)
    return chains


def _chained(text: str, form: str, end: int, chains: dict[str, list[tuple[str, int]]]) -> int:
    """Return where a secret ends that starts inside `form`, which ends at `end`; `end` when there is none."""
    following: tuple[str, int] | None = (form, len(form))
    while following is not None:
        form, shared = following
        end += len(form) - shared
        following = next(
            (link for link in chains.get(form, ()) if text.startswith(link[0][link[1] :], end)), None
        )
    return end


def _base64_cores(literal: str) -> Iterator[str]:
    """Yield the characters of base64 that depend on the literal alone, for each of the three alignments."""
    raw = literal.encode("utf-8", "surrogatepass")
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + raw).decode("ascii")
        start = -(-shift * 8 // 6)
        end = (shift + len(raw)) * 8 // 6
        core = encoded[start:end]
        yield core
        if "+" in core or "/" in core:
            yield core.replace("+", "-").replace("/", "_")
