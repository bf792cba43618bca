# SPDX-License-Identifier: Apache-2.0
"""Read jobs: lists page by page, the job with a key, the details of one job, ends of attempts, and counts.

Only reads. Pages go by key, never by offset, so that the hundredth page costs what the first one does. Everything shown was
redacted when it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from redrive.core.arguments import one_of
from redrive.core.decision_text import reason_and_sentence
from redrive.core.decoding import prepare
from redrive.core.lifecycle import JobState
from redrive.core.units import instant
from redrive.ops.audit import operations_about
from redrive.ops.jobs.facts import Attempt, get_job, job_attempts
from redrive.ops.suggest import LAST_ID
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.store.statements.jobs import AttemptEvent, JobFacts, JobLine
from redrive.store.statements.letters import DeadLetter
from redrive.store.statements.operations import Operation
from redrive.store.statements.statement import members_of

_LISTINGS: Final = {
    "queued": job_sql.list_queued,
    "processing": job_sql.list_processing,
    "failed": job_sql.list_failed,
    "complete": job_sql.list_ended,
    "cancelled": job_sql.list_ended,
    "skipped": job_sql.list_ended,
}
"""The statement whose index suits a state best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs to list; what is left out does not matter."""

    status: str | None = None
    pipeline: str | None = None
    stage: str | None = None
    run: int | None = None
    owner: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(AttemptEvent):
    """The end of one attempt, and why it ended so."""

    reason: str | None
    sentence: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a job was imported from, and what happened there; shown, but not counted here."""

    installation: str
    job: int
    """Its id there."""
    letter: int
    """The id of its dead letter there."""
    imported_at: datetime
    actor: str
    attempts: Sequence[Attempt]
    """The attempts made there, of many only the last; redacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetails:
    """Everything that is known about one job."""

    facts: JobFacts
    origin: Origin | None
    """None for a job that was submitted here."""
    attempts: Sequence[Attempt]
    letters: Sequence[DeadLetter]
    """One for each round that failed, oldest first."""
    operations: Sequence[Operation]
    """What people did about the job and its letters, also by filter and in a replay of many, oldest first."""


def list_jobs(
    store: Reader, which: JobFilter, *, before: int | None = None, limit: int = 50
) -> list[JobLine]:
    """Return jobs, newest first; the id of the last one is the `before` of the next page.

    At most so many jobs are looked at: those in the state that is asked for, while that is queued, processing or failed; else those
    of the run that is asked for. Without either, jobs are walked from the newest on until the page is full: soon when most fit, and
    over all of them when few do; a walk for complete, cancelled or skipped ones ends at the last one.
    """
    if which.status is not None:
        one_of("status", which.status, tuple(JobState))
    terms = job_sql.JobTerms(
        LAST_ID if before is None else before,
        which.status,
        which.pipeline,
        which.stage,
        which.run,
        which.owner,
        limit,
    )
    if which.key is not None:
        return store.query(job_sql.list_of_key(which=terms, key=which.key))
    if which.run is not None and which.status not in {"processing", "failed"}:
        listing = job_sql.list_of_run
    else:
        listing = _LISTINGS.get(which.status or "", job_sql.list_jobs)
    return store.query(listing(which=terms))


def find_job(store: Reader, pipeline: str, key: str) -> int | None:
    """Return the id of the job with a key: the one that holds it, or else the newest that did; None if there is none."""
    held = store.query(job_sql.duplicate(pipeline=pipeline, key=key))
    if held:
        return held[0]
    newest = list_jobs(store, JobFilter(pipeline=pipeline, key=key), limit=1)
    return newest[0].id if newest else None


def children_of(store: Reader, job_id: int) -> list[int]:
    """Return the ids of the jobs that the stages of a job have submitted, in order; raises JobNotFoundError."""
    get_job(store, job_id)
    return store.query(job_sql.children(job=job_id))


def job_details(store: Store, job_id: int) -> JobDetails:
    """Return the details of a job at one moment; raises JobNotFoundError with similar ids."""
    with store.reading() as moment:
        return details_of(moment, job_id)


def details_of(store: Reader, job_id: int) -> JobDetails:
    """Return the same, among other answers about one moment."""
    facts = get_job(store, job_id)
    letters = store.query(letter_sql.letters_of_job(job=job_id))
    return JobDetails(
        facts=facts,
        origin=origin_of(store, job_id),
        attempts=job_attempts(store, job_id),
        letters=letters,
        operations=operations_about(store, job_id, letters),
    )


def origin_of(store: Reader, job_id: int) -> Origin | None:
    """Return where a job was imported from; None when it was not."""
    rows = store.query(transfer_sql.import_of_job(job=job_id))
    if not rows:
        return None
    (row,) = rows
    made = msgspec.json.decode(row.attempts, type=list[dict[str, object]])
    for one in made:
        one["started_at"], one["ended_at"] = instant(one["started_at"]), instant(one["ended_at"])
    return Origin(
        installation=row.origin,
        job=row.job,
        letter=row.letter,
        imported_at=instant(row.at),
        actor=row.actor,
        attempts=msgspec.convert(made, list[Attempt]),
    )


def latest_events(
    store: Reader, *, job: int | None = None, pipeline: str | None = None, limit: int = 50
) -> list[Event]:
    """Return the latest events, oldest first."""
    if job is not None:
        rows = store.query(job_sql.events_of_job(job=job, after=0, limit=limit))
    else:
        rows = store.query(job_sql.latest_events(pipeline=pipeline, limit=limit))
    return [event_of(row) for row in reversed(rows)]


def events_after(
    store: Reader, seq: int, *, job: int | None = None, pipeline: str | None = None, limit: int = 500
) -> list[Event]:
    """Return events after `seq`, oldest first; continue with the `seq` of the last one."""
    asked = job_sql.events(after=seq, job=job, pipeline=pipeline, limit=limit)
    return [event_of(row) for row in store.query(asked)]


def last_event(store: Reader) -> int:
    """Return where the events end now."""
    return store.query(job_sql.last_event())[0]


def counts(store: Reader) -> dict[tuple[str, str], dict[str, int]]:
    """Count jobs by (pipeline, stage) and status."""
    counted: dict[tuple[str, str], dict[str, int]] = {}
    for pipeline, stage, status, jobs in store.query(job_sql.counts()):
        counted.setdefault((pipeline, stage), {})[status] = jobs
    return counted


def event_of(row: job_sql.StoredEvent) -> Event:
    """Return a row of the store as the event it is."""
    reason, sentence = reason_and_sentence(row.decision)
    return msgspec.convert({**members_of(row), "reason": reason, "sentence": sentence}, Event)


prepare(Event)
