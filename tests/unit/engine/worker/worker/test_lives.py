# SPDX-License-Identifier: Apache-2.0
"""The lives of a worker: stores that do not answer, being declared dead, being stopped, and how soon it sees new work."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from redrive import Breaker, Context, Pipeline, Redrive, stage
from redrive.core.breaker import Evidence
from redrive.engine.worker import service
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.probes import Probes
from redrive.engine.worker.slots import WorkerParts
from redrive.errors import StoreUnavailableError
from redrive.store.records import ExchangeRequest
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import InlineThreads, NoProcesses, T, at_once, inline_parts
from tests.unit.build import (
    attempts,
    bounded,
    jobs,
    leases_of,
    one_stage,
    threaded_parts,
    turns,
    until,
    work,
    worker_on,
    working,
)


class Flaky:
    """A store that loses questions, or answers to what it did."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        """One per question: `question` is never asked, `answer` is lost, anything else is fine."""

    async def ask(self, question: Callable[[], T]) -> T:
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "question":
            raise StoreUnavailableError(database="x", cause="gone")
        answered = question()
        if failure == "answer":
            raise StoreUnavailableError(database="x", cause="gone")
        return answered

    def parts(self) -> WorkerParts:
        return WorkerParts(ask_store=self.ask, threads=InlineThreads(), processes=NoProcesses())


@pytest.mark.untraced
@pytest.mark.parametrize("failure", ["question", "answer"])
@pytest.mark.parametrize("place", range(8))
def test_whatever_question_or_answer_is_lost_every_job_is_done_once(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, failure: str, place: int
) -> None:
    ran: list[int] = []

    def run(number: int) -> int:
        ran.append(number)
        return number

    pipeline = Pipeline("shop", [stage(name=name)(run) for name in ("a", "b")])
    rd.submit_many(pipeline, range(3))
    work(store, pipeline, parts=Flaky(*[""] * place, failure, failure).parts())

    assert rd.jobs.counts() == {"complete": 3}
    assert sorted(ran) == [0, 0, 1, 1, 2, 2]
    assert attempts(store) == [("ok",)] * 6


def test_an_outage_is_logged_and_waited_for(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = one_stage(lambda number: number, name="plain")
    rd.submit(pipeline, 1)
    with caplog.at_level(logging.WARNING):
        work(store, pipeline, parts=Flaky("", *["question"] * 5).parts())

    # The first, the second and the fourth.
    assert caplog.text.count("asking again") == 3
    assert clock.waits.count(1.0) >= 5


def test_a_worker_that_is_stopped_late_in_an_outage_still_waits_for_the_store(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    ran: list[int] = []
    asked: list[int] = []

    async def scene() -> None:
        async def ask(question: Callable[[], T]) -> T:
            asked.extend(ran)
            if len(asked) == 8:
                worker.stop()
            if 0 < len(asked) <= 10:
                raise StoreUnavailableError(database="x", cause="gone")
            return question()

        parts = WorkerParts(ask_store=ask, threads=InlineThreads(), processes=NoProcesses())
        worker = worker_on(store, pipeline, parts=parts)
        await worker.run()

    def run(number: int) -> int:
        ran.append(number)
        return number

    pipeline = one_stage(run)
    rd.submit(pipeline, 1)
    bounded(scene())

    assert jobs(store) == [("complete",)]
    assert attempts(store) == [("ok",)]


def test_a_worker_that_cannot_sign_off_lets_its_lease_expire(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        going = asyncio.Event()

        async def endless(_number: int) -> None:
            going.set()
            await asyncio.Event().wait()

        pipeline = one_stage(endless)
        rd.submit(pipeline, 1)
        flaky = Flaky()
        worker = worker_on(store, pipeline, parts=flaky.parts())
        task = asyncio.ensure_future(worker.run())
        await going.wait()
        flaky.failures = ["question"]
        worker.stop()
        worker.stop()
        assert await task == "stopped"

    bounded(scene())
    assert "leases not released; they will expire" in caplog.text
    assert jobs(store) == [("processing",)]


def test_a_worker_that_the_store_does_not_know_any_more_starts_a_new_life(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It hears of its death from the commit itself, before any heartbeat."""
    names: list[str] = []

    async def scene() -> None:
        async def run(number: int) -> int:
            names.append(worker.name)
            if len(names) == 1:
                store.reap(clock.wall() + 1_000)
            return number

        pipeline = one_stage(run)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        await worker.run(until_idle=True)

    bounded(scene())
    assert names == ["w1", "w2"]
    assert attempts(store) == [("crashed",), ("ok",)]
    assert "its lease was lost" in caplog.text
    assert "continues under a new name" in caplog.text


