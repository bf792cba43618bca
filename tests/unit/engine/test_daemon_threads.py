# SPDX-License-Identifier: Apache-2.0
"""Threads for what may never return: nobody else waits for it, no process is kept from ending, and few are made."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Generator
from contextvars import ContextVar
from pathlib import Path

import pytest

from redrive import Event, Pipeline, Redrive, RetryPolicy, connect, stage
from redrive.engine import daemon_threads
from redrive.engine.clock import SYSTEM_CLOCK
from redrive.engine.daemon_threads import DaemonThreads
from redrive.engine.delivery import outbox as module
from redrive.engine.delivery.outbox import UNRETURNED_MAX, Delivery
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.runs import driver
from redrive.engine.runs.runs import RunOptions
from redrive.engine.worker.service import Options
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import at_once
from tests.unit.build import bounded, rows, turns, until, work

REQUEST: ContextVar[str] = ContextVar("request", default="none")


def failing(**options: object) -> Pipeline:
    def call(_number: int) -> None:
        raise PermissionError(13, "denied")

    return Pipeline("shop", [stage(retry=RetryPolicy(1))(call)], **options)  # type: ignore[arg-type]


def test_a_function_runs_in_the_context_of_the_caller_and_brings_what_it_returns_or_raises() -> None:
    async def scene() -> None:
        threads = DaemonThreads("aside")
        REQUEST.set("r-1")

        async def asked(question: object) -> object:
            return await threads.ask(question)  # type: ignore[arg-type]

        assert await asked(REQUEST.get) == "r-1"
        assert await asked(threading.current_thread) is not threading.current_thread()
        with pytest.raises(ZeroDivisionError):
            await asked(lambda: 1 // 0)
        with pytest.raises(SystemExit):
            await asked(sys.exit)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asked(lambda: next(iter(())))

    bounded(scene())


def test_an_idle_thread_is_used_again_and_one_that_hangs_is_not_waited_for() -> None:
    async def scene() -> None:
        threads, go_on = DaemonThreads("aside"), threading.Event()
        first = await threads.ask(threading.current_thread)
        assert await threads.ask(threading.current_thread) is first

        hanging = threads.ask(go_on.wait)
        other = await threads.ask(threading.current_thread)
        assert other is not first
        assert not hanging.done()
        go_on.set()
        assert await hanging

    bounded(scene())


def test_a_thread_ends_when_nobody_needs_it_and_the_next_call_gets_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daemon_threads, "IDLE_SECONDS", 0.001)

    async def scene() -> None:
        threads = DaemonThreads("aside")
        first = await threads.ask(threading.current_thread)
        assert isinstance(first, threading.Thread)
        first.join(20)
        assert not first.is_alive()
        assert await threads.ask(lambda: 7) == 7

    bounded(scene())


def test_an_answer_nobody_waits_for_any_more_is_dropped() -> None:
    async def scene() -> None:
        threads, go_on = DaemonThreads("aside"), threading.Event()
        asked = threads.ask(go_on.wait)
        asked.cancel()
        go_on.set()
        thread = await threads.ask(threading.current_thread)
        assert isinstance(thread, threading.Thread)

    bounded(scene())


def test_an_answer_to_a_loop_that_has_ended_is_dropped() -> None:
    go_on, over = threading.Event(), threading.Event()
    threads = DaemonThreads("aside")
    thread: list[threading.Thread] = []
    asked: list[asyncio.Future[object]] = []

    def late() -> None:
        thread.append(threading.current_thread())
        go_on.wait(20)

    async def scene() -> None:
        asked.append(threads.ask(late))
        await until(lambda: thread)

    bounded(scene())
    go_on.set()
    bounded(_asked(threads, over))
    assert over.is_set()


async def _asked(threads: DaemonThreads, over: threading.Event) -> None:
    await threads.ask(over.set)


def test_a_hook_that_hangs_is_called_only_so_often_and_again_when_it_has_returned(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOOK_SECONDS", 0.001)
    go_on, ended, calls = threading.Event(), threading.Semaphore(0), list[int]()

    def hanging(event: Event) -> None:
        calls.append(event.job_id)
        go_on.wait(20)
        ended.release()

    pipeline = failing(on_dead=hanging)
    rd.submit_many(pipeline, range(UNRETURNED_MAX + 3))
    work(store, pipeline)

    async def scene() -> None:
        threads = DaemonThreads("aside")
        hooks = Delivery(store, lanes_of(store, [pipeline]), clock, ask_store=at_once, call=threads.ask)
        for _ in range(5):
            await hooks.deliver()
            clock.advance(1_000)
        assert len(calls) == UNRETURNED_MAX
        assert [row[0] for row in rows(store, "tries", "outbox")].count(0) == 3

        go_on.set()
        for _ in range(UNRETURNED_MAX):
            assert ended.acquire(timeout=20)
        monkeypatch.setattr(module, "HOOK_SECONDS", 20.0)
        clock.advance(1_000)
        while await hooks.deliver():
            pass

    bounded(scene())
    assert rows(store, "id", "outbox") == []


class RefusalError(Exception):
    """What the sink of the next test raises, so that it is known among all other objects."""


class Refusing:
    name = "refusing"

    def deliver(self, letter: object) -> None:
        raise RefusalError(letter)


@pytest.mark.untraced
def test_what_a_sink_raised_leaves_no_cyclic_garbage(tmp_path: Path) -> None:
    pipeline = failing(sinks=[Refusing()])
    gc.disable()
    try:
        with connect(tmp_path / "jobs.db") as rd:
            rd.submit_many(pipeline, range(3))
            rd.work([pipeline], until_idle=True)
            alive = [thing for thing in gc.get_objects() if issubclass(type(thing), RefusalError)]
            ((tries,),) = rd.store.read("SELECT sum(tries) FROM outbox")  # type: ignore[attr-defined]
    finally:
        gc.enable()

    assert (tries, alive) == (3, [])


HANGS = """
import threading
from redrive import Pipeline, RetryPolicy, connect, stage
from redrive.engine.delivery import outbox

