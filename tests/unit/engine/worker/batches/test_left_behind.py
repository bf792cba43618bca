# SPDX-License-Identifier: Apache-2.0
"""Calls that outlive their worker's death: their one slot, the limit of their stage, and what they leave to the next call."""

from __future__ import annotations

import asyncio
import threading

import pytest

from redrive import Batch, Redrive
from redrive.engine.worker import slots
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import (
    STUCK_SECONDS,
    attempts,
    bounded,
    jobs,
    one_stage,
    threaded_parts,
    turns,
    until,
    worker_on,
    working,
)
from tests.unit.engine.worker.slots.test_left_behind import live_again

PLACES = 4


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that does not let itself be cancelled is left behind soon."""
    monkeypatch.setattr(slots, "GRACE_SECONDS", 0.01)


async def stubborn(gate: asyncio.Event) -> None:
    """Wait at a gate, and let nobody cancel that."""
    while not gate.is_set():
        try:
            await gate.wait()
        except asyncio.CancelledError:
            continue


def test_a_half_that_is_left_behind_after_the_other_one_was_settled_keeps_its_slot_and_frees_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    gate, calls = asyncio.Event(), list[list[int]]()

    async def picky(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        if len(numbers) == 4:
            raise ValueError("one of them is bad")
        if len(calls) == 3:
            await stubborn(gate)
        return numbers

    pipeline = one_stage(picky, batch=Batch(size=4, wait=0, on_error="split"))
    rd.submit_many(pipeline, range(4))

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=PLACES)
        async with working(worker):
            await until(lambda: len(calls) == 3 and rd.jobs.counts().get("complete") == 2)
            await live_again(worker, store, clock)
            await until(lambda: jobs(store) == [("complete",)] * 4)
            assert worker.slots.room(0) == PLACES - 1
            gate.set()
            await until(lambda: worker.slots.room(0) == PLACES)
            assert worker.slots._in_use == dict.fromkeys(worker.lanes, 0)

    bounded(scene())
    assert calls == [[0, 1, 2, 3], [0, 1], [2, 3], [2, 3]]


def test_a_half_that_waited_when_the_call_was_left_behind_is_not_called(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """Its jobs have their next attempt by then."""
    gate, calls = asyncio.Event(), list[list[int]]()

    async def picky(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        if len(calls) == 1:
            raise ValueError("one of them is bad")
        if len(calls) == 2:
            await stubborn(gate)
        return numbers

    pipeline = one_stage(picky, batch=Batch(size=4, wait=0, on_error="split"))
    rd.submit_many(pipeline, range(4))

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=PLACES)
        async with working(worker):
            await until(lambda: len(calls) == 2)
            await live_again(worker, store, clock)
            await until(lambda: jobs(store) == [("complete",)] * 4)
            gate.set()
            await until(lambda: worker.slots.room(0) == PLACES)

    bounded(scene())
    assert calls == [[0, 1, 2, 3], [0, 1], [0, 1, 2, 3]]
    assert attempts(store) == [("crashed",)] * 4 + [("ok",)] * 4


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_call_that_outlives_its_workers_death_still_counts_for_the_limit_of_its_stage(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    gate, may_end = asyncio.Event(), threading.Event()
    calls: list[list[int]] = []

    async def wait(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        if len(calls) == 1:
            await stubborn(gate)
        return numbers

    def block(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        assert len(calls) > 1 or may_end.wait(STUCK_SECONDS)
        return numbers

    pipeline = one_stage(wait if is_async else block, batch=Batch(size=2, wait=0), concurrency=1)
    rd.submit_many(pipeline, range(2))

    async def scene() -> None:
        parts = threaded_parts(PLACES, watch=0.001)
        worker = worker_on(store, pipeline, parts=parts, concurrency=PLACES)
        async with working(worker):
            await until(lambda: calls)
            try:
                await live_again(worker, store, clock)
                await turns(300)
                assert len(calls) == 1
            finally:
                may_end.set()
                gate.set()
            await until(lambda: rd.jobs.counts() == {"complete": 2})

    bounded(scene())
    assert attempts(store) == [("crashed",)] * 2 + [("ok",)] * 2


def test_a_call_that_is_dropped_before_there_is_a_thread_for_it_is_never_made(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """Its jobs are back in the queue; another worker may run them by now."""
    calls: list[list[int]] = []
    may_end = threading.Event()

    def block(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        assert may_end.wait(STUCK_SECONDS)
        return numbers

    pipeline = one_stage(block, batch=Batch(size=2, wait=0))
    rd.submit_many(pipeline, range(4))

    async def scene() -> None:
        worker = worker_on(store, pipeline, parts=threaded_parts(1), concurrency=PLACES)
        async with working(worker):
            await until(lambda: calls and worker.slots.running == 4)
        may_end.set()
        await until(lambda: worker.slots.room(0) == PLACES)
        assert not any(worker.slots._in_use.values())

    bounded(scene())
    assert calls == [[0, 1]]
