# SPDX-License-Identifier: Apache-2.0
"""Why a job is where it is, in plain words: what happened, what was decided and why, what else could have been, what to do next.

Everything is told from what is stored: attempts with their decisions, the dead letter, what people did. Where the store does not
know something, such as how many attempts a policy would have allowed, nothing is said about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from redrive.core.taxonomy import CODES
from redrive.engine.jobs import JobFacts
from redrive.ops.advice import Hints, next_steps
from redrive.ops.explain_why import as_sentence, decided, otherwise
from redrive.ops.findings import age
from redrive.ops.inspect import DeadLetter, JobStory, Operation, known_job, story_of
from redrive.store.protocol import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One attempt, explained."""

    dispatch: int
    stage: str
    round: int
    attempt: int
    outcome: str
    code: str | None
    category: str | None
    """Of a code that the taxonomy knows, or that the dead letter tells."""
    http_status: int | None
    reason: str | None
    happened: str
    matched: str | None
    """What the failure was taken for; None when there was none."""
    decided: str
    otherwise: str | None
    """What would have happened otherwise; None when nothing on record says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One job, explained: in sentences for people, and in parts for programs."""

    job: int
    status: str
    sentences: Sequence[str]
    attempts: Sequence[Explained]
    letter: int | None
    """The dead letter that waits for somebody; None when there is none."""
    next_steps: Sequence[str]
    """What to do next, with the command to type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One thing that happened to a job, or that somebody did about it."""

    at: datetime
    what: str
    stage: str | None
    attempt: int | None
    code: str | None
    duration: float | None
    """Seconds; only of the end of an attempt."""
    told: str | None
    actor: str | None


def explain(store: Store, job_id: int) -> Explanation:
    """Explain a job; raises JobNotFoundError with ids that are near."""
    story = story_of(store, job_id)
    stages = _stages_of(store, story.facts.pipeline)
    categories = {letter.code: letter.category for letter in story.letters}
    told = [_explained(attempt, story, categories, stages) for attempt in story.attempts]
    live = next((letter for letter in reversed(story.letters) if letter.is_live), None)
    hint = None
    if live is not None:
        hint = Hints(store).about(story.facts.pipeline, story.facts.stage, live.code, live.category)
    was_erased = any(done.verb == "erase" for done in story.operations)
    steps = next_steps(story.facts, live, hint, came_empty=not was_erased)
    sentences = [_first_sentence(story.facts)]
    for one in told:
        parts = (one.happened, one.matched, one.decided, one.otherwise)
        sentences.append(" ".join(part for part in parts if part is not None))
    sentences += [*_rounds(story), *_acts(story), *steps]
    return Explanation(
        job=job_id,
        status=story.facts.status,
        sentences=sentences,
        attempts=told,
        letter=None if live is None else live.id,
        next_steps=steps,
    )


def timeline(store: Store, job_id: int) -> list[Moment]:
    """Return what happened to a job and what people did about it and its dead letters, in the order in which it happened."""
    job = known_job(store, job_id)
    story = story_of(store, job_id)
    moments = [_moment_of(event) for event in job.events()]
    moments += [_moment_by(done, job_id) for done in story.operations]
    # Sorting is stable: what the engine did within one instant stays in its own order, and people come after it.
    return sorted(moments, key=lambda moment: moment.at)


def _act_of(done: Operation, job_id: int) -> str:
    return done.verb if done.subject == f"job {job_id}" else f"{done.verb} ({done.subject})"


def _moment_by(done: Operation, job_id: int) -> Moment:
    return Moment(
        at=done.at,
        what=_act_of(done, job_id),
        stage=None,
        attempt=None,
        code=None,
        duration=None,
        told=done.reason,
        actor=done.actor,
    )


def _moment_of(event: dict[str, object]) -> Moment:
    duration = event["duration_ms"]
    return Moment(
        at=cast("datetime", event["at"]),
        what=str(event["event"]),
        stage=cast("str | None", event["stage"]),
        attempt=cast("int | None", event["attempt"]),
        code=cast("str | None", event["code"]),
        duration=None if duration is None else cast("float", duration) / 1000,
        told=cast("str | None", event["reason"]),
        actor=None,
    )


def _first_sentence(facts: JobFacts) -> str:
    rounds = "" if facts.round == 1 else f" It is in its round {facts.round}."
    place = "" if facts.status == "complete" else f" at stage {facts.stage!r}"
    return f"Job {facts.id} of pipeline {facts.pipeline!r} is {facts.status}{place}.{rounds}"


def _explained(
    attempt: dict[str, object], story: JobStory, categories: dict[str, str], stages: Sequence[str]
) -> Explained:
    code = cast("str | None", attempt["code"])
    category = None if code is None else categories.get(code)
    if category is None and code in CODES:
        category = CODES[code].category.value
    status = cast("int | None", attempt["http_status"])
    return Explained(
        dispatch=cast("int", attempt["dispatch"]),
        stage=str(attempt["stage"]),
        round=cast("int", attempt["round"]),
        attempt=cast("int", attempt["attempt"]),
        outcome=str(attempt["outcome"]),
        code=code,
        category=category,
        http_status=status,
        reason=cast("str | None", attempt["reason"]),
        happened=_happened(attempt),
        matched=None if code is None else _matched(code, category, status),
        decided=decided(attempt),
        otherwise=otherwise(attempt, story.attempts, stages),
    )


def _happened(attempt: dict[str, object]) -> str:
    took = age(cast("float", attempt["duration"]))
    place = f"Attempt {attempt['attempt']} of stage {attempt['stage']!r}"
    if cast("int", attempt["round"]) > 1:
        place += f" in round {attempt['round']}"
    if attempt["outcome"] == "ok":
        return f"{place} took {took}."
    message = "" if attempt["message"] is None else f": {as_sentence(str(attempt['message']))}"
    return f"{place} ended after {took}{message or '.'}"


def _matched(code: str, category: str | None, status: int | None) -> str:
    known = CODES.get(code)
    line = "" if known is None else f": {known.line.rstrip('.')}"
    kind = "a code of the application's own" if category is None else f"category {category}"
    answered = "" if status is None else f", HTTP status {status}"
    return f"That was taken for {code} ({kind}{answered}){line}."


def _rounds(story: JobStory) -> list[str]:
    """Say what became of the letters of earlier rounds."""
    after = {letter.follows: letter for letter in story.letters}
    return [
        f"Dead letter {letter.id} of round {letter.round} is {letter.state}: its replay {_came_to(letter, after.get(letter.id))}."
        for letter in story.letters
        if letter.verdict is not None
    ]


def _came_to(letter: DeadLetter, after: DeadLetter | None) -> str:
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


def _acts(story: JobStory) -> list[str]:
    """Say what people did about the job and its letters."""
    said: list[str] = []
    for done in story.operations:
        because = "." if done.reason is None else f", because: {as_sentence(done.reason)}"
        said.append(f"Done by {done.actor}: {_act_of(done, story.facts.id)}{because}")
    return said


def _stages_of(store: Store, pipeline: str) -> list[str]:
    return [str(row[2]) for row in store.query("lanes") if row[1] == pipeline]
