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
from redrive.ops.checkup.findings import age
from redrive.ops.jobs.advice import Hints, next_steps
from redrive.ops.jobs.explain_why import as_sentence, decided, otherwise
from redrive.ops.jobs.facts import JobFacts
from redrive.ops.jobs.inspect import JobStory, story_of
from redrive.ops.jobs.timeline import Moment, act_of, came_to, place_there, timeline
from redrive.store.protocol import Store

__all__ = ["Explained", "Explanation", "Moment", "explain", "timeline"]


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
    sentences = [_first_sentence(story.facts), *_from_elsewhere(story, categories)]
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


def _first_sentence(facts: JobFacts) -> str:
    rounds = "" if facts.round == 1 else f" It is in its round {facts.round}."
    place = "" if facts.status == "complete" else f" at stage {facts.stage!r}"
    return f"Job {facts.id} of pipeline {facts.pipeline!r} is {facts.status}{place}.{rounds}"


def _from_elsewhere(story: JobStory, categories: dict[str, str]) -> list[str]:
    """Say where an imported job comes from, when and how it failed there; nothing of any other."""
    origin = story.origin
    if origin is None:
        return []
    told = [f"It was imported at {_told_at(origin.imported_at)} by {origin.actor} {place_there(origin)}."]
    told += [
        f"It failed there at {_told_at(letter.last_failure_at)} with {letter.code}: {as_sentence(letter.message)}"
        for letter in story.letters[:1]
    ]
    for made in origin.attempts:
        parts = (_happened(made), _taken_for(made, categories), decided(made))
        told.append(f"There: {' '.join(part for part in parts if part is not None)}")
    return told


def _told_at(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _explained(
    attempt: dict[str, object], story: JobStory, categories: dict[str, str], stages: Sequence[str]
) -> Explained:
    code = cast("str | None", attempt["code"])
    return Explained(
        dispatch=cast("int", attempt["dispatch"]),
        stage=str(attempt["stage"]),
        round=cast("int", attempt["round"]),
        attempt=cast("int", attempt["attempt"]),
        outcome=str(attempt["outcome"]),
        code=code,
        category=None if code is None else _category_of(code, categories),
        http_status=cast("int | None", attempt["http_status"]),
        reason=cast("str | None", attempt["reason"]),
        happened=_happened(attempt),
        matched=_taken_for(attempt, categories),
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


def _category_of(code: str, categories: dict[str, str]) -> str | None:
    known = CODES.get(code)
    return categories.get(code) or (None if known is None else known.category.value)


def _taken_for(attempt: dict[str, object], categories: dict[str, str]) -> str | None:
    """Say what a failure was taken for; None when there was none."""
    code = cast("str | None", attempt["code"])
    if code is None:
        return None
    category, status = _category_of(code, categories), attempt["http_status"]
    known = CODES.get(code)
    line = "" if known is None else f": {known.line.rstrip('.')}"
    kind = "a code of the application's own" if category is None else f"category {category}"
    answered = "" if status is None else f", HTTP status {status}"
    return f"That was taken for {code} ({kind}{answered}){line}."


def _rounds(story: JobStory) -> list[str]:
    """Say what became of the letters of earlier rounds."""
    after = {letter.follows: letter for letter in story.letters}
    return [
        f"Dead letter {letter.id} of round {letter.round} is {letter.state}: its replay {came_to(letter, after.get(letter.id))}."
        for letter in story.letters
        if letter.verdict is not None
    ]


def _acts(story: JobStory) -> list[str]:
    """Say what people did about the job and its letters."""
    said: list[str] = []
    for done in story.operations:
        because = "." if done.reason is None else f", because: {as_sentence(done.reason)}"
        said.append(f"Done by {done.actor}: {act_of(done, story.facts.id)}{because}")
    return said


def _stages_of(store: Store, pipeline: str) -> list[str]:
    return [str(row[2]) for row in store.query("lanes") if row[1] == pipeline]
