# SPDX-License-Identifier: Apache-2.0
"""Which of very many literals can stand in a text, found without looking at each of them.

A few literals are simply looked for in all their forms. Of very many that takes too long, so the text is undone instead: read as
it is, and with percent signs, backslashes, HTML entities and base64 taken back. Only literals that stand in one of these readings
are then looked for. The literals are kept by their first characters, so that a short text costs little beside any number of them.
"""

from __future__ import annotations

import html
import re
from binascii import a2b_base64
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote, unquote_plus

from redrive.redaction.literals.encodings import lines_of

ALL_MAX: Final = 2_000
"""Up to so many literals are all taken to be near."""

_HEAD: Final = 8
_WINDOW: Final = 256
_FEW: Final = 64
"""Up to so many candidates are looked for one by one."""
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SIGNS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_LAST_CHARACTER: Final = 0x10FFFF
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{10,}")
_URL_SAFE: Final = str.maketrans("-_", "+/")
_QUANTUM: Final = 4


class Sought(dict[str, str]):
    """Literals with what stands for each; not changed once they were looked for."""

    __slots__ = ("_divided", "_heads", "_lines", "_more", "_short")

    def __init__(self, literals: Mapping[str, str]) -> None:
        """Take literals. They are put in order only when there are many, and one is looked for."""
        super().__init__(literals)
        self._heads: dict[str, str] = {}
        self._more: dict[str, list[str]] = {}
        """Further literals of a head. Most heads have one, and a list for each would take as much room as all of them."""
        self._short: list[str] = []
        self._lines: dict[str, str] | None = None
        self._divided: tuple[int, Sought, dict[str, str]] | None = None

    def near(self, text: str, longest: int) -> dict[str, str]:
        """Return the literals that can stand in a text: none longer than `longest`, and of very many those that do."""
        if len(self) > ALL_MAX:
            near = {
                literal: self[literal] for reading in _readings(text) for literal in self.standing_in(reading)
            }
            return near | self.lines_near(text)
        near = {literal: shown for literal, shown in self.items() if len(literal) <= longest}
        return near if len(near) == len(self) else near | self.lines_near(text)

    def lines_near(self, text: str) -> dict[str, str]:
        """Return the lines of literals that stand in a text: of a literal that is longer than the text, one may."""
        if self._lines is None:
            self._lines = {
                line: shown
                for literal, shown in self.items()
                if "\n" in literal or "\r" in literal
                for line in lines_of(literal)
            }
        if not self._lines:
            return {}
        if not isinstance(self._lines, Sought):
            self._lines = Sought(self._lines)
        # With its end, so that it is taken for a line of a value, and not for a value.
        return {f"{line}\n": self._lines[line] for line in self._lines.standing_in(text)}

    def divided(self, longest: int) -> tuple[Sought, dict[str, str]]:
        """Return the literals up to a length, and the longer ones."""
        if self._divided is None or self._divided[0] != longest:
            long = {literal: shown for literal, shown in self.items() if len(literal) > longest}
            short = (
                Sought({literal: shown for literal, shown in self.items() if literal not in long})
                if long
                else self
            )
            self._divided = longest, short, long
        return self._divided[1:]

    def _order(self) -> None:
        for literal in self:
            head = _joined(literal)[:_HEAD]
            if len(head) < _HEAD:
                self._short.append(literal)
            elif self._heads.setdefault(head, literal) is not literal:
                self._more.setdefault(head, []).append(literal)

    def standing_in(self, reading: str) -> Iterator[str]:
        """Yield the literals that stand in a text as they are."""
        if not self._heads and not self._short:
            self._order()
        yield from (literal for literal in self._short if _joined(literal) in reading)
        grams = {reading[at : at + _HEAD] for at in range(len(reading) - _HEAD + 1)}
        candidates = [
            (literal, sought)
            for head in self._heads.keys() & grams
            for literal in (self._heads[head], *self._more.get(head, ()))
            if _is_made_of(grams, sought := _joined(literal))
        ]
        if len(candidates) <= _FEW:
            yield from (literal for literal, sought in candidates if sought in reading)
            return
        # In order, whether one stands anywhere is seen at one place, however many begin alike.
        windows = sorted({reading[at : at + _WINDOW] for at in range(len(reading))})
        for literal, sought in candidates:
            start = sought[:_WINDOW]
            at = bisect_left(windows, start)
            is_there = at < len(windows) and windows[at].startswith(start)
            if is_there and (len(sought) <= _WINDOW or sought in reading):
                yield literal


def _joined(text: str) -> str:
    """Return a text with plain line ends: which ones were written depends on who wrote it."""
    return text.replace("\r\n", "\n") if "\r" in text else text


def _is_made_of(grams: set[str], literal: str) -> bool:
    return literal[-_HEAD:] in grams and all(
        literal[at : at + _HEAD] in grams for at in range(_HEAD, len(literal) - _HEAD + 1, _HEAD)
    )


def _readings(text: str) -> Iterator[str]:
    """Yield a text as it is, and as what it may have been made from."""
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
        # A run may start anywhere within four characters that belong together.
        yield from ("\n".join(_decoded(run[shift:]) for run in runs) for shift in range(_QUANTUM))


def _unescaped(text: str) -> str:
    """Undo the escapes of JSON and of Python."""
    plain = _ESCAPE.sub(_meant, text)
    # JSON writes what is beyond the first 65,536 characters as two.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _meant(found: re.Match[str]) -> str:
    if found[4] is not None:
        return _SIGNS.get(found[4], found[4])
    number = int(found[1] or found[2] or found[3], 16)
    return chr(number) if number <= _LAST_CHARACTER else found[0]


def _decoded(run: str) -> str:
    """Return what a run of base64 says; what is too much for whole bytes is left out."""
    whole = run[: len(run) - (len(run) % _QUANTUM == 1)]
    return a2b_base64(whole + "=" * (-len(whole) % _QUANTUM)).decode("utf-8", "replace")
