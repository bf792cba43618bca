# SPDX-License-Identifier: Apache-2.0
"""Read jobs: lists page by page, the job with a key, the details of one job, ends of attempts, and counts.

Only reads. Pages go by key, never by offset, so that the hundredth page costs what the first one does. Everything shown was
redacted when it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

import msgspec

from redrive.core.arguments import one_of
from redrive.core.decision_text import reason_and_sentence
from redrive.core.decoding import prepare
from redrive.core.lifecycle import JobState
from redrive.engine.clock import instant
from redrive.ops.audit import Operation, operations_about
from redrive.ops.jobs.facts import Attempt, JobFacts, get_job, job_attempts
from redrive.ops.letters.letter import DeadLetter, letters_of_job
from redrive.ops.suggest import LAST_ID
from redrive.store.protocol import Store
from redrive.store.records import Row

_LISTINGS: Final = {
    "queued": "list_queued",
    "complete": "list_ended",
    "cancelled": "list_ended",
    "skipped": "list_ended",
}


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
class Event:
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
    reason: str | None
    sentence: str | None
    at: datetime


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
    """Those made there, or the last of many; redacted."""


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


def list_jobs(store: Store, which: JobFilter, *, before: int | None = None, limit: int = 50) -> list[JobLine]:
    """Return jobs, newest first; the id of the last one is the `before` of the next page.

    At most so many jobs are looked at: those in the state that is asked for, while that is queued, processing or failed; else those
    of the run that is asked for. Without either, jobs are walked from the newest on until the page is full: soon when most fit, and
    over all of them when few do; for complete, cancelled and skipped ones at least not beyond the last there is.
    """
    if which.status is not None:
        one_of("status", which.status, tuple(JobState))
    end = LAST_ID if before is None else before
    rest = (which.status, which.pipeline, which.stage, which.run, which.owner, limit)
    key = () if which.key is None else (which.key,)
    return [_line_of(row) for row in store.query(_listing(which), end, *rest, *key)]


def _listing(which: JobFilter) -> str:
    """Return the statement whose index suits the filter best."""
    if which.key is not None:
        return "list_of_key"
    if which.status in {"processing", "failed"}:
        return f"list_{which.status}"
    if which.run is not None:
        return "list_of_run"
    return _LISTINGS.get(which.status or "", "list_jobs")


def find_job(store: Store, pipeline: str, key: str) -> int | None:
    """Return the id of the job with a key: the one that holds it, or else the newest that did; None if there is none."""
    held = store.query("duplicate", pipeline, key)
    if held:
        return cast("int", held[0][0])
    newest = list_jobs(store, JobFilter(pipeline=pipeline, key=key), limit=1)
    return newest[0].id if newest else None


def children_of(store: Store, job_id: int) -> list[int]:
    """Return the ids of the jobs that the stages of a job have submitted, in order; raises JobNotFoundError."""
    get_job(store, job_id)
    return [cast("int", row[0]) for row in store.query("children", job_id)]


def job_details(store: Store, job_id: int) -> JobDetails:
    """Return the details of a job; raises JobNotFoundError with similar ids."""
    facts = get_job(store, job_id)
    letters = letters_of_job(store, job_id)
    return JobDetails(
        facts=facts,
        origin=origin_of(store, job_id),
        attempts=job_attempts(store, job_id),
        letters=letters,
        operations=operations_about(store, job_id, letters),
    )


def origin_of(store: Store, job_id: int) -> Origin | None:
    """Return where a job was imported from; None when it was not."""
    rows = store.query("import_of_job", job_id)
    if not rows:
        return None
    origin, letter, at, actor, job, attempts = rows[0]
    made = msgspec.json.decode(cast("str", attempts), type=list[dict[str, object]])
    for one in made:
        one["started_at"], one["ended_at"] = instant(one["started_at"]), instant(one["ended_at"])
    return Origin(
        installation=str(origin),
        job=cast("int", job),
        letter=cast("int", letter),
        imported_at=instant(at),
        actor=str(actor),
        attempts=msgspec.convert(made, list[Attempt]),
    )


def latest_events(
    store: Store, *, job: int | None = None, pipeline: str | None = None, limit: int = 50
) -> list[Event]:
    """Return the latest events, oldest first."""
    if job is not None:
        return [event_of(row) for row in reversed(store.query("events_of_job", job, 0, limit))]
    return [event_of(row) for row in reversed(store.query("latest_events", pipeline, limit))]


def events_after(
    store: Store, seq: int, *, job: int | None = None, pipeline: str | None = None, limit: int = 500
) -> list[Event]:
    """Return events after `seq`, oldest first; continue with the `seq` of the last one."""
    return [event_of(row) for row in store.query("events", seq, job, pipeline, limit)]


def last_event(store: Store) -> int:
    """Return where the events end now."""
    return cast("int", store.query("last_event")[0][0])


def counts(store: Store) -> dict[tuple[str, str], dict[str, int]]:
    """Count jobs by (pipeline, stage) and status."""
    counted: dict[tuple[str, str], dict[str, int]] = {}
    for pipeline, stage, status, jobs in store.query("counts"):
        counted.setdefault((str(pipeline), str(stage)), {})[str(status)] = cast("int", jobs)
    return counted


def event_of(row: Row) -> Event:
    """Return a row of the store as the event it is."""
    names = "seq job dispatch pipeline stage round attempt outcome code".split()
    reason, sentence = reason_and_sentence(cast("str | None", row[9]))
    why = {"reason": reason, "sentence": sentence, "at": instant(row[10])}
    return msgspec.convert({**dict(zip(names, row[:9], strict=True)), **why}, Event)


def _line_of(row: Row) -> JobLine:
    names = "id pipeline stage status attempt waiting error_code".split()
    times = {"run_at": instant(row[7]), "created_at": instant(row[8]), "key": row[9]}
    return msgspec.convert({**dict(zip(names, row[:7], strict=True)), **times}, JobLine)


prepare(Event, JobLine)
