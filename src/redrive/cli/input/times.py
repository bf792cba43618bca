# SPDX-License-Identifier: Apache-2.0
"""Durations and instants as they are typed. What cannot be read is refused, with examples."""

from __future__ import annotations

from datetime import UTC, datetime

from redrive.core.units import instant, parse_duration
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError


def duration(option: str, text: str) -> float:
    """Return `90s`, `15m`, `12h`, `30d` or `2w` in seconds. A number without a unit is refused as ambiguous."""
    seconds = parse_duration(text)
    if seconds is None:
        raise ConfigurationError(
            field=option, value=text, rule="must be a duration with a unit", fix="90s, 15m, 12h, 30d or 2w."
        )
    return seconds


def future_instant(option: str, text: str) -> datetime:
    """Return an ISO instant with its zone, or `+15m` from now."""
    if text.startswith("+"):
        return instant(CURRENT.get().clock.wall() + duration(option, text[1:]))
    at = _iso(text)
    if at is None or at.tzinfo is None:
        raise ConfigurationError(
            field=option,
            value=text,
            rule="must be an instant with its time zone",
            fix="2026-03-01T08:00:00+01:00, 2026-03-01T07:00:00Z, or +15m from now.",
        )
    return at


def past_instant(option: str, text: str | None) -> float | None:
    """Return `2h` ago, or an ISO date or instant (UTC unless it has a zone), in seconds since the epoch; None for None."""
    if text is None:
        return None
    ago = parse_duration(text)
    if ago is not None:
        return CURRENT.get().clock.wall() - ago
    at = _iso(text.strip())
    if at is None:
        raise ConfigurationError(
            field=option,
            value=text,
            rule="must be a time",
            fix="A time ago (30m, 2h, 7d) or an instant in UTC (2026-01-02, 2026-01-02T03:04).",
        )
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
