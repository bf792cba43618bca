# SPDX-License-Identifier: Apache-2.0
"""Instants, durations, sizes and counts as people read and type them.

Rates are in `core.limit`; a table shows an instant in its own way, with how long ago it was (`cli.output.tables`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, cast

SECONDS: Final = {
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("m", "min", "minute"), 60.0),
    **dict.fromkeys(("h", "hour"), 3_600.0),
    "d": 86_400.0,
    "w": 604_800.0,
}
"""Seconds per unit of time, by the names that may be typed."""
LATEST: Final = 253402300799.0
"""The last second that a calendar can show; a job of a paused run is due later than that."""
_DURATION: Final = re.compile(r"(?P<count>\d{1,9}(?:\.\d{1,9})?)\s*(?P<unit>[a-z]+)")


def instant(at: object) -> datetime:
    """Return seconds since the epoch as an aware datetime; what no calendar can show becomes the last it can."""
    return datetime.fromtimestamp(min(cast("float", at), LATEST), UTC)


def iso_text(at: object) -> str:
    """Return seconds since the epoch as an instant that may be typed: `2026-01-02T03:04:05Z`, with the fraction if there is one."""
    return instant(at).isoformat().removesuffix("+00:00") + "Z"


def utc_text(at: datetime) -> str:
    """Return an instant in UTC as it stands in a sentence: `2026-01-02 03:04:05 UTC`."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def parse_duration(text: str) -> float | None:
    """Return `90s`, `15m`, `1.5h`, `30d` or `2w` in seconds; None for anything else, also for a number without a unit."""
    found = _DURATION.fullmatch(text.strip().lower())
    unit = None if found is None else SECONDS.get(found["unit"])
    return None if found is None or unit is None else float(found["count"]) * unit


def format_duration(seconds: float) -> str:
    """Return a duration in the largest unit that fits: `5.2 s`, `3 min`, `2 h`, `12 d`."""
    for unit in ("d", "h", "min"):
        if abs(seconds) >= SECONDS[unit]:
            return f"{_rounded(seconds / SECONDS[unit])} {unit}"
    return f"{seconds:.3g} s"


def format_size(count: float) -> str:
    """Return a number of bytes in the largest unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{_rounded(count)} {unit}"
        count /= 1024
    return f"{_rounded(count)} TiB"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `2,000 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _rounded(number: float) -> str:
    """Return a number with three digits, or as a whole one: `1.02`, `1,023`, never `1.02e+03`."""
    return f"{number:.3g}" if abs(number) < 100 else f"{number:,.0f}"
