# SPDX-License-Identifier: Apache-2.0
"""The end of a call: when it was, what observers see of it, what its thread forgets, and what may stand for an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from redrive import Batch, Finish, Pipeline, Redrive, stage
from redrive.engine.observers import AttemptFacts, Observer, Observers
from redrive.engine.worker.dispatch import RUNNING
from redrive.engine.worker.job_logging import CURRENT_CALL, CURRENT_JOB
from redrive.engine.worker.slots import WorkerParts
from redrive.store.records import ClaimRequest, ExchangeRequest
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import A, InlineThreads, NoProcesses, T, at_once
from tests.unit.build import ONCE, attempts, bounded, jobs, letters, one_stage, work, worker_on

both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


class LateThreads:
    """Runs functions on the loop, notes for which jobs it would log after that, and brings what they returned late."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.logging: list[object] = []

    def start(self, work: Callable[[A], T], of: A, done: Callable[[A, T], None]) -> None:
        def call() -> None:
            result = work(of)
            self.logging.append((CURRENT_JOB.get(), CURRENT_CALL.get()))
            self.clock.advance(30)
            done(of, result)

        asyncio.get_running_loop().call_soon(call)


@pytest.mark.parametrize("is_right", [True, False])
def test_a_call_that_ended_in_time_is_in_time_although_the_loop_hears_of_it_later(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_right: bool
) -> None:
    def embed(numbers: list[int]) -> list[int]:
        clock.advance(6)
        if not is_right:
            raise KeyError(numbers[0])
        return numbers

    threads = LateThreads(clock)
    pipeline = one_stage(embed, batch=Batch(size=2, wait=0), timeout=10, retry=ONCE)
    rd.submit_many(pipeline, range(3))
    parts = WorkerParts(ask_store=at_once, threads=threads, processes=NoProcesses())
    work(store, pipeline, parts=parts, concurrency=1)

    assert "TIMEOUT" not in str(jobs(store, "error_code"))
    assert (
        attempts(store, "outcome, ended_at - started_at, decision ->> '$.reason'")
        == [("ok" if is_right else "dead", 6.0, None if is_right else "permanent")] * 3
    )
    assert threads.logging == [(None, ())] * 2


class Attempts(Observer):
    """Notes what it sees of each attempt."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def attempt_started(self, facts: AttemptFacts) -> Seen:
        self.steps.append(f"{facts.job_id} started")
        return Seen(self.steps, facts.job_id)


class Seen:
    """One attempt."""

    def __init__(self, steps: list[str], job: int) -> None:
        self.steps = steps
        self.job = job

    def returned(self) -> None:
        self.steps.append(f"{self.job} returned")

    def settled(self, outcome: str, _code: str | None) -> None:
        self.steps.append(f"{self.job} {outcome}")


@both
def test_observers_see_each_attempt_of_a_call_once_although_it_is_halved_and_the_last_that_began_returns_first(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    def picky(numbers: list[int]) -> list[int]:
        if len(numbers) > 1:
            raise ValueError("too many at once")
        return numbers

    async def apicky(numbers: list[int]) -> list[int]:
        return picky(numbers)

    seen = Attempts()
    parts = WorkerParts(
        ask_store=at_once, threads=InlineThreads(), processes=NoProcesses(), observers=Observers([seen])
    )
    pipeline = one_stage(apicky if is_async else picky, batch=Batch(size=2, on_error="split"))
    rd.submit_many(pipeline, range(2))
    work(store, pipeline, parts=parts)

    assert seen.steps == ["1 started", "2 started", "2 returned", "1 returned", "1 ok", "2 ok"]


@both
def test_a_call_that_finishes_all_its_jobs_with_what_does_not_fit_is_not_halved(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    calls: list[int] = []

    def done(numbers: list[int]) -> list[int]:
        calls.append(len(numbers))
        raise Finish("no number")

    async def adone(numbers: list[int]) -> list[int]:
        return done(numbers)

    first = stage(batch=Batch(size=4, on_error="split"), name="embed")(adone if is_async else done)
    pipeline = Pipeline("shop", [first])
    rd.submit_many(pipeline, range(4))
    work(store, pipeline)

    assert calls == [4]
    assert letters(store) == [("BUG_CODE",)] * 4


@both
def test_what_is_no_exception_but_could_be_raised_is_the_failure_of_its_job_in_the_list_too(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    def ended(numbers: list[int]) -> list[Any]:
        return [SystemExit("told to end") if number == 1 else number for number in numbers]

    async def aended(numbers: list[int]) -> list[Any]:
        return ended(numbers)

    pipeline = one_stage(aended if is_async else ended, batch=Batch(size=3), retry=ONCE)
    rd.submit_many(pipeline, range(3))
    work(store, pipeline)

    assert jobs(store) == [("complete",), ("failed",), ("complete",)]
    assert "told to end" in str(letters(store, "message"))


def test_a_call_whose_loop_is_gone_settles_nothing_when_it_is_closed(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    begun: list[int] = []
    bodies: list[Coroutine[Any, Any, None]] = []

    async def endless(numbers: list[int]) -> list[int]:
        begun.extend(numbers)
        await asyncio.Event().wait()
        return numbers

    pipeline = one_stage(endless, batch=Batch(size=2))
    rd.submit_many(pipeline, range(2))

    async def scene() -> list[Any]:
        worker = worker_on(store, pipeline)
        store.start_worker("w1", clock.wall(), 60)
        want = ClaimRequest(tuple(worker.lanes), 2)
        worker.slots.put(store.exchange(ExchangeRequest("w1", [], want, now=clock.wall(), token=1)).claimed)
        worker.slots._start_task = lambda _of, body: bodies.append(body)  # type: ignore[method-assign, assignment]
        worker.slots.fill()
        bodies[0].send(None)
        return worker.slots.dispatches()

    dispatches = bounded(scene())
    bodies[0].close()

    assert begun == [0, 1]
    assert [dispatch.state for dispatch in dispatches] == [RUNNING] * 2