outbox.HOOK_SECONDS = outbox.FLUSH_SECONDS = 0.01

def hang(event):
    threading.Event().wait()

@stage(retry=RetryPolicy(1))
def call(number):
    raise ValueError(number)

with connect("jobs.db") as rd:
    pipeline = Pipeline("shop", [call], on_dead=hang)
    print(rd.run(pipeline, iter(range(3))).dead)
"""


def test_a_hook_that_never_returns_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], cwd=tmp_path, timeout=30, capture_output=True, text=True, check=True
    )

    assert done.stdout == "3\n"


def test_a_source_is_read_while_all_threads_of_the_loop_hang(filed: Redrive) -> None:
    go_on = threading.Event()

    @stage
    def call(number: int) -> int:
        return number

    async def scene() -> int:
        hung = [asyncio.ensure_future(asyncio.to_thread(go_on.wait, 20)) for _ in range(64)]
        report = await driver.drive_run(
            filed.store,
            Pipeline("shop", [call]),
            items=iter(range(5)),
            options=RunOptions(),
            how=Options(takes_signals=False),
        )
        go_on.set()
        await asyncio.gather(*hung)
        return report.succeeded

    try:
        assert bounded(scene()) == 5
    finally:
        go_on.set()


@pytest.mark.parametrize("is_hanging", [False, True], ids=["slow", "hanging"])
def test_a_source_that_is_read_no_more_is_waited_for_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, is_hanging: bool
) -> None:
    monkeypatch.setattr(driver, "LAST_ITEM_SECONDS", 0.001 if is_hanging else 20.0)
    begun, go_on, yielded = threading.Event(), threading.Event(), list[int]()

    def source() -> Generator[int]:
        for number in range(100):
            begun.set()
            go_on.wait(20)
            yielded.append(number)
            yield number

    async def scene() -> None:
        items = source()
        reading = asyncio.ensure_future(anext(driver._batches(items, SYSTEM_CLOCK)))
        await until(begun.is_set)
        reading.cancel()
        await turns()
        if not is_hanging:
            assert not reading.done()
            go_on.set()
        assert isinstance((await asyncio.gather(reading, return_exceptions=True))[0], asyncio.CancelledError)
        if not is_hanging:
            # Nobody is reading it: else this is an error.
            items.close()

    try:
        bounded(scene())
        assert yielded == ([] if is_hanging else [0])
    finally:
        go_on.set()
