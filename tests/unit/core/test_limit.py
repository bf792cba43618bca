# SPDX-License-Identifier: Apache-2.0
"""Limits as values: which are accepted, how rates are read and written, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.limit import Limit, parse_rate, rate_text
from redrive.errors import ConfigurationError


@pytest.mark.parametrize(
    ("given", "per_second"),
    [
        ("500/min", 500 / 60),
        ("10/s", 10),
        (" 2.5 / second ", 2.5),
        ("7200/hour", 2),
        ("86400/day", 1),
        (3, 3.0),
    ],
)
def test_a_rate_is_read_as_a_number_per_second(given: str | float, per_second: float) -> None:
    assert Limit("api", rate=given).rate == pytest.approx(per_second)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(500 / 60, "500/min"), (10, "10/s"), (1 / 3600, "1/hour"), (1 / 86400, "1/day"), (2.5, "150/min"),
     (7.123456, "7.12/s"), (0.0612345, "3.67/min"), (0.00012345, "0.444/hour")],
)  # fmt: skip
def test_a_rate_is_written_in_the_shortest_unit_that_fits(rate: float, text: str) -> None:
    assert rate_text(rate) == text


@pytest.mark.untraced
@given(st.floats(1e-5, 1e6))
def test_a_written_rate_is_read_back_nearly_as_it_was(rate: float) -> None:
    assert parse_rate("rate", rate_text(rate)) == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "something to limit"),
        ({"rate": "fast"}, "rate such as"),
        ({"rate": "5/fortnight"}, "rate such as"),
        ({"rate": "10"}, "Give its unit"),
        ({"rate": "inf/s"}, "Give its unit"),
        ({"rate": 0}, "number per second, above 0"),
        ({"rate": "0/min"}, "above 0"),
        ({"rate": True}, "rate such as"),
        ({"rate": float("nan")}, "rate such as"),
        ({"rate": 1e10}, "at most"),
        ({"concurrency": 0}, "at least 1"),
        ({"concurrency": 2.5}, "whole number"),
        ({"rate": 1, "burst": 0}, "at least 1"),
        ({"rate": 1, "burst": "ten"}, "at least 1"),
        ({"concurrency": 1, "burst": 5}, "belongs to a rate"),
        ({"rate": 1, "cost": 5}, "must be a function"),
        ({"rate": 1, "key": "owner"}, "must be a function"),
        ({"concurrency": 1, "cost": len}, "counts against a rate"),
        ({"adaptive": "yes"}, "True or False"),
    ],
)
def test_a_wrong_limit_is_refused_with_what_is_wrong(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        Limit("api", **options)


@pytest.mark.parametrize("name", ["", "  ", 5, "a\nb", "x" * 101])
def test_a_limit_needs_a_name_that_can_be_printed(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="printable"):
        Limit(name, rate=1)


def test_an_adaptive_limit_needs_no_rate() -> None:
    limit = Limit("api", adaptive=True)

    assert limit.is_metered
    assert limit.rate is None
