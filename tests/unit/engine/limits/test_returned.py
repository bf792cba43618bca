# SPDX-License-Identifier: Apache-2.0
"""What a worker was given of a limit and does not use, it returns: slots while it is full or stopping, tokens of jobs not started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redrive import Batch, Context, Limit, Pipeline, Redrive
from redrive.core.limit_state import LimitState
from redrive.engine.limits.meter import DECODE_LIMIT, ENCODE_LIMIT
from redrive.engine.worker.slots import WorkerParts
from redrive.engine.worker.worker import Worker
from redrive.errors import StoreUnavailableError
from redrive.store.records import Exchange, ExchangeRequest
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import workers as worker_sql
from redrive.testing import VirtualClock
from tests.inline import InlineThreads, NoProcesses, T
from tests.unit.build import (
    beside,
    bounded,
    one_stage,
    passing,
    turns,
    until,
    watching_parts,
    work,
    worker_on,
    working,
)


class Gate:
    """A stage that waits until it is opened."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.opened = asyncio.Event()

    async def call(self, value: int) -> int:
        self.started.append(value)
        await self.opened.wait()
        return value

    def pipeline(self, name: str, *limits: Limit) -> Pipeline:
        return one_stage(self.call, name, name="call", limits=limits)


def named(store: SqliteStore, name: str, *pipelines: Pipeline, concurrency: int = 2) -> Worker:
    worker = worker_on(store, *pipelines, concurrency=concurrency, parts=watching_parts())
    worker.name = name
    return worker


def state_of(store: SqliteStore, name: str, key: str = "") -> LimitState:
    (raw,) = store.query(worker_sql.limit(name=name, key=key))
    return DECODE_LIMIT(raw)


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_worker_that_is_full_or_stops_keeps_no_slots_that_it_does_not_use(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_stopping: bool
) -> None:
    async def scene() -> list[int]:
        gate, other = Gate(), Gate()
        shop, others = gate.pipeline("shop", Limit("db", concurrency=2)), other.pipeline("other")
        rd.submit(shop, 1)
        rd.submit(others, 1)
        first = named(store, "first", shop, others)
        async with working(first):
            await until(lambda: gate.started and other.started)
            assert state_of(store, "db").shares["first"].slots == 2
            if is_stopping:
                first.stop()
            rd.submit(shop, 2)
            async with working(named(store, "second", shop)):
                await passing(clock, lambda: len(gate.started) == 2)
                return [share.slots for _, share in sorted(state_of(store, "db").shares.items())]

    assert bounded(scene()) == [1, 1]


