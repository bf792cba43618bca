# SPDX-License-Identifier: Apache-2.0
"""Durations, sizes and counts: formatted, and durations parsed."""

from __future__ import annotations

import pytest

from redrive.core.units import (
    format_duration,
    format_size,
    instant,
    iso_text,
    parse_duration,
    plural,
    utc_text,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        (" 5 min ", 300),
        ("1.5H", 5_400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("900000000w", 900_000_000 * 604_800),
        ("", None),
        ("7", None),
        ("h", None),
        ("2x", None),
        ("-2h", None),
        ("soon", None),
        ("9999999999h", None),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.25 s"),
        (59, "59 s"),
        (90, "1.5 min"),
        (7_200, "2 h"),
        (864_000, "10 d"),
        (-90, "-1.5 min"),
        (86_400 * 5_000, "5,000 d"),
    ],
)
def test_a_duration_is_shown_in_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1_023, "1,023 B"), (2_048, "2 KiB"), (3 * 1024**2, "3 MiB"), (5 * 1024**4, "5 TiB")],
)
def test_a_size_is_shown_in_the_largest_unit_that_fits(count: float, text: str) -> None:
    assert format_size(count) == text


def test_an_instant_is_written_as_it_may_be_typed() -> None:
    assert [iso_text(at) for at in (0.0, 0.5)] == ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00.500000Z"]


def test_an_instant_in_a_sentence_has_its_zone() -> None:
    assert utc_text(instant(1.5)) == "1970-01-01 00:00:01 UTC"


def test_a_count_agrees_with_its_noun() -> None:
    assert [plural(count, "job") for count in (0, 1, 2_000)] == ["0 jobs", "1 job", "2,000 jobs"]
