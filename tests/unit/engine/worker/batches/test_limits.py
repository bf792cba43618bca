# SPDX-License-Identifier: Apache-2.0
"""Limits on a batch stage: they count items or calls, by choice."""

from __future__ import annotations

from typing import Literal

import pytest

from redrive import Backoff, Batch, Context, Limit, Redrive, RetryPolicy, Verdict
from redrive.engine.limits.meter import DECODE_LIMIT
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.slots import WorkerParts
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import workers as worker_sql
from redrive.testing import VirtualClock
from redrive.testing.faults import InjectedError
from tests.inline import InlineThreads, NoProcesses, at_once
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


def tokens_of(store: SqliteStore) -> float | None:
    """Return how many tokens the limit has left."""
    (raw,) = store.query(worker_sql.limit(name="api", key=""))
    return DECODE_LIMIT(raw).tokens


def test_what_the_items_of_halves_used_is_counted_besides_nothing_else(
    store: SqliteStore, rd: Redrive
) -> None:
    """Each half is a call of its own, of which its items have a share; the call that failed was paid with the claim."""

    async def embed(numbers: list[int], contexts: list[Context]) -> list[int]:
        for ctx in contexts:
            ctx.used("api", 2.0)
        if len(numbers) == 4:
            raise ValueError("too many at once")
        return numbers

    limit = Limit("api", rate="1/day", burst=100)
    pipeline = one_stage(embed, batch=Batch(size=4, limit_by="calls", on_error="split"), limits=limit)
    rd.submit_many(pipeline, range(4))
    work(store, pipeline)

    assert jobs(store) == [("complete",)] * 4
    assert tokens_of(store) == pytest.approx(100.0 - (4 + 2 + 2) * 2.0, abs=1e-3)


class Apart(NoProcesses):
    """Pretends to run every stage in a process."""

    def can_run(self, _lane: Lane) -> bool:
        return True

    async def run(self, dispatch: Dispatch, *, is_alone: bool) -> bytes:  # type: ignore[override]
        assert is_alone
        return dispatch.job.input


def test_a_call_for_a_suspect_in_a_process_of_its_own_counts_as_much_as_a_full_one(
    store: SqliteStore, rd: Redrive
) -> None:
    async def embed(numbers: list[int]) -> list[int]:
        return numbers

    limit = Limit("api", rate="1/day", burst=100)
    pipeline = one_stage(embed, batch=Batch(size=4, limit_by="calls"), limits=limit)
    rd.submit(pipeline, 1)
    store._db.execute("UPDATE jobs SET suspect_count = 2")
    work(store, pipeline, parts=WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=Apart()))

    assert jobs(store) == [("complete",)]
    assert tokens_of(store) == pytest.approx(99.0, abs=1e-3)
