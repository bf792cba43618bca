# SPDX-License-Identifier: Apache-2.0
"""A worker whose `run` is cancelled while a commit is on its way: what was settled is committed when it signs off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redrive import Redrive
from redrive.engine.worker.slots import WorkerParts
from redrive.errors import StoreUnavailableError
from redrive.store.records import ExchangeRequest
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import InlineThreads, NoProcesses, T
from tests.unit.build import attempts, bounded, jobs, one_stage, until, worker_on


@pytest.mark.parametrize("lost", ["question", "answer"])
def test_an_outcome_that_waits_to_be_sent_again_is_committed_when_the_worker_signs_off(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    runs: list[int] = []
    sent: list[int] = []
    plain = store.exchange

    async def go(number: int) -> int:
        runs.append(number)
        return number

    def exchange(asked: ExchangeRequest) -> object:
        if asked.done:
            sent.append(len(asked.done))
        if len(sent) == 1:
            if lost == "answer":
                plain(asked)
            raise StoreUnavailableError(database="x", cause="busy")
        return plain(asked)

    async def for_ever(_seconds: float) -> None:
        await asyncio.Event().wait()

    async def scene() -> None:
        monkeypatch.setattr(clock, "asleep", for_ever)
        task = asyncio.ensure_future(worker_on(store, pipeline).run())
        await until(lambda: sent)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    pipeline = one_stage(go)
    rd.submit(pipeline, 1)
    monkeypatch.setattr(store, "exchange", exchange)
    bounded(scene())

    assert (runs, sent) == ([1], [1, 1])
    assert attempts(store) == [("ok",)]
    assert jobs(store) == [("complete",)]


def test_an_outcome_that_could_not_be_sent_before_a_second_stop_is_committed_when_the_worker_signs_off(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    plain = store.exchange

    async def go(number: int) -> int:
        return number

    async def scene() -> None:
        worker = worker_on(store, pipeline)

        def exchange(asked: ExchangeRequest) -> object:
            sent.append(len(asked.done))
            if asked.done and sum(sent) == 1:
                worker.stop()
                worker.stop()
                raise StoreUnavailableError(database="x", cause="busy")
            return plain(asked)

        monkeypatch.setattr(store, "exchange", exchange)
        await worker.run()

    pipeline = one_stage(go)
    rd.submit(pipeline, 1)
    bounded(scene())

    assert attempts(store) == [("ok",)]
    assert jobs(store) == [("complete",)]


@pytest.mark.usefixtures("clock")
def test_an_outcome_whose_commit_is_under_way_is_committed_once(store: SqliteStore, rd: Redrive) -> None:
    """Of the commit whose answer nobody waits for any more, it is not known whether it was made."""
    asked: list[bool] = []

    async def slow(question: Callable[[], T]) -> T:
        if not asked and attempts_due():
            asked.append(True)
            question()
            await asyncio.Event().wait()
        return question()

    async def scene() -> None:
        parts = WorkerParts(ask_store=slow, threads=InlineThreads(), processes=NoProcesses())
        task = asyncio.ensure_future(worker_on(store, pipeline, parts=parts).run())
        await until(lambda: asked)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    ran: list[int] = []

    def attempts_due() -> bool:
        return bool(ran)

    async def go(number: int) -> int:
        ran.append(number)
        return number

    pipeline = one_stage(go)
    rd.submit(pipeline, 1)
    bounded(scene())

    assert attempts(store) == [("ok",)]
    assert jobs(store) == [("complete",)]
