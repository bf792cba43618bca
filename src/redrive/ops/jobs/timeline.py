# SPDX-License-Identifier: Apache-2.0
"""The timeline of a job: events of the engine, acts of operators, ends of replays, and the import.

Only what is on record, in order of time; `explain` has the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from redrive.ops.jobs.facts import job_events
from redrive.ops.jobs.inspect import JobDetails, Origin, details_of
from redrive.store.protocol import Store
from redrive.store.statements.jobs import JobEvent, JobFacts
from redrive.store.statements.letters import DeadLetter
from redrive.store.statements.operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """One event of a job, or one act of an operator."""

    at: datetime
    what: str
    stage: str | None = None
    round: int | None = None
    """Of attempts and dead letters; None for the whole job."""
    attempt: int | None = None
    code: str | None = None
    duration: float | None = None
    """Seconds; only for the end of an attempt."""
    detail: str | None = None
    actor: str | None = None


def timeline(store: Store, job_id: int) -> list[TimelineEntry]:
    """Return the events of a job and the acts of operators on it and its dead letters, in order of time."""
    with store.reading() as moment:
        details, events = details_of(moment, job_id), job_events(moment, job_id)
    rounds = {attempt.dispatch: attempt.round for attempt in details.attempts}
    entries = [_entry_of(event, rounds, details.facts) for event in events]
    entries += [*_entries_there(details), *_ends_of_replays(details)]
    entries += [
        TimelineEntry(at=done.at, what=act_of(done, job_id), detail=done.reason, actor=done.actor)
        for done in details.operations
    ]
    # Sorting is stable: events of one instant stay in their order, and acts of operators follow them.
    return sorted(entries, key=lambda entry: entry.at)


def act_of(done: Operation, job_id: int) -> str:
    """Return the name of an act, with its subject unless that is the job itself."""
    return done.verb if done.subject == f"job {job_id}" else f"{done.verb} ({done.subject})"


def _ends_of_replays(details: JobDetails) -> list[TimelineEntry]:
    """Return when and how the replay of each letter ended."""
    after = {letter.follows: letter for letter in details.letters}
    return [
        TimelineEntry(
            at=letter.closed_at,
            what=f"{letter.state} (letter {letter.id})",
            round=letter.round,
            code=letter.code,
            detail=f"its replay {replay_outcome(letter, after.get(letter.id))}",
        )
        for letter in details.letters
        if letter.closed_at is not None
    ]


def _entries_there(details: JobDetails) -> list[TimelineEntry]:
    """Return what happened to an imported job in its first database, and when it was imported; nothing for other jobs."""
    origin = details.origin
    if origin is None:
        return []
    entries = [
        TimelineEntry(
            at=made.ended_at,
            what=f"{'failed' if made.outcome == 'dead' else made.outcome} there",
            stage=made.stage,
            round=made.round,
            attempt=made.attempt,
            code=made.code,
            duration=made.duration,
            detail=made.reason,
        )
        for made in origin.attempts
    ]
    imported = TimelineEntry(
        at=origin.imported_at,
        what="imported",
        detail=place_there(origin),
        actor=origin.actor,
    )
    return [*entries, imported]


def _entry_of(event: JobEvent, rounds: Mapping[int, int], facts: JobFacts) -> TimelineEntry:
    # An event without a recorded attempt is of the current round.
    number = rounds.get(event.dispatch, facts.round) if event.attempt is not None else None
    return TimelineEntry(
        at=event.at,
        what=event.event,
        stage=event.stage,
        round=number,
        attempt=event.attempt,
        code=event.code,
        duration=None if event.duration_ms is None else event.duration_ms / 1000,
        detail=event.reason,
    )


def place_there(origin: Origin) -> str:
    """Return where an imported job comes from."""
    return f"from installation {origin.installation}: letter {origin.letter} of job {origin.job} there"


def replay_outcome(letter: DeadLetter, after: DeadLetter | None) -> str:
    """Return how a replay ended: same and other are decided by the fingerprint, while escalation is decided by the code."""
    if letter.outcome == "same":
        return "failed again with the same failure (the same fingerprint)"
    if letter.outcome != "other":
        return {"completed": "completed", "cancelled": "was cancelled"}[str(letter.outcome)]
    if after is None:
        return "failed again with another failure (another fingerprint)"
    if after.code == letter.code:
        return f"failed again with the same code, {letter.code}, but another fingerprint"
    return f"failed again with another failure: {after.code} instead of {letter.code}"
