# SPDX-License-Identifier: Apache-2.0
"""Runs, policies and the record of attempts, as Forge asks for them."""

from __future__ import annotations

import httpx
import pytest

from redrive import Event, FailureBudget, Redrive, RetryPolicy, RunReport, stage
from redrive.core.budget import RunThresholds
from redrive.core.policy import RetryPolicy as Policy
from redrive.errors import FailureBudgetExceededError
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import reports as report_sql
from redrive.testing import VirtualClock
from tests.unit.build import work

from .flows import STEADY, Answered, pipeline, policy, stage_calling


def judged(good: int, bad: int, rd: Redrive, **options: object) -> str:
    def sample(number: int) -> int:
        if number < bad:
            raise PermissionError(13, "denied")
        return number

    flow = pipeline(stage(sample), name=f"flow-{good}-{bad}")
    return rd.run(flow, range(good + bad), failure_budget=None, **options).status  # type: ignore[arg-type]


@pytest.mark.req("FG-1.2")
def test_a_run_is_judged_by_its_share_of_successes(rd: Redrive, clock: VirtualClock) -> None:
    assert judged(95, 5, rd) == "completed"
    assert judged(94, 6, rd) == "partial_success"
    assert judged(50, 50, rd) == "partial_success"
    assert judged(49, 51, rd) == "failed"
    assert judged(0, 0, rd) == "completed"
    strict = RunThresholds(completed=1.0, partial_success=0.95)
    assert judged(96, 4, rd, thresholds=strict) == "partial_success"


@pytest.mark.req("FG-1.3")
def test_at_every_moment_the_total_is_what_succeeded_died_and_is_open(
    rd: Redrive, clock: VirtualClock
) -> None:
    def sample(number: int) -> int:
        if number % 3 == 0:
            raise KeyError("bad sample")
        return number

    flow = pipeline(stage(sample))
    seen: list[RunReport] = []
    report = rd.run(flow, range(300), failure_budget=None, on_progress=seen.append)

    assert seen
    assert all(one.total == one.succeeded + one.dead + one.cancelled + one.open for one in seen)
    assert all(one.open >= 0 for one in seen)
    assert (report.total, report.succeeded, report.dead, report.open) == (300, 200, 100, 0)
    assert rd.jobs.counts() == {"complete": 200, "failed": 100}


@pytest.mark.req("FG-2.1")
def test_each_stage_keeps_to_its_own_policy(rd: Redrive, store: SqliteStore, clock: VirtualClock) -> None:
    first, second = Answered(503, 200), Answered(500)
    flow = pipeline(
        stage_calling(first, "first", retry=policy(2)),
        stage_calling(second, "second", retry=RetryPolicy(3, retry_on="all")),
    )
    job = rd.submit(flow, 1)
    work(store, flow)

    assert (first.calls, second.calls) == (2, 3)
    assert [one.stage for one in job.attempts()] == ["first"] * 2 + ["second"] * 3


@pytest.mark.req("FG-3.1")
@pytest.mark.parametrize(
    ("retry_on", "status", "calls"),
    [
        ("all", 404, 3),
        ("none", 503, 1),
        ([429, 404], 404, 3),
        ([429, 404], 503, 1),
        ([httpx.HTTPStatusError], 503, 3),
        ([httpx.HTTPStatusError], 404, 1),
        (["UPSTREAM_ERROR"], 500, 3),
        (["UPSTREAM_ERROR"], 429, 1),
    ],
)
def test_what_is_retried_is_all_none_or_a_list(
    rd: Redrive, store: SqliteStore, clock: VirtualClock, retry_on: object, status: int, calls: int
) -> None:
    upstream = Answered(status)
    flow = pipeline(stage_calling(upstream, retry=Policy(3, STEADY, retry_on=retry_on)))  # type: ignore[arg-type]
    rd.submit(flow, 1)
    work(store, flow)

    assert upstream.calls == calls


@pytest.mark.req("FG-4.1")
def test_every_attempt_is_a_row_that_says_under_which_settings_it_was_made(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    before = pipeline(stage_calling(Answered(503), retry=policy(2)))
    after = pipeline(stage_calling(Answered(503, 200), retry=policy(4)))
    first = rd.submit(before, 1)
    work(store, before)
    second = rd.submit(after, 1)
    work(store, after)

    told = [(one.dispatch, one.stage, one.attempt, one.outcome) for one in first.attempts()]
    assert told == [(1, "call", 1, "retry"), (2, "call", 2, "dead")]
    assert all(one.code and one.message for one in first.attempts())
    old, new = ({one.config for one in job.attempts()} for job in (first, second))
    assert len(old) == len(new) == 1
    assert old != new


@pytest.mark.req("FG-4.2")
def test_retries_errors_and_the_reliability_of_stages_can_be_asked_for(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    needs = {0: [200], 1: [503, 200], 2: [429, 503, 200], 3: [404]}
    upstreams = {number: Answered(*statuses) for number, statuses in needs.items()}

    def call(number: int) -> int:
        upstreams[number].call()
        return number

    flow = pipeline(stage(retry=policy(3))(call))
    rd.submit_many(flow, needs)
    work(store, flow)

    assert store.query(report_sql.retry_histogram(pipeline="flow", stage=None)) == [(0, 2), (1, 1), (2, 1)]
    ranking = [
        (code, count)
        for code, count, _, _ in store.query(report_sql.error_ranking(pipeline="flow", stage=None))
    ]
    assert ranking[0][1] == 2
    assert sum(count for _, count in ranking) == 4
    (seen,) = store.query(report_sql.stage_reliability(pipeline="flow"))
    assert (seen.stage, seen.attempts, seen.ok, seen.retry, seen.dead) == ("call", 7, 3, 3, 1)


@pytest.mark.req("FG-6.1")
def test_a_run_over_its_budget_is_aborted_and_what_is_done_stays_done(
    rd: Redrive, clock: VirtualClock
) -> None:
    def sample(number: int) -> int:
        if number % 2:
            raise PermissionError(13, "denied")
        return number

    flow = pipeline(stage(sample))
    with pytest.raises(FailureBudgetExceededError) as stopped:
        rd.run(flow, range(100_000), failure_budget=FailureBudget(max_rate=0.10, check_every=1000))

    report = stopped.value.report
    assert report.status == "aborted"  # type: ignore[attr-defined]
    assert report.succeeded >= 400  # type: ignore[attr-defined]
    assert report.open == 0  # type: ignore[attr-defined]
    assert 0.4 < stopped.value.rate < 0.6
    assert "the budget is 10.0%" in str(stopped.value)


@pytest.mark.req("FG-7.1")
def test_each_retry_and_each_dead_letter_is_reported_with_its_next_delay(
    rd: Redrive, clock: VirtualClock
) -> None:
    told: list[Event] = []
    flow = pipeline(stage_calling(Answered(503), retry=policy(3)), on_retry=told.append, on_dead=told.append)
    job = rd.submit(flow, 1)
    rd.work([flow], until_idle=True)

    assert [(one.kind, one.job_id, one.stage, one.attempt) for one in told] == [
        ("retry", job.id, "call", 1),
        ("retry", job.id, "call", 2),
        ("dead", job.id, "call", 3),
    ]
    assert all(one.code for one in told)
    assert (told[0].due_at - told[0].at).total_seconds() == pytest.approx(1, abs=0.01) or told[
        0
    ].due_at > told[0].at
