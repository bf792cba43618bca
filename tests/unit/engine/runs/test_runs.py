# SPDX-License-Identifier: Apache-2.0
"""Runs: every item accounted for, judged by thresholds, stopped by a budget; one bad item never stops the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from redrive import Context, FailureBudget, Pipeline, Redrive, RunReport, stage
from redrive.core.budget import RunThresholds
from redrive.engine.pipeline import submission
from redrive.engine.runs import driver
from redrive.engine.runs.runs import RunOptions, Runs
from redrive.errors import (
    ConfigurationError,
    FailureBudgetExceededError,
    RedriveError,
    RunError,
    SerializationError,
)
from redrive.store.records import ClaimRequest, ExchangeRequest, NewJob
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import jobs as job_sql
from tests.unit.build import one_stage

pytestmark = pytest.mark.usefixtures("clock")


@stage
def judge(number: int) -> int:
    if number < 0:
        raise PermissionError(13, "denied")
    return number


COURT = Pipeline("court", [judge])


def counts(report: RunReport) -> tuple[int, int, int, int, int]:
    return report.total, report.succeeded, report.dead, report.cancelled, report.open


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("items", "status"),
    [
        ([1] * 20, "completed"),
        ([1] * 19 + [-1], "completed"),
        ([1] * 18 + [-1] * 2, "partial_success"),
        ([1] * 10 + [-1] * 10, "partial_success"),
        ([1] * 9 + [-1] * 11, "failed"),
        ([-1] * 3, "failed"),
        ([], "completed"),
    ],
)
def test_a_run_is_judged_by_how_much_of_it_succeeded(filed: Redrive, items: list[int], status: str) -> None:
    report = filed.run(COURT, items, failure_budget=None)

    bad = items.count(-1)
    assert report.status == status
    assert counts(report) == (len(items), len(items) - bad, bad, 0, 0)
    assert (report.pipeline, report.reason) == ("court", None)
    assert filed.runs.report(report.id) == report


def test_thresholds_can_be_ones_own(filed: Redrive) -> None:
    thresholds = RunThresholds(completed=1.0, partial_success=0.9)

    report = filed.run(COURT, [1] * 8 + [-1] * 2, failure_budget=None, thresholds=thresholds)

    assert report.status == "failed"


def test_thresholds_are_named_and_kept_with_the_run(filed: Redrive) -> None:
    report = filed.run(COURT, [1] * 8 + [-1] * 2, failure_budget=None, thresholds={"completed": 0.8})

    assert report.status == "completed"
    assert filed.runs.options(report.id).thresholds == RunThresholds(completed=0.8)


def test_thresholds_that_are_none_are_refused_before_anything_starts(filed: Redrive) -> None:
    with pytest.raises(ConfigurationError, match="completed and partial_success"):
        filed.run(COURT, [1] * 10, thresholds=(0.4, 0.1))  # type: ignore[arg-type]

    assert filed.runs.latest() == []
    assert filed.jobs.counts() == {}


def test_cancelled_items_are_accounted_for(filed: Redrive) -> None:
    @stage
    def pick(number: int, ctx: Context) -> int:
        if number == 1:
            from redrive import Cancel

            raise Cancel
        return number

    report = filed.run(Pipeline("court", [pick]), [0, 1, 2, 3], failure_budget=None)

    assert counts(report) == (4, 3, 0, 1, 0)
    assert report.status == "partial_success"


def test_an_item_of_the_wrong_type_fails_by_itself(filed: Redrive) -> None:
    report = filed.run(COURT, [1, "two", 3, {"four": 4}], failure_budget=None)

    assert counts(report) == (4, 2, 2, 0, 0)
    assert {job[3] for job in filed.store.query(job_sql.counts())} == {2}


def test_an_item_that_is_no_json_stops_the_run_by_name_and_it_can_be_resumed_without(filed: Redrive) -> None:
    with pytest.raises(SerializationError, match="judge"):
        filed.run(COURT, [1, object(), 3])

    (report,) = filed.runs.latest()
    assert (report.status, report.reason) == (
        "paused",
        "it was interrupted by SerializationError at item 1",
    )
    assert filed.run(COURT, [1, 2, 3], resume=report.id).status == "completed"


def test_an_item_that_is_too_large_is_refused_by_its_place(
    filed: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "PAYLOAD_MAX", 3)

    with pytest.raises(SerializationError, match="item 1"):
        filed.run(COURT, [1, 10_000])


@pytest.mark.req("FG-6.1")
def test_too_many_failures_abort_the_run_after_a_full_interval_and_every_item_is_accounted_for(
    filed: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "BATCH", 20)
    monkeypatch.setattr(driver, "WINDOW_MIN", 100)
    budget = FailureBudget(max_rate=0.10, check_every=50)

    with pytest.raises(FailureBudgetExceededError) as stopped:
        filed.run(COURT, [-1] * 5_000, failure_budget=budget, concurrency=4)

    report = stopped.value.report
    assert isinstance(report, RunReport)
    assert report.status == "aborted"
    assert report.dead >= 50
    assert report.total < 5_000
    assert report.open == 0
    assert report.total == report.succeeded + report.dead + report.cancelled
    assert "the budget is 10.0%" in str(stopped.value)
    assert filed.jobs.counts() == {
        key: value for key, value in (("failed", report.dead), ("cancelled", report.cancelled)) if value
    }


@pytest.mark.req("FG-6.1")
def test_before_a_full_interval_has_ended_nothing_is_judged(filed: Redrive) -> None:
    report = filed.run(COURT, [-1] * 40, failure_budget=FailureBudget(max_rate=0.10, check_every=50))

    assert (report.status, report.dead) == ("failed", 40)


def test_cancelling_a_run_does_not_read_its_finished_items_at_every_step(store: SqliteStore) -> None:
    book, lane = Runs(store), store.lanes("court", ["judge"])[0]
    run = book.add("court", RunOptions(), 0.0)
    store.submit([NewJob(lane=lane, payload=b"1", run_at=0.0, run=run, ordinal=at) for at in range(5_024)], 0)
    ended = "UPDATE jobs SET status = 'complete', result = x'31', finished_at = 1 WHERE ordinal < 5000"
    store._db.execute(ended)
    effort, first = [0], 0
    store._db.set_progress_handler(lambda: effort.__setitem__(-1, effort[-1] + 1), 100)

    steps: list[int] = []
    for _ in range(5):
        first = book.cancel_items(run, 1.0, 8, first)
        steps.append(first)
        effort.append(0)
    store._db.set_progress_handler(None, 100)

    assert steps == [5_008, 5_016, 5_024, 5_024, 5_024]
    assert 5 * max(effort[1:]) < effort[0]
    assert book.report(run).cancelled == 24


def test_an_item_claimed_between_two_steps_of_cancelling_its_run_is_told(store: SqliteStore) -> None:
    book, lane = Runs(store), store.lanes("court", ["judge"])[0]
    run = book.add("court", RunOptions(), 0.0)
    store.submit([NewJob(lane=lane, payload=b"1", run_at=0.0, run=run, ordinal=at) for at in range(6)], 0)
    store.start_worker("w1", 0.0, 30.0)

    first = book.cancel_items(run, 1.0, 2)
    claimed = store.exchange(ExchangeRequest("w1", [], ClaimRequest((lane,), 3), now=1.0, token=1)).claimed
    book.cancel_items(run, 1.0, 2, first)

    assert len(claimed) == 3
    assert set(store.renew("w1", 1.0, 30.0).cancel) == {job.id for job in claimed}
    store.stop_worker("w1")
    assert (book.report(run).cancelled, book.report(run).open) == (6, 0)


def test_a_share_is_a_budget(filed: Redrive) -> None:
    report = filed.run(COURT, [1] * 10, failure_budget=0.5)

    assert filed.runs.options(report.id).budget == FailureBudget(max_rate=0.5)
    with pytest.raises(ConfigurationError):
        filed.run(COURT, [1], failure_budget=1.5)


def test_a_budget_may_pause_the_run_instead(filed: Redrive) -> None:
    budget = FailureBudget(max_rate=0.10, check_every=10, on_exceeded="pause")
    report = filed.run(COURT, [-1] * 400, failure_budget=budget, concurrency=2)

    assert (report.status, report.cancelled) == ("paused", 0)
    assert "finished jobs failed" in str(report.reason)
    if report.open:
        assert filed.work([COURT], until_idle=True) == "held"
        assert filed.runs.report(report.id).open == report.open


def test_progress_is_reported_and_ends_with_the_final_account(filed: Redrive) -> None:
    seen: list[RunReport] = []

    report = filed.run(COURT, range(30), on_progress=seen.append)

    assert seen[-1] == report
    assert all(one.total <= 30 for one in seen)
    assert [one.tally.finished for one in seen] == sorted(one.tally.finished for one in seen)


def test_the_latest_runs_are_known_newest_first(filed: Redrive) -> None:
    ids = [filed.run(COURT, [1]).id for _ in range(3)]

    assert [report.id for report in filed.runs.latest(2)] == ids[:0:-1]
    assert filed.runs.is_fed(ids[0])


def test_a_run_that_is_not_there_is_said_to_be_unknown_with_the_ones_that_are(filed: Redrive) -> None:
    with pytest.raises(RunError, match="run 7") as refused:
        filed.runs.report(7)
    assert "none yet" in str(refused.value.hint)
    made = filed.run(COURT, [1])
    with pytest.raises(RunError) as refused:
        filed.runs.report(99)
    assert f"The latest runs: {made.id}" in str(refused.value.hint)
    with pytest.raises(RunError, match="there is no such run"):
        filed.run(COURT, [1], resume=99)


def test_jobs_know_their_run(filed: Redrive) -> None:
    report = filed.run(COURT, [5, 6])

    assert [filed.job(each).facts.run for each in (1, 2)] == [report.id] * 2


@pytest.mark.untraced
def test_the_source_is_not_read_far_ahead(filed: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "BATCH", 10)
    monkeypatch.setattr(driver, "WINDOW_MIN", 20)
    ahead: list[int] = []
    read = done = 0

    def source() -> Iterator[int]:
        nonlocal read
        for number in range(120):
            read += 1
            ahead.append(read - done)
            yield number

    def count(number: int) -> int:
        nonlocal done
        done += 1
        return number

    report = filed.run(one_stage(count, "court"), source(), concurrency=1)

    assert report.succeeded == 120
    # A window of twenty, a batch that is being read, and one that waits to be submitted.
    assert max(ahead) <= 20 + 2 * 10


def test_a_source_that_raises_leaves_a_run_that_can_be_resumed(filed: Redrive) -> None:
    def source(*, is_broken: bool) -> Iterator[int]:
        yield from range(5)
        if is_broken:
            raise ConnectionResetError("the source is gone")
        yield from range(5, 8)

    with pytest.raises(ConnectionResetError, match="the source is gone"):
        filed.run(COURT, source(is_broken=True))
    (report,) = filed.runs.latest()
    assert (report.status, report.reason) == ("paused", "it was interrupted by ConnectionResetError")

    again = filed.run(COURT, source(is_broken=False), resume=report.id)
    assert (again.status, again.total, again.succeeded) == ("completed", 8, 8)


def test_an_async_source_that_raises_does_as_well(filed: Redrive) -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        filed.run(COURT, source())
    assert filed.runs.latest()[0].status == "paused"


@pytest.mark.parametrize("misuse", [{"concurrency": 0}, {"hold_max": -1}])
def test_options_that_make_no_sense_are_refused_before_a_run_is_made(
    filed: Redrive, misuse: dict[str, object]
) -> None:
    with pytest.raises(RedriveError):
        filed.run(COURT, [1], **misuse)  # type: ignore[arg-type]

    assert Runs(filed.store).latest() == []
