# SPDX-License-Identifier: Apache-2.0
"""Runs that outlive their worker's death: what they do later counts for nothing, and takes nothing from the job's next run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from redrive import Breaker, Pipeline, Redrive, stage
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker import slots
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.processes import LostProcessError
from redrive.engine.worker.slots import WorkerParts
from redrive.engine.worker.worker import Worker
from redrive.store.records import Exchange, ExchangeRequest, JobId, Settlement
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import InlineThreads, NoProcesses, at_once
from tests.unit.build import (
    ONCE,
    STUCK_SECONDS,
    attempts,
    bounded,
    jobs,
    leases_of,
    one_stage,
    threaded_parts,
    turns,
    until,
    worker_on,
    working,
)
from tests.unit.engine.worker.batches.test_halves import Broken, OwnError

PLACES = 4


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that does not let itself be cancelled is left behind soon."""
    monkeypatch.setattr(slots, "GRACE_SECONDS", 0.01)


def stubborn_once(gates: list[asyncio.Event]) -> Callable[[int], Awaitable[int]]:
    """Build a stage whose runs wait at a gate each; the first one cannot be cancelled."""

    async def wait(number: int) -> int:
        gate = asyncio.Event()
        gates.append(gate)
        is_first = len(gates) == 1
        while True:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                if not is_first:
                    raise
            else:
                return number

    return wait


async def plain(number: int) -> int:
    return number


async def live_again(worker: Worker, store: SqliteStore, clock: VirtualClock) -> None:
    """Let a worker be declared dead by others, and continue under its next name."""
    before = worker.name
    store.reap(clock.wall() + 1_000)
    worker.declare_dead(worker.name)
    await until(lambda: worker.name != before)


async def left_behind(
    worker: Worker, store: SqliteStore, clock: VirtualClock, gates: list[asyncio.Event]
) -> None:
    """Let the first run of a job be left behind, and the second one begin."""
    await until(lambda: len(gates) == 1)
    await live_again(worker, store, clock)
    await until(lambda: len(gates) == 2)
    assert worker.slots.room(0) == PLACES - 2


def test_after_a_run_that_was_left_behind_has_ended_the_next_run_of_its_job_can_still_be_cancelled(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    gates: list[asyncio.Event] = []
    pipeline = one_stage(stubborn_once(gates))
    job = rd.submit(pipeline, 7)

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=PLACES)
        async with working(worker):
            await left_behind(worker, store, clock, gates)
            gates[0].set()
            await until(lambda: worker.slots.room(0) == PLACES - 1)
            rd.jobs.cancel(job.id)
            leases_of(store, clock, worker).beat(worker.name)
            await until(lambda: job.status == "cancelled")

    bounded(scene())
    assert attempts(store) == [("crashed",), ("cancelled",)]


def test_a_worker_looks_for_jobs_when_a_run_that_was_left_behind_has_freed_its_slot(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates: list[asyncio.Event] = []
    pipeline = one_stage(stubborn_once(gates))
    rd.submit(pipeline, 7)
    rooms: list[int] = []

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=PLACES)
        async with working(worker):
            await left_behind(worker, store, clock, gates)
            monkeypatch.setattr(worker.slots, "_on_room", lambda: rooms.append(worker.slots.room(0)))
            gates[0].set()
            await until(lambda: worker.slots.room(0) == PLACES - 1)

    bounded(scene())
    assert rooms[0] == PLACES - 1


