# SPDX-License-Identifier: Apache-2.0
"""What observers see of attempts that were cut off, or whose function was never called."""

from __future__ import annotations

import asyncio
import threading

import pytest

from redrive import Redrive
from redrive.engine.observers import Observers
from redrive.engine.worker.slots import WorkerParts
from redrive.engine.worker.threads import StageThreads
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import InlineThreads, NoProcesses, at_once
from tests.unit.build import STUCK_SECONDS, bounded, one_stage, until, work, worker_on, working
from tests.unit.engine.worker.batches.test_call_ends import Attempts


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_an_attempt_that_is_cut_off_has_crashed_for_its_observers(
    store: SqliteStore, rd: Redrive, is_async: bool
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def block(number: int) -> int:
        begun.set()
        assert may_end.wait(STUCK_SECONDS)
        return number

    async def wait(number: int) -> int:
        begun.set()
        await asyncio.Event().wait()
        return number

    seen = Attempts()
    pipeline = one_stage(wait if is_async else block)
    rd.submit(pipeline, 7)

    async def scene() -> None:
        parts = WorkerParts(
            ask_store=at_once,
            threads=StageThreads(1),
            processes=NoProcesses(),
            observers=Observers([seen]),
        )
        worker = worker_on(store, pipeline, parts=parts, concurrency=1)
        async with working(worker):
            await until(begun.is_set)
        assert seen.steps.count("1 crashed") == 1
        may_end.set()
        await until(lambda: worker.slots.room(0) == 1)

    bounded(scene())
    assert sorted(seen.steps) == ["1 crashed", "1 returned", "1 started"]


def test_an_attempt_whose_function_was_not_called_begins_returns_and_ends_for_its_observers(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    seen = Attempts()
    parts = WorkerParts(
        ask_store=at_once, threads=InlineThreads(), processes=NoProcesses(), observers=Observers([seen])
    )
    pipeline = one_stage(lambda number: number, name="plain")
    rd.submit(pipeline, 7)
    store._db.execute("UPDATE jobs SET expires_at = ?", (clock.wall() - 1,))
    work(store, pipeline, parts=parts)

    assert seen.steps == ["1 started", "1 returned", "1 dead"]
