# SPDX-License-Identifier: Apache-2.0
"""Decide about many secret names in one long text, about each repetition only once.

A text built to be slow repeats itself: `password: ` a hundred thousand times. The decision about a name depends on a window around
it, and is cached for identical windows. The window is wider than any decision looks back; where a value reaches its end, the whole
text is used instead. The cache lives for one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from redrive.redaction.named.spans import BARE_MAX, Span

REPEATS_FROM: Final = 1_000
"""With fewer names in a text, caching costs more than deciding."""

BACK: Final = 512
"""More than a decision ever looks back: a name, and the start of its line and of the line above."""

AHEAD: Final = 768
"""How much of a value fits in a window; longer ones are decided in the whole text."""

UNSEEN_MAX: Final = 64
"""After this many new windows in a row the text does not repeat itself here, and caching pauses."""

UNREPEATED: Final = 512
"""The length of the first pause, in names; each further pause is twice as long."""

UNREPEATED_MAX: Final = 8_192
"""The longest pause, so that a late repetition is still detected."""

_QUOTES: Final = ('"', "'", "`")


class NameDecision(NamedTuple):
    """The decision about a name."""

    looked_at: int
    """The end of the name, so that the stems inside it are skipped."""
    value: int
    """The possible start of a value."""
    found: tuple[Span, str] | None


DecideName = Callable[[str, int, int], NameDecision]
"""Decides about the name around a hit. Arguments: the text, how far back the name may start, the hit."""


class _Window:
    """A window with its decision, and the window that followed it."""

    __slots__ = ("decided", "floor", "followed_by", "hit", "text")

    def __init__(self, text: str, floor: int, hit: int, decided: NameDecision) -> None:
        self.text = text
        self.floor = floor
        self.hit = hit
        self.decided = decided
        self.followed_by: _Window | None = None


class NameCache:
    """Decides about names with a cache, for one text."""

    __slots__ = ("_decide", "_last", "_pause", "_seen", "_skips", "_text", "_unseen", "decided")

    def __init__(self, text: str, decide: DecideName) -> None:
        self._text = text
        self._decide = decide
        self.decided = 0
        """How many names were decided without the cache."""
        self._unseen = 0
        self._skips = 0
        self._pause = UNREPEATED
        self._seen: dict[tuple[str, int, int], _Window] = {}
        self._last = _Window("", 0, 0, NameDecision(0, 0, None))

    def decide(self, floor: int, hit: int) -> NameDecision:
        """Return the decision about this hit, in positions of the whole text."""
        if self._skips:
            self._skips -= 1
            self.decided += 1
            return self._decide(self._text, floor, hit)
        if self._unseen >= UNSEEN_MAX:
            self._skips = self._pause
            self._pause = min(self._pause * 2, UNREPEATED_MAX)
            self._unseen = 0
        low = hit - BACK if hit > BACK else 0
        seen = self._last.followed_by
        # The same window mostly follows again: comparing costs less than slicing and looking up.
        if (
            seen is None
            or seen.floor != floor - low
            or seen.hit != hit - low
            or not self._text.startswith(seen.text, low)
        ):
            seen = self._looked_up(low, floor, hit)
            if seen is None:
                return self._decide(self._text, floor, hit)
            self._last.followed_by = seen
        self._last = seen
        return _moved(seen.decided, low)

    def _looked_up(self, low: int, floor: int, hit: int) -> _Window | None:
        """Return the window around a hit with its decision; None when the window is too narrow to decide."""
        window = self._text[low : hit + AHEAD]
        key = (window, floor - low, hit - low)
        if key in self._seen:
            self._unseen = 0
            self._pause = UNREPEATED
            return self._seen[key]
        self._unseen += 1
        self.decided += 1
        decided = self._decide(window, floor - low, hit - low)
        if self._is_cut(window, decided, hit + AHEAD):
            return None
        seen = self._seen[key] = _Window(window, floor - low, hit - low, decided)
        return seen

    def _is_cut(self, window: str, decided: NameDecision, end: int) -> bool:
        """Return whether the end of the window, rather than of the text, may have affected the decision."""
        if end >= len(self._text):
            return False
        reach = decided.value if decided.found is None else decided.found[0].end
        if reach > len(window) - BARE_MAX - 2:
            return True
        opening = window[decided.value : decided.value + 1]
        return decided.found is None and opening in _QUOTES and opening not in window[decided.value + 1 : -2]


def _moved(decided: NameDecision, by: int) -> NameDecision:
    found = decided.found
    if found is not None:
        span, kind = found
        found = (Span(span.start + by, span.end + by, span.quoted), kind)
    return NameDecision(decided.looked_at + by, decided.value + by, found)
