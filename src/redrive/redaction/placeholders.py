# SPDX-License-Identifier: Apache-2.0
"""Placeholders, and the single characters (sentinels) that represent them while a text is being redacted.

A placeholder that is already in the text, or that a pass has just inserted, is replaced by one character of a private plane, so
that no later pass can read, split or match it. The last step of a round restores the placeholders. Characters of that plane that
the text itself contains are never used as sentinels.

Only our own placeholders count: a known kind, or the numeric path of a payload value. Anything else between the same brackets is
ordinary text, and a secret in it is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from redrive.redaction.formats.shapes import LONG_SHAPES, SHAPES, SHAPES_IN_RUNS
from redrive.redaction.formats.tokens import PREFIXES

SENTINEL: Final = "\U000f0000-\U000ffffd"
"""The range of sentinels, for use inside a character class."""

FIRST_SENTINEL: Final = "\U000f0000"
"""The lowest sentinel; no character in common use is above it."""

_ANY_SENTINEL: Final = re.compile(f"[{SENTINEL}]")
_NUMBER: Final = "(?:0|[1-9][0-9]{0,7})"
"""The index of a value; fewer digits than a card number has, so that a card is never taken for an index."""
_PLACEHOLDER: Final = re.compile(
    rf"<redacted:([a-z]++(?:-[a-z]++)*+)>|<payload:(?:\*|\$(?:\.{_NUMBER}|\[{_NUMBER}\])*+)>"
)

KINDS: Final = frozenset(
    {
        *("authorization", "card", "cookie", "email", "iban", "national-id", "password", "phone", "pin"),
        *("private-key", "secret", "url-credentials"),
        # Not secrets, but content that could not be read.
        *("cycle", "depth", "unjudged", "unprintable", "unstable"),
        *(row.split()[0] for row in PREFIXES.splitlines() if row[:1].isalpha()),
        *(kind for kind, *_ in (*SHAPES, *SHAPES_IN_RUNS, *LONG_SHAPES)),
    }
)
"""Every kind of placeholder."""


def placeholder(kind: str) -> str:
    """Return the text that replaces a secret of `kind`."""
    return f"<redacted:{kind}>"


class Sentinels:
    """The sentinels in use during one round over one text."""

    __slots__ = ("_by_placeholder", "_is_plain", "_next", "_shown", "_taken", "is_ascii")

    def __init__(self, text: str) -> None:
        """Start without sentinels; exclude the characters of the private plane that `text` contains."""
        self._by_placeholder: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self.is_ascii = text.isascii()
        """Whether the text is ASCII; then every other character in the working copy is a sentinel."""
        found: list[str] = [] if self.is_ascii else _ANY_SENTINEL.findall(text)
        self._taken = frozenset(found)
        self._next = ord(FIRST_SENTINEL)
        # Restoring a placeholder that contains a sentinel character must not restore that character too.
        self._is_plain = True

    def put(self, shown: str) -> str:
        """Return the sentinel for the placeholder `shown`; the placeholder itself once the plane is used up."""
        sentinel = self._by_placeholder.get(shown)
        if sentinel is None:
            while chr(self._next) in self._taken:
                self._next += 1
            if self._next > 0xFFFFD:
                return shown
            sentinel = chr(self._next)
            self._next += 1
            self._by_placeholder[shown] = sentinel
            self._shown[sentinel] = shown
            self._is_plain = self._is_plain and shown.isascii()
        return sentinel

    def redacted(self, kind: str) -> str:
        """Return the sentinel for a secret of `kind`."""
        return self.put(placeholder(kind))

    def replace(
        self, text: str, spans: Iterable[tuple[int, int, str]], shown: Callable[[str], str] = placeholder
    ) -> str:
        """Replace spans, ordered by their start and each with a kind, by sentinels; spans that overlap become one."""
        pieces: list[str] = []
        done = 0
        for start, end, kind in spans:
            if start >= done:
                pieces += (text[done:start], self.put(shown(kind)))
            done = max(done, end)
        if not pieces:
            return text
        pieces.append(text[done:])
        return "".join(pieces)

    @staticmethod
    def spans(text: str) -> list[tuple[int, int]]:
        """Return the spans of our placeholders in `text`, in order."""
        if "<redacted:" not in text and "<payload:" not in text:
            return []
        return [
            found.span() for found in _PLACEHOLDER.finditer(text) if found[1] is None or found[1] in KINDS
        ]

    def hide(self, text: str) -> str:
        """Replace every placeholder in `text` by its sentinel."""
        if "<redacted:" not in text and "<payload:" not in text:
            return text
        return _PLACEHOLDER.sub(self._hidden, text)

    def _hidden(self, found: re.Match[str]) -> str:
        is_ours = found[1] is None or found[1] in KINDS
        return self.put(found[0]) if is_ours else found[0]

    def show(self, text: str) -> str:
        """Replace every sentinel in `text` by its placeholder."""
        # A few sentinels are replaced one by one, each by a search in C.
        if len(self._shown) <= 4 and self._is_plain:
            for sentinel, shown in self._shown.items():
                text = text.replace(sentinel, shown)
            return text
        return _ANY_SENTINEL.sub(lambda found: self._shown.get(found[0], found[0]), text)