def test_a_heartbeat_finds_out_that_its_worker_was_declared_dead(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        going = asyncio.Event()

        async def wait_once(number: int) -> int:
            going.set()
            if worker.name == "w1":
                await asyncio.Event().wait()
            return number

        pipeline = one_stage(wait_once)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        task = asyncio.ensure_future(worker.run(until_idle=True))
        await going.wait()
        store.reap(clock.wall() + 1_000)
        leases_of(store, clock, worker).beat(worker.name)
        assert await task == "idle"

    bounded(scene())
    assert jobs(store) == [("complete",)]


def test_a_heartbeat_of_an_earlier_life_that_is_answered_late_ends_no_later_one(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        begun: list[str] = []
        go_on = asyncio.Event()

        async def wait(number: int) -> int:
            begun.append(worker.name)
            await go_on.wait()
            return number

        pipeline = one_stage(wait)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        leases = leases_of(store, clock, worker)
        async with working(worker):
            await until(lambda: begun == ["w1"])
            store.reap(clock.wall() + 1_000)
            leases.beat("w1")
            await until(lambda: begun == ["w1", "w2"])
            leases.beat("w1")
            await turns(50)
            assert worker.name == "w2"
            go_on.set()
            await until(lambda: jobs(store) == [("complete",)])

    bounded(scene())
    assert attempts(store) == [("crashed",), ("ok",)]


def test_what_runs_on_a_thread_when_its_worker_dies_keeps_the_place_and_does_not_count(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    go_on = threading.Event()
    runs: list[int] = []

    def block_once(number: int) -> int:
        runs.append(number)
        if len(runs) == 1:
            assert go_on.wait(15)
            return -1
        return number

    async def scene() -> None:
        pipeline = one_stage(block_once)
        rd.submit(pipeline, 7)
        worker = worker_on(store, pipeline, parts=threaded_parts(1, watch=0.001), concurrency=1)
        async with working(worker):
            await until(lambda: runs)
            store.reap(clock.wall() + 1_000)
            worker.declare_dead(worker.name)
            await until(lambda: worker.name == "w2")
            await turns(100)
            assert runs == [7]
            go_on.set()
            await until(lambda: rd.jobs.counts().get("complete"))

    bounded(scene())
    assert rd.job(1).result() == 7


def test_what_was_not_committed_before_a_worker_was_declared_dead_is_not_sent_under_its_next_name(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, int]] = []
    plain = store.exchange

    async def scene() -> None:
        pipeline = one_stage(lambda number: number, name="plain")
        rd.submit(pipeline, 7)
        worker = worker_on(store, pipeline)

        def exchange(asked: ExchangeRequest) -> object:
            sent.extend((asked.worker, one.job.dispatch) for one in asked.done)
            if asked.done and asked.worker == "w1":
                store.reap(clock.wall() + 1_000)
                worker.declare_dead(asked.worker)
                raise StoreUnavailableError(database="x", cause="gone")
            return plain(asked)

        monkeypatch.setattr(store, "exchange", exchange)
        await worker.run(until_idle=True)

    bounded(scene())
    assert sent == [("w1", 1), ("w2", 2)]
    assert attempts(store) == [("crashed",), ("ok",)]


def test_the_second_stop_drops_what_runs(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    async def scene() -> None:
        going = asyncio.Event()

        async def endless(_number: int) -> None:
            going.set()
            await asyncio.Event().wait()

        pipeline = one_stage(endless)
        rd.submit_many(pipeline, [1, 2])
        worker = worker_on(store, pipeline)
        task = asyncio.ensure_future(worker.run())
        await going.wait()
        worker.stop()
        await turns()
        assert not task.done()
        worker.stop()
        assert await task == "stopped"

    bounded(scene())
    assert jobs(store, "status, attempt, suspect_count") == [("queued", 1, 0)] * 2
    reasons = attempts(store, "outcome, burned, decision ->> '$.reason'")
    assert reasons == [("crashed", 0, "worker_stopped")] * 2


@pytest.mark.parametrize("is_run_over_first", [True, False])
def test_a_run_that_is_over_and_one_signal_do_not_cut_off_what_runs(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_run_over_first: bool
) -> None:
    async def scene() -> None:
        going, go_on, run_over = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def wait(number: int) -> int:
            going.set()
            await go_on.wait()
            return number

        async def drive() -> None:
            await run_over.wait()

        pipeline = one_stage(wait)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        task = asyncio.ensure_future(service._run_with(worker, drive()))
        await going.wait()
        for end in (run_over.set, worker.stop) if is_run_over_first else (worker.stop, run_over.set):
            end()
            await turns()
        assert not task.done()
        go_on.set()
        assert await task == "stopped"

    bounded(scene())
    assert attempts(store) == [("ok",)]


def test_after_a_run_is_over_the_second_signal_drops_what_runs(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        going = asyncio.Event()

        async def endless(_number: int) -> None:
            going.set()
            await asyncio.Event().wait()

        pipeline = one_stage(endless)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        task = asyncio.ensure_future(service._run_with(worker, going.wait()))  # type: ignore[arg-type]
        await going.wait()
        await turns()
        worker.stop()
        worker.stop()
        assert await task == "stopped"

    bounded(scene())
    assert jobs(store) == [("queued",)]


def test_a_probe_that_was_claimed_while_its_worker_was_stopped_is_given_back_at_once(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    breaker = Breaker("api", consecutive=1, open_for=5, probe_timeout=600)
    others = SharedBreakers(store, [breaker])
    others.note(breaker, Evidence.DOWN)
    others.flush(clock.wall())

    async def scene() -> None:
        going, go_on = asyncio.Event(), asyncio.Event()

        async def slow(number: int) -> int:
            going.set()
            await go_on.wait()
            return number

        async def ask(question: Callable[[], T]) -> T:
            answer = question()
            if jobs(store, "status") == [("processing",)] * 2:
                worker.stop()
            return answer

        guarded = one_stage(lambda number: number, "guarded", name="call", breaker=breaker)
        plain = one_stage(slow)
        rd.submit(plain, 1)
        worker = worker_on(store, guarded, plain, parts=inline_parts(ask))
        task = asyncio.ensure_future(worker.run())
        await going.wait()
        clock.advance(10)
        rd.submit(guarded, 2)
        worker.wake()
        await until(lambda: worker._stops)
        await turns(50)
        assert jobs(store) == [("processing",), ("queued",)]
        assert Probes(store, {}, others).take(breaker, clock.wall(), "another worker's")
        assert not task.done()
        go_on.set()
        assert await task == "stopped"

    bounded(scene())


def test_an_idle_worker_that_watches_sees_new_work_before_its_next_poll(
    store: SqliteStore, rd: Redrive
) -> None:
    async def scene() -> float:
        pipeline = one_stage(lambda number: number, name="plain")
        parts = WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=NoProcesses(), watch=0.001)
        loop = asyncio.get_running_loop()
        async with working(worker_on(store, pipeline, parts=parts)):
            await turns(50)
            started = loop.time()
            rd.submit(pipeline, 1)
            await until(lambda: rd.jobs.counts().get("complete"))
            return loop.time() - started

    assert bounded(scene()) < 0.9


def test_a_worker_that_watches_survives_a_store_that_does_not_answer(store: SqliteStore, rd: Redrive) -> None:
    async def scene() -> None:
        flaky = Flaky()
        parts = WorkerParts(
            ask_store=flaky.ask, threads=InlineThreads(), processes=NoProcesses(), watch=0.001
        )
        pipeline = one_stage(lambda number: number, name="plain")
        async with working(worker_on(store, pipeline, parts=parts)):
            await turns(50)
            flaky.failures = ["question"] * 3
            await until(lambda: not flaky.failures)
            rd.submit(pipeline, 1)
            await until(lambda: rd.jobs.counts().get("complete"))

    bounded(scene())


def test_a_worker_serves_several_pipelines_and_jobs_of_others_are_left_alone(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    one, two, other = (one_stage(lambda n: n, name, name="plain") for name in ("one", "two", "other"))
    for pipeline in (one, two, other):
        rd.submit(pipeline, 1)
    work(store, one, two)

    assert jobs(store, "pipeline, status") == [("one", "complete"), ("two", "complete"), ("other", "queued")]


def test_a_worker_waits_for_what_another_one_holds(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        going, go_on = asyncio.Event(), asyncio.Event()

        async def slow(number: int, ctx: Context) -> int:
            going.set()
            await go_on.wait()
            return number

        pipeline = one_stage(slow)
        rd.submit(pipeline, 1)
        first = asyncio.ensure_future(worker_on(store, pipeline).run(until_idle=True))
        await going.wait()
        second = worker_on(store, pipeline)
        second.name = "other"
        waiting = asyncio.ensure_future(second.run(until_idle=True))
        await turns(200)
        assert not waiting.done()
        assert await second.held_for() == 0.0
        go_on.set()
        assert (await first, await waiting) == ("idle", "idle")

    bounded(scene())
    assert attempts(store) == [("ok",)]


def test_an_empty_store_is_idle_at_once(store: SqliteStore, clock: VirtualClock) -> None:
    assert work(store, one_stage(lambda number: number, name="plain")) == "idle"
