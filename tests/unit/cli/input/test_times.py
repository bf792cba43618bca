# SPDX-License-Identifier: Apache-2.0
"""Durations and instants as they are typed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redrive.cli.input.times import duration, future_instant, past_instant
from redrive.errors import ConfigurationError
from redrive.testing import VirtualClock


def test_a_duration_has_its_unit() -> None:
    assert [duration("--complete", text) for text in ("90s", "15m", "2w")] == [90.0, 900.0, 1_209_600.0]


def test_a_past_instant_is_a_time_ago_a_date_or_an_instant(clock: VirtualClock) -> None:
    now = clock.wall()

    assert past_instant("--since", "5 min") == pytest.approx(now - 300)
    assert past_instant("--since", "1.5h") == pytest.approx(now - 5_400)
    assert past_instant("--since", "2026-01-02") == 1767312000.0
    assert past_instant("--since", "20260102") == 1767312000.0
    assert past_instant("--since", "2026-01-02T00:00+01:00") == 1767308400.0
    assert past_instant("--since", None) is None


def test_a_future_instant_has_its_time_zone_or_is_relative(clock: VirtualClock) -> None:
    later = datetime.fromtimestamp(clock.wall() + 900, UTC)

    assert future_instant("--run-at", "+15m") == later
    assert future_instant("--run-at", "2026-03-01T07:00:00Z") == datetime(2026, 3, 1, 7, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "30", "1.5", "2x", "-2h", "h", "tomorrow", "2026-13-01", "9999999999h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="must be a time"):
        past_instant("--since", text)
    with pytest.raises(ConfigurationError, match="must be a duration"):
        duration("--complete", text)


@pytest.mark.parametrize("text", ["soon", "2026-03-01T08:00:00", "+soon"])
def test_an_instant_without_its_time_zone_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="must be"):
        future_instant("--run-at", text)
