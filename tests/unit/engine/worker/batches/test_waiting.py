# SPDX-License-Identifier: Apache-2.0
"""Jobs that wait for their call: how many more are claimed, who is marked or dropped, and the one timer they have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from redrive import Batch, Redrive
from redrive.engine.worker.batches.gathering import Gathering
from redrive.engine.worker.worker import Worker
from redrive.store.records import ClaimedJob, ClaimRequest, Exchange, ExchangeRequest
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import bounded, jobs, one_stage, passing, turns, until, worker_on, working

Claim = Callable[[Worker, int], list[ClaimedJob]]


@pytest.fixture
def claim(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> Claim:
    """Claim so many jobs for a worker that does not run."""
    store.start_worker("w1", clock.wall(), 3_600)
    tokens = iter(range(1, 100))

    def claimed(worker: Worker, count: int) -> list[ClaimedJob]:
        (lane,) = worker.lanes.values()
        rd.submit_many(lane.pipeline, range(count))
        want = ClaimRequest((lane.id,), count)
        asked = ExchangeRequest("w1", [], want, now=clock.wall(), token=next(tokens))
        return list(store.exchange(asked).claimed)

    return claimed


async def echo(numbers: list[int]) -> list[int]:
    return numbers


def waiting_for(store: SqliteStore, batch: Batch, **options: Any) -> tuple[Worker, Gathering]:
    worker = worker_on(store, one_stage(echo, batch=batch, **options))
    (gathering,) = worker.slots.gatherings.values()
    return worker, gathering


def suspect(job: ClaimedJob) -> ClaimedJob:
    return msgspec.structs.replace(job, suspects=2)


def timers() -> int:
    """Return how many tasks wait for a time."""
    return sum("Gathering._wake" in repr(task) for task in asyncio.all_tasks())


def test_no_more_is_claimed_than_fits_into_the_calls_that_the_stage_may_make_besides_those_it_makes(
    store: SqliteStore, claim: Claim
) -> None:
    async def scene() -> None:
        worker, gathering = waiting_for(store, Batch(size=4, wait=3_600), concurrency=3)
        assert gathering.room(8) == 12

        worker.slots.put(claim(worker, 5))

        assert (gathering.waiting, gathering.calls) == (1, 2)
        assert [gathering.room(slots) for slots in (8, 1, 0)] == [7, 3, 0]

    bounded(scene())


def test_a_suspect_waits_while_its_stage_is_at_its_limit_and_can_be_cancelled_and_dropped_there(
    store: SqliteStore, claim: Claim
) -> None:
    async def scene() -> None:
        worker, gathering = waiting_for(store, Batch(size=2, wait=3_600), concurrency=1)
        first, second, third = claim(worker, 3)

        worker.slots.put([first, second])
        worker.slots.put([suspect(third)])
        worker.slots.cancel([third.id])

        (waiting,) = gathering.jobs()
        assert (waiting.id, waiting.cancel_asked, gathering.calls) == (third.id, 1, 2)
        assert [job.id for job in worker.slots.drop_waiting()] == [third.id, first.id, second.id]
        assert worker.slots.is_empty
        assert gathering.calls == 0

    bounded(scene())


def test_the_first_job_waits_no_longer_because_others_come(
    store: SqliteStore, clock: VirtualClock, claim: Claim
) -> None:
    async def scene() -> None:
        worker, gathering = waiting_for(store, Batch(size=4, wait=10))
        began = clock.monotonic()
        worker.slots.put(claim(worker, 1))
        await clock.asleep(6)
        worker.slots.put(claim(worker, 1))

        await passing(clock, lambda: gathering.waiting == 0, step=0.5)

        assert clock.monotonic() - began == pytest.approx(10, abs=0.5)

    bounded(scene())


def test_there_is_one_timer_while_jobs_wait_and_none_when_their_call_is_full(
    store: SqliteStore, claim: Claim
) -> None:
    async def scene() -> None:
        worker, gathering = waiting_for(store, Batch(size=3, wait=3_600))
        for _ in range(2):
            worker.slots.put(claim(worker, 1))
            await turns()
            assert timers() == 1

        worker.slots.put(claim(worker, 1))

        await turns()
        assert (gathering.waiting, timers()) == (0, 0)

    bounded(scene())


def test_what_is_left_when_a_stage_was_at_its_limit_for_longer_than_the_wait_has_a_timer_again(
    store: SqliteStore, clock: VirtualClock, claim: Claim
) -> None:
    async def scene() -> None:
        worker, gathering = waiting_for(store, Batch(size=2, wait=10), concurrency=1)
        worker.slots.put(claim(worker, 5))
        await clock.asleep(11)
        await turns()
        assert (gathering.waiting, timers()) == (3, 0)

        gathering.call_ended()

        await turns()
        assert (gathering.waiting, timers()) == (1, 1)

    bounded(scene())


def test_there_is_no_timer_for_jobs_that_wait_only_for_the_limit_of_their_stage(
    store: SqliteStore, claim: Claim
) -> None:
    async def scene() -> None:
        worker, gathering = waiting_for(store, Batch(size=2, wait=0), concurrency=1)

        worker.slots.put(claim(worker, 3))

        await turns()
        assert (gathering.waiting, timers()) == (1, 0)

    bounded(scene())


def test_the_next_call_of_a_stage_at_its_limit_is_started_when_one_ends_and_not_with_its_commit(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, calls, running = asyncio.Event(), list[list[int]](), list[int]()

    async def wait(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        await gate.wait()
        return numbers

    pipeline = one_stage(wait, batch=Batch(size=2, wait=0), concurrency=1)
    rd.submit_many(pipeline, range(4))
    exchange = store.exchange

    async def scene() -> None:
        worker = worker_on(store, pipeline)
        worker.slots.lane_limits = lambda room: dict.fromkeys(worker.slots.gatherings, 4)  # type: ignore[method-assign]

        def spy(asked: ExchangeRequest) -> Exchange:
            if asked.done:
                running.append(worker.slots.running)
            return exchange(asked)

        monkeypatch.setattr(store, "exchange", spy)
        async with working(worker):
            await until(lambda: calls)
            gate.set()
            await until(lambda: jobs(store) == [("complete",)] * 4)

    bounded(scene())
    assert running[0] == 2


def test_a_call_that_could_not_be_started_however_often_takes_no_slot(
    store: SqliteStore, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_of: object, what: Any) -> None:
        if asyncio.iscoroutine(what):
            what.close()
        raise MemoryError

    async def scene() -> None:
        worker, _ = waiting_for(store, Batch(size=3))
        slots = worker.slots
        slots.put(claim(worker, 3))
        room = slots.room(0)
        for part, name in ((slots, "_start_task"), (slots._runner, "begin")):
            with monkeypatch.context() as broken_now:
                broken_now.setattr(part, name, broken)
                with pytest.raises(MemoryError):
                    slots.fill()
            assert (slots.running, slots.room(0)) == (0, room)

        slots.drop_waiting()

        assert slots.room(0) == room + 1
        assert slots._calls.call_of == {}

    bounded(scene())
