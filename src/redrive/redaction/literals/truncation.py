# SPDX-License-Identifier: Apache-2.0
"""Redact texts that were cut: literals in pieces, and secrets that began before a cut.

Half a secret is not recognised. A literal is searched in pieces, since its rest may be beyond the cut. A secret with a format or a
name is recognised by its beginning; so where the beginning of a text is cut off, the possible rest of a secret is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

PIECE: Final = 256
"""In a cut text, literals longer than this are searched in pieces."""

REST_MAX: Final = 9 * PIECE
"""The rest of a piece at a cut is shorter than this, in any encoding."""
NAME_MAX: Final = 200
"""How far before a quoted value its name may start."""

_SPACE: Final = re.compile(r"\s")
_MARK: Final = re.compile(r"<(?:payload|redacted):[^<>]*>")
_KEY_END: Final = re.compile(r"(?>(?:[A-Za-z0-9+/=]++|\s++|\\++[nrt])*)-{4,5} ?END [A-Z0-9 ]{0,60}-{4,5}")


def pieces_of(literals: Iterable[tuple[str, str]], read: int, *, is_start: bool) -> dict[str, str]:
    """Return pieces of long literals, as far as they can occur in a text of which `read` characters are redacted."""
    pieces: dict[str, str] = {}
    for literal, sentinel in literals:
        # Python escapes a quote only in a text with both kinds; a piece may lack one of them.
        is_escaped = "'" in literal and '"' in literal
        for piece in _cut(literal[:read] if is_start else literal[-read:], is_start=is_start):
            pieces.setdefault(piece, sentinel)
            if is_escaped:
                pieces.setdefault(repr(f"{piece}'\"")[1:-4], sentinel)
    return pieces


def _cut(text: str, *, is_start: bool) -> Iterator[str]:
    """Yield a long text in pieces, counted from the end that is certainly in the text.

    The last two pieces share the rest evenly. None is longer than the others: of two values with the same beginning, a longer
    piece of one would match first and leave the rest of the other's piece.
    """
    places = list(range(0, len(text), PIECE))
    places[-1] = (places[-2] + len(text)) // 2
    for start, end in zip(places, [*places[1:], len(text)], strict=True):
        yield text[start:end] if is_start else text[len(text) - end : len(text) - start]


def certain(part: str, *, is_start: bool) -> str:
    """Return a redacted part of a text without the text between the cut and the next placeholder, unless that is long.

    It may be a fragment of a piece that the cut splits. Two cuts usually reveal that, but not in a literal that repeats itself,
    where the same text may precede both.
    """
    marks = [mark.span() for mark in _MARK.finditer(part)]
    if not marks:
        return part
    kept = part[: marks[-1][1]] if is_start else part[marks[0][0] :]
    return kept if len(part) - len(kept) < REST_MAX else part


def common_start(one: str, other: str) -> str:
    """Return the common beginning of two texts."""
    pairs = zip(one, other, strict=False)
    differs = next((place for place, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
    return min(one, other, key=len) if differs is None else one[:differs]


def closed_from(text: str, since: int, cut: int, redact: Callable[[str], str]) -> int:
    """Return the position, at `cut` or later, from which a text contains no rest of a secret that began before `since`.

    That is after an unbroken run of characters, a private key, a line of cookies, or a quoted value that `redact` hides because
    of its beginning.
    """
    ends = [cut]
    if _SPACE.search(text, since, cut) is None:
        following = _SPACE.search(text, cut)
        ends.append(len(text) if following is None else following.start())
    if key := _KEY_END.match(text, cut):
        ends.append(key.end())
    line = text.rfind("\n", 0, cut) + 1
    if line <= since and max(text.rfind(name, line, since) for name in ("ookie:", "OOKIE:")) >= 0:
        following_line = text.find("\n", cut)
        ends.append(len(text) if following_line < 0 else following_line)
    for quote in "\"'":
        opening = _opening(text, quote, since)
        if opening is not None:
            ends.append(_quoted_until(text, opening, cut, redact))
    return max(ends)


def _opening(text: str, quote: str, since: int) -> re.Match[str] | None:
    """Return the last opening quote before a position, of 64; an opening quote follows punctuation or white space."""
    at = since
    for _ in range(64):
        at = text.rfind(quote, 0, at)
        if at < 0:
            return None
        # Matched together with the backslashes before it.
        before = text[max(0, at - NAME_MAX) : at]
        start = at - len(before) + len(before.rstrip("\\"))
        if not (name := before.rstrip("\\").rstrip("bBuUrRfF")) or name[-1] in " \t\r\n:=([{,":
            return re.compile(rf"\\*{quote}").match(text, start)
    return None


def _quoted_until(text: str, opening: re.Match[str], cut: int, redact: Callable[[str], str]) -> int:
    """Return the end of a quoted secret that is open at a cut; the cut itself when there is none."""
    closing = re.compile(rf"(?<!\\){re.escape(opening[0])}").search(text, opening.end())
    if closing is not None and closing.end() <= cut:
        return cut
    # The beginning is enough to decide whether its name makes it a secret.
    head = text[opening.end() : opening.end() + 1_024]
    name = text[max(0, opening.start() - NAME_MAX) : opening.start()]
    shown = redact(f"{name}{opening[0]}{head}{opening[0]}")
    if head[:32] in shown or head[-32:] in shown:
        return cut
    return len(text) if closing is None else closing.start()
