# SPDX-License-Identifier: Apache-2.0
"""Gathering jobs for a call: until there are enough or the first has waited, in no slot, and with no timer when nothing waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from redrive import Batch, Pipeline, Redrive, stage
from redrive.engine.worker import slots
from redrive.engine.worker.batches.gathering import Gathering
from redrive.engine.worker.worker import Worker
from redrive.store.records import ClaimRequest, ExchangeRequest, JobId
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import (
    attempts,
    bounded,
    jobs,
    leases_of,
    one_stage,
    passing,
    threaded_parts,
    until,
    work,
    worker_on,
    working,
)


def gatherings(worker: Worker) -> list[Gathering]:
    return list(worker.slots.gatherings.values())


def held_at(gate: asyncio.Event, calls: list[list[int]]) -> Callable[[list[int]], Awaitable[list[int]]]:
    """Build a function whose calls wait at a gate."""

    async def wait(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        await gate.wait()
        return numbers

    return wait


def test_a_full_batch_starts_at_once_and_the_rest_after_the_wait(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    calls: list[tuple[float, int]] = []
    began = clock.monotonic()

    async def embed(numbers: list[int]) -> list[int]:
        calls.append((clock.monotonic() - began, len(numbers)))
        return numbers

    pipeline = one_stage(embed, batch=Batch(size=4, wait=0.5))
    rd.submit_many(pipeline, range(6))
    work(store, pipeline)

    assert calls == [(0, 4), (pytest.approx(0.5), 2)]
    assert jobs(store) == [("complete",)] * 6


def test_without_a_wait_what_was_claimed_together_is_called_together(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    calls: list[int] = []

    async def embed(numbers: list[int]) -> list[int]:
        calls.append(len(numbers))
        return numbers

    pipeline = one_stage(embed, batch=Batch(size=4, wait=0))
    rd.submit_many(pipeline, range(6))
    work(store, pipeline)

    assert calls == [4, 2]
    assert clock.waits == []


def test_a_call_has_one_slot_and_nothing_is_claimed_for_which_there_is_none(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    gate, calls = asyncio.Event(), list[list[int]]()
    pipeline = one_stage(held_at(gate, calls), batch=Batch(size=4))
    rd.submit_many(pipeline, range(40))

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=2)
        async with working(worker):
            await until(lambda: len(calls) == 2)
            assert worker.slots.room(0) == 0
            assert worker.slots.running == 8
            assert store.read("SELECT count(*) FROM jobs WHERE status = 'processing'") == [(8,)]
            gate.set()
            await until(lambda: jobs(store, "DISTINCT status") == [("complete",)])
            assert worker.slots.room(0) == 2

    bounded(scene())
    assert [len(call) for call in calls] == [4] * 10


def test_other_stages_keep_their_slots_while_jobs_are_gathered(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """One slot, and a batch that fills only when the stage before it has run for each job."""
    calls: list[int] = []

    @stage
    def first(number: int) -> int:
        return number

    @stage(batch=Batch(size=5, wait=3600))
    def embed(numbers: list[int]) -> list[int]:
        calls.append(len(numbers))
        return numbers

    pipeline = Pipeline("shop", [first, embed])
    rd.submit_many(pipeline, range(5))
    work(store, pipeline, concurrency=1)

    assert calls == [5]


def test_the_limit_of_the_stage_counts_calls(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    gate, calls = asyncio.Event(), list[list[int]]()
    pipeline = one_stage(held_at(gate, calls), batch=Batch(size=4, wait=0.5), concurrency=1)
    rd.submit_many(pipeline, range(2))

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=8)
        async with working(worker):
            await passing(clock, lambda: calls, step=0.1)
            rd.submit_many(pipeline, range(2, 8))
            worker.wake()
            await passing(clock, lambda: clock.monotonic() > 7_005)
            assert calls == [[0, 1]]
            gate.set()
            await passing(clock, lambda: jobs(store, "DISTINCT status") == [("complete",)], step=0.1)

    bounded(scene())
    assert [len(call) for call in calls] == [2, 4, 2]


def test_what_arrives_for_a_stage_that_is_at_its_limit_waits_for_the_call_before(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    gate, calls = asyncio.Event(), list[list[int]]()
    pipeline = one_stage(held_at(gate, calls), batch=Batch(size=2, wait=0), concurrency=1)
    rd.submit_many(pipeline, range(4))

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=8)
        worker.slots.lane_limits = lambda room: dict.fromkeys(worker.slots.gatherings, 4)  # type: ignore[method-assign]
        async with working(worker):
            await until(lambda: calls)
            assert gatherings(worker)[0].waiting == 2
            gate.set()
            await until(lambda: jobs(store, "DISTINCT status") == [("complete",)])

    bounded(scene())
    assert calls == [[0, 1], [2, 3]]


def test_a_suspect_is_called_alone(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    calls: list[list[int]] = []

    async def embed(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        return numbers

    pipeline = one_stage(embed, batch=Batch(size=4))
    rd.submit_many(pipeline, range(5))
    store._db.execute("UPDATE jobs SET suspect_count = 2 WHERE id = 2")
    work(store, pipeline)

    assert sorted(calls) == [[0, 2, 3, 4], [1]]


def test_a_worker_that_stops_releases_what_it_has_gathered_and_no_timer_is_left(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = one_stage(held_at(asyncio.Event(), []), batch=Batch(size=4, wait=3600))
    rd.submit_many(pipeline, range(2))

    async def scene() -> None:
        worker = worker_on(store, pipeline)
        task = asyncio.ensure_future(worker.run())
        (gathering,) = gatherings(worker)
        await until(lambda: gathering.waiting == 2)
        assert not worker.slots.is_empty
        assert len(worker.slots.jobs()) == 2
        assert gathering._timer is not None
        worker.stop()
        await task
        assert gathering._timer is None

    bounded(scene())
    assert jobs(store, "status, attempt, suspect_count") == [("queued", 1, 0)] * 2


def test_a_job_that_is_cancelled_while_it_is_gathered_or_waits_for_a_slot_never_runs(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    gate, calls = asyncio.Event(), list[list[int]]()
    pipeline = one_stage(held_at(gate, calls), batch=Batch(size=2, wait=50))
    made = [rd.submit(pipeline, number) for number in range(5)]

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=1)
        worker._prefetch.count = 1
        leases = leases_of(store, clock, worker)
        async with working(worker):
            await until(lambda: len(calls) == 1)
            want = ClaimRequest(tuple(worker.lanes), 3)
            worker.slots.put(
                store.exchange(ExchangeRequest(worker.name, [], want, now=clock.wall(), token=99)).claimed
            )
            for job in (made[0], made[2], made[4]):
                rd.jobs.cancel(job.id)
            leases.beat(worker.name)
            await until(lambda: worker.slots._running[JobId(made[0].id)].context.is_cancelled)
            gate.set()
            await passing(clock, lambda: made[4].status == "cancelled")

    bounded(scene())
    # The first was running: its call ends for the others, and it is complete because this was its last stage.
    assert calls == [[0, 1], [3]]
    assert jobs(store) == [("complete",), ("complete",), ("cancelled",), ("complete",), ("cancelled",)]


def test_a_cancelled_job_of_a_running_call_is_settled_when_the_call_ends(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    gate, calls = asyncio.Event(), list[list[int]]()

    @stage
    def last(number: int) -> int:
        return number

    pipeline = Pipeline("shop", [stage(batch=Batch(size=2))(held_at(gate, calls)), last])
    made = [rd.submit(pipeline, number) for number in range(2)]

    async def scene() -> None:
        worker = worker_on(store, pipeline)
        leases = leases_of(store, clock, worker)
        async with working(worker):
            await until(lambda: calls)
            rd.jobs.cancel(made[0].id)
            leases.beat(worker.name)
            await until(lambda: worker.slots._running[JobId(made[0].id)].context.is_cancelled)
            assert made[0].status == "processing"
            gate.set()
            await until(lambda: made[1].status == "complete")
            assert made[0].status == "cancelled"

    bounded(scene())
    assert calls == [[0, 1]]


def test_a_run_of_a_call_that_is_cut_off_is_recorded_for_each_job_and_burns_nothing(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    calls: list[list[int]] = []
    pipeline = one_stage(held_at(asyncio.Event(), calls), batch=Batch(size=2))
    rd.submit_many(pipeline, range(2))

    async def scene() -> None:
        worker = worker_on(store, pipeline)
        async with working(worker):
            await until(lambda: calls)

    bounded(scene())
    assert attempts(store, "outcome, burned") == [("crashed", 0)] * 2
    assert jobs(store, "status, attempt") == [("queued", 1)] * 2


def test_a_call_that_cannot_be_cancelled_keeps_one_slot_until_it_ends(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "GRACE_SECONDS", 0.01)
    gates: list[asyncio.Event] = []

    async def stubborn(numbers: list[int]) -> list[int]:
        gate = asyncio.Event()
        gates.append(gate)
        while True:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                if len(gates) > 1:
                    raise
            else:
                return numbers

    pipeline = one_stage(stubborn, batch=Batch(size=3, on_error="split"))
    rd.submit_many(pipeline, range(3))

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=4)
        async with working(worker):
            await until(lambda: len(gates) == 1)
            before = worker.name
            store.reap(clock.wall() + 1_000)
            worker.declare_dead(worker.name)
            await until(lambda: worker.name != before and len(gates) == 2)
            assert worker.slots.room(0) == 2
            gates[0].set()
            await until(lambda: worker.slots.room(0) == 3)
            gates[1].set()
            await until(lambda: jobs(store) == [("complete",)] * 3)
            assert worker.slots.room(0) == 4
            assert worker.slots._in_use == dict.fromkeys(worker.lanes, 0)

    bounded(scene())
    assert attempts(store) == [("crashed",)] * 3 + [("ok",)] * 3


def test_a_thread_that_outlives_its_worker_keeps_one_slot_and_what_it_returns_is_ignored(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    gates = [threading.Event(), threading.Event()]
    calls: list[list[int]] = []

    def blocked(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        assert gates[len(calls) - 1].wait(20)
        return numbers

    pipeline = one_stage(blocked, batch=Batch(size=3))
    rd.submit_many(pipeline, range(3))

    async def scene() -> None:
        worker = worker_on(store, pipeline, parts=threaded_parts(), concurrency=4)
        async with working(worker):
            await until(lambda: len(calls) == 1)
            before = worker.name
            store.reap(clock.wall() + 1_000)
            worker.declare_dead(worker.name)
            await until(lambda: worker.name != before and len(calls) == 2)
            assert worker.slots.room(0) == 2
            gates[0].set()
            await until(lambda: worker.slots.room(0) == 3)
            assert jobs(store) == [("processing",)] * 3
            gates[1].set()
            await until(lambda: jobs(store) == [("complete",)] * 3)

    bounded(scene())


def test_a_budget_of_leases_bounds_what_is_gathered(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    calls: list[int] = []

    async def embed(numbers: list[int]) -> list[int]:
        calls.append(len(numbers))
        return numbers

    pipeline = one_stage(embed, batch=Batch(size=8, wait=0.1))
    rd.submit_many(pipeline, range(12))
    work(store, pipeline, leased_max=lambda: 3)

    assert calls == [3] * 4


def test_a_call_that_cannot_be_started_waits_on(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    tries: list[int] = []

    async def embed(numbers: list[int]) -> list[int]:
        return numbers

    pipeline = one_stage(embed, batch=Batch(size=2))
    rd.submit_many(pipeline, range(2))

    async def scene() -> None:
        worker = worker_on(store, pipeline)
        plain = worker.slots._start_task

        def broken(*args: object) -> None:
            tries.append(1)
            if len(tries) == 1:
                args[1].close()  # type: ignore[attr-defined]
                raise MemoryError
            plain(*args)  # type: ignore[arg-type]

        worker.slots._start_task = broken  # type: ignore[method-assign, assignment]
        with pytest.raises(MemoryError):
            await worker.run(until_idle=True)
        assert worker.slots.room(0) == 64

    bounded(scene())
    assert jobs(store) == [("queued",)] * 2
