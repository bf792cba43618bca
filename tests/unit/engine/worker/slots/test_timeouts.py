# SPDX-License-Identifier: Apache-2.0
"""Timeouts: no two runs of a stage overlap unless it said that this does no harm (DESIGN 6.14)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from redrive import Backoff, Context, Pipeline, Redrive, Retry, RetryPolicy, stage
from redrive.engine.worker import runner
from redrive.engine.worker.slots import WorkerParts
from redrive.errors import ConfigurationError
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from redrive.testing.loop import VirtualLoop
from tests.inline import NoProcesses, at_once
from tests.unit.build import (
    ONCE,
    attempts,
    bounded,
    jobs,
    letters,
    one_stage,
    reached,
    threaded_parts,
    turns,
    until,
    work,
    worker_on,
    working,
)

TWICE = RetryPolicy(2, Backoff.fixed(1))


def test_an_async_stage_is_cancelled_at_its_timeout_and_tried_again(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    cleaned: list[int] = []

    async def fetch(number: int, ctx: Context) -> int:
        if ctx.attempt == 2:
            return number
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(ctx.attempt)
        return number

    pipeline = one_stage(fetch, timeout=0.01, retry=TWICE)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert cleaned == [1]
    assert attempts(store, "outcome, code, burned") == [("retry", "TIMEOUT", 1), ("ok", None, 1)]


def test_a_late_success_of_a_sync_stage_is_a_success_marked_as_overrun(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    def fetch(number: int) -> int:
        clock.advance(100)
        return number

    pipeline = one_stage(fetch, timeout=60)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert jobs(store) == [("complete",)]
    assert attempts(store, "outcome, decision ->> '$.reason'") == [("ok", "overran")]


def test_a_success_in_time_is_not_marked(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    def fetch(number: int) -> int:
        clock.advance(60)
        return number

    pipeline = one_stage(fetch, timeout=60)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert attempts(store, "outcome, decision ->> '$.reason'") == [("ok", None)]


def test_a_late_error_of_a_sync_stage_is_a_timeout_with_the_error_as_its_cause(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    def fetch(_number: int) -> None:
        clock.advance(100)
        raise PermissionError(13, "denied")

    pipeline = one_stage(fetch, timeout=60, retry=ONCE)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert jobs(store, "status, error_code") == [("failed", "TIMEOUT")]
    ((stack,),) = letters(store, "stack")
    assert "PermissionError" in str(stack)


def test_a_late_wish_of_a_stage_is_still_its_wish(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    def fetch(number: int, ctx: Context) -> int:
        if ctx.attempt == 1:
            clock.advance(100)
            raise Retry(5)
        return number

    pipeline = one_stage(fetch, timeout=60)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert attempts(store, "outcome, decision ->> '$.reason'") == [("retry", "asked"), ("ok", None)]


def test_an_abandoned_stage_is_settled_at_once_while_its_thread_keeps_the_place(
    store: SqliteStore, rd: Redrive
) -> None:
    go_on, started = threading.Event(), threading.Event()
    ran: list[int] = []

    def fetch(number: int) -> int:
        ran.append(number)
        if number == 1:
            started.set()
            assert go_on.wait(15)
        return number

    async def scene() -> None:
        pipeline = one_stage(fetch, timeout=0.1, retry=ONCE, idempotent=True, on_overrun="abandon")
        rd.submit_many(pipeline, [1, 2])
        worker = worker_on(store, pipeline, parts=threaded_parts(1), concurrency=1)
        async with working(worker):
            await until(lambda: rd.jobs.counts().get("failed"))
            await turns(200)
            assert ran == [1]
            go_on.set()
            await until(lambda: rd.jobs.counts().get("complete"))

    bounded(scene())
    assert started.is_set()
    assert ran == [1, 2]
    assert jobs(store, "status, error_code") == [("failed", "TIMEOUT"), ("complete", None)]


class LateThreads:
    """Runs functions at once, and brings what they returned after their timeout."""

    def start(
        self, work: Callable[[object], object], of: object, done: Callable[[object, object], None]
    ) -> None:
        result = work(of)
        asyncio.get_running_loop().call_later(30, done, of, result)


@pytest.mark.parametrize("is_right", [True, False])
def test_what_ended_in_time_is_in_time_although_the_loop_hears_of_it_later(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_right: bool
) -> None:
    def fetch(number: int) -> int:
        if not is_right:
            raise KeyError(number)
        return number

    async def scene() -> None:
        pipeline = one_stage(fetch, timeout=10, retry=ONCE, idempotent=True, on_overrun="abandon")
        rd.submit(pipeline, 1)
        parts = WorkerParts(ask_store=at_once, threads=LateThreads(), processes=NoProcesses())  # type: ignore[arg-type]
        await worker_on(store, pipeline, parts=parts).run(until_idle=True)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(scene())
    ((status, code),) = jobs(store, "status, error_code")
    assert status == ("complete" if is_right else "failed")
    assert code != "TIMEOUT"
    assert store.read(
        "SELECT ended_at - started_at, (decision ->> '$.reason') IS 'overran' FROM attempts"
    ) == [(0.0, 0)]


class SlowThreads:
    """Runs functions long after their timeout."""

    def start(
        self, work: Callable[[object], object], of: object, done: Callable[[object, object], None]
    ) -> None:
        asyncio.get_running_loop().call_later(30, lambda: done(of, work(of)))


def test_a_sync_stage_that_overruns_is_waited_for_unless_it_may_be_abandoned(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        pipeline = one_stage(lambda number: number, name="fetch", timeout=10, retry=ONCE)
        rd.submit(pipeline, 1)
        parts = WorkerParts(ask_store=at_once, threads=SlowThreads(), processes=NoProcesses())  # type: ignore[arg-type]
        await worker_on(store, pipeline, parts=parts).run(until_idle=True)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(scene())
    assert attempts(store, "outcome, decision ->> '$.reason'") == [("ok", "overran")]


def test_what_an_abandoned_thread_returns_later_does_not_count(store: SqliteStore) -> None:
    rd = Redrive(store)
    go_on = threading.Event()
    runs: list[int] = []

    def fetch(number: int) -> int:
        runs.append(number)
        if len(runs) == 1:
            assert go_on.wait(15)
        return len(runs)

    async def scene() -> None:
        retry = RetryPolicy(2, Backoff.fixed(0.001))
        pipeline = one_stage(fetch, timeout=0.1, retry=retry, idempotent=True, on_overrun="abandon")
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline, parts=threaded_parts(2, watch=0.001), concurrency=2)
        async with working(worker):
            await until(lambda: rd.jobs.counts().get("complete"))
            go_on.set()
            await until(lambda: worker.slots.room(0) == 2)

    bounded(scene())
    assert attempts(store, "outcome, code") == [("retry", "TIMEOUT"), ("ok", None)]
    assert rd.job(1).result() == 2


def test_a_thread_that_was_abandoned_still_counts_for_the_limit_of_its_stage(
    store: SqliteStore, rd: Redrive
) -> None:
    going, go_on = threading.Event(), threading.Event()
    running = most = 0
    lock = threading.Lock()

    def fetch(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if number == 1:
            going.set()
            assert go_on.wait(15)
        with lock:
            running -= 1
        return number

    async def scene() -> None:
        pipeline = one_stage(
            fetch, timeout=60, retry=ONCE, idempotent=True, on_overrun="abandon", concurrency=1
        )
        rd.submit_many(pipeline, [1, 2])
        worker = worker_on(store, pipeline, parts=threaded_parts(4, watch=0.001), concurrency=4)
        async with working(worker):
            await until(going.is_set)
            worker.slots._abandon(next(iter(worker.slots._running.values())))
            await until(lambda: rd.jobs.counts().get("failed"))
            await turns(300)
            go_on.set()
            await until(lambda: rd.jobs.counts().get("complete"))

    bounded(scene())
    assert most == 1


def test_a_thread_abandoned_in_an_earlier_life_does_not_widen_the_limit_of_its_stage(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    loop: asyncio.AbstractEventLoop
    go_on = threading.Event()
    running = most = 0
    lock = threading.Lock()

    def fetch(number: int) -> int:
        nonlocal running, most
        if number == 1:
            assert go_on.wait(15)
            return number
        with lock:
            running += 1
            most = max(most, running)
        reached(loop)
        with lock:
            running -= 1
        return number

    async def scene() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {
            "timeout": 5,
            "retry": ONCE,
            "idempotent": True,
            "on_overrun": "abandon",
            "concurrency": 1,
        }
        pipeline = one_stage(fetch, **options)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline, parts=threaded_parts(8, watch=0.001), concurrency=8)
        async with working(worker):
            await until(lambda: worker.slots.running)
            worker.slots._abandon(next(iter(worker.slots._running.values())))
            await until(lambda: rd.jobs.counts().get("failed"))
            store.reap(clock.wall() + 1_000)
            worker.declare_dead(worker.name)
            await until(lambda: worker.name == "w2")
            go_on.set()
            await until(lambda: worker.slots.room(0) == 8)
            rd.submit_many(pipeline, range(2, 40))
            await until(lambda: rd.jobs.counts().get("complete") == 38)

    bounded(scene())
    assert most == 1


def test_a_stage_in_time_is_not_abandoned(store: SqliteStore, rd: Redrive) -> None:
    going, may_end = threading.Event(), threading.Event()

    def quick(number: int) -> int:
        going.set()
        assert may_end.wait(15)
        return number

    async def scene() -> None:
        pipeline = one_stage(quick, timeout=60, idempotent=True, on_overrun="abandon")
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline, parts=threaded_parts())
        async with working(worker):
            await until(going.is_set)
            (dispatch,) = worker.slots._running.values()
            may_end.set()
            # Its time is over between its end, on the thread, and its settlement, on this loop.
            while not dispatch.ended_at:
                pass
            worker.slots._abandon(dispatch)
            await until(lambda: rd.jobs.counts().get("complete"))

    bounded(scene())
    assert attempts(store) == [("ok",)]


@pytest.mark.parametrize("is_let_go", [True, False])
def test_what_would_abandon_a_stage_goes_with_its_run(
    store: SqliteStore, rd: Redrive, monkeypatch: pytest.MonkeyPatch, is_let_go: bool
) -> None:
    """Otherwise every run, with its input, would be kept for as long as its stage might have taken."""
    timers: list[asyncio.TimerHandle] = []
    may_end, going = threading.Event(), threading.Event()

    def fetch(number: int) -> int:
        going.set()
        assert may_end.wait(15)
        return number

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def spy(delay: float, *args: object, **options: object) -> asyncio.TimerHandle:
            timer = call_later(delay, *args, **options)  # type: ignore[arg-type]
            if delay == 3_600:
                timers.append(timer)
            return timer

        monkeypatch.setattr(loop, "call_later", spy)
        pipeline = one_stage(fetch, timeout=3_600, idempotent=True, on_overrun="abandon")
        rd.submit_many(pipeline, range(5))
        worker = worker_on(store, pipeline, parts=threaded_parts())
        async with working(worker):
            await until(going.is_set)
            if not is_let_go:
                may_end.set()
                await until(lambda: rd.jobs.counts() == {"complete": 5})
        may_end.set()
        await until(lambda: all(timer.cancelled() for timer in timers))

    bounded(scene())
    assert len(timers) == 5


@pytest.mark.parametrize("is_deaf", [True, False])
def test_an_async_stage_that_ignores_its_cancellation_is_waited_for_and_logged(
    store: SqliteStore,
    rd: Redrive,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_deaf: bool,
) -> None:
    monkeypatch.setattr(runner, "GRACE_SECONDS", 0.01)

    async def fetch(number: int) -> int:
        if is_deaf:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                while "still runs" not in caplog.text:  # noqa: ASYNC110 - a line in the log signals nobody.
                    await asyncio.sleep(0)
        return number

    pipeline = one_stage(fetch, timeout=0.01)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert ("stage fetch was cancelled after 0.01 s and still runs" in caplog.text) is is_deaf
    assert jobs(store) == [("complete",)]


@pytest.mark.parametrize(
    "options",
    [
        {"on_overrun": "abandon", "timeout": 1},
        {"on_overrun": "abandon", "idempotent": True},
        {"on_overrun": "forget", "timeout": 1},
    ],
)
def test_abandoning_is_for_idempotent_stages_with_a_timeout(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="on_overrun"):
        one_stage(lambda number: number, name="fetch", **options)


def test_abandoning_is_not_for_async_stages() -> None:
    async def fetch(number: int) -> int:
        return number

    with pytest.raises(ConfigurationError, match="sync stages"):
        Pipeline("shop", [stage(timeout=1, idempotent=True, on_overrun="abandon")(fetch)])
