# SPDX-License-Identifier: Apache-2.0
"""Placeholders, and the single characters that stand for them while a text is being redacted.

A placeholder that is already in the text, or that a pass has just put there, is hidden behind one character of a
private plane, so that no later pass can read, split or match it. Showing the marks again is the last step of a
round. A text may itself hold characters of that plane; those are never reused as marks.

Only what we write is taken for a placeholder: a kind that we know, or the place of a value by its numbers. What else stands between
the same brackets is text like any other, and a secret there is hidden.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.formats.tokens import LOOSE, ROWS

MARK: Final = "\U000f0000-\U000ffffd"
"""The range of marks, for use inside a character class."""

FIRST_MARK: Final = "\U000f0000"
"""The lowest mark; nothing that people write stands above it."""

FEW: Final = 4
"""Up to this many marks are put back one by one, which takes a search in C each."""

_FIRST: Final = 0xF0000
_LAST: Final = 0xFFFFD
_ANY_MARK: Final = re.compile(f"[{MARK}]")
_NUMBER: Final = "(?:0|[1-9][0-9]{0,7})"
"""The place of a value among its neighbours; no payload holds so many that it has more digits, as a card does."""
_PLACEHOLDER: Final = re.compile(
    rf"<redacted:([a-z]++(?:-[a-z]++)*+)>|<payload:(?:\*|\$(?:\.{_NUMBER}|\[{_NUMBER}\])*+)>"
)

KINDS: Final = frozenset(
    {
        *("authorization", "card", "cookie", "email", "iban", "national-id", "password", "phone", "pin"),
        *("private-key", "secret", "url-credentials"),
        # Not secrets, but what could not be read.
        *("cycle", "depth", "unjudged", "unprintable", "unstable"),
        *(kind for kind, _ in ROWS),
        *(kind for _, kind, _ in LOOSE),
    }
)
"""Every kind that a placeholder of ours names."""


def placeholder(kind: str) -> str:
    """Return the text that stands where a secret of `kind` was."""
    return f"<redacted:{kind}>"


class Marks:
    """The marks in use during one round over one text."""

    __slots__ = ("_by_placeholder", "_is_plain", "_next", "_shown", "_taken", "is_ascii")

    def __init__(self, text: str) -> None:
        """Start with no mark; characters of the private plane that `text` already holds are set aside."""
        self._by_placeholder: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self.is_ascii = text.isascii()
        """Whether the text has no other letters; what else its work holds are then marks."""
        found: list[str] = [] if self.is_ascii else _ANY_MARK.findall(text)
        self._taken = frozenset(found)
        self._next = _FIRST
        # A placeholder with a mark in it would be read again if it were put back before that mark.
        self._is_plain = True

    def put(self, shown: str) -> str:
        """Return the mark for the placeholder `shown`; the placeholder itself once the plane is used up."""
        mark = self._by_placeholder.get(shown)
        if mark is None:
            while chr(self._next) in self._taken:
                self._next += 1
            if self._next > _LAST:
                return shown
            mark = chr(self._next)
            self._next += 1
            self._by_placeholder[shown] = mark
            self._shown[mark] = shown
            self._is_plain = self._is_plain and shown.isascii()
        return mark

    def redacted(self, kind: str) -> str:
        """Return the mark for a secret of `kind`."""
        return self.put(placeholder(kind))

    def hide(self, text: str) -> str:
        """Put a mark in place of every placeholder that `text` already holds."""
        if "<redacted:" not in text and "<payload:" not in text:
            return text
        return _PLACEHOLDER.sub(self._hidden, text)

    def _hidden(self, found: re.Match[str]) -> str:
        is_ours = found[1] is None or found[1] in KINDS
        return self.put(found[0]) if is_ours else found[0]

    def show(self, text: str) -> str:
        """Put the placeholders back in place of their marks."""
        if len(self._shown) <= FEW and self._is_plain:
            for mark, shown in self._shown.items():
                text = text.replace(mark, shown)
            return text
        return _ANY_MARK.sub(lambda found: self._shown.get(found[0], found[0]), text)
