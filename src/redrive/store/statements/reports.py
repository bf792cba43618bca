# SPDX-License-Identifier: Apache-2.0
"""Reports: counts over many jobs and attempts.

Only what the statements take and return: their texts are in `reports.sql`, here and in each dialect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from redrive.core.decoding import prepare
from redrive.store.statements.statement import statement


class RetryCount(NamedTuple):
    retries: int
    jobs: int


class ErrorCount(NamedTuple):
    code: str
    attempts: int
    jobs: int
    last_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """One stage and the outcomes of its attempts."""

    pipeline: str
    stage: str
    attempts: int
    ok: int
    retry: int
    hold: int
    dead: int
    crashed: int
    cancelled: int
    skipped: int
    success: float
    """The share of successful attempts among those that were not held, crashed, cancelled or skipped."""
    seconds: float
    """The mean duration of an attempt."""


class StatusCount(NamedTuple):
    status: str
    jobs: int
    pruned: int


class RunTotal(NamedTuple):
    items: int
    jobs: int


class NewestAttempt(NamedTuple):
    seq: int
    job_id: int
    dispatch: int
    ended_at: float


class AttemptCount(NamedTuple):
    lane_id: int
    outcome: int
    width: int
    attempts: int
    seconds: float


class FailureCount(NamedTuple):
    lane_id: int
    outcome: str
    code: str | None
    attempts: int


class ManualRetries(NamedTuple):
    retries: int
    last: int


class StageAttempt(NamedTuple):
    job_id: int
    lane_id: int
    round: int
    outcome: str
    code: str | None
    http_status: int | None
    decision: str | None


@statement
def retry_histogram(*, pipeline: str | None, stage: str | None) -> RetryCount: ...
@statement
def retry_histogram_of_run(*, run: int, stage: str | None) -> RetryCount: ...
@statement
def error_ranking(*, pipeline: str | None, stage: str | None) -> ErrorCount: ...
@statement
def error_ranking_of_run(*, run: int, stage: str | None) -> ErrorCount: ...
@statement
def stage_reliability(*, pipeline: str | None) -> StageReport: ...
@statement
def stage_reliability_of_run(*, run: int) -> StageReport: ...
@statement
def pipeline_account(*, pipeline: str) -> StatusCount: ...
@statement
def pipeline_total(*, pipeline: str) -> int: ...
@statement
def run_account(*, run: int) -> StatusCount: ...
@statement
def run_total(*, run: int) -> RunTotal: ...
@statement
def newest_attempt() -> NewestAttempt: ...
@statement
def is_attempt(*, seq: int, job: int, dispatch: int) -> bool: ...
@statement
def attempt_tally(*, after: int, last: int, since: float, limits: tuple[float, ...]) -> AttemptCount: ...
@statement
def failure_tally(*, after: int, last: int, since: float) -> FailureCount: ...
@statement
def retries_by_hand(*, after: int) -> ManualRetries: ...
@statement
def released_letters() -> int: ...
@statement
def attempts_of_stages(*, pipeline: str | None, stage: str | None) -> StageAttempt: ...
@statement
def pipeline_lanes(*, pipeline: str) -> int: ...


prepare(StageReport)
