# SPDX-License-Identifier: Apache-2.0
"""Find which of very many literals can occur in a text, without searching for each of them.

A few literals are simply searched in all their encodings. For very many that takes too long, so the text is decoded instead: as it
is, and without percent encoding, backslashes, HTML entities and base64. Only literals that occur in one of these decodings are
then searched. `SampleIndex` finds them, so that a short text is cheap for any number of them.
"""

from __future__ import annotations

import html
import re
import sys
from binascii import a2b_base64
from collections.abc import Iterator
from functools import cached_property
from typing import Final
from urllib.parse import unquote, unquote_plus

from redrive.redaction.literals.encodings import lines_of
from redrive.redaction.literals.search import HEAD, Literals, SampleIndex
from redrive.redaction.literals.truncation import PIECE

ALL_MAX: Final = 2_000
"""Up to this many literals, all of them are candidates."""

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SIGNS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{10,}")
_URL_SAFE: Final = str.maketrans("-_", "+/")


class LiteralIndex(dict[str, str]):
    """Literals and their placeholders; must not change after the first search, which builds the index."""

    @cached_property
    def compiled(self) -> Literals:
        """All the literals compiled, once for all texts."""
        return Literals(self)

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
        if not self._lines:
            return {}
        # With a line end, so that it counts as a line of a value, not as a value.
        return {f"{line}\n": self._lines[line] for line in self._lines.found_in(text)}

    @cached_property
    def _lines(self) -> LiteralIndex:
        return LiteralIndex(
            {
                line: shown
                for literal, shown in self.items()
                if "\n" in literal or "\r" in literal
                for line in lines_of(literal)
            }
        )

    @cached_property
    def divided(self) -> tuple[LiteralIndex, dict[str, str]]:
        """The literals of up to `PIECE` characters, and the longer ones."""
        long = {literal: shown for literal, shown in self.items() if len(literal) > PIECE}
        short = {literal: shown for literal, shown in self.items() if literal not in long}
        return LiteralIndex(short) if long else self, long

    def found_in(self, reading: str) -> Iterator[str]:
        """Yield the literals that occur in a text unencoded."""
        index, short, others = self._index
        yield from (literal for literal in short if _joined(literal) in reading)
        for start in index.forms_in(reading):
            if start in self:
                yield start
            yield from (literal for literal in others.get(start, ()) if _joined(literal) in reading)

    @cached_property
    def _index(self) -> tuple[SampleIndex, list[str], dict[str, list[str]]]:
        """The index of the literals, by the start of those that are very long; the short ones; and those under another start.

        The last are very long, or have other line ends.
        """
        starts: set[str] = set()
        short: list[str] = []
        others: dict[str, list[str]] = {}
        for literal in self:
            start = _joined(literal)[:256]
            if len(start) < HEAD:
                short.append(literal)
                continue
            starts.add(start)
            if start != literal:
                others.setdefault(start, []).append(literal)
        return SampleIndex(starts), short, others


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
