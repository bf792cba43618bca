# SPDX-License-Identifier: Apache-2.0
"""One job as the store has it: its facts, attempts and events.

Only reads, and never waits: that is left to the job handle of the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from redrive.core.decision_text import reason_and_sentence
from redrive.core.decoding import prepare
from redrive.core.units import instant
from redrive.errors import ConfigurationError, JobNotFoundError
from redrive.ops.suggest import id_hint
from redrive.store.reader import Reader
from redrive.store.records import JobId
from redrive.store.statements import jobs as job_sql
from redrive.store.statements.jobs import JobEvent, JobFacts

ID_END: Final = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a job, with its outcome and what was decided."""

    dispatch: int
    stage: str
    round: int
    attempt: int
    outcome: str
    """ok, retry, hold, dead, crashed, cancelled or skipped."""
    burned: bool | None = None
    """Whether it used up one of the stage's attempts; None for an attempt that was made in another installation."""
    code: str | None = None
    message: str | None = None
    http_status: int | None = None
    decision: Mapping[str, object] | None = None
    """The decision as it is stored; `reason` and `sentence` have it in words."""
    notes: Mapping[str, str] | None = None
    """What the stage noted."""
    worker: str | None = None
    started_at: datetime
    ended_at: datetime
    config: str | None = None
    """A hash of the stage's settings."""
    exception: str | None = None
    """The class of the exception, with its module."""
    reason: str | None = None
    sentence: str | None = None
    duration: float
    """Seconds."""


def job_facts(store: Reader, job: int) -> JobFacts:
    """Return a job as it is now; raises JobNotFoundError, and ConfigurationError for what cannot be an id."""
    if type(job) is not int:
        raise ConfigurationError(
            field="job_id", value=job, rule="must be a whole number", fix="rd.submit(...).id is one."
        )
    rows = store.query(job_sql.job(job=JobId(job))) if 0 < job < ID_END else []
    if not rows:
        raise JobNotFoundError(job_id=job)
    return rows[0]


def jobs_of_owner(
    store: Reader, owner: str, pipeline: str, *, before: int | None = None, limit: int = 50
) -> list[JobFacts]:
    """Return the jobs of an owner in a pipeline, newest first; the id of the last one is the `before` of the next page."""
    end = ID_END - 1 if before is None else before
    asked = job_sql.jobs_of_owner(owner=owner, pipeline=pipeline, before=end, limit=limit)
    return store.query(asked)


def get_job(store: Reader, job: int) -> JobFacts:
    """Return a job as it is now; raises JobNotFoundError whose hint lists ids close to it."""
    try:
        return job_facts(store, job)
    except JobNotFoundError as error:
        error.hint = id_hint(store, "job", job)
        raise


def job_attempts(store: Reader, job: int) -> list[Attempt]:
    """Return every attempt of a job, in order, with its outcome and the reason."""
    return [_attempt_of(row) for row in store.query(job_sql.attempts(job=job))]


def job_events(store: Reader, job: int) -> list[JobEvent]:
    """Return every transition of a job, in order: queued, processing, retry, hold, checkpoint, complete, failed."""
    return store.query(job_sql.transitions_of_job(job=job))


def _attempt_of(row: job_sql.AttemptRow) -> Attempt:
    reason, sentence = reason_and_sentence(row.decision)
    attempt: dict[str, object] = row._asdict()
    attempt |= {
        "decision": None if row.decision is None else msgspec.json.decode(row.decision),
        "reason": reason,
        "sentence": sentence,
        "notes": None if row.notes is None else msgspec.json.decode(row.notes),
        "duration": row.ended_at - row.started_at,
        "started_at": instant(row.started_at),
        "ended_at": instant(row.ended_at),
    }
    return msgspec.convert(attempt, Attempt)


prepare(Attempt)
