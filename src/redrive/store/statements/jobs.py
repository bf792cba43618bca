# SPDX-License-Identifier: Apache-2.0
"""Jobs: submitting them, reading one, listing many, cancelling and erasing.

Only what the statements take and return: their texts are in `jobs.sql`, here and in each dialect.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from redrive.core.decoding import prepare
from redrive.store.statements.operations import Act
from redrive.store.statements.statement import statement


class JobTrace(NamedTuple):
    job_id: int
    traceparent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One job, as it was when this was read."""

    id: int
    pipeline: str
    stage: str
    status: str
    attempt: int
    error_code: str | None
    error_message: str | None
    key: str | None
    owner: str | None
    run: int | None
    priority: int
    waiting: str | None
    """Why a queued job waits: retry, hold, crashed, paused, replay; None when it is simply its turn."""
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    progress: str | None
    round: int
    dispatch: int
    parent: int | None
    is_cancel_asked: bool
    worker: str | None
    expires_at: datetime | None
    erased_at: datetime | None
    """When its values were wiped; None while they are there."""
    last_attempt_at: datetime | None
    manual_retries: int
    """How often somebody retried it by hand; replays are not counted."""


class JobResult(NamedTuple):
    status: str
    value: bytes | None


class AttemptRow(NamedTuple):
    dispatch: int
    stage: str
    round: int
    attempt: int
    outcome: str
    burned: bool
    code: str | None
    message: str | None
    http_status: int | None
    decision: str | None
    notes: str | None
    worker: str
    started_at: float
    ended_at: float
    config: str | None
    exception: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLine:
    """One attempt, in short."""

    dispatch: int
    stage: str
    round: int
    attempt: int
    outcome: str
    code: str | None
    http_status: int | None


class LaneCount(NamedTuple):
    pipeline: str
    stage: str
    status: str
    jobs: int


class JobTerms(NamedTuple):
    before: int
    status: str | None
    pipeline: str | None
    stage: str | None
    run: int | None
    owner: str | None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """One job in a list."""

    id: int
    pipeline: str
    stage: str
    status: str
    attempt: int
    waiting: str | None
    error_code: str | None
    run_at: datetime
    created_at: datetime
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEvent:
    """The end of one attempt."""

    seq: int
    job: int
    dispatch: int
    pipeline: str
    stage: str
    round: int
    attempt: int
    outcome: str
    code: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent(AttemptEvent):
    """The end of one attempt, with the decision as it is stored."""

    decision: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One step in the life of a job."""

    at: datetime
    event: str
    """queued, processing, retry, hold, checkpoint, complete, failed, crashed, cancelled or skipped."""
    stage: str | None
    attempt: int | None
    code: str | None
    http_status: int | None
    duration_ms: float | None
    reason: str | None
    dispatch: int


class ErasedJob(NamedTuple):
    status: str
    erased_at: float | None


@statement
def insert_value(*, job: int, dispatch: int, value: bytes) -> None: ...
@statement
def traces(*, ids: list[int]) -> JobTrace: ...
@statement
def duplicate(*, pipeline: str, key: str) -> int: ...
@statement
def job(*, job: int) -> JobFacts: ...
@statement
def jobs_of_owner(*, owner: str, pipeline: str, before: int, limit: int) -> JobFacts: ...
@statement
def free_key(*, job: int) -> None: ...
@statement
def bury_job(*, lane: int, now: float, owner: str | None, payload: bytes) -> None: ...
@statement
def bury_failure(*, now: float, code: str, message: str) -> None: ...
@statement
def bury_attempt(*, worker: str, exception: str | None, decision: str) -> None: ...
@statement
def bury_letter(*, fingerprint: str) -> int: ...
@statement
def bury_notices() -> None: ...
@statement
def result(*, job: int) -> JobResult: ...
@statement
def attempts(*, job: int) -> AttemptRow: ...
@statement
def counts() -> LaneCount: ...
@statement
def recount() -> LaneCount: ...
@statement
def nearest_jobs(*, first: int, last: int) -> int: ...
@statement
def last_job() -> int | None: ...
@statement
def list_jobs(*, which: JobTerms) -> JobLine: ...
@statement
def list_queued(*, which: JobTerms) -> JobLine: ...
@statement
def list_processing(*, which: JobTerms) -> JobLine: ...
@statement
def list_failed(*, which: JobTerms) -> JobLine: ...
@statement
def list_ended(*, which: JobTerms) -> JobLine: ...
@statement
def list_of_run(*, which: JobTerms) -> JobLine: ...
@statement
def list_of_key(*, which: JobTerms, key: str) -> JobLine: ...
@statement
def children(*, job: int) -> int: ...
@statement
def events(*, after: int, job: int | None, pipeline: str | None, limit: int) -> StoredEvent: ...
@statement
def last_event() -> int: ...
@statement
def latest_events(*, pipeline: str | None, limit: int) -> StoredEvent: ...
@statement
def events_of_job(*, job: int, after: int, limit: int) -> StoredEvent: ...
@statement
def transitions_of_job(*, job: int) -> JobEvent: ...
@statement
def cancel_queued(*, now: float, job: int) -> None: ...
@statement
def ask_to_cancel(*, job: int) -> None: ...
@statement
def job_to_erase(*, job: int) -> ErasedJob: ...
@statement
def log_erase(*, act: Act, job: int) -> None: ...
@statement
def erase_job(*, job: int, now: float) -> None: ...
@statement
def erase_values(*, job: int) -> None: ...
@statement
def erase_hashes(*, job: int) -> None: ...
@statement
def erase_edits(*, job: int) -> None: ...


prepare(JobFacts, JobLine, JobEvent, StoredEvent)
