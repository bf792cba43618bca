# SPDX-License-Identifier: Apache-2.0
"""Limits on a batch stage: they count items or calls, by choice."""

from __future__ import annotations

from typing import Literal

import pytest

from redrive import Backoff, Batch, Limit, Redrive, RetryPolicy, Verdict
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from redrive.testing.faults import InjectedError
from tests.unit.build import jobs, one_stage, work


def calls_of(
    store: SqliteStore,
    rd: Redrive,
    clock: VirtualClock,
    limit: Limit,
    limit_by: Literal["items", "calls"],
    count: int,
) -> list[tuple[float, int]]:
    """Return when calls were made, and for how many jobs each."""
    calls: list[tuple[float, int]] = []
    began = clock.monotonic()

    async def embed(numbers: list[int]) -> list[int]:
        calls.append((clock.monotonic() - began, len(numbers)))
        return numbers

    pipeline = one_stage(embed, batch=Batch(size=4, wait=0.1, limit_by=limit_by), limits=limit)
    rd.submit_many(pipeline, range(count))
    work(store, pipeline)
    assert jobs(store, "DISTINCT status") == [("complete",)]
    return calls


def test_a_limit_counts_the_items_of_a_batch(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    calls = calls_of(store, rd, clock, Limit("api", rate=4, burst=4), "items", 20)

    ended_at, _ = calls[-1]
    assert sum(items for _, items in calls) == 20
    assert ended_at >= (20 - 4) / 4 - 1e-6


def test_or_its_calls(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    calls = calls_of(store, rd, clock, Limit("api", rate=4, burst=4), "calls", 64)

    # Sixteen full calls, or some more that were not full, at four a second.
    assert sum(items for _, items in calls) == 64
    for second in range(int(calls[-1][0]) + 1):
        assert sum(1 for at, _ in calls if at < second + 1) <= 4 + 4 * (second + 1) + 4
    assert calls[-1][0] < 64 / 4 - 1


def test_a_429_for_a_call_pauses_the_limit_for_all(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    calls: list[float] = []

    async def embed(numbers: list[int]) -> list[int]:
        calls.append(clock.monotonic())
        if len(calls) == 1:
            raise InjectedError("too many", Verdict.of("RATE_LIMITED", http_status=429, retry_after=30))
        return numbers

    pipeline = one_stage(
        embed,
        batch=Batch(size=4),
        limits=Limit("api", rate=100),
        retry=RetryPolicy(3, Backoff.fixed(0)),
    )
    rd.submit_many(pipeline, range(4))
    work(store, pipeline)

    assert jobs(store) == [("complete",)] * 4
    assert calls[1] - calls[0] >= 29.9


@pytest.mark.parametrize("limit_by", ["items", "calls"])
def test_a_limit_of_concurrency_counts_them_too(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, limit_by: Literal["items", "calls"]
) -> None:
    calls = calls_of(store, rd, clock, Limit("api", concurrency=2), limit_by, 12)

    assert sum(items for _, items in calls) == 12
    assert max(items for _, items in calls) == (2 if limit_by == "items" else 4)
