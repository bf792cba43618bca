# SPDX-License-Identifier: Apache-2.0
"""Find provider tokens without trying every pattern at every character.

A token is long and unbroken, ordinary words are short. The text is translated so that every token character is the same byte;
one search in C then finds the next long run. Only inside such a run is the table of `tokens.py` tried. Text without long runs
costs two passes in C.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.formats.tokens import LOOSE, ROWS
from redrive.redaction.placeholders import Sentinels

RUN_MIN: Final = 16
"""The shortest run that can contain a token."""

_TOKEN_BYTES: Final = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.-")
_SHAPE: Final = bytes(120 if byte in _TOKEN_BYTES else 32 for byte in range(256))
_LONG_RUN: Final = b"x" * RUN_MIN
_DIGIT: Final = re.compile("[0-9]")
# `self.client.send`: no token without a digit is all lower case and dots, except those of Vault and Doppler.
_NAMES_IN_CODE: Final = re.compile(r"(?!hv[sbr]\.|dp\.)[a-z.]++\Z")

# The alternatives have no groups, so that the engine can skip each by its first character.
_ANY: Final = "(?:" + "|".join(alternative for _, row in ROWS for alternative in row) + ")"
_BOUNDARY: Final = "(?<![A-Za-z0-9])"
# In escaped text a token may also start after an escaped line end or a percent-encoded character.
_ESCAPES: Final = r"(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u00[0-9a-f]{2})|(?<=\\x[0-9a-f]{2})"
_TOKENS: Final = re.compile(_BOUNDARY + _ANY)
_ESCAPED_TOKENS: Final = re.compile(f"(?:{_BOUNDARY}|{_ESCAPES}){_ANY}")
_KINDS: Final = tuple((kind, re.compile("|".join(row))) for kind, row in ROWS)
_LOOSE: Final = tuple(
    (needle, tuple((kind, re.compile(pattern)) for other, kind, pattern in LOOSE if other == needle))
    for needle in dict.fromkeys(row[0] for row in LOOSE)
)


def redact_tokens(text: str, sentinels: Sentinels) -> str:
    """Replace every provider token."""
    for needle, rows in _LOOSE:
        if needle in text:
            for kind, pattern in rows:
                text = pattern.sub(sentinels.redacted(kind), text)
    tokens = _ESCAPED_TOKENS if "\\" in text or "%" in text else _TOKENS
    shape = text.encode("latin-1", "replace").translate(_SHAPE)
    pieces: list[str] = []
    done = 0
    run = shape.find(_LONG_RUN)
    while run >= 0:
        end = shape.find(b" ", run)
        end = len(text) if end < 0 else end
        # A run without a digit is tried only at its start: most such runs are names in code.
        if _NAMES_IN_CODE.match(text, run, end):
            found = None
        else:
            found = (tokens.search if _DIGIT.search(text, run, end) else tokens.match)(text, run, end)
        while found:
            pieces += (text[done : found.start()], sentinels.redacted(_kind_of(text, found.start(), end)))
            done = found.end()
            found = tokens.search(text, done, end)
        run = shape.find(_LONG_RUN, end)
    if not pieces:
        return text
    pieces.append(text[done:])
    return "".join(pieces)


def _kind_of(text: str, start: int, end: int) -> str:
    """Return the kind of the token at `start`: that of the first row that matches there.

    `end` is the end of the run, not of the token: a row may look ahead for a digit.
    """
    return next(kind for kind, row in _KINDS if row.match(text, start, end))
