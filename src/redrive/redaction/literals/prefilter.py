# SPDX-License-Identifier: Apache-2.0
"""Find which of very many literals can occur in a text, without searching for each of them.

A few literals are simply searched in all their encodings. For very many that takes too long, so the text is decoded instead: as it
is, and without percent encoding, backslashes, HTML entities and base64. Only literals that occur in one of these decodings are
then searched. `prefix_index` finds them, so that a short text is cheap for any number of them.
"""

from __future__ import annotations

import html
import re
import sys
from binascii import a2b_base64
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote, unquote_plus

from redrive.redaction.literals.encodings import lines_of
from redrive.redaction.literals.search import HEAD, Literals, SampleIndex

ALL_MAX: Final = 2_000
"""Up to this many literals, all of them are candidates."""

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SIGNS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{10,}")
_URL_SAFE: Final = str.maketrans("-_", "+/")


class LiteralIndex(dict[str, str]):
    """Literals and their placeholders; must not change after the first search."""

    __slots__ = ("_compiled", "_divided", "_index", "_lines", "_others", "_short")

    def __init__(self, literals: Mapping[str, str]) -> None:
        """Take the literals; the index is built at the first search among many."""
        super().__init__(literals)
        self._compiled: Literals | None = None
        self._index: SampleIndex | None = None
        self._short: list[str] = []
        self._others: dict[str, list[str]] = {}
        """Literals that are not indexed as they are: very long ones, and those with other line ends."""
        self._lines: LiteralIndex | None = None
        self._divided: tuple[int, LiteralIndex, dict[str, str]] | None = None

    def compiled(self) -> Literals:
        """Return all the literals compiled, once for all texts."""
        self._compiled = self._compiled or Literals(self)
        return self._compiled

    def candidates(self, text: str, longest: int) -> dict[str, str]:
        """Return the literals that can occur in a text: none longer than `longest`; of very many, only those that do occur."""
        if len(self) > ALL_MAX:
            found = {
                literal: self[literal] for reading in _readings(text) for literal in self.found_in(reading)
            }
            return found | self.line_candidates(text)
        found = {literal: shown for literal, shown in self.items() if len(literal) <= longest}
        return self if len(found) == len(self) else found | self.line_candidates(text)

    def line_candidates(self, text: str) -> dict[str, str]:
        """Return the lines of literals that occur in a text: a line may, even if its literal is longer than the text."""
        if self._lines is None:
            lines = {
                line: shown
                for literal, shown in self.items()
                if "\n" in literal or "\r" in literal
                for line in lines_of(literal)
            }
            self._lines = LiteralIndex(lines) if lines else _NO_LINES
        if not self._lines:
            return {}
        # With a line end, so that it counts as a line of a value, not as a value.
        return {f"{line}\n": self._lines[line] for line in self._lines.found_in(text)}

    def divided(self, longest: int) -> tuple[LiteralIndex, dict[str, str]]:
        """Split into the literals up to a length, and the longer ones."""
        if self._divided is None or self._divided[0] != longest:
            long = {literal: shown for literal, shown in self.items() if len(literal) > longest}
            short = {literal: shown for literal, shown in self.items() if literal not in long}
            self._divided = longest, LiteralIndex(short) if long else self, long
        return self._divided[1:]

    def found_in(self, reading: str) -> Iterator[str]:
        """Yield the literals that occur in a text unencoded."""
        index = self._index = self._index or self._ordered()
        yield from (literal for literal in self._short if _joined(literal) in reading)
        for start in index.forms_in(reading):
            if start in self:
                yield start
            yield from (literal for literal in self._others.get(start, ()) if _joined(literal) in reading)

    def _ordered(self) -> SampleIndex:
        """Return the index of the literals, by the start of those that are very long."""
        starts: set[str] = set()
        for literal in self:
            start = _joined(literal)[:256]
            if len(start) < HEAD:
                self._short.append(literal)
                continue
            starts.add(start)
            if start != literal:
                self._others.setdefault(start, []).append(literal)
        return SampleIndex(starts)


_NO_LINES: Final = LiteralIndex({})


def _joined(text: str) -> str:
    """Return a text with normalised line ends, which depend on the writer."""
    return text.replace("\r\n", "\n") if "\r" in text else text


def _readings(text: str) -> Iterator[str]:
    """Yield a text as it is, and decoded in each common way."""
    yield _joined(text)
    if "%" in text:
        yield _joined(unquote(text))
    if "%" in text or "+" in text:
        yield _joined(unquote_plus(text))
    if "&" in text:
        yield _joined(html.unescape(text))
    if "\\" in text:
        once = _unescaped(text)
        yield _joined(once)
        if "\\" in once:
            yield _joined(_unescaped(once))
    if runs := _BASE64.findall(text.translate(_URL_SAFE)):
        # A run may start at any of the four positions of a base64 group.
        yield from ("\n".join(_decoded(run[shift:]) for run in runs) for shift in range(4))


def _unescaped(text: str) -> str:
    """Undo the escapes of JSON and of Python."""
    plain = _ESCAPE.sub(_meant, text)
    # JSON writes characters above U+FFFF as surrogate pairs.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _meant(found: re.Match[str]) -> str:
    if found[4] is not None:
        return _SIGNS.get(found[4], found[4])
    number = int(found[1] or found[2] or found[3], 16)
    return chr(number) if number <= sys.maxunicode else found[0]


def _decoded(run: str) -> str:
    """Decode a run of base64; drop an incomplete last byte."""
    whole = run[: len(run) - (len(run) % 4 == 1)]
    return a2b_base64(whole + "=" * (-len(whole) % 4)).decode("utf-8", "replace")