def test_a_job_continues_when_a_run_that_was_left_behind_ends_together_with_its_next_run(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    gates: list[asyncio.Event] = []
    pipeline = Pipeline("shop", [stage(stubborn_once(gates)), stage(plain)])
    job = rd.submit(pipeline, 7)

    async def scene() -> int:
        worker = worker_on(store, pipeline, concurrency=PLACES)
        async with working(worker):
            await left_behind(worker, store, clock, gates)
            gates[1].set()
            gates[0].set()
            await until(lambda: job.status == "complete")
            return worker.slots.room(0)

    assert bounded(scene()) == PLACES
    assert attempts(store) == [("crashed",), ("ok",), ("ok",)]


@pytest.mark.parametrize("breaker", [None, Breaker("api", consecutive=5)], ids=["alone", "behind a breaker"])
def test_the_outcome_of_a_run_that_was_left_behind_is_not_even_sent(
    store: SqliteStore,
    rd: Redrive,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    breaker: Breaker | None,
) -> None:
    gates: list[asyncio.Event] = []
    pipeline = one_stage(stubborn_once(gates), breaker=breaker)
    job = rd.submit(pipeline, 7)
    committed: list[Settlement] = []

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=PLACES, on_commit=committed.extend)
        async with working(worker):
            await left_behind(worker, store, clock, gates)
            gates[0].set()
            await until(lambda: worker.slots.room(0) == PLACES - 1)
            gates[1].set()
            await until(lambda: job.status == "complete")

    bounded(scene())
    assert [each.job.dispatch for each in committed] == [2]
    assert "its lease was lost" not in caplog.text


def test_a_worker_that_was_declared_dead_twice_has_all_its_places_again(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    gates: list[asyncio.Event] = []
    pipeline = one_stage(stubborn_once(gates))
    job = rd.submit(pipeline, 7)

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=PLACES)
        async with working(worker):
            await left_behind(worker, store, clock, gates)
            gates[0].set()
            await until(lambda: worker.slots.room(0) == PLACES - 1)
            await live_again(worker, store, clock)
            await until(lambda: len(gates) == 3)
            gates[2].set()
            await until(lambda: job.status == "complete")
            await until(lambda: worker.slots.room(0) == PLACES)

    bounded(scene())
    assert attempts(store) == [("crashed",), ("crashed",), ("ok",)]


class DyingProcesses(NoProcesses):
    """Pretends to run stages in processes; the first of these dies when its worker does not have the job any more."""

    def __init__(self, gates: list[asyncio.Event]) -> None:
        self.run_first = stubborn_once(gates)
        self.runs = 0

    def can_run(self, _lane: Lane) -> bool:
        return True

    async def run(self, dispatch: Dispatch, *, is_alone: bool) -> bytes:  # type: ignore[override]
        assert not is_alone
        self.runs += 1
        is_first = self.runs == 1
        await self.run_first(0)
        if is_first:
            raise LostProcessError(-9)
        return dispatch.job.input


def test_a_process_that_dies_after_its_run_was_left_behind_frees_its_slot_and_settles_nothing(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    gates: list[asyncio.Event] = []
    pipeline = one_stage(lambda number: number, name="crunch", process=True)
    job = rd.submit(pipeline, 7)
    committed: list[Settlement] = []

    async def scene() -> None:
        processes = DyingProcesses(gates)
        processes.size = 2
        parts = WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=processes)
        worker = worker_on(store, pipeline, parts=parts, concurrency=PLACES, on_commit=committed.extend)
        async with working(worker):
            await left_behind(worker, store, clock, gates)
            gates[0].set()
            await until(lambda: worker.slots.room(0) == PLACES - 1)
            gates[1].set()
            await until(lambda: job.status == "complete")

    bounded(scene())
    assert [(each.job.dispatch, each.outcome) for each in committed] == [(2, "ok")]


