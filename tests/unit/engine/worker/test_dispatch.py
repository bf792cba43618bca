# SPDX-License-Identifier: Apache-2.0
"""Which job runs when, and how many at once: expiry, priorities, limits, and values of any size on their way through."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from redrive import Backoff, Breaker, Context, Pipeline, Redrive, RetryPolicy, stage
from redrive.core.breaker_state import Phase
from redrive.engine.worker.breakers import SharedBreakers
from redrive.store.records import INLINE_MAX
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import (
    STEADY,
    attempts,
    bounded,
    jobs,
    letters,
    one_stage,
    threaded_parts,
    until,
    work,
    worker_on,
    working,
)

BIG = "x" * (INLINE_MAX + 1)


def at(clock: VirtualClock, seconds: float) -> datetime:
    return datetime.fromtimestamp(clock.wall(), UTC) + timedelta(seconds=seconds)


def test_a_job_whose_turn_comes_too_late_is_given_up_without_being_run(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    ran: list[int] = []
    pipeline = one_stage(ran.append, name="note")
    rd.submit(pipeline, 1, expires_at=at(clock, 10))
    rd.submit(pipeline, 2, expires_at=at(clock, 20))
    clock.advance(20)
    work(store, pipeline)

    assert ran == [2]
    assert jobs(store, "status, error_code") == [("failed", "JOB_EXPIRED"), ("complete", None)]
    assert letters(store, "code, state") == [("JOB_EXPIRED", "open")]


def test_a_job_may_expire_between_two_attempts(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    ran: list[int] = []

    def flaky(number: int) -> None:
        ran.append(number)
        raise ConnectionResetError(104, "reset")

    pipeline = one_stage(flaky, retry=RetryPolicy(5, Backoff.fixed(20)))
    rd.submit(pipeline, 1, expires_at=at(clock, 30))
    work(store, pipeline)

    assert ran == [1, 1]
    assert jobs(store, "error_code") == [("JOB_EXPIRED",)]


def test_jobs_that_expired_prove_nothing_about_the_dependency(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    breaker = Breaker("api", consecutive=2, counts="all")
    pipeline = one_stage(lambda number: number, name="call", breaker=breaker)
    for number in range(5):
        rd.submit(pipeline, number, expires_at=at(clock, 10))
    clock.advance(20)
    work(store, pipeline)

    shared = SharedBreakers(store, [breaker])
    shared.flush(clock.wall())
    assert rd.jobs.counts() == {"failed": 5}
    assert shared.standing(breaker).state.phase is Phase.CLOSED


def test_urgent_jobs_go_first_whenever_they_were_submitted(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    order: list[int] = []
    pipeline = one_stage(order.append, name="note")
    for priority in (9, 5, 0, 3):
        rd.submit(pipeline, priority, priority=priority)
        rd.submit(pipeline, priority, priority=priority)
    work(store, pipeline, concurrency=1)

    assert order == [0, 0, 3, 3, 5, 5, 9, 9]


class Crowd:
    """A stage that remembers how many of it ran at the same time."""

    def __init__(self) -> None:
        self.running = self.most = self.ran = 0

    async def __call__(self, number: int) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(3):
            await asyncio.sleep(0)
        self.running -= 1
        self.ran += 1
        return number


def test_a_stage_runs_at_most_as_often_at_once_as_it_allows_and_others_use_the_rest(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    narrow, wide = Crowd(), Crowd()

    async def one(number: int) -> int:
        return await narrow(number)

    async def two(number: int) -> int:
        return await wide(number)

    pipeline = Pipeline("shop", [stage(concurrency=3)(one)])
    free = Pipeline("free", [stage(two)])
    rd.submit_many(pipeline, range(30))
    rd.submit_many(free, range(30))
    work(store, pipeline, free, concurrency=10)

    assert (narrow.most, narrow.ran, wide.ran) == (3, 30, 30)
    assert wide.most > 3


def test_what_is_claimed_ahead_waits_for_a_place_and_for_the_limit_of_its_stage(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    held: list[int] = []
    limited, every = Crowd(), Crowd()

    async def one(number: int) -> int:
        held.append(int(str(store.read("SELECT count(*) FROM jobs WHERE status = 'processing'")[0][0])))
        await limited(number)
        return number

    async def each(number: int, ctx: Context) -> int:
        every.running += 1
        every.most = max(every.most, every.running)
        await (one(number) if ctx.stage == "one" else asyncio.sleep(0))
        every.running -= 1
        return number

    pipeline = Pipeline("shop", [stage(name="one", concurrency=2)(each), stage(name="two")(each)])
    rd.submit_many(pipeline, range(60))
    work(store, pipeline, concurrency=4)

    assert (limited.most, every.most) == (2, 4)
    # Those that run, as many that wait for a place, and as many whose outcome is not committed yet.
    assert max(held) <= 3 * 4
    assert rd.jobs.counts() == {"complete": 60}


def test_the_probe_of_a_breaker_keeps_to_the_limit_of_its_stage(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    breaker = Breaker("api", consecutive=1, open_for=1)
    running = most = 0

    async def scene() -> None:
        go_on = asyncio.Event()

        async def call(number: int) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await go_on.wait()
            running -= 1
            return number

        pipeline = one_stage(call, breaker=breaker, concurrency=1)
        rd.submit_many(pipeline, [1, 2])
        other = one_stage(lambda number: number, "other", name="wake")
        worker = worker_on(store, pipeline, other, concurrency=4)
        async with working(worker):
            await until(lambda: running)
            _open(store, breaker, clock)
            clock.advance(5)
            rd.submit(other, 1)
            worker._wake.set()
            await until(lambda: rd.jobs.counts().get("complete"))
            go_on.set()
            await until(lambda: rd.jobs.counts().get("complete") == 3)

    bounded(scene())
    assert most == 1


def _open(store: SqliteStore, breaker: Breaker, clock: VirtualClock) -> None:
    from redrive.core.breaker import Evidence

    somebody = SharedBreakers(store, [breaker])
    somebody.note(breaker, Evidence.DOWN)
    somebody.flush(clock.wall())


def test_a_large_payload_goes_through_large_inputs_to_a_large_result(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = Pipeline("shop", [stage(name=name)(lambda text: text + "!") for name in ("one", "two")])  # type: ignore[misc]  # a lambda has no types to infer
    job = rd.submit(pipeline, BIG)
    work(store, pipeline)

    assert job.result() == BIG + "!!"
    assert jobs(store, "payload, input, result") == [(None, None, None)]
    assert store.read("SELECT dispatch, length(value) FROM job_values ORDER BY dispatch") == [
        (0, len(BIG) + 2),
        (1, len(BIG) + 3),
        (2, len(BIG) + 4),
    ]


@pytest.mark.parametrize("sizes", [(BIG, "small", BIG), ("small", BIG, "small"), (BIG, BIG, "small")])
def test_values_may_grow_and_shrink_from_stage_to_stage(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, sizes: tuple[str, str, str]
) -> None:
    seen: list[object] = []

    def turn(text: str, ctx: Context) -> str:
        seen.append(text)
        return sizes[len(seen)] if len(seen) < 3 else text

    pipeline = Pipeline("shop", [stage(name=name)(turn) for name in ("one", "two", "three")])
    job = rd.submit(pipeline, sizes[0])
    work(store, pipeline)

    assert seen == list(sizes)
    assert job.result() == sizes[2]


def test_every_attempt_of_a_stage_gets_the_stored_input_however_large(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    seen: list[str] = []

    def check(text: str, ctx: Context) -> int:
        seen.append(text)
        if ctx.attempt < 3:
            raise ConnectionResetError(104, "reset")
        return len(text)

    pipeline = Pipeline("shop", [stage(name="grow")(lambda text: text + BIG), stage(retry=STEADY)(check)])  # type: ignore[misc]  # a lambda has no types to infer
    rd.submit(pipeline, "a")
    rd.submit(pipeline, BIG)
    work(store, pipeline)

    assert sorted(map(len, seen)) == [len(BIG) + 1] * 3 + [2 * len(BIG)] * 3
    assert rd.jobs.counts() == {"complete": 2}


def test_a_large_keyed_job_has_its_duplicate_and_many_large_jobs_go_in_one_batch(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    def measure(text: str) -> int:
        return len(text)

    pipeline = one_stage(measure)
    assert rd.submit(pipeline, BIG, key="a").id == rd.submit(pipeline, BIG, key="a").id
    ids = rd.submit_many(pipeline, [BIG, "small", BIG])
    work(store, pipeline)

    assert [rd.job(each).result() for each in ids] == [len(BIG), 5, len(BIG)]


def test_an_output_that_cannot_be_encoded_is_not_tried_again(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = one_stage(lambda _number: {1, threading.Lock()}, name="make", retry=STEADY)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert len(attempts(store)) == 1
    assert "make (output)" in str(jobs(store, "error_message"))


def test_a_row_the_store_refuses_is_a_failure_of_its_attempt_and_the_others_commit(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """A trigger stands for a constraint that only some rows break."""
    pipeline = one_stage(lambda number: number, name="give")
    rd.submit_many(pipeline, [1, 13, 2])
    store._db.execute(
        "CREATE TRIGGER unlucky BEFORE UPDATE OF result ON jobs WHEN NEW.result = CAST('13' AS BLOB) "
        "BEGIN SELECT RAISE(ABORT, 'unlucky'); END"
    )
    work(store, pipeline)

    assert jobs(store) == [("complete",), ("failed",), ("complete",)]
    assert "the store refused it" in str(jobs(store, "error_message"))


def test_stages_with_room_on_threads_are_refilled_while_others_block(store: SqliteStore, rd: Redrive) -> None:
    go_on = threading.Event()
    done: list[int] = []

    def mixed(number: int) -> int:
        if number == 0:
            assert go_on.wait(15)
        done.append(number)
        return number

    async def scene() -> None:
        pipeline = one_stage(mixed)
        rd.submit_many(pipeline, range(20))
        worker = worker_on(store, pipeline, parts=threaded_parts(2, watch=0.001), concurrency=2)
        async with working(worker):
            await until(lambda: rd.jobs.counts().get("complete") == 19)
            go_on.set()
            await until(lambda: rd.jobs.counts().get("complete") == 20)

    bounded(scene())
    assert done[-1] == 0
