# SPDX-License-Identifier: Apache-2.0
"""Judging many telling names in one long text, each repetition only once.

A text made to be slow repeats itself: `password: ` a hundred thousand times. Each name is judged within a window around it, and
what was decided for a window is kept for the next one that reads the same. The window is wider than anything a judgement looks
back at; where a value reaches its end, the whole text is read instead. Nothing is kept beyond one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from redrive.redaction.named.spans import BARE_MAX, Span

REPEATS_FROM: Final = 1_000
"""With fewer names than this in a text, remembering them costs more than judging them."""

BACK: Final = 512
"""More than a judgement ever looks back: a name, and the start of its line and of the line above."""

AHEAD: Final = 768
"""As much of a value as is judged within a window; longer ones are read in the text itself."""

UNSEEN_MAX: Final = 64
"""After so many new windows in a row the text does not repeat itself here, and remembering is a waste."""

UNREPEATED: Final = 512
"""As many names are then judged in the text itself before repetition is looked for again; twice as many the next time."""

UNREPEATED_MAX: Final = 8_192
"""And so on up to this: a text that begins to repeat itself late is noticed late, but noticed."""

_QUOTES: Final = ('"', "'", "`")


class Judged(NamedTuple):
    """What was found at a name."""

    looked_at: int
    """Where the name ends, so that the stems inside it need not be looked at again."""
    value: int
    """Where a value could start."""
    found: tuple[Span, str] | None


Judge = Callable[[str, int, int], Judged]
"""Judges the name around a hit: text, how far back the name may reach, hit."""


class _Window:
    """A window that was judged, and the one that followed it."""

    __slots__ = ("floor", "followed_by", "hit", "judged", "text")

    def __init__(self, text: str, floor: int, hit: int, judged: Judged) -> None:
        self.text = text
        self.floor = floor
        self.hit = hit
        self.judged = judged
        self.followed_by: _Window | None = None


class Repeats:
    """A judge that remembers, for one text."""

    __slots__ = ("_apart", "_judge", "_last", "_pause", "_seen", "_text", "_unseen", "judged")

    def __init__(self, text: str, judge: Judge) -> None:
        self._text = text
        self._judge = judge
        self.judged = 0
        """How many names were judged, those apart that read like one before."""
        self._unseen = 0
        self._apart = 0
        self._pause = UNREPEATED
        self._seen: dict[tuple[str, int, int], _Window] = {}
        self._last = _Window("", 0, 0, Judged(0, 0, None))

    def judge(self, floor: int, hit: int) -> Judged:
        """Return what the judge says about this hit, in positions of the whole text."""
        if self._apart:
            self._apart -= 1
            self.judged += 1
            return self._judge(self._text, floor, hit)
        if self._unseen >= UNSEEN_MAX:
            self._apart = self._pause
            self._pause = min(self._pause * 2, UNREPEATED_MAX)
            self._unseen = 0
        low = hit - BACK if hit > BACK else 0
        seen = self._last.followed_by
        # What followed this window before mostly follows it again: to compare costs less than to cut out and look up.
        if (
            seen is None
            or seen.floor != floor - low
            or seen.hit != hit - low
            or not self._text.startswith(seen.text, low)
        ):
            seen = self._looked_up(low, floor, hit)
            if seen is None:
                return self._judge(self._text, floor, hit)
            self._last.followed_by = seen
        self._last = seen
        return _moved(seen.judged, low)

    def _looked_up(self, low: int, floor: int, hit: int) -> _Window | None:
        """Return the window around a hit, judged now or before; None when the window is too narrow to judge in."""
        window = self._text[low : hit + AHEAD]
        key = (window, floor - low, hit - low)
        if key in self._seen:
            self._unseen = 0
            self._pause = UNREPEATED
            return self._seen[key]
        self._unseen += 1
        self.judged += 1
        judged = self._judge(window, floor - low, hit - low)
        if self._is_cut(window, judged, hit + AHEAD):
            return None
        seen = self._seen[key] = _Window(window, floor - low, hit - low, judged)
        return seen

    def _is_cut(self, window: str, judged: Judged, end: int) -> bool:
        """Tell whether the end of the window, rather than of the text, may have decided."""
        if end >= len(self._text):
            return False
        reach = judged.value if judged.found is None else judged.found[0].end
        if reach > len(window) - BARE_MAX - 2:
            return True
        opening = window[judged.value : judged.value + 1]
        return judged.found is None and opening in _QUOTES and opening not in window[judged.value + 1 : -2]


def _moved(judged: Judged, by: int) -> Judged:
    found = judged.found
    if found is not None:
        span, kind = found
        found = (Span(span.start + by, span.end + by, span.quoted), kind)
    return Judged(judged.looked_at + by, judged.value + by, found)
