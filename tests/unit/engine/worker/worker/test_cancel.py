# SPDX-License-Identifier: Apache-2.0
"""Cancelling: at once while a job is queued, as its stage allows while it runs, and never a job that is stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from redrive import Backoff, Breaker, Context, Pipeline, Redrive, RetryPolicy, stage
from redrive.engine.pipeline.stage import Stage
from redrive.engine.worker.dispatch import ENDING
from redrive.engine.worker.slots import WorkerParts
from redrive.errors import JobNotFoundError
from redrive.ops.jobs.explain import explain
from redrive.store.records import JobId, Step
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import operations as operation_sql
from redrive.testing import VirtualClock
from tests.inline import InlineThreads, NoProcesses, T
from tests.unit.build import (
    attempts,
    bounded,
    jobs,
    leases_of,
    one_stage,
    reached,
    threaded_parts,
    turns,
    until,
    work,
    worker_on,
    working,
)


@stage
def plain(number: int) -> int:
    return number


SHOP = Pipeline("shop", [plain])


def test_a_queued_job_is_cancelled_at_once_and_never_runs(store: SqliteStore, rd: Redrive) -> None:
    job = rd.submit(SHOP, 1)

    assert rd.jobs.cancel(job.id, reason="typo", actor="ann").status == "cancelled"
    work(store, SHOP)

    assert attempts(store) == []
    assert job.status == "cancelled"
    (done,) = store.query(operation_sql.operations(limit=10))
    assert (done.actor, done.verb, done.subject, done.reason) == ("ann", "cancel", f"job {job.id}", "typo")


def test_an_unknown_job_cannot_be_cancelled_and_nothing_is_logged(store: SqliteStore, rd: Redrive) -> None:
    with pytest.raises(JobNotFoundError):
        rd.jobs.cancel(99)

    assert store.query(operation_sql.operations(limit=10)) == []


@pytest.mark.parametrize("end", ["complete", "failed", "cancelled"])
def test_a_job_that_has_ended_stays_as_it_is(store: SqliteStore, rd: Redrive, end: str) -> None:
    def work_or_fail(number: int) -> float:
        return 1 / number

    pipeline = one_stage(work_or_fail)
    job = rd.submit(pipeline, 0 if end == "failed" else 1)
    if end == "cancelled":
        rd.jobs.cancel(job.id)
    work(store, pipeline)
    before = len(store.query(operation_sql.operations(limit=10)))

    assert rd.jobs.cancel(job.id).status == end
    assert len(store.query(operation_sql.operations(limit=10))) == before


def test_a_running_async_stage_is_cancelled_by_the_next_heartbeat(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    cleaned: list[int] = []

    async def scene() -> None:
        going = asyncio.Event()

        async def endless(number: int) -> None:
            going.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append(number)

        pipeline = one_stage(endless)
        job = rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        async with working(worker):
            await going.wait()
            assert rd.jobs.cancel(job.id).status == "processing"
            assert rd.job(job.id).facts.is_cancel_asked
            leases_of(store, clock, worker).beat(worker.name)
            leases_of(store, clock, worker).beat(worker.name)
            await until(lambda: job.status == "cancelled")

    bounded(scene())
    assert cleaned == [1]
    assert attempts(store, "outcome, burned, decision ->> '$.reason'") == [("cancelled", 0, "requested")]
    assert [row.verb for row in store.query(operation_sql.operations(limit=10))] == ["cancel"]


def test_a_cancelled_stage_is_not_cancelled_again_while_it_cleans_up(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    cleaned: list[int] = []

    async def scene() -> None:
        going, cleaning, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def careful(number: int) -> None:
            going.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleaning.set()
                await may_end.wait()
                cleaned.append(number)

        pipeline = one_stage(careful)
        job = rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        async with working(worker):
            await going.wait()
            rd.jobs.cancel(job.id)
            leases_of(store, clock, worker).beat(worker.name)
            await cleaning.wait()
            leases_of(store, clock, worker).beat(worker.name)
            await turns()
            may_end.set()
            await until(lambda: job.status == "cancelled")

    bounded(scene())
    assert cleaned == [1]


@pytest.mark.parametrize(("stages", "ended"), [(1, "complete"), (2, "cancelled")])
def test_a_running_sync_stage_ends_first_and_the_next_one_never_starts(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, stages: int, ended: str
) -> None:
    ran: list[str] = []

    async def scene() -> None:
        loop = asyncio.get_running_loop()

        def deaf(number: int, ctx: Context) -> int:
            ran.append(ctx.stage)
            rd.jobs.cancel(ctx.job_id)
            leases.beat(worker.name)
            reached(loop)
            return number

        pipeline = Pipeline("shop", [stage(name=f"s{place}")(deaf) for place in range(stages)])
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline, parts=threaded_parts())
        leases = leases_of(store, clock, worker)
        await worker.run(until_idle=True)

    bounded(scene())
    assert ran == ["s0"]
    assert jobs(store) == [(ended,)]
    assert attempts(store) == [("ok",)]


def test_a_failure_of_a_cancelled_job_is_not_tried_again(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()

        def flaky(_number: int, ctx: Context) -> None:
            rd.jobs.cancel(ctx.job_id)
            leases.beat(worker.name)
            reached(loop)
            raise ConnectionResetError(104, "reset")

        pipeline = Pipeline("shop", [stage(flaky)], on_retry=lambda _event: None)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline, parts=threaded_parts())
        leases = leases_of(store, clock, worker)
        await worker.run(until_idle=True)

    bounded(scene())
    assert jobs(store) == [("cancelled",)]
    assert store.read("SELECT id FROM outbox") == []
    assert attempts(store, "outcome, code") == [("cancelled", "NETWORK_RESET")]
    assert attempts(store, "decision") == [('{"kind":"ended","reason":"requested"}',)]
    assert explain(store, 1).attempts[0].decided == "It was cancelled. Why: it was cancelled on request."
    assert store.read("SELECT event, reason FROM events WHERE part >= 2") == [("cancelled", "requested")]


@pytest.mark.parametrize("gives_back", ["stop", "reap"])
def test_a_cancel_that_its_worker_never_heard_of_holds_for_the_next_one(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, gives_back: str
) -> None:
    async def scene() -> None:
        going = asyncio.Event()

        async def endless(_number: int) -> None:
            going.set()
            await asyncio.Event().wait()

        pipeline = one_stage(endless)
        job = rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        async with working(worker):
            await going.wait()
            rd.jobs.cancel(job.id)
            if gives_back == "reap":
                store.reap(clock.wall() + 1_000)
        await worker_on(store, pipeline).run(until_idle=True)

    bounded(scene())
    assert jobs(store) == [("cancelled",)]


def test_a_job_that_waits_for_a_place_when_it_is_cancelled_never_runs(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """It was claimed ahead, as after a commit during which many ended."""
    ran: list[int] = []

    async def scene() -> None:
        going, go_on = asyncio.Event(), asyncio.Event()

        async def slow(number: int) -> int:
            ran.append(number)
            going.set()
            await go_on.wait()
            return number

        pipeline = one_stage(slow)
        first, second = rd.submit(pipeline, 1), rd.submit(pipeline, 2)
        worker = worker_on(store, pipeline, concurrency=1)
        worker._prefetch.count = 1
        async with working(worker):
            await going.wait()
            assert rd.jobs.cancel(second.id).status == "processing"
            leases_of(store, clock, worker).beat(worker.name)
            for _ in range(10):
                await asyncio.sleep(0)
            go_on.set()
            await until(lambda: first.status == "complete" and second.status != "processing")

    bounded(scene())
    assert ran == [1]
    assert jobs(store) == [("complete",), ("cancelled",)]


def test_a_job_that_goes_back_to_the_queue_while_it_is_cancelled_is_cancelled(
    store: SqliteStore, rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the queue and the word to its worker, the worker may have put it back."""
    job = rd.submit(SHOP, 1)
    apply, asked = store.apply, []

    def just_too_late(*steps: Step) -> object:
        asked.append(steps[0].name)
        return None if len(asked) <= 2 else apply(*steps)

    monkeypatch.setattr(store, "apply", just_too_late)

    assert rd.jobs.cancel(job.id).status == "cancelled"


