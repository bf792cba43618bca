# SPDX-License-Identifier: Apache-2.0
"""Points in time as people type them: so long ago (`2h`), or a date, with or without a time; UTC unless it says otherwise."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError

_UNITS: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_AGO: Final = re.compile(r"(?P<count>\d{1,9}(?:\.\d{1,9})?) ?(?P<unit>s|m|min|h|d|w)")


def instant_from(text: str | None, field: str) -> float | None:
    """Return a point in time in seconds since the epoch, None for None; refuse what is none."""
    if text is None:
        return None
    given = text.strip()
    if (ago := _AGO.fullmatch(given)) is not None:
        return CURRENT.get().clock.wall() - float(ago["count"]) * _UNITS[ago["unit"]]
    try:
        at = datetime.fromisoformat(given)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ConfigurationError(
            field=field,
            value=text,
            rule="must be a time",
            fix="Give how long ago (30m, 2h, 7d) or an instant in UTC (2026-01-02, 2026-01-02T03:04).",
        ) from None
