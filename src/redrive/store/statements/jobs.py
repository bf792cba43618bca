# SPDX-License-Identifier: Apache-2.0
"""Jobs: submitting them, reading one, listing many, cancelling and erasing.

Only what the statements take and return: their texts are in `jobs.sql` of each dialect.
"""

from __future__ import annotations

from typing import NamedTuple

from redrive.store.statements.operations import Act
from redrive.store.statements.statement import statement


class JobTrace(NamedTuple):
    job_id: int
    traceparent: str


class JobRow(NamedTuple):
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
    run_at: float
    created_at: float
    started_at: float | None
    finished_at: float | None
    progress: str | None
    round: int
    dispatch: int
    parent: int | None
    is_cancel_asked: bool
    worker: str | None
    expires_at: float | None
    erased_at: float | None
    last_attempt_at: float | None
    manual_retries: int


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


class ListedJob(NamedTuple):
    id: int
    pipeline: str
    stage: str
    status: str
    attempt: int
    waiting: str | None
    error_code: str | None
    run_at: float
    created_at: float
    key: str | None


class EventRow(NamedTuple):
    seq: int
    job: int
    dispatch: int
    pipeline: str
    stage: str
    round: int
    attempt: int
    outcome: str
    code: str | None
    decision: str | None
    ended_at: float


class Transition(NamedTuple):
    at: float
    event: str
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
def job(*, job: int) -> JobRow: ...
@statement
def jobs_of_owner(*, owner: str, pipeline: str, before: int, limit: int) -> JobRow: ...
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
def list_jobs(*, which: JobTerms) -> ListedJob: ...
@statement
def list_queued(*, which: JobTerms) -> ListedJob: ...
@statement
def list_processing(*, which: JobTerms) -> ListedJob: ...
@statement
def list_failed(*, which: JobTerms) -> ListedJob: ...
@statement
def list_ended(*, which: JobTerms) -> ListedJob: ...
@statement
def list_of_run(*, which: JobTerms) -> ListedJob: ...
@statement
def list_of_key(*, which: JobTerms, key: str) -> ListedJob: ...
@statement
def children(*, job: int) -> int: ...
@statement
def events(*, after: int, job: int | None, pipeline: str | None, limit: int) -> EventRow: ...
@statement
def last_event() -> int: ...
@statement
def latest_events(*, pipeline: str | None, limit: int) -> EventRow: ...
@statement
def events_of_job(*, job: int, after: int, limit: int) -> EventRow: ...
@statement
def transitions_of_job(*, job: int) -> Transition: ...
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
