# SPDX-License-Identifier: Apache-2.0
"""Handles on jobs, sync and to await: status, waiting, results, and the errors that stand for other ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from redrive import Cancel, Context, Job, Pipeline, Redrive, connect, stage
from redrive.client import job as module
from redrive.errors import (
    ConfigurationError,
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    SerializationError,
    WaitTimeoutError,
)
from redrive.store.protocol import Store
from redrive.store.records import WorkerFacts
from redrive.testing import VirtualClock, virtual_time
from tests.databases import Address
from tests.embedded import change_rows
from tests.unit.build import bounded, one_stage, work


@dataclass
class Answer:
    text: str
    number: int


@stage
def answer(number: int, ctx: Context) -> Answer:
    if number < 0:
        raise PermissionError(13, "denied")
    if number == 0:
        raise Cancel
    return Answer(f"it is {number}", number)


SHOP = Pipeline("shop", [answer])


def test_the_result_has_the_type_of_the_last_stage(store: Store, rd: Redrive, clock: VirtualClock) -> None:
    job = rd.submit(SHOP, 7)
    assert job.status == "queued"
    work(store, SHOP)

    assert job.wait() == "complete"
    assert job.result() == Answer("it is 7", 7)
    assert rd.job(job.id).result() == {"text": "it is 7", "number": 7}
    assert repr(job) == f"Job({job.id})"


def test_a_failed_job_raises_with_its_code_and_a_cancelled_one_says_so(
    store: Store, rd: Redrive, clock: VirtualClock
) -> None:
    failed, cancelled = rd.submit(SHOP, -1), rd.submit(SHOP, 0)
    work(store, SHOP)

    with pytest.raises(JobFailedError, match="IO_DENIED") as raised:
        failed.result()
    assert (raised.value.job_id, raised.value.error_code) == (failed.id, "IO_DENIED")
    with pytest.raises(JobCancelledError):
        cancelled.result()


def test_waiting_ends_after_its_timeout_and_looks_less_and_less_often(
    rd: Redrive, clock: VirtualClock
) -> None:
    job, start = rd.submit(SHOP, 7), clock.monotonic()

    with pytest.raises(WaitTimeoutError, match="queued"):
        job.wait(2.0)

    assert clock.monotonic() - start == pytest.approx(2.0, abs=module.LOOK_MOST)
    assert clock.waits[:3] == [module.LOOK_FIRST, 2 * module.LOOK_FIRST, 4 * module.LOOK_FIRST]
    assert clock.waits[-1] == module.LOOK_MOST
    with pytest.raises(WaitTimeoutError):
        job.result(0)
    with pytest.raises(ConfigurationError):
        job.wait(-1)


def test_waiting_sees_what_another_worker_does(address: Address) -> None:
    with connect(address("jobs")) as rd, connect(address("jobs")) as other:
        job = rd.submit(SHOP, 7)

        async def scene() -> object:
            waiting = asyncio.to_thread(job.result, 10)
            working = asyncio.to_thread(other.work, [SHOP], until_idle=True)
            return (await asyncio.gather(waiting, working))[0]

        assert bounded(scene()) == Answer("it is 7", 7)


def test_a_handle_on_a_job_that_is_not_there_says_so(store: Store) -> None:
    with pytest.raises(JobNotFoundError):
        _ = Job(store, 99).status


def test_all_facts_of_a_job_are_on_its_handle(store: Store, rd: Redrive, clock: VirtualClock) -> None:
    now = datetime.fromtimestamp(clock.wall(), UTC)
    job = rd.submit(
        SHOP, 7, key="a", owner="ann", priority=1, run_at=now + timedelta(5), expires_at=now + timedelta(9)
    )

    facts = job.facts
    assert (facts.key, facts.owner, facts.priority, facts.status) == ("a", "ann", 1, "queued")
    assert (facts.run_at, facts.expires_at) == (now + timedelta(5), now + timedelta(9))
    assert (facts.created_at, facts.started_at, facts.finished_at) == (now, None, None)
    assert (facts.run, facts.parent, facts.worker, facts.waiting, facts.is_cancel_asked) == (
        *[None] * 4,
        False,
    )
    assert (facts.round, facts.dispatch, facts.attempt) == (1, 0, 1)


def test_every_attempt_of_a_job_can_be_read(store: Store, rd: Redrive, clock: VirtualClock) -> None:
    def slow(number: int) -> int:
        clock.advance(4)
        return number

    pipeline = one_stage(slow)
    job = rd.submit(pipeline, 7)
    work(store, pipeline)

    (made,) = job.attempts()
    assert (made.stage, made.outcome, made.burned, made.notes) == ("slow", "ok", True, None)
    assert made.duration == pytest.approx(4)
    assert made.ended_at == datetime.fromtimestamp(clock.wall(), UTC)
    assert made.config == pipeline.stages[0].config


def test_the_async_face_does_all_that_the_sync_one_does(address: Address) -> None:
    async def scene() -> None:
        async with connect(address("jobs")) as rd:
            job = await rd.submit(SHOP, 7, key="a", owner="ann", priority=1)
            duplicate = await rd.submit(SHOP, 7, key="a")
            ids = await rd.submit_many(SHOP, [1, -1], priority=9)
            gone = await rd.submit(SHOP, 5)
            assert await gone.cancel(reason="why", actor="ann") == "cancelled"
            assert (duplicate.id, duplicate.is_duplicate, repr(job)) == (job.id, True, f"AsyncJob({job.id})")
            assert await job.status == "queued"
            assert await rd.work([SHOP], until_idle=True) == "idle"

            assert await job.wait(1) == "complete"
            assert await job.result() == Answer("it is 7", 7)
            assert (await (await rd.job(ids[0])).facts).priority == 9
            with pytest.raises(JobFailedError):
                await (await rd.job(ids[1])).result()
            with pytest.raises(JobNotFoundError):
                await rd.job(99)
            assert await rd.jobs.counts() == {"complete": 2, "failed": 1, "cancelled": 1}

    bounded(scene())


def test_an_async_worker_that_is_cancelled_gives_back_what_it_runs(address: Address) -> None:
    async def scene() -> str:
        going = asyncio.Event()

        async def endless(_number: int) -> None:
            going.set()
            await asyncio.Event().wait()

        async with connect(address("jobs")) as rd:
            pipeline = one_stage(endless)
            job = await rd.submit(pipeline, 1)
            working = asyncio.ensure_future(rd.work([pipeline]))
            await going.wait()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            return await job.status

    assert bounded(scene()) == "queued"


def test_waiting_on_a_loop_ends_after_its_timeout_too(filed: Redrive, address: Address) -> None:
    async def scene() -> None:
        with virtual_time():
            async with connect(address("jobs")) as rd:
                job = await rd.submit(SHOP, 7)
                with pytest.raises(WaitTimeoutError, match="queued"):
                    await job.wait(30)
                with pytest.raises(WaitTimeoutError):
                    await job.result(30)

    bounded(scene())


def test_many_who_wait_for_jobs_do_not_keep_others_from_asking(filed: Redrive, address: Address) -> None:
    async def scene() -> list[str]:
        async with connect(address("jobs")) as rd:
            job = await rd.submit(SHOP, 7)
            waiting = [asyncio.ensure_future(job.wait()) for _ in range(64)]
            try:
                async with asyncio.timeout(10):
                    assert await rd.jobs.counts() == {"queued": 1}
            finally:
                filed.jobs.cancel(job.id)
            return await asyncio.gather(*waiting)

    assert bounded(scene()) == ["cancelled"] * 64


def test_a_pipeline_that_changed_its_first_stage_is_submitted_to_the_new_one(
    store: Store, rd: Redrive, clock: VirtualClock
) -> None:
    old, new = (one_stage(lambda number: number, name=name) for name in ("old", "new"))
    rd.submit(old, 1)
    job = rd.submit(new, 2)
    work(store, new)

    assert job.status == "complete"


@pytest.mark.parametrize("is_async", [True, False])
def test_an_async_run_takes_items_of_both_kinds(address: Address, is_async: bool) -> None:
    async def numbers() -> AsyncIterator[object]:
        for number in range(1, 30):
            yield number

    async def scene() -> tuple[str, int]:
        with virtual_time():
            async with connect(address("jobs")) as rd:
                report = await rd.run(SHOP, numbers() if is_async else range(1, 30), concurrency=4)
                return report.status, report.succeeded

    assert bounded(scene()) == ("completed", 29)


@pytest.mark.parametrize("method", ["run", "work"])
def test_the_sync_face_says_what_to_write_on_a_loop(rd: Redrive, method: str) -> None:
    async def wrong() -> None:
        rd.run(SHOP, [1]) if method == "run" else rd.work([SHOP])

    with pytest.raises(ConfigurationError, match=f"await rd.{method}"):
        bounded(wrong())


@pytest.mark.parametrize("key", ["", "k" * 501, 7])
def test_a_key_or_owner_that_is_no_short_text_is_refused(rd: Redrive, key: object) -> None:
    for field in ("key", "owner"):
        with pytest.raises(ConfigurationError, match=field):
            rd.submit(SHOP, 1, **{field: key})  # type: ignore[arg-type]


@pytest.mark.parametrize("misuse", [{"priority": True}, {"expires_at": "tomorrow"}])
def test_what_makes_no_sense_is_refused(rd: Redrive, misuse: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        rd.submit(SHOP, 1, **misuse)  # type: ignore[arg-type]


def test_a_result_that_no_longer_fits_its_type_says_so(
    store: Store, rd: Redrive, clock: VirtualClock
) -> None:
    job = rd.submit(SHOP, 7)
    work(store, SHOP)
    change_rows(store, "UPDATE jobs SET result = ?", (b'{"text": 3}',))

    with pytest.raises(SerializationError, match="answer"):
        job.result()


@pytest.mark.parametrize("is_async", [False, True])
def test_waiting_for_a_pipeline_that_no_worker_serves_is_logged_after_some_seconds(
    filed: Redrive, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    with virtual_time(), caplog.at_level("WARNING", "redrive.client"):
        job = filed.submit(SHOP, 7)

        async def scene() -> None:
            await module.AsyncJob(job).wait(30)

        with pytest.raises(WaitTimeoutError):
            bounded(scene()) if is_async else job.wait(30)

        # After 5, 10 and 20 seconds.
        assert len(caplog.messages) == 3
        assert f"job {job.id} waits in shop, and no worker serves that pipeline" in caplog.messages[0]


def test_waiting_for_a_pipeline_that_a_worker_serves_is_not_logged(
    filed: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    job = filed.submit(SHOP, 7)
    filed.store.start_worker("w", clock.wall(), 100.0, WorkerFacts(pipelines=("shop",)))

    with pytest.raises(WaitTimeoutError):
        job.wait(30)

    assert caplog.messages == []
