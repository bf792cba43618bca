# SPDX-License-Identifier: Apache-2.0
"""Filling places: what goes wrong while the next job is started takes nothing from the one that has just ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from redrive import Batch, Breaker, Pipeline, Redrive
from redrive.core.breaker import Evidence
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.slots import WorkerParts
from redrive.store.records import ClaimedJob, ClaimRequest, ExchangeRequest
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import A, InlineThreads, NoProcesses, T, at_once
from tests.unit.build import attempts, bounded, jobs, leases_of, one_stage, turns, until, worker_on, working

API = Breaker("api", consecutive=1, open_for=5)


class BrokenThreads(InlineThreads):
    """Cannot start what it is given for so many times, from the second run on."""

    def __init__(self, failures: float) -> None:
        self.started = 0
        self.failures = failures

    def start(self, work: Callable[[A], T], of: A, done: Callable[[A, T], None]) -> None:
        if self.started and self.failures:
            self.failures -= 1
            raise OSError("nothing can be started")
        self.started += 1
        super().start(work, of, done)


def parts_with(threads: BrokenThreads) -> WorkerParts:
    return WorkerParts(ask_store=at_once, threads=threads, processes=NoProcesses())


def test_an_outcome_is_not_lost_when_the_next_job_cannot_be_started(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """The place is filled on the way of the outcome, and by the worker again."""
    pipeline = one_stage(lambda number: number, name="plain")
    threads = BrokenThreads(failures=1)

    async def scene() -> None:
        worker = worker_on(store, pipeline, parts=parts_with(threads), concurrency=1)
        worker._prefetch.count = 1
        rd.submit_many(pipeline, [1, 2])
        await worker.run(until_idle=True)

    bounded(scene())
    assert threads.failures == 0
    assert jobs(store) == [("complete",)] * 2
    assert attempts(store) == [("ok",)] * 2


def test_a_worker_that_can_start_nothing_any_more_ends_and_gives_everything_back(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = one_stage(lambda number: number, name="plain")
    threads = BrokenThreads(failures=float("inf"))

    async def scene() -> None:
        worker = worker_on(store, pipeline, parts=parts_with(threads), concurrency=1)
        worker._prefetch.count = 1
        rd.submit_many(pipeline, [1, 2])
        with pytest.raises(OSError, match="nothing can be started"):
            await worker.run(until_idle=True)

    bounded(scene())
    assert jobs(store, "status, attempt") == [("complete", 1), ("queued", 1)]
    assert attempts(store) == [("ok",)]


@pytest.fixture
def claimed(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> tuple[Pipeline, ClaimedJob]:
    """A job of a stage that runs once at a time, behind a breaker that is open, and leased by w1."""
    return claimed_of(store, rd, clock, lambda number: number)


def claimed_of(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, function: Callable[..., object]
) -> tuple[Pipeline, ClaimedJob]:
    pipeline = one_stage(function, name="plain", concurrency=1, breaker=API)
    rd.submit(pipeline, 1)
    (lane,) = store.lanes("shop", ["plain"])
    store.start_worker("w1", clock.wall(), 60)
    breakers = SharedBreakers(store, [API])
    breakers.note(API, Evidence.DOWN)
    breakers.flush(clock.wall() - 10)
    want = ClaimRequest((lane,), 1)
    (job,) = store.exchange(ExchangeRequest("w1", [], want, now=clock.wall(), token=1)).claimed
    return pipeline, job


def test_a_job_that_is_dropped_before_it_starts_frees_the_limit_of_its_stage_and_its_probe(
    store: SqliteStore, clock: VirtualClock, claimed: tuple[Pipeline, ClaimedJob]
) -> None:
    pipeline, job = claimed

    async def scene() -> None:
        worker = worker_on(store, pipeline)
        worker.probes.assign(job.id, API, clock.wall(), "probe")
        worker.slots.put([job])
        assert worker.slots.lane_limits(5) == {job.lane: 0}

        assert worker.slots.drop_waiting() == [job]

        assert worker.slots.lane_limits(5) == {job.lane: 1}
        worker.probes.release_dropped(clock.wall())
        assert worker.probes.standing(API).state.probe is None

    bounded(scene())


def test_a_prefetched_job_waits_for_the_slot_of_a_run_that_was_left_behind(
    store: SqliteStore, claimed: tuple[Pipeline, ClaimedJob]
) -> None:
    pipeline, job = claimed

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=1)
        worker.slots._orphans = 1
        worker.slots.put([job])

        worker.slots.fill()

        assert (worker.slots.running, worker.slots.first_waiting) == (0, job)

    bounded(scene())


def test_an_async_stage_whose_task_could_not_be_made_runs_when_it_can(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    made: list[str] = []

    async def plain(number: int) -> int:
        return number

    def factory(loop: asyncio.AbstractEventLoop, body: Any, **options: Any) -> asyncio.Task[Any]:
        name = getattr(body, "__qualname__", "")
        if name == "Slots._run_on_loop":
            made.append(name)
            if len(made) == 2:
                raise MemoryError
        return asyncio.Task(body, loop=loop, **options)

    async def scene() -> None:
        pipeline = one_stage(plain)
        worker = worker_on(store, pipeline, concurrency=1)
        worker._prefetch.count = 1
        rd.submit_many(pipeline, [1, 2])
        asyncio.get_running_loop().set_task_factory(factory)
        task = asyncio.ensure_future(worker.run(until_idle=True))
        await until(task.done)
        assert task.result() == "idle"

    bounded(scene())
    assert len(made) == 3
    assert jobs(store) == [("complete",)] * 2


def test_a_stage_that_an_eager_factory_has_run_already_keeps_no_worker_from_ending(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def plain(number: int) -> int:
        return number

    def eager(
        loop: asyncio.AbstractEventLoop, body: Coroutine[object, None, None], **options: object
    ) -> asyncio.Future[None]:
        if getattr(body, "__qualname__", "") != "Slots._run_on_loop":
            return asyncio.Task(body, loop=loop, **options)  # type: ignore[arg-type]
        with pytest.raises(StopIteration):
            body.send(None)
        over: asyncio.Future[None] = loop.create_future()
        over.set_result(None)
        return over

    async def scene() -> str:
        pipeline = one_stage(plain)
        rd.submit_many(pipeline, [1, 2])
        asyncio.get_running_loop().set_task_factory(eager)  # type: ignore[arg-type]
        return await worker_on(store, pipeline).run(until_idle=True)

    assert bounded(scene()) == "idle"
    assert jobs(store) == [("complete",)] * 2


@pytest.mark.parametrize(("waiting", "room", "calls"), [(0, 5, 2), (1, 5, 1), (3, 2, 1), (0, 1, 1)])
def test_a_batch_can_fill_one_call_more_than_there_are_free_slots(
    store: SqliteStore, claimed: tuple[Pipeline, ClaimedJob], waiting: int, room: int, calls: int
) -> None:
    plain, job = claimed

    async def scene() -> None:
        batched = one_stage(lambda numbers: numbers, "mill", name="grind", batch=Batch(size=4))
        worker = worker_on(store, plain, batched, concurrency=1)
        (lane,) = worker.slots.gatherings

        worker.slots.put([job] * waiting)

        assert worker.slots.lane_limits(room)[lane] == calls * 4

    bounded(scene())


@pytest.mark.parametrize(("concurrency", "processes"), [(1, 3), (3, 1)])
def test_a_stage_in_processes_keeps_to_its_own_limit_and_to_how_many_processes_there_are(
    store: SqliteStore, concurrency: int, processes: int
) -> None:
    class Processes(NoProcesses):
        size = processes

    async def scene() -> None:
        pipeline = one_stage(lambda number: number, name="crunch", process=True, concurrency=concurrency)
        parts = WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=Processes())
        worker = worker_on(store, pipeline, parts=parts)

        assert list(worker.slots.lane_limits(9).values()) == [1]

    bounded(scene())


def test_a_stage_that_clears_up_when_it_is_cancelled_is_not_cancelled_again_by_the_next_heartbeat(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    begun, clearing, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    cleared: list[int] = []

    async def tidy(number: int) -> int:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            clearing.set()
            await may_end.wait()
            cleared.append(number)
        return number

    pipeline = one_stage(tidy)
    job = rd.submit(pipeline, 7)

    async def scene() -> None:
        worker = worker_on(store, pipeline)
        leases = leases_of(store, clock, worker)
        async with working(worker):
            await begun.wait()
            rd.jobs.cancel(job.id)
            leases.beat(worker.name)
            await clearing.wait()
            leases.beat(worker.name)
            await turns()
            may_end.set()
            await until(lambda: job.status == "cancelled")

    bounded(scene())
    assert cleared == [7]


@pytest.mark.parametrize("where", ["before it began", "on the loop", "on a thread"])
def test_a_probe_that_is_cut_off_is_free_for_others(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, where: str
) -> None:
    async def wait(number: int) -> int:
        await asyncio.Event().wait()
        return number

    function = (lambda number: number) if where == "on a thread" else wait
    pipeline, job = claimed_of(store, rd, clock, function)

    async def scene() -> None:
        worker = worker_on(store, pipeline)
        worker.probes.assign(job.id, API, clock.wall(), "probe")
        worker.slots.put([job])
        worker.slots.fill()
        if where == "on the loop":
            await turns()

        await worker.slots.release()

        worker.probes.release_dropped(clock.wall())
        assert worker.probes.standing(API).state.probe is None

    bounded(scene())


def test_of_a_stage_over_its_limit_nothing_is_claimed(
    store: SqliteStore, claimed: tuple[Pipeline, ClaimedJob]
) -> None:
    pipeline, job = claimed

    async def scene() -> None:
        worker = worker_on(store, pipeline)

        worker.slots.put([job, job, job])

        assert worker.slots.lane_limits(9) == {job.lane: 0}

    bounded(scene())


def test_a_job_that_could_not_be_started_stays_before_those_that_came_after_it(
    store: SqliteStore, claimed: tuple[Pipeline, ClaimedJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, job = claimed

    def broken(*_args: object) -> None:
        raise MemoryError

    async def scene() -> None:
        worker = worker_on(store, pipeline)
        monkeypatch.setattr(worker.slots._runner, "begin", broken)
        worker.slots.put([job, msgspec.structs.replace(job)])

        with pytest.raises(MemoryError):
            worker.slots.fill()

        assert worker.slots.first_waiting is job

    bounded(scene())
