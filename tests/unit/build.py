# SPDX-License-Identifier: Apache-2.0
"""What the tests of the engine are built from: a store, a worker, a heartbeat on demand.

Every scene is bounded in real time, so that a job that gets stuck fails its test instead of hanging the suite.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from redrive import Backoff, Jitter, Pipeline, RetryPolicy, stage
from redrive.engine.clock import cancel_all
from redrive.engine.replay.rules import record_rules
from redrive.engine.worker.leases import Leases
from redrive.engine.worker.slots import WorkerParts
from redrive.engine.worker.threads import StageThreads
from redrive.engine.worker.worker import Ending, Worker
from redrive.store.protocol import Store
from redrive.store.records import Settlement
from redrive.testing import VirtualClock
from tests.embedded import read_rows
from tests.inline import InlineThreads, NoProcesses, at_once, inline_parts

T = TypeVar("T")

STUCK_SECONDS = 60.0
STEADY = RetryPolicy(3, Backoff.exponential(1, jitter=Jitter.none()))
ONCE = RetryPolicy(1)


def bounded(scene: Coroutine[object, object, T]) -> T:
    """Run a scene; one that is stuck fails."""

    async def limited() -> T:
        async with asyncio.timeout(STUCK_SECONDS):
            return await scene

    return asyncio.run(limited())


def one_stage(function: Callable[..., object], pipeline: str = "shop", **options: Any) -> Pipeline:
    return Pipeline(pipeline, [stage(**options)(function)])


def worker_on(
    store: Store,
    *pipelines: Pipeline,
    parts: WorkerParts | None = None,
    on_commit: Callable[[list[Settlement]], None] | None = None,
    **options: object,
) -> Worker:
    """Build a worker; to be called on a loop."""
    names = (f"w{n}" for n in itertools.count(1))
    record_rules(store, pipelines)
    worker = Worker(store, pipelines, parts or inline_parts(), names=names, **options)  # type: ignore[arg-type]
    if on_commit is not None:
        worker.listeners.append(on_commit)
    return worker


def work(store: Store, *pipelines: Pipeline, hold_max: float = float("inf"), **options: Any) -> Ending:
    """Work until nothing is left."""

    async def scene() -> Ending:
        return await worker_on(store, *pipelines, **options).run(until_idle=True, hold_max=hold_max)

    return bounded(scene())


def threaded_parts(limit: int = 8, *, watch: float | None = None) -> WorkerParts:
    """Build parts whose sync stages run on real threads; the threads end with the process."""
    return WorkerParts(ask_store=at_once, threads=StageThreads(limit), processes=NoProcesses(), watch=watch)


def watching_parts() -> WorkerParts:
    """Build parts that run everything on the loop, for a worker that sees at once what others change."""
    return WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=NoProcesses(), watch=0.001)


def leases_of(store: Store, clock: VirtualClock, worker: Worker, *, lease: float = 30.0) -> Leases:
    return Leases(
        store,
        clock,
        lease=lease,
        on_dead=worker.declare_dead,
        on_cancel=worker.cancel,
        progress=worker.progress.write,
    )


@asynccontextmanager
async def working(worker: Worker) -> AsyncGenerator[asyncio.Task[Ending]]:
    """Let a worker run beside a scene, and stop it at the end."""
    task = asyncio.ensure_future(worker.run())
    try:
        yield task
    finally:
        worker.stop()
        worker.stop()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def beside(running: Coroutine[Any, Any, object]) -> AsyncGenerator[asyncio.Task[object]]:
    """Let something else run beside a scene, and cancel it at the end."""
    task = asyncio.ensure_future(running)
    try:
        yield task
    finally:
        await cancel_all(task)


def reached(loop: asyncio.AbstractEventLoop) -> None:
    """Wait, on a stage's thread, until the loop has done all that it was asked for so far."""
    there = threading.Event()
    loop.call_soon_threadsafe(there.set)
    assert there.wait(STUCK_SECONDS)


async def turns(count: int = 20) -> None:
    """Let the other tasks of the loop run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(is_true: Callable[[], object]) -> None:
    """Let the other tasks run until something is true."""
    while not is_true():  # noqa: ASYNC110 - what is waited for is a row, and nobody signals those.
        await asyncio.sleep(0)


async def passing(clock: VirtualClock, is_true: Callable[[], object], *, step: float = 1.0) -> None:
    """Let virtual time pass until something is true."""
    while not is_true():
        await clock.asleep(step)


async def items_of(items: Iterable[object]) -> AsyncIterator[object]:
    for item in items:
        yield item


def rows(store: Store, columns: str = "status", table: str = "jobs") -> list[tuple[object, ...]]:
    return read_rows(store, f"SELECT {columns} FROM {table} ORDER BY 1")


def jobs(store: Store, columns: str = "status") -> list[tuple[object, ...]]:
    return read_rows(store, f"SELECT {columns} FROM jobs ORDER BY id")


def attempts(store: Store, columns: str = "outcome") -> list[tuple[object, ...]]:
    return read_rows(store, f"SELECT {columns} FROM attempts ORDER BY seq")


def letters(store: Store, columns: str = "code") -> list[tuple[object, ...]]:
    return read_rows(store, f"SELECT {columns} FROM letters ORDER BY id")
