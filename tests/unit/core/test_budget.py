# SPDX-License-Identifier: Apache-2.0
"""Run status and failure budget as pure functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import ConfigurationError
from redrive.core.budget import FailureBudget, FailureRule, RunStatus, RunThresholds, Tally, decide_status
from redrive.core.stop_reason import BudgetExceeded

counts = st.integers(0, 10_000)


@pytest.mark.parametrize(
    ("succeeded", "status"),
    [
        (100, "completed"),
        (95, "completed"),
        (94, "partial_success"),
        (50, "partial_success"),
        (49, "failed"),
        (0, "failed"),
    ],
)
def test_the_status_follows_the_success_rate(succeeded: int, status: str) -> None:
    assert RunThresholds().status_of(Tally(total=100, succeeded=succeeded, dead=100 - succeeded)) == status


def test_an_empty_run_is_completed() -> None:
    assert RunThresholds().status_of(Tally()) is RunStatus.COMPLETED


def test_skipped_jobs_count_in_no_rate() -> None:
    half_skipped = Tally(total=200, succeeded=95, dead=5, skipped=100)

    assert RunThresholds().status_of(half_skipped) is RunStatus.COMPLETED
    assert RunThresholds().status_of(Tally(total=3, skipped=3)) is RunStatus.COMPLETED
    exceeded = FailureBudget(max_rate=0.04, check_every=100).check(half_skipped)
    assert exceeded is not None
    assert (exceeded.dead, exceeded.finished) == (5, 100)
    assert FailureBudget(max_rate=0, check_every=100).check(Tally(total=100, dead=1, skipped=99)) is None


def test_a_run_with_open_jobs_is_running() -> None:
    assert RunThresholds().status_of(Tally(total=2, succeeded=1)) is RunStatus.RUNNING


def test_thresholds_are_configurable() -> None:
    strict = RunThresholds(completed=1.0, partial_success=0.9)

    assert strict.status_of(Tally(total=10, succeeded=9, dead=1)) is RunStatus.PARTIAL_SUCCESS


@pytest.mark.parametrize("rule", [RunThresholds(), FailureRule()])
@pytest.mark.parametrize("stopped", [RunStatus.ABORTED, RunStatus.CANCELLED, RunStatus.PAUSED])
def test_a_run_that_was_stopped_stays_so_whatever_its_jobs_did(
    rule: RunThresholds | FailureRule, stopped: RunStatus
) -> None:
    done = Tally(total=2, succeeded=2)

    assert decide_status(rule, stopped, done, has_permanent=True) is stopped
    assert decide_status(rule, RunStatus.RUNNING, done, has_permanent=False) is RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("given_as", "meant"),
    [
        (None, RunThresholds()),
        (RunThresholds(completed=0.8), RunThresholds(completed=0.8)),
        ({"completed": 0.9, "partial_success": 0.4}, RunThresholds(completed=0.9, partial_success=0.4)),
        ({"completed": 0.99}, RunThresholds(completed=0.99)),
        ({}, RunThresholds()),
    ],
)
def test_thresholds_are_given_by_name(given_as: object, meant: RunThresholds) -> None:
    assert RunThresholds.of("thresholds", given_as) == meant


@given(counts, counts, counts, counts, counts)
def test_every_job_is_accounted_for(
    succeeded: int, dead: int, cancelled: int, skipped: int, still_open: int
) -> None:
    total = succeeded + dead + cancelled + skipped + still_open
    tally = Tally(total=total, succeeded=succeeded, dead=dead, cancelled=cancelled, skipped=skipped)

    assert tally.total == tally.succeeded + tally.dead + tally.cancelled + tally.skipped + tally.open
    assert tally.open == still_open


def test_since_a_run_was_resumed_counts_what_has_ended_after_that_and_what_is_open() -> None:
    before = Tally(total=20, succeeded=5, dead=8, skipped=1)
    # A replay has taken one of the failures back.
    now = Tally(total=20, succeeded=9, dead=7, skipped=2)

    assert now.since(before) == Tally(total=7, succeeded=4, skipped=1)
    assert now.since(None) is now


def test_the_budget_is_looked_at_once_per_full_interval() -> None:
    budget = FailureBudget(check_every=1000)

    assert not budget.is_due(0, 999)
    assert budget.is_due(999, 1000)
    assert not budget.is_due(1000, 1999)
    assert budget.is_due(1999, 2500)
    assert budget.is_due(500, 5000)


def test_above_the_budget_the_answer_has_rate_counts_and_reason() -> None:
    budget = FailureBudget(max_rate=0.10)

    assert budget.check(Tally(total=5000, succeeded=900, dead=100)) is None
    exceeded = budget.check(Tally(total=5000, succeeded=899, dead=101))
    assert exceeded is not None
    assert exceeded == BudgetExceeded(dead=101, finished=1000, max_rate=0.10)
    assert exceeded.rate == pytest.approx(0.101)


def test_a_minimum_sample_is_kept() -> None:
    budget = FailureBudget(min_finished=50)

    assert budget.check(Tally(total=100, dead=49)) is None
    assert budget.check(Tally(total=100, dead=50)) is not None
    assert FailureBudget().check(Tally(total=100)) is None
    assert FailureBudget(check_every=100).check(Tally(total=100, dead=99)) is None
    assert FailureBudget(check_every=100).check(Tally(total=100, dead=100)) is not None


def test_a_budget_of_nothing_stops_at_the_first_failure() -> None:
    assert FailureBudget(max_rate=0, min_finished=1).check(Tally(total=9, succeeded=4, dead=1)) is not None


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_one_more_failure_never_heals_a_budget(succeeded: int, dead: int) -> None:
    budget = FailureBudget(min_finished=1)
    before = budget.check(Tally(total=5000, succeeded=succeeded, dead=dead))

    assert before is None or budget.check(Tally(total=5000, succeeded=succeeded, dead=dead + 1)) is not None


@pytest.mark.parametrize(
    "build",
    [
        lambda: Tally(total=-1),
        lambda: Tally(total=1, succeeded=2),
        lambda: RunThresholds(completed=0),
        lambda: RunThresholds(completed=0.4, partial_success=0.5),
        lambda: RunThresholds.of("thresholds", (0.9, 0.4)),
        lambda: RunThresholds.of("thresholds", 0.9),
        lambda: RunThresholds.of("thresholds", {"complete": 0.9}),
        lambda: RunThresholds.of("thresholds", {"completed": "0.9"}),
        lambda: FailureBudget(max_rate=-0.1),
        lambda: FailureBudget(max_rate=1.1),
        lambda: FailureBudget(max_rate="0.1"),  # type: ignore[arg-type]
        lambda: FailureBudget(check_every=0),
        lambda: FailureBudget(min_finished=0),
        lambda: FailureBudget(on_exceeded="explode"),  # type: ignore[arg-type]
    ],
)
def test_wrong_numbers_are_refused_with_a_fix(build: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        build()

    assert refused.value.fix
