# SPDX-License-Identifier: Apache-2.0
"""What a batch is: its settings, its halves, and what one call proves."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Batch, ConfigurationError
from redrive.core.batch import evidence_of_call, halves
from redrive.core.breaker import Evidence


def test_a_batch_is_a_plain_value() -> None:
    assert Batch(size=64, wait=timedelta(milliseconds=50)) == Batch(size=64, wait=0.05)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"size": 0}, "Batch.size"),
        ({"size": "64"}, "Batch.size"),
        ({"size": 8, "wait": -1}, "Batch.wait"),
        ({"size": 8, "on_error": "halve"}, "Batch.on_error"),
        ({"size": 8, "limit_by": "jobs"}, "Batch.limit_by"),
    ],
)
def test_wrong_settings_are_refused_by_name(options: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Batch(**options)  # type: ignore[arg-type]

    assert caught.value.field == field


def test_a_full_call_counts_once_or_once_for_each_item() -> None:
    assert Batch(size=64).items_per_count == 1
    assert Batch(size=64, limit_by="calls").items_per_count == 64


@given(st.lists(st.integers(), min_size=2))
def test_halves_lose_nothing_keep_the_order_and_are_both_smaller(items: list[int]) -> None:
    first, second = halves(items)

    assert first + second == items
    assert 0 < len(second) <= len(first) < len(items)


@pytest.mark.parametrize(
    ("found", "proved"),
    [
        ([Evidence.DOWN, Evidence.ALIVE, Evidence.NOTHING], Evidence.ALIVE),
        ([Evidence.DOWN, Evidence.NOTHING], Evidence.DOWN),
        ([Evidence.NOTHING], Evidence.NOTHING),
        ([], Evidence.NOTHING),
    ],
)
def test_a_call_that_served_any_item_proves_its_dependency_alive(
    found: list[Evidence], proved: Evidence
) -> None:
    assert evidence_of_call(found) is proved