def test_what_breaks_in_a_later_life_is_settled(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    begun: list[int] = []

    async def odd(number: int) -> int:
        begun.append(number)
        if len(begun) == 1:
            await asyncio.Event().wait()
        raise OwnError

    async def scene() -> None:
        pipeline = one_stage(odd)
        rd.submit(pipeline, 7)
        worker = worker_on(store, pipeline, classifier=Broken())
        async with working(worker):
            await until(lambda: begun)
            await live_again(worker, store, clock)
            await until(lambda: rd.jobs.counts() == {"failed": 1})

    bounded(scene())
    assert attempts(store) == [("crashed",), ("dead",)]


def test_a_stage_that_returns_because_it_is_dropped_is_settled_once(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has an outcome, so that nothing of it was cut off."""
    begun: list[int] = []

    async def give_in(number: int) -> int:
        begun.append(number)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return number

    pipeline = one_stage(give_in)
    rd.submit_many(pipeline, range(10))
    sent: list[JobId] = []
    exchange = store.exchange

    def spy(asked: ExchangeRequest) -> Exchange:
        sent.extend(each.job.id for each in asked.done)
        return exchange(asked)

    async def scene() -> None:
        async with working(worker_on(store, pipeline)):
            await until(lambda: len(begun) == 10)

    monkeypatch.setattr(store, "exchange", spy)
    bounded(scene())
    assert jobs(store) == [("complete",)] * 10
    assert attempts(store) == [("ok",)] * 10
    assert sorted(sent) == list(range(1, 11))


def test_runs_that_have_not_begun_when_they_are_dropped_keep_no_slot(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is cancelled before its first step never runs a line, and cannot clear up after itself."""

    pipeline = one_stage(plain)
    rd.submit_many(pipeline, range(PLACES))

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=PLACES)
        fill = worker.slots.fill

        def fill_and_die() -> None:
            fill()
            if worker.name == "w1" and worker.slots.running:
                store.reap(clock.wall() + 1_000)
                worker._note_dead(worker.name)

        monkeypatch.setattr(worker.slots, "fill", fill_and_die)
        async with working(worker):
            await until(lambda: rd.jobs.counts() == {"complete": PLACES})
            assert worker.slots.room(0) == PLACES
            assert not any(worker.slots._in_use.values())

    bounded(scene())
    assert attempts(store) == [("crashed",)] * PLACES + [("ok",)] * PLACES


@pytest.mark.parametrize("is_abandoned", [True, False])
def test_what_is_dropped_or_abandoned_before_there_is_a_thread_for_it_never_runs(
    store: SqliteStore, rd: Redrive, is_abandoned: bool
) -> None:
    """Its job is back in the queue, or settled; another worker may run it by now."""
    ran: list[int] = []
    may_end = threading.Event()

    def wait(number: int) -> int:
        ran.append(number)
        assert may_end.wait(STUCK_SECONDS)
        return number

    options = {"timeout": 0.01, "idempotent": True, "on_overrun": "abandon"} if is_abandoned else {}
    pipeline = one_stage(wait, retry=ONCE, **options)  # type: ignore[arg-type]
    rd.submit_many(pipeline, range(PLACES))

    async def scene() -> None:
        worker = worker_on(store, pipeline, parts=threaded_parts(1), concurrency=PLACES)
        async with working(worker):
            await until(lambda: ran)
            if is_abandoned:
                await until(lambda: rd.jobs.counts() == {"failed": PLACES})
        may_end.set()
        await until(lambda: worker.slots.room(0) == PLACES)
        assert not any(worker.slots._in_use.values())

    bounded(scene())
    assert len(ran) == 1


@pytest.mark.parametrize("is_async", [True, False])
def test_a_run_that_outlives_its_workers_death_still_counts_for_the_limit_of_its_stage(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    gates: list[asyncio.Event] = []
    begun: list[int] = []
    may_end = threading.Event()

    def block_once(number: int) -> int:
        begun.append(number)
        assert len(begun) > 1 or may_end.wait(STUCK_SECONDS)
        return number

    function = stubborn_once(gates) if is_async else block_once
    pipeline = one_stage(function, concurrency=1)
    rd.submit(pipeline, 7)

    async def scene() -> None:
        parts = threaded_parts(PLACES, watch=0.001)
        worker = worker_on(store, pipeline, parts=parts, concurrency=PLACES)
        async with working(worker):
            await until(lambda: gates or begun)
            try:
                await live_again(worker, store, clock)
                await turns(300)
                assert len(gates) + len(begun) == 1
            finally:
                may_end.set()
                for gate in gates:
                    gate.set()
            await until(lambda: len(gates) + len(begun) == 2)
            for gate in gates:
                gate.set()
            await until(lambda: rd.jobs.counts() == {"complete": 1})
            assert not any(worker.slots._in_use.values())

    bounded(scene())
    assert attempts(store) == [("crashed",), ("ok",)]
