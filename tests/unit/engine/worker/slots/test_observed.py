# SPDX-License-Identifier: Apache-2.0
"""What observers see of attempts that were cut off, or whose function was never called."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from types import SimpleNamespace

import msgspec
import pytest

from redrive import Batch, Context, Pipeline, Redrive, stage
from redrive.engine.observers import AttemptFacts, Observer, Observers
from redrive.engine.pipeline import lanes
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.transactional import Ended
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.settlements import settlement_of_stop
from redrive.engine.worker.slots import WorkerParts
from redrive.engine.worker.threads import StageThreads
from redrive.store.records import ClaimRequest, ExchangeRequest
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


class Willing(NoProcesses):
    """Would run every stage in a process."""

    def can_run(self, _lane: Lane) -> bool:
        return True


def test_a_transaction_whose_lease_was_lost_has_crashed_and_makes_room_also_that_of_a_suspect(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspect runs where its transaction is, and not in a process of its own."""
    monkeypatch.setattr(lanes, "_check_transactional", lambda *_: None)
    rooms: list[int] = []
    seen = Attempts()
    observers = Observers([seen])

    @stage(transactional=True)
    def charge(number: int, ctx: Context) -> int:
        raise AssertionError(ctx.job_id, number)

    async def lose(dispatch: Dispatch) -> Ended:
        dispatch.observing = observers.start_attempt(dispatch.facts())
        return Ended(settlement_of_stop(dispatch), "lost")

    pipeline = Pipeline("shop", [charge])
    rd.submit(pipeline, 7)
    store.start_worker("w1", clock.wall(), 60)

    async def scene() -> None:
        parts = WorkerParts(
            ask_store=at_once, threads=InlineThreads(), processes=Willing(), observers=observers
        )
        worker = worker_on(store, pipeline, parts=parts, concurrency=1)
        slots = worker.slots
        slots._transactional = SimpleNamespace(run=lose)  # type: ignore[assignment]
        slots._on_room = lambda: rooms.append(slots.room(0))
        want = ClaimRequest(tuple(worker.lanes), 1)
        (job,) = store.exchange(ExchangeRequest("w1", [], want, now=clock.wall(), token=1)).claimed
        slots.put([msgspec.structs.replace(job, suspects=2)])
        slots.fill()
        await until(lambda: rooms)
        assert slots.is_empty

    bounded(scene())
    assert rooms == [1]
    assert seen.steps == ["1 started", "1 crashed"]


class Rounds(Observer):
    """Notes of which round attempts are, and follows none of them."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def attempt_started(self, facts: AttemptFacts) -> None:
        self.seen.append((facts.job_id, facts.round))


def too_many(numbers: list[int]) -> list[int]:
    if len(numbers) > 1:
        raise ValueError("too many at once")
    return numbers


def plain(number: int) -> int:
    return number


async def aplain(number: int) -> int:
    return number


STAGES: Mapping[str, Pipeline] = {
    "sync": one_stage(plain),
    "async": one_stage(aplain),
    "a call in halves": one_stage(too_many, batch=Batch(size=2, on_error="split")),
}


@pytest.mark.parametrize("pipeline", STAGES.values(), ids=STAGES)
def test_an_observer_that_follows_no_attempt_hears_of_each_once_and_of_which_round_it_is(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, pipeline: Pipeline
) -> None:
    rounds = Rounds()
    parts = WorkerParts(
        ask_store=at_once, threads=InlineThreads(), processes=NoProcesses(), observers=Observers([rounds])
    )
    rd.submit_many(pipeline, range(2))
    store._db.execute("UPDATE jobs SET round = 3")
    work(store, pipeline, parts=parts)

    assert rounds.seen == [(1, 3), (2, 3)]
