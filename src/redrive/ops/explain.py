# SPDX-License-Identifier: Apache-2.0
"""Why a job is where it is, in plain words: what happened, what was decided and why, what else could have been, what to do next.

Everything is told from what is stored: attempts with their decisions, the dead letter, what people did. Where the store does not
know something, such as how many attempts a policy would have allowed, nothing is said about it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from redrive.core.diagnosis import can_heal
from redrive.core.taxonomy import CODES
from redrive.engine.jobs import JobFacts
from redrive.ops.advice import Hints, next_steps
from redrive.ops.findings import age
from redrive.ops.inspect import JobStory, Operation, known_job, story_of
from redrive.store.protocol import Store

_OF: Final = re.compile(r"^attempt (?P<attempt>\d+) of (?P<most>\d+) ")
"""How sentences of decisions begin that tell the policy's limit."""
_BECAME: Final = {
    "ok": "It was done.",
    "retry": "It is tried again.",
    "hold": "It was held; no attempt is burned.",
    "dead": "It was given up, and became a dead letter.",
    "crashed": "The worker was lost while it ran; no attempt is burned.",
    "cancelled": "It was cancelled.",
}
_REASONS: Final = {
    "retryable": "the failure can heal, and attempts are left",
    "told_delay": "the failure can heal, and the dependency said when to come back",
    "asked": "the stage itself asked for it",
    "breaker": "the dependency is down, which is not the job's fault",
    "permanent": "trying again cannot heal it",
    "given_up": "the policy gives up on this failure by name",
    "exhausted": "every attempt is spent",
    "code_exhausted": "the limit that this code has of its own is spent",
    "snoozes_exhausted": "it may not be put off any more",
    "deadline": "the next attempt would have come after the deadline",
}
_OTHERWISE: Final = {
    "breaker": "Had the breaker been closed, this would have burned an attempt, and the retry policy would have decided.",
    "told_delay": "Had the dependency not said when to come back, the policy's own backoff would have set the delay.",
    "deadline": "Without the deadline, the job would have been tried again.",
    "retryable": "Had {code} been permanent, the job would have become a dead letter at once.",
}


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
    steps = next_steps(story.facts, live, hint)
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
        decided=_decided(attempt),
        otherwise=_otherwise(attempt, story, stages),
    )


def _happened(attempt: dict[str, object]) -> str:
    took = age(cast("float", attempt["duration"]))
    place = f"Attempt {attempt['attempt']} of stage {attempt['stage']!r}"
    if cast("int", attempt["round"]) > 1:
        place += f" in round {attempt['round']}"
    if attempt["outcome"] == "ok":
        return f"{place} took {took}."
    message = "" if attempt["message"] is None else f": {_sentence(str(attempt['message']))}"
    return f"{place} ended after {took}{message or '.'}"


def _matched(code: str, category: str | None, status: int | None) -> str:
    known = CODES.get(code)
    line = "" if known is None else f": {known.line.rstrip('.')}"
    kind = "a code of the application's own" if category is None else f"category {category}"
    answered = "" if status is None else f", HTTP status {status}"
    return f"That was taken for {code} ({kind}{answered}){line}."


def _decided(attempt: dict[str, object]) -> str:
    became = _BECAME[str(attempt["outcome"])]
    reason, sentence = attempt["reason"], attempt["sentence"]
    because = _REASONS.get(str(reason), None if reason is None else str(reason))
    words = [became]
    if because is not None:
        words.append(f"Why: {because}.")
    if sentence is not None:
        words.append(f"The policy said: {_sentence(str(sentence))}")
    return " ".join(words)


def _otherwise(attempt: dict[str, object], story: JobStory, stages: Sequence[str]) -> str | None:
    """Say what would have happened if one thing had been different; None when nothing on record says so."""
    code, reason = attempt["code"], attempt["reason"]
    left = _left(attempt, story)
    more = "" if left is None else f"{left} more attempt{'' if left == 1 else 's'}"
    if reason == "permanent":
        then = "nothing would have changed: it was the last attempt"
        if left != 0:
            then = "the job would have been tried again" + (f"; it would have had {more}" if left else "")
        return f"Had {code} been retryable, {then}."
    if reason == "given_up":
        heals = " (the taxonomy counts it among those that can heal)" if can_heal(str(code)) else ""
        return f"Had the policy not named {code}{heals} among what it gives up on, its usual rules would have applied."
    if reason == "exhausted":
        return _after(attempt, stages)
    if reason == "code_exhausted":
        return f"Without the limit {code} has of its own, the job would have had {more}." if left else None
    if reason == "breaker" and attempt["outcome"] != "hold":
        return None
    return None if reason not in _OTHERWISE else _OTHERWISE[str(reason)].format(code=code)


def _left(attempt: dict[str, object], story: JobStory) -> int | None:
    """Return how many attempts were left, if a decision about the same stage, round and settings told their number."""
    here = ("stage", "round", "config")
    for other in story.attempts:
        found = _OF.match(str(other["sentence"]))
        if found is not None and all(other[part] == attempt[part] for part in here):
            return max(int(found["most"]) - cast("int", attempt["attempt"]), 0)
    return None


def _after(attempt: dict[str, object], stages: Sequence[str]) -> str:
    following = stages[stages.index(str(attempt["stage"])) + 1 :]
    then = f"gone on to stage {following[0]!r}" if following else "been complete"
    return f"Had one of its attempts succeeded, the job would have {then}."


def _rounds(story: JobStory) -> list[str]:
    """Say what became of the letters of earlier rounds."""
    said = {
        "same": "its replay failed again with the same failure",
        "other": "its replay failed again, with another failure",
        "completed": "its replay completed",
        "cancelled": "its replay was cancelled",
    }
    return [
        f"Dead letter {letter.id} of round {letter.round} is {letter.state}: {said[letter.verdict]}."
        for letter in story.letters
        if letter.verdict is not None
    ]


def _acts(story: JobStory) -> list[str]:
    """Say what people did about the job and its letters."""
    said: list[str] = []
    for done in story.operations:
        because = "." if done.reason is None else f", because: {_sentence(done.reason)}"
        said.append(f"Done by {done.actor}: {_act_of(done, story.facts.id)}{because}")
    return said


def _stages_of(store: Store, pipeline: str) -> list[str]:
    return [str(row[2]) for row in store.query("lanes") if row[1] == pipeline]


def _sentence(text: str) -> str:
    """Return a text as one sentence: its first line, with an end."""
    line = text.strip().partition("\n")[0]
    return line if line.endswith((".", "!", "?")) else f"{line}."
