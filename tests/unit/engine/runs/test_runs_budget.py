# SPDX-License-Identifier: Apache-2.0
"""The failure budget of a run: counted outcome by outcome as they are committed, and looked at once more at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import msgspec
import pytest

from redrive import Fail, FailureBudget, Pipeline, Redrive, RunReport, stage
from redrive.core.budget import Tally
from redrive.core.lifecycle import JobState
from redrive.engine.runs import driver as feeding
from redrive.engine.runs.budget import BudgetTracker
from redrive.engine.runs.driver import Driver
from redrive.engine.runs.runs import KEEP_SECONDS, RunOptions, Runs
from redrive.errors import FailureBudgetExceededError
from redrive.store.records import JobId, LaneId, Settlement
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import at_once
from tests.unit.build import bounded, items_of, one_stage, passing, watching_parts, worker_on, working
from tests.unit.engine.worker.letters_made import claimed

pytestmark = pytest.mark.usefixtures("clock")

GOOD, BAD, GONE, LATER = JobState.COMPLETE, JobState.FAILED, JobState.CANCELLED, JobState.QUEUED
PASSED = JobState.SKIPPED


@stage
async def judge(number: int) -> int:
    if number < 0:
        raise Fail("DENIED", "denied")
    return number


COURT = Pipeline("court", [judge])


def outcome(job: int, status: JobState) -> Settlement:
    return Settlement(
        job=msgspec.structs.replace(claimed(), id=JobId(job)),
        status=status,
        lane=LaneId(1),
        run_at=0.0,
        value=None,
        attempt=1,
        snoozes=0,
        codes=None,
        outcome="ok",
        burned=True,
        started_at=0.0,
        ended_at=0.0,
    )


def spending(budget: FailureBudget | None, jobs: int = 1_000, base: Tally | None = None) -> BudgetTracker:
    made = BudgetTracker(budget, base or Tally())
    made.add_jobs([JobId(job) for job in range(jobs)])
    return made


def commit(told: BudgetTracker, *statuses: JobState, first: int = 0) -> None:
    told.committed([outcome(first + place, status) for place, status in enumerate(statuses)])


@pytest.mark.req("FG-6.1")
def test_a_commit_of_many_outcomes_is_looked_at_at_each_interval_within_it() -> None:
    told = spending(FailureBudget(max_rate=0.2, check_every=50))

    commit(told, *[BAD] * 11, *[GOOD] * 489)

    assert told.exceeded is not None
    assert (told.exceeded.dead, told.exceeded.finished) == (11, 50)
    assert told.due.is_set()


@pytest.mark.parametrize(
    ("statuses", "is_exceeded"),
    [
        ([BAD] * 9, False),
        ([BAD] * 10, True),
        ([BAD] * 2 + [GOOD] * 8, False),
        ([BAD] * 3 + [GOOD] * 8, True),
        ([BAD] * 2 + [GOOD] * 8 + [BAD] * 9, False),
        ([BAD] * 2 + [GOOD] * 8 + [BAD] * 10, True),
        ([BAD] * 3 + [GONE] * 7, True),
        ([BAD, LATER] * 9, False),
        # A skipped job neither fills an interval nor delays the one that is full.
        ([PASSED] * 5 + [BAD] * 9, False),
        ([PASSED] * 5 + [BAD] * 10, True),
        ([BAD] * 5 + [PASSED] * 30, False),
    ],
)
def test_nothing_is_judged_between_two_intervals(statuses: Sequence[JobState], *, is_exceeded: bool) -> None:
    told = spending(FailureBudget(max_rate=0.2, check_every=10))

    commit(told, *statuses)

    assert (told.exceeded is not None) is is_exceeded


def test_the_minimum_sample_counts_before_the_interval() -> None:
    told = spending(FailureBudget(max_rate=0.2, check_every=10, min_finished=25))

    commit(told, *[BAD] * 29)
    assert told.exceeded is None
    commit(told, BAD, first=29)
    assert told.exceeded is not None
    assert told.exceeded.finished == 30


def test_the_last_look_needs_the_minimum_sample_and_no_full_interval() -> None:
    budget = FailureBudget(max_rate=0.2, check_every=50, min_finished=20)

    assert spending(budget).check(Tally(total=19, dead=19), is_last=True) is None
    assert spending(budget).check(Tally(total=20, dead=20), is_last=False) is None
    assert spending(budget).check(Tally(total=20, dead=20), is_last=True) is not None
    assert spending(None).check(Tally(total=20, dead=20), is_last=True) is None


def test_what_other_workers_did_is_learned_by_looking_and_counts_with_ones_own() -> None:
    told = spending(FailureBudget(max_rate=0.5, check_every=10))

    commit(told, *[BAD] * 5)
    assert told.check(Tally(total=100, dead=5, succeeded=3), is_last=False) is None
    commit(told, GOOD, first=5)
    assert told.exceeded is None
    commit(told, BAD, first=6)

    assert told.exceeded is not None
    assert (told.exceeded.dead, told.exceeded.finished) == (6, 10)


def test_outcomes_of_items_it_does_not_know_ask_for_a_look_after_an_interval() -> None:
    told = spending(FailureBudget(check_every=10), jobs=0)

    commit(told, *[BAD] * 9)
    assert not told.due.is_set()
    commit(told, BAD, first=9)
    assert told.due.is_set()
    assert told.exceeded is None
    assert told.check(Tally(total=10, dead=10), is_last=False) is not None


def test_what_happened_before_a_run_was_resumed_does_not_count() -> None:
    base = Tally(total=100, dead=40, succeeded=10)
    told = spending(FailureBudget(max_rate=0.5, check_every=10), base=base)

    commit(told, *[GOOD] * 10)

    assert told.check(Tally(total=100, dead=40, succeeded=20), is_last=True) is None
    # A replay took two of the old failures away.
    assert told.check(Tally(total=100, dead=38, succeeded=20), is_last=True) is None


@pytest.mark.req("FG-6.1")
def test_failures_at_the_start_stop_a_run_whose_rest_would_succeed(filed: Redrive) -> None:
    budget = FailureBudget(max_rate=0.2, check_every=50)

    with pytest.raises(FailureBudgetExceededError) as stopped:
        filed.run(COURT, [-1] * 50 + [1] * 5_000, failure_budget=budget, concurrency=256)

    report = stopped.value.report
    assert isinstance(report, RunReport)
    assert (report.status, report.open) == ("aborted", 0)
    assert stopped.value.rate > 0.2


@pytest.mark.untraced
@pytest.mark.req("FG-6.1")
@pytest.mark.parametrize("concurrency", [1, 64])
def test_a_run_that_is_over_before_anybody_looked_is_judged_by_its_budget(
    filed: Redrive, concurrency: int
) -> None:
    budget = FailureBudget(max_rate=0.2, check_every=50)

    with pytest.raises(FailureBudgetExceededError, match=r"the budget is 20\.0%") as stopped:
        filed.run(COURT, [1, -1] * 60, failure_budget=budget, concurrency=concurrency)

    report = stopped.value.report
    assert isinstance(report, RunReport)
    assert report.total == report.succeeded + report.dead + report.cancelled
    assert stopped.value.rate == pytest.approx(0.5, abs=0.2)


@pytest.mark.req("FG-6.1")
def test_a_budget_that_is_spent_with_the_last_items_decides_and_not_the_thresholds(filed: Redrive) -> None:
    late = [1] * 50 + [-1] * 30
    budget = FailureBudget(max_rate=0.2, check_every=50)

    with pytest.raises(FailureBudgetExceededError, match="30 of 80 finished jobs failed"):
        filed.run(COURT, late, failure_budget=budget, concurrency=1)

    assert filed.runs.latest()[0].status == "aborted"


def test_a_budget_that_is_spent_with_the_last_items_may_pause_and_resuming_judges_by_thresholds(
    filed: Redrive,
) -> None:
    late = [1] * 50 + [-1] * 30
    budget = FailureBudget(max_rate=0.2, check_every=50, on_exceeded="pause")

    paused = filed.run(COURT, late, failure_budget=budget, concurrency=1)
    assert (paused.status, paused.open) == ("paused", 0)
    assert "30 of 80 finished jobs failed" in str(paused.reason)

    assert filed.run(COURT, late, resume=paused.id).status == "partial_success"


def test_a_run_is_judged_by_the_process_that_drives_it_even_after_it_stood_still(
    filed: Redrive, clock: VirtualClock
) -> None:
    async def stand_still(number: int) -> int:
        clock.advance((KEEP_SECONDS + 1) * (number == -15))
        return await judge(number)

    late = [1] * 50 + [-place for place in range(30)]
    budget = FailureBudget(max_rate=0.2, check_every=50, on_exceeded="pause")

    paused = filed.run(
        one_stage(stand_still, "court"), late, failure_budget=budget, concurrency=1, lease=KEEP_SECONDS * 4
    )

    assert (paused.status, paused.open) == ("paused", 0)
    assert "29 of 80 finished jobs failed" in str(paused.reason)


def test_an_answer_from_before_a_commit_moves_no_interval() -> None:
    told = spending(FailureBudget(max_rate=0.2, check_every=50))

    told.asking()
    commit(told, *[GOOD] * 28)
    assert told.check(Tally(), is_last=False) is None
    commit(told, *[GOOD] * 22, *[BAD] * 49, first=28)
    assert told.exceeded is None
    commit(told, BAD, first=99)
    assert told.exceeded is not None
    assert (told.exceeded.dead, told.exceeded.finished) == (50, 100)


@pytest.mark.untraced
@pytest.mark.req("FG-6.1")
@pytest.mark.parametrize("on_exceeded", ["abort", "pause"])
@pytest.mark.parametrize("is_async", [True, False])
def test_no_more_items_are_started_than_may_fail_before_the_next_check(
    filed: Redrive, on_exceeded: Literal["abort", "pause"], *, is_async: bool
) -> None:
    started: list[int] = []

    def deny(number: int) -> int:
        started.append(number)
        raise Fail("DENIED", "denied")

    async def deny_async(number: int) -> int:
        return deny(number)

    pipeline = one_stage(deny_async if is_async else deny, "court")
    budget = FailureBudget(max_rate=0.10, check_every=10, on_exceeded=on_exceeded)

    with suppress(FailureBudgetExceededError):
        filed.run(pipeline, range(100), failure_budget=budget, concurrency=64)

    assert 10 <= len(started) <= 20


@pytest.mark.req("FG-6.1")
def test_items_from_before_a_resume_are_checked_as_soon(filed: Redrive) -> None:
    started: list[int] = []

    def deny(number: int) -> int:
        started.append(number)
        raise Fail("DENIED", "denied")

    pipeline = one_stage(deny, "court")
    budget = FailureBudget(max_rate=0.10, check_every=10, on_exceeded="pause")
    paused = filed.run(pipeline, range(200), failure_budget=budget, concurrency=64)
    before = len(started)

    again = filed.run(pipeline, range(200), resume=paused.id, concurrency=64)

    assert again.status == "paused"
    assert 10 <= len(started) - before <= 20


@pytest.mark.parametrize(
    ("items", "status"), [([1, 1, 0], "completed"), ([-1, 1, 0], "partial_success"), ([-1, -1, 0], "aborted")]
)
def test_a_run_whose_last_items_end_while_it_is_interrupted_is_judged(
    filed: Redrive, items: list[int], status: str
) -> None:
    seen: list[RunReport] = []
    is_read = threading.Event()

    def look(report: RunReport) -> None:
        seen.append(report)
        if filed.runs.is_fed(report.id):
            is_read.set()

    def judge_last(number: int) -> int:
        if number < 0:
            raise Fail("DENIED", "denied")
        if number == 0:
            assert is_read.wait(10)
            os.kill(os.getpid(), signal.SIGINT)
        return number

    pipeline = one_stage(judge_last, "court")

    with suppress(FailureBudgetExceededError):
        budget = FailureBudget(max_rate=0.5, min_finished=3)
        filed.run(pipeline, items, failure_budget=budget, on_progress=look, concurrency=3)

    (report,) = filed.runs.latest()
    assert (report.status, report.open) == (status, 0)
    assert seen[-1] == report


def test_what_is_committed_while_the_store_is_asked_is_not_forgotten() -> None:
    tracker = spending(FailureBudget(check_every=2), jobs=0)

    tracker.asking()
    commit(tracker, JobState.COMPLETE, JobState.COMPLETE)
    # The answer is from before.
    tracker.check(Tally(total=10), is_last=False)

    assert tracker.leased_max() == 0
    tracker.asking()
    tracker.check(Tally(total=10, succeeded=2), is_last=False)
    assert tracker.leased_max() == 2


def test_an_aborted_run_waits_for_what_is_being_worked_on(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "BATCH", 5)
    book = Runs(store)

    async def scene() -> None:
        go_on = asyncio.Event()

        async def slow(number: int) -> int:
            if number == 0:
                await go_on.wait()
                return number
            raise PermissionError(13, "denied")

        pipeline = one_stage(slow)
        options = RunOptions(budget=FailureBudget(max_rate=0.1, check_every=5))
        run = book.add("shop", options, clock.wall())
        worker = worker_on(store, pipeline, parts=watching_parts())
        driver = Driver(store, pipeline, run, options, clock=clock, concurrency=4)
        async with working(worker):
            driving = asyncio.ensure_future(driver.drive(items_of(range(10)), worker, at_once))
            await passing(clock, lambda: book.report(run).tally.dead == 9)
            for _ in range(20):
                await clock.asleep(1.0)
            assert not driving.done()
            go_on.set()
            await driving

    bounded(scene())
    report = book.report(1)
    assert (report.status, report.succeeded, report.dead, report.open) == ("aborted", 1, 9, 0)
