# SPDX-License-Identifier: Apache-2.0
"""Corners of the engine that a normal day never sees: lost answers at odd moments, errors of our own, deaths in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from redrive import Backoff, Breaker, Context, FailureBudget, Pipeline, Redrive, Retry, RetryPolicy, stage
from redrive.core.breaker import Evidence
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.runs import driver as feeding
from redrive.engine.runs.driver import Driver
from redrive.engine.runs.runs import RunOptions, Runs
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.leases import Leases
from redrive.engine.worker.probes import Probes
from redrive.engine.worker.runner import Runner
from redrive.engine.worker.slots import WorkerParts
from redrive.errors import SchemaMismatchError, StoreUnavailableError
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import InlineThreads, NoProcesses, T, at_once
from tests.unit.build import (
    ONCE,
    attempts,
    bounded,
    items_of,
    jobs,
    leases_of,
    one_stage,
    passing,
    turns,
    until,
    watching_parts,
    work,
    worker_on,
    working,
)

GONE = StoreUnavailableError(database="x", cause="gone")


def means_of(ask: object) -> WorkerParts:
    return WorkerParts(ask_store=ask, threads=InlineThreads(), processes=NoProcesses())  # type: ignore[arg-type]


@pytest.mark.usefixtures("clock")
def test_an_async_stage_may_return_a_signal(store: SqliteStore, rd: Redrive) -> None:
    async def wish(number: int, ctx: Context) -> object:
        return Retry(5) if ctx.attempt == 1 else number

    pipeline = one_stage(wish)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert attempts(store) == [("retry",), ("ok",)]


@pytest.mark.parametrize("is_probe", [True, False])
def test_what_could_not_be_reported_to_a_breaker_is_reported_later(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture, is_probe: bool
) -> None:
    breaker = Breaker("api", consecutive=1, open_for=5, probe_timeout=5)
    outages: list[StoreUnavailableError] = []
    ran: list[int] = []

    async def call(number: int) -> int:
        ran.append(number)
        if len(ran) == 1:
            outages.append(GONE)
            raise ConnectionRefusedError(111, "refused")
        return number

    async def ask(question: Callable[[], T]) -> T:
        if outages:
            raise outages.pop()
        return question()

    pipeline = one_stage(call, breaker=breaker, retry=RetryPolicy(2, Backoff.fixed(1)))
    rd.submit(pipeline, 1)
    if is_probe:
        somebody = SharedBreakers(store, [breaker])
        somebody.note(breaker, Evidence.DOWN)
        somebody.flush(clock.wall())
    work(store, pipeline, parts=means_of(ask))

    assert "breaker api: the store did not answer" in caplog.text
    assert jobs(store) == [("complete",)]


def test_a_probe_that_is_asked_for_again_with_its_token_is_the_same(store: SqliteStore) -> None:
    breaker = Breaker("api", consecutive=1, open_for=5)
    shared = SharedBreakers(store, [breaker])
    shared.note(breaker, Evidence.DOWN)
    shared.flush(0.0)

    probes = Probes(store, {}, shared)
    assert [probes.take(breaker, 6.0, token) for token in ("a", "a", "b")] == [True, True, False]


@pytest.mark.usefixtures("clock")
def test_jobs_that_wait_for_a_place_when_their_worker_stops_are_given_back_unrun(
    store: SqliteStore, rd: Redrive
) -> None:
    """Claimed ahead: more than there are places, as after a commit during which many ended."""
    ran: list[int] = []

    async def scene() -> None:
        going = asyncio.Event()

        async def endless(number: int) -> int:
            ran.append(number)
            going.set()
            await go_on.wait()
            return number

        go_on = asyncio.Event()
        pipeline = one_stage(endless)
        rd.submit_many(pipeline, [1, 2, 3])
        worker = worker_on(store, pipeline, concurrency=1)
        worker._prefetch.count = 2
        task = asyncio.ensure_future(worker.run())
        await going.wait()
        assert jobs(store) == [("processing",)] * 3
        worker.stop()
        go_on.set()
        assert await task == "stopped"

    bounded(scene())
    assert ran == [1]
    assert jobs(store) == [("complete",), ("queued",), ("queued",)]


@pytest.mark.usefixtures("clock")
def test_an_error_of_our_own_while_settling_is_logged_and_the_worker_continues(
    store: SqliteStore, rd: Redrive, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = Runner.decide

    async def broken(self: Runner, dispatch: Dispatch, ended: object) -> object:
        if dispatch.job.id == 1:
            raise ZeroDivisionError("our own")
        return await settled(self, dispatch, ended)  # type: ignore[arg-type]

    monkeypatch.setattr(Runner, "decide", broken)
    monkeypatch.setattr(Runner, "decide_now", lambda *_: None)

    async def scene() -> None:
        pipeline = one_stage(lambda number: 1 / number, name="divide", retry=ONCE)
        rd.submit_many(pipeline, [0, 0])
        async with working(worker_on(store, pipeline)):
            await until(lambda: rd.jobs.counts().get("failed"))
            await turns()

    with caplog.at_level(logging.ERROR):
        bounded(scene())
    assert jobs(store, "status, error_message") == [("failed", "our own"), ("failed", "division by zero")]


@pytest.mark.usefixtures("clock")
def test_an_error_of_our_own_at_the_end_of_a_sync_stage_is_a_failure_of_its_attempt(
    store: SqliteStore, rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide_now = Runner.decide_now

    def broken(self: Runner, dispatch: Dispatch, ended: bytes | Exception) -> object:
        if isinstance(ended, bytes):
            raise ZeroDivisionError("our own")
        return decide_now(self, dispatch, ended)

    monkeypatch.setattr(Runner, "decide_now", broken)

    async def scene() -> None:
        pipeline = one_stage(lambda number: number, name="plain", retry=ONCE)
        rd.submit(pipeline, 1)
        async with working(worker_on(store, pipeline)):
            await until(lambda: rd.jobs.counts().get("failed"))

    bounded(scene())
    assert "our own" in str(jobs(store, "error_message"))


@pytest.mark.usefixtures("clock")
def test_a_process_that_cannot_even_be_started_is_a_failure_of_the_attempt(
    store: SqliteStore, rd: Redrive
) -> None:
    class Broken:
        size = 1

        def can_run(self, _lane: Lane) -> bool:
            return True

        async def run(self, _dispatch: Dispatch, *, is_alone: bool) -> bytes:
            raise OSError(12, "out of memory")

    pipeline = one_stage(lambda number: number, name="crunch", process=True, retry=ONCE)
    rd.submit(pipeline, 1)
    work(store, pipeline, parts=WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=Broken()))

    assert jobs(store) == [("failed",)]


def test_a_store_that_can_no_longer_be_worked_with_ends_the_worker_with_its_error(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newer(*_args: object) -> object:
        raise SchemaMismatchError(database="x", found=9, known=1)

    async def scene() -> None:
        worker = worker_on(store, one_stage(lambda number: number, name="plain"))
        leases = Leases(store, clock, lease=30, on_dead=worker.declare_dead, on_lost_store=worker.lose_store)
        task = asyncio.ensure_future(worker.run())
        await turns()
        monkeypatch.setattr(store, "renew", newer)
        leases.beat(worker.name)
        await task

    with pytest.raises(SchemaMismatchError):
        bounded(scene())


@pytest.mark.parametrize("when", ["exchange", "upcoming"])
def test_a_worker_that_dies_during_an_outage_continues_under_a_new_name(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    async def scene() -> str:
        pipeline = one_stage(lambda number: number, name="plain")
        rd.submit(pipeline, 1, priority=0)
        worker = worker_on(store, pipeline)
        answer = getattr(store, when)

        def dying(*args: object, **options: object) -> object:
            if worker.name == "w1":
                store.reap(clock.wall() + 1_000)
                worker.declare_dead(worker.name)
                raise GONE
            return answer(*args, **options)

        monkeypatch.setattr(store, when, dying)
        await worker.run(until_idle=True)
        return worker.name

    assert bounded(scene()) == "w2"
    assert jobs(store) == [("complete",)]


def test_an_aborted_run_waits_for_what_is_being_worked_on(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "BATCH", 5)
    book = Runs(store)

    async def scene() -> None:
        go_on = asyncio.Event()

        async def slow(number: int) -> int:
            if number == 0:
                await go_on.wait()
                return number
            raise PermissionError(13, "denied")

        pipeline = one_stage(slow)
        options = RunOptions(budget=FailureBudget(max_rate=0.1, check_every=5))
        run = book.add("shop", options, clock.wall())
        worker = worker_on(store, pipeline, parts=watching_parts())
        driver = Driver(store, pipeline, run, options, clock=clock, concurrency=4)
        async with working(worker):
            driving = asyncio.ensure_future(driver.drive(items_of(range(10)), worker, at_once))
            await passing(clock, lambda: book.report(run).tally.dead == 9)
            for _ in range(20):
                await clock.asleep(1.0)
            assert not driving.done()
            go_on.set()
            await driving

    bounded(scene())
    report = book.report(1)
    assert (report.status, report.succeeded, report.dead, report.open) == ("aborted", 1, 9, 0)


def test_a_heartbeat_that_had_to_wait_is_repeated_with_the_time_it_is_now(
    store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.start_worker("w1", clock.wall(), 30)
    renew = store.renew
    asked: list[float] = []

    def slow(worker: str, now: float, *rest: object) -> object:
        asked.append(now)
        if len(asked) == 1:
            clock.advance(20)
        return renew(worker, now, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "renew", slow)
    leases = Leases(store, clock, lease=30, on_dead=lambda _name: None)
    leases.beat("w1")

    assert asked[1] - asked[0] == pytest.approx(20)
    ((ends_at,),) = store.read("SELECT expires_at FROM workers")
    assert ends_at == pytest.approx(clock.wall() + 30)


@pytest.mark.usefixtures("clock")
def test_progress_that_could_not_be_written_is_written_with_the_next_heartbeat(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_args: object) -> object:
        raise GONE

    async def scene() -> None:
        going = asyncio.Event()

        async def count(_number: int, ctx: Context) -> None:
            ctx.progress(1, 4)
            going.set()
            await asyncio.Event().wait()

        pipeline = one_stage(count)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        leases = leases_of(store, clock, worker)
        async with working(worker):
            await going.wait()
            with monkeypatch.context() as down:
                down.setattr(store, "renew", unreachable)
                leases.beat(worker.name)
            leases.beat(worker.name)
            assert rd.job(1).facts.progress == "1 of 4"

    bounded(scene())


@pytest.mark.usefixtures("clock")
def test_a_job_records_every_arrow_it_went_along(store: SqliteStore, rd: Redrive) -> None:
    def flaky(number: int, ctx: Context) -> int:
        if ctx.attempt == 1 and ctx.stage == "one":
            raise ConnectionResetError(104, "reset")
        return number

    steady = RetryPolicy(2, Backoff.fixed(1))
    pipeline = Pipeline("shop", [stage(name=name, retry=steady)(flaky) for name in ("one", "two")])
    job = rd.submit(pipeline, 1)
    work(store, pipeline)

    events = [str(event.event) for event in job.events()]
    assert events[0] == "queued"
    assert [word for word in events if word in {"retry", "checkpoint", "complete"}] == [
        "retry",
        "checkpoint",
        "complete",
    ]