def test_a_commit_that_is_made_again_keeps_the_slots_of_what_it_may_have_claimed(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, lost = store.exchange, list[str]()

    def losing(asked: ExchangeRequest) -> Exchange:
        answer = plain(asked)
        if asked.worker == "first" and answer.claimed and not lost:
            lost.append(asked.worker)
            raise StoreUnavailableError(database=":memory:", cause="the answer was lost")
        return answer

    async def scene() -> int:
        gate = Gate()
        shop = gate.pipeline("shop", Limit("db", concurrency=2))
        rd.submit_many(shop, range(6))
        async with working(named(store, "first", shop)):
            await until(lambda: lost)
            async with working(named(store, "second", shop)):
                for _ in range(10):
                    await clock.asleep(1)
                return len(gate.started)

    monkeypatch.setattr(store, "exchange", losing)

    assert bounded(scene()) == 2


def test_a_busy_worker_asks_for_no_slots_that_none_of_its_jobs_wait_for(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        gate, other = Gate(), Gate()
        limit = Limit("db", concurrency=4)
        shop, others = gate.pipeline("shop", limit), other.pipeline("other", limit)
        rd.submit(shop, 1)
        rd.submit_many(others, range(9))
        async with working(named(store, "first", shop, concurrency=8)):
            await until(lambda: gate.started)
            async with working(named(store, "second", others, concurrency=8)):
                await passing(clock, lambda: len(other.started) >= 3)

    bounded(scene())


def test_slots_of_a_key_are_returned_when_its_last_job_has_ended(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        gate = Gate()
        shop = gate.pipeline("shop", Limit("tenant", concurrency=2, key=lambda job: job.owner))
        rd.submit(shop, 1, owner="ann")
        rd.submit(shop, 2, owner="bob")
        async with working(named(store, "first", shop)):
            await until(lambda: len(gate.started) == 2)
            assert state_of(store, "tenant", "ann").shares["first"].slots >= 1
            gate.opened.set()
            await passing(clock, lambda: not state_of(store, "tenant", "ann").shares)
            await passing(clock, lambda: not state_of(store, "tenant", "bob").shares)

    bounded(scene())


@pytest.mark.parametrize("cost", [None, lambda value: 1.0 + 0 * value])
def test_tokens_of_jobs_that_are_released_unstarted_are_returned(
    store: SqliteStore, rd: Redrive, cost: Callable[[int], float] | None
) -> None:
    async def echo(value: int) -> int:
        return value

    shop = one_stage(echo, limits=Limit("api", rate="10/day", burst=10, cost=cost))
    rd.submit_many(shop, range(6))

    async def scene() -> None:
        async def stopped_by_then(question: Callable[[], T]) -> T:
            answer = question()
            if rd.jobs.counts().get("processing"):
                worker.stop()
            return answer

        parts = WorkerParts(ask_store=stopped_by_then, threads=InlineThreads(), processes=NoProcesses())
        worker = worker_on(store, shop, parts=parts)
        await worker.run()

    bounded(scene())

    assert rd.jobs.counts() == {"queued": 6}
    assert state_of(store, "api").tokens == pytest.approx(10.0, abs=1e-3)


def test_tokens_of_jobs_that_wait_when_their_worker_is_cancelled_are_returned(
    store: SqliteStore, rd: Redrive
) -> None:
    gate = Gate()

    async def call(value: int) -> int:
        # Only who has ended some jobs claims more than it has slots for.
        return value if value < 6 else await gate.call(value)

    shop = one_stage(call, limits=Limit("api", rate="10/day", burst=10))
    rd.submit_many(shop, range(10))

    async def scene() -> None:
        worker = named(store, "first", shop)
        async with beside(worker.run()):
            await until(lambda: worker.slots.first_waiting is not None and len(gate.started) == 2)

    bounded(scene())

    assert rd.jobs.counts() == {"complete": 6, "queued": 4}
    assert state_of(store, "api").tokens == pytest.approx(2.0, abs=1e-3)


def test_tokens_of_jobs_that_wait_when_their_worker_is_stopped_are_returned(
    store: SqliteStore, rd: Redrive
) -> None:
    gate = Gate()

    async def call(value: int) -> int:
        return value if value < 6 else await gate.call(value)

    shop = one_stage(call, limits=Limit("api", rate="10/day", burst=10))
    rd.submit_many(shop, range(10))

    async def scene() -> None:
        worker = named(store, "first", shop)
        task = asyncio.ensure_future(worker.run())
        await until(lambda: worker.slots.first_waiting is not None and len(gate.started) == 2)
        worker.stop()
        gate.opened.set()
        await task

    bounded(scene())

    assert rd.jobs.counts() == {"complete": 8, "queued": 2}
    assert state_of(store, "api").tokens == pytest.approx(2.0, abs=1e-3)


def test_what_the_items_of_a_call_used_is_more_than_what_was_counted_for_the_call(
    store: SqliteStore, rd: Redrive
) -> None:
    async def embed(numbers: list[int], contexts: list[Context]) -> list[int]:
        for ctx in contexts:
            ctx.used("api", 2.0)
        return numbers

    limit = Limit("api", rate="1/day", burst=100)
    shop = one_stage(embed, batch=Batch(size=8, wait=0.01, limit_by="calls"), limits=limit)
    rd.submit_many(shop, range(4))
    work(store, shop)

    assert state_of(store, "api").tokens == pytest.approx(100.0 - 4 * 2.0, abs=1e-3)


class TestCallsAtOnce:
    """Of a batch that counts calls."""

    def test_calls_that_are_not_full_count_as_much_as_full_ones(
        self, store: SqliteStore, rd: Redrive, clock: VirtualClock
    ) -> None:
        now, seen, opened = [0], [0], asyncio.Event()

        async def embed(numbers: list[int]) -> list[int]:
            now[0] += 1
            seen.append(now[0])
            await opened.wait()
            now[0] -= 1
            return numbers

        batch, limit = Batch(size=4, wait=0.1, limit_by="calls"), Limit("api", concurrency=2)
        shop = one_stage(embed, batch=batch, limits=limit)

        async def scene() -> None:
            worker = named(store, "first", shop, concurrency=8)
            async with working(worker):
                for number in range(6):
                    rd.submit(shop, number)
                    worker.wake()
                    await turns()
                    # The first of them has waited long enough for others.
                    await clock.asleep(1.0)
                    await turns()
                assert now[0] == 2
                opened.set()
                await passing(clock, lambda: rd.jobs.counts() == {"complete": 6})

        bounded(scene())
        assert max(seen) == 2

    def test_a_call_is_full_although_few_may_run_at_once(self, store: SqliteStore, rd: Redrive) -> None:
        sizes: list[int] = []

        async def embed(numbers: list[int]) -> list[int]:
            sizes.append(len(numbers))
            return numbers

        batch = Batch(size=4, wait=0.1, limit_by="calls")
        shop = one_stage(embed, batch=batch, limits=Limit("api", concurrency=1))
        rd.submit_many(shop, range(12))
        work(store, shop)

        assert sizes == [4, 4, 4]


def test_keys_whose_only_slots_are_of_dead_workers_are_forgotten(store: SqliteStore, rd: Redrive) -> None:
    async def echo(value: int) -> int:
        return value

    shop = one_stage(echo, limits=Limit("tenant", concurrency=2, key=lambda job: job.owner))
    store.start_worker("alive", 0.0, 1e12)
    for owner in ("alive", "dead"):
        raw = b'{"shares":{"%b":{"slots":1,"wanted":1,"at":0}}}' % owner.encode()
        store.apply(
            worker_sql.add_limit(name="tenant", key=owner, state=ENCODE_LIMIT(DECODE_LIMIT(raw)), now=0.0)
        )
    rd.submit(shop, 1, owner="now")
    work(store, shop)

    assert store.read("SELECT key FROM limits ORDER BY key") == [("alive",), ("now",)]
