# SPDX-License-Identifier: Apache-2.0
"""What happened to a job, moment by moment: by the engine, by people, at the end of replays, and where it was imported from.

Only what is on record, in the order in which it happened; why it happened is told by `explain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from redrive.ops.audit import Operation
from redrive.ops.jobs.facts import JobFacts, job_events
from redrive.ops.jobs.inspect import JobStory, Origin, story_of
from redrive.ops.letters.letter import DeadLetter
from redrive.store.protocol import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One thing that happened to a job, or that somebody did about it."""

    at: datetime
    what: str
    stage: str | None
    round: int | None
    """Of attempts and dead letters; None where something is about the whole job."""
    attempt: int | None
    code: str | None
    duration: float | None
    """Seconds; only of the end of an attempt."""
    told: str | None
    actor: str | None


def timeline(store: Store, job_id: int) -> list[Moment]:
    """Return what happened to a job and what people did about it and its dead letters, in the order in which it happened."""
    story = story_of(store, job_id)
    rounds = {attempt["dispatch"]: cast("int", attempt["round"]) for attempt in story.attempts}
    moments = [_moment_of(event, rounds, story.facts) for event in job_events(store, job_id)]
    moments += [*_moments_there(story), *_ends_of_replays(story)]
    moments += [_moment_by(done, job_id) for done in story.operations]
    # Sorting is stable: what the engine did within one instant stays in its own order, and people come after it.
    return sorted(moments, key=lambda moment: moment.at)


def act_of(done: Operation, job_id: int) -> str:
    """Name an act, with what it was done to unless that is the job itself."""
    return done.verb if done.subject == f"job {job_id}" else f"{done.verb} ({done.subject})"


def _moment_by(done: Operation, job_id: int) -> Moment:
    return Moment(
        at=done.at,
        what=act_of(done, job_id),
        stage=None,
        round=None,
        attempt=None,
        code=None,
        duration=None,
        told=done.reason,
        actor=done.actor,
    )


def _ends_of_replays(story: JobStory) -> list[Moment]:
    """Tell when the replay of each letter ended, and how."""
    after = {letter.follows: letter for letter in story.letters}
    return [
        Moment(
            at=letter.closed_at,
            what=f"{letter.state} (letter {letter.id})",
            stage=None,
            round=letter.round,
            attempt=None,
            code=letter.code,
            duration=None,
            told=f"its replay {came_to(letter, after.get(letter.id))}",
            actor=None,
        )
        for letter in story.letters
        if letter.closed_at is not None
    ]


def _moments_there(story: JobStory) -> list[Moment]:
    """Tell what happened to an imported job where it comes from, and when it was imported; nothing of any other."""
    origin = story.origin
    if origin is None:
        return []
    moments = [
        Moment(
            at=cast("datetime", made["ended_at"]),
            what=f"{'failed' if made['outcome'] == 'dead' else made['outcome']} there",
            stage=str(made["stage"]),
            round=cast("int", made["round"]),
            attempt=cast("int", made["attempt"]),
            code=cast("str | None", made["code"]),
            duration=cast("float", made["duration"]),
            told=cast("str | None", made["reason"]),
            actor=None,
        )
        for made in origin.attempts
    ]
    imported = Moment(
        at=origin.imported_at,
        what="imported",
        stage=None,
        round=None,
        attempt=None,
        code=None,
        duration=None,
        told=place_there(origin),
        actor=origin.actor,
    )
    return [*moments, imported]


def _moment_of(event: dict[str, object], rounds: Mapping[object, int], facts: JobFacts) -> Moment:
    duration = event["duration_ms"]
    # What is not on record as an attempt runs now, or ended without one, and is of the present round.
    number = rounds.get(event["dispatch"], facts.round) if event["attempt"] is not None else None
    return Moment(
        at=cast("datetime", event["at"]),
        what=str(event["event"]),
        stage=cast("str | None", event["stage"]),
        round=number,
        attempt=cast("int | None", event["attempt"]),
        code=cast("str | None", event["code"]),
        duration=None if duration is None else cast("float", duration) / 1000,
        told=cast("str | None", event["reason"]),
        actor=None,
    )


def place_there(origin: Origin) -> str:
    """Say where an imported job comes from."""
    return f"from installation {origin.installation}: letter {origin.letter} of job {origin.job} there"


def came_to(letter: DeadLetter, after: DeadLetter | None) -> str:
    """Say what a replay came to: same and other are told by fingerprint, while a letter is escalated by its code."""
    if letter.verdict == "same":
        return "failed again with the same failure (the same fingerprint)"
    if letter.verdict != "other":
        return {"completed": "completed", "cancelled": "was cancelled"}[str(letter.verdict)]
    if after is None:
        return "failed again with another failure (another fingerprint)"
    if after.code == letter.code:
        return f"failed again with the same code, {letter.code}, but another fingerprint"
    return f"failed again with another failure: {after.code} instead of {letter.code}"