class Gate:
    """A store that answers a question only when the gate is opened."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.waiting = 0

    async def ask(self, question: Callable[[], T]) -> T:
        self.waiting += 1
        await self.is_open.wait()
        self.waiting -= 1
        return question()

    def parts(self) -> WorkerParts:
        return WorkerParts(ask_store=self.ask, threads=InlineThreads(), processes=NoProcesses())


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("is_failing", [True, False])
def test_a_cancel_while_its_outcome_is_being_settled_leaves_no_job_behind(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool, is_failing: bool
) -> None:
    async def scene() -> None:
        gate = Gate()

        def ended(number: int) -> int:
            gate.is_open.clear()
            if is_failing:
                raise ConnectionResetError(104, "reset")
            return number

        async def ended_async(number: int) -> int:
            return ended(number)

        retry = RetryPolicy(2, Backoff.fixed(1))
        breaker = Breaker("api", consecutive=1, probe_timeout=5)
        submitting = stage(name="call", breaker=breaker, retry=retry)(ended_async if is_async else ended)
        pipeline = Pipeline("shop", [_with_child(submitting) if not is_failing else submitting, plain])
        job = rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline, parts=gate.parts())
        async with working(worker):
            await until(lambda: not gate.is_open.is_set() and gate.waiting)
            rd.jobs.cancel(job.id)
            leases_of(store, clock, worker).beat(worker.name)
            for _ in range(10):
                await asyncio.sleep(0)
            gate.is_open.set()
            await until(lambda: job.status != "processing")
            assert job.status == "cancelled"

    bounded(scene())


@pytest.mark.usefixtures("clock")
def test_a_job_that_is_about_to_be_given_up_gets_its_letter_although_it_is_cancelled_meanwhile(
    store: SqliteStore, rd: Redrive
) -> None:
    async def scene() -> None:
        gate = Gate()

        async def call(_number: int) -> None:
            gate.is_open.clear()
            raise PermissionError("no")

        pipeline = one_stage(call, breaker=Breaker("api", consecutive=5, counts="all"))
        job = rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline, parts=gate.parts())
        async with working(worker):
            await until(lambda: not gate.is_open.is_set() and gate.waiting)
            worker.slots.cancel([JobId(job.id)])
            gate.is_open.set()
            await until(lambda: job.status != "processing")

    bounded(scene())
    assert jobs(store, "status, error_code") == [("failed", "IO_DENIED")]


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_worker_that_is_stopped_while_an_outcome_is_decided_leaves_no_job_behind(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_cancelled: bool
) -> None:
    """The run of a job that somebody cancelled is on record; otherwise the job is queued again, as if it had never started."""

    async def scene() -> None:
        gate = Gate()

        async def call(number: int) -> int:
            gate.is_open.clear()
            raise ConnectionResetError(104, f"reset {number}")

        pipeline = one_stage(call, breaker=Breaker("api", consecutive=1))
        job = rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline, parts=gate.parts())
        async with working(worker):
            await until(
                lambda: gate.waiting and any(each.state is ENDING for each in worker.slots.dispatches())
            )
            if is_cancelled:
                rd.jobs.cancel(job.id)
                leases_of(store, clock, worker).beat(worker.name)
                await until(lambda: all(each.context.is_cancelled for each in worker.slots.dispatches()))
            worker.stop()
            worker.stop()
            await until(lambda: worker.slots.is_empty)
            gate.is_open.set()

    bounded(scene())
    assert jobs(store) == [("cancelled",) if is_cancelled else ("queued",)]
    assert attempts(store) == [("cancelled",)] * is_cancelled


def _with_child(declared: Stage[..., Any]) -> Stage[..., Any]:
    """Return the stage with a child, so that its success needs a question to the store."""
    inner = declared.fn

    if declared.is_async:

        async def calling(number: int, ctx: Context) -> int:
            ctx.submit(SHIPPING, number)
            return int(await inner(number))

        return stage(name="call")(calling)

    def call(number: int, ctx: Context) -> int:
        ctx.submit(SHIPPING, number)
        return int(inner(number))

    return stage(name="call")(call)


SHIPPING = Pipeline("shipping", [stage(name="ship")(lambda number: number)])  # type: ignore[misc]  # a lambda has no types to infer
