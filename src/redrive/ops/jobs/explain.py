# SPDX-License-Identifier: Apache-2.0
"""Why a job is in its state, in sentences: what happened, what was decided and why, what else could have been, what to do next.

Everything comes from the store: attempts with their decisions, dead letters, and what people did. What the store does not know,
such as how many attempts the policy of an old decision allowed, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from redrive.core.decide import DeadLetter, NoDecision, Reason, Recorded, RetryAt, RetryOnRule
from redrive.core.decision_text import retry_on_text, sentence_of
from redrive.core.diagnosis import is_retryable
from redrive.core.taxonomy import CODES
from redrive.core.units import format_duration, utc_text
from redrive.ops.jobs.facts import Attempt
from redrive.ops.jobs.inspect import JobDetails, details_of
from redrive.ops.jobs.next_steps import Hints, next_steps
from redrive.ops.jobs.timeline import act_of, place_there, replay_outcome
from redrive.ops.limits import waits_of
from redrive.store.protocol import Store
from redrive.store.statements import workers as worker_sql
from redrive.store.statements.jobs import AttemptLine, JobFacts

_OUTCOMES: Final = {
    "ok": "It succeeded.",
    "retry": "It is tried again.",
    "hold": "It was held; no attempt is burned.",
    "dead": "It was given up, and became a dead letter.",
    "crashed": "The worker was lost while it ran; no attempt is burned.",
    "cancelled": "It was cancelled.",
    "skipped": "It was skipped: neither a success nor a failure.",
}
_REASONS: Final = {
    Reason.RETRYABLE: "the failure is retryable, and attempts are left",
    Reason.RETRY_AFTER: "the failure is retryable, and the dependency asked for this delay",
    Reason.ASKED: "the stage itself asked for it",
    Reason.BREAKER: "the dependency is down, which is not the job's fault",
    Reason.PERMANENT: "it is not retryable here",
    Reason.GIVEN_UP: "the policy's give_up_on names this failure",
    Reason.EXHAUSTED: "no attempts are left",
    Reason.CODE_EXHAUSTED: "the limit of attempts for this code is reached",
    Reason.SNOOZES_EXHAUSTED: "its snooze limit is reached",
    Reason.DEADLINE: "the next attempt would have come after the deadline",
}
_AFTER_RULE: Final = {
    Reason.RETRYABLE: "; attempts are left",
    Reason.RETRY_AFTER: "; the dependency asked for this delay",
    Reason.PERMANENT: "",
}
"""What follows the policy's rule where that decided."""
_OTHERWISE: Final = {
    Reason.PERMANENT: "Had {code} been retryable, {then}.",
    Reason.GIVEN_UP: "Had give_up_on not named it, {then}.",
    Reason.BREAKER: "Had the breaker been closed, this would have burned an attempt, and the retry policy would have decided.",
    Reason.CODE_EXHAUSTED: "Without the limit of {code}, the job would have had {more}.",
    Reason.RETRY_AFTER: "Had the dependency not asked for a delay, the policy's own backoff would have set the delay.",
    Reason.DEADLINE: "Without the deadline, the job would have been tried again.",
    Reason.RETRYABLE: "Had {code} been permanent, the job would have become a dead letter at once.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedAttempt(AttemptLine):
    """One attempt, explained."""

    category: str | None
    """Of a code of the taxonomy, or of the dead letter."""
    reason: str | None
    happened: str
    matched: str | None
    """How the failure was classified; None when there was none."""
    decided: str
    otherwise: str | None
    """What would have happened otherwise; None when that is not on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One job, explained: in sentences for people, and in parts for programs."""

    job: int
    status: str
    sentences: Sequence[str]
    attempts: Sequence[ExplainedAttempt]
    letter: int | None
    """The live dead letter; None when there is none."""
    next_steps: Sequence[str]
    """What to do next, with the command to type."""


def explain(store: Store, job_id: int) -> Explanation:
    """Explain a job as it is at one moment; raises JobNotFoundError whose hint names existing ids."""
    hint, limited_by = None, list[str]()
    with store.reading() as moment:
        details = details_of(moment, job_id)
        facts = details.facts
        stages = [lane.stage for lane in moment.query(worker_sql.lanes()) if lane.pipeline == facts.pipeline]
        live = next((letter for letter in reversed(details.letters) if letter.is_live), None)
        if live is not None:
            hint = Hints(moment).about(facts.pipeline, facts.stage, live.code, live.category)
        if facts.status == "queued":
            limited_by = waits_of(moment, facts.id, facts.pipeline, facts.stage)
    categories = {letter.code: letter.category for letter in details.letters}
    explained = [_explained(attempt, categories, stages) for attempt in details.attempts]
    was_erased = any(done.verb == "erase" for done in details.operations)
    steps = next_steps(facts, live, hint, came_empty=not was_erased, limited_by=limited_by)
    sentences = [_state(facts), *_origin(details, categories)]
    sentences += [_joined(one.happened, one.matched, one.decided, one.otherwise) for one in explained]
    sentences += [*_rounds(details), *_acts(details), *steps]
    return Explanation(
        job=job_id,
        status=facts.status,
        sentences=sentences,
        attempts=explained,
        letter=None if live is None else live.id,
        next_steps=steps,
    )


def _joined(*parts: str | None) -> str:
    return " ".join(part for part in parts if part is not None)


def _state(facts: JobFacts) -> str:
    rounds = "" if facts.round == 1 else f" It is in its round {facts.round}."
    place = "" if facts.status == "complete" else f" at stage {facts.stage!r}"
    return f"Job {facts.id} of pipeline {facts.pipeline!r} is {facts.status}{place}.{rounds}"


def _origin(details: JobDetails, categories: dict[str, str]) -> list[str]:
    """Return where an imported job comes from, and when and how it failed there; nothing for any other."""
    origin = details.origin
    if origin is None:
        return []
    lines = [f"It was imported at {utc_text(origin.imported_at)} by {origin.actor} {place_there(origin)}."]
    lines += [
        f"It failed there at {utc_text(letter.last_failure_at)} with {letter.code}: {as_sentence(letter.message)}"
        for letter in details.letters[:1]
    ]
    for made in origin.attempts:
        decided = _decided(made, decision_of(made))
        lines.append(f"There: {_joined(_happened(made), _classified(made, categories), decided)}")
    return lines


def _explained(attempt: Attempt, categories: dict[str, str], stages: Sequence[str]) -> ExplainedAttempt:
    code = attempt.code
    decision = decision_of(attempt)
    return ExplainedAttempt(
        dispatch=attempt.dispatch,
        stage=attempt.stage,
        round=attempt.round,
        attempt=attempt.attempt,
        outcome=attempt.outcome,
        code=code,
        category=None if code is None else _category_of(code, categories),
        http_status=attempt.http_status,
        reason=attempt.reason,
        happened=_happened(attempt),
        matched=_classified(attempt, categories),
        decided=_decided(attempt, decision),
        otherwise=None if decision is None else _otherwise(attempt, decision, stages),
    )


def decision_of(attempt: Attempt) -> Recorded | None:
    """Return what was decided about an attempt; None when nothing was, or it cannot be read."""
    try:
        return cast("Recorded | None", msgspec.convert(attempt.decision, Recorded | None))
    except msgspec.ValidationError:
        return None


def _happened(attempt: Attempt) -> str:
    took = format_duration(attempt.duration)
    place = f"Attempt {attempt.attempt} of stage {attempt.stage!r}"
    if attempt.round > 1:
        place += f" in round {attempt.round}"
    if attempt.outcome == "ok":
        return f"{place} took {took}."
    message = "" if attempt.message is None else f": {as_sentence(attempt.message)}"
    return f"{place} ended after {took}{message or '.'}"


def _category_of(code: str, categories: dict[str, str]) -> str | None:
    known = CODES.get(code)
    return categories.get(code) or (None if known is None else known.category.value)


def _classified(attempt: Attempt, categories: dict[str, str]) -> str | None:
    """Return how a failure was classified; None when there was none."""
    code = attempt.code
    if code is None:
        return None
    category, status = _category_of(code, categories), attempt.http_status
    known = CODES.get(code)
    line = "" if known is None else f": {known.line.rstrip('.')}"
    kind = "a code of the application" if category is None else f"category {category}"
    answered = "" if status is None else f", HTTP status {status}"
    return f"It was classified as {code} ({kind}{answered}){line}."


def _decided(attempt: Attempt, decision: Recorded | None) -> str:
    """Return what became of an attempt and why, with the sentence of the decision."""
    words = [_OUTCOMES[attempt.outcome]]
    if decision is None:
        return words[0]
    sentence = sentence_of(decision)
    if isinstance(decision, NoDecision):
        return f"{words[0]} Why: {sentence}."
    if decision.reason is not None:
        words.append(f"Why: {_why(str(attempt.code), decision)}.")
    if sentence is not None:
        words.append(f"The decision: {as_sentence(sentence)}")
    return " ".join(words)


def _why(code: str, decision: Recorded) -> str:
    reason, rule = cast("Reason", decision.reason), _rule_of(decision)
    if rule is not None and reason in _AFTER_RULE:
        return f"{retry_on_text(rule, code)}{_AFTER_RULE[reason]}"
    # Codes of an application's own, and those that only an idempotent stage retries, may be retryable.
    if reason == Reason.PERMANENT and is_retryable(code) is False:
        return "a retry cannot succeed"
    return _REASONS.get(reason, str(reason))


def _otherwise(attempt: Attempt, decision: Recorded, stages: Sequence[str]) -> str | None:
    """Return what would have happened if one thing had been different; None when that is not on record."""
    code, reason, left, rule = attempt.code, decision.reason, _left(decision), _rule_of(decision)
    if rule is not None and reason in {Reason.RETRYABLE, Reason.PERMANENT}:
        return f"Had the policy left it to the classifier, {_by_classifier(str(code), decision, rule)}."
    if reason == Reason.EXHAUSTED:
        following = stages[stages.index(attempt.stage) + 1 :]
        then = f"continued with stage {following[0]!r}" if following else "been complete"
        return f"Had one of its attempts succeeded, the job would have {then}."
    if (reason == Reason.CODE_EXHAUSTED and not left) or (
        reason == Reason.BREAKER and attempt.outcome != "hold"
    ):
        return None
    text = _OTHERWISE.get(cast("Reason", reason))
    if text is None:
        return None
    then = _not_given_up(decision) if reason == Reason.GIVEN_UP else _tried_again(left)
    return text.format(code=code, then=then, more=_more(left or 0))


def _rule_of(decision: Recorded) -> RetryOnRule | None:
    return decision.policy if isinstance(decision, RetryAt | DeadLetter) else None


def _by_classifier(code: str, decision: Recorded, rule: RetryOnRule) -> str:
    if decision.reason == Reason.PERMANENT:
        lasting = f"nothing would have changed: {code} counts as permanent"
        return _tried_again(_left(decision)) if rule.is_retryable else lasting
    if rule.is_retryable:
        return "it would have been retried anyway"
    return "the job would have become a dead letter at once"


def _not_given_up(decision: Recorded) -> str:
    if not isinstance(decision, DeadLetter):
        return "the policy's other rules would have applied"
    if decision.is_retried_otherwise:
        return _tried_again(_left(decision))
    return "nothing would have changed: the policy does not retry it"


def _tried_again(left: int | None) -> str:
    if left == 0:
        return "nothing would have changed: it was the last attempt"
    known = "" if left is None else f"; {_more(left)} {'was' if left == 1 else 'were'} left"
    return f"the job would have been tried again within its limits{known}"


def _more(left: int) -> str:
    """Return how many attempts were left; a limit of a code or a deadline may have cut them short."""
    return "one more attempt" if left == 1 else f"up to {left} more attempts"


def _left(decision: Recorded) -> int | None:
    """Return how many attempts were left; None when the decision does not record that."""
    if isinstance(decision, RetryAt | DeadLetter):
        return max(decision.max_attempts - decision.attempt, 0)
    return None


def as_sentence(text: str) -> str:
    """Return a text as one sentence: its first line, with an end."""
    line = text.strip().partition("\n")[0]
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _rounds(details: JobDetails) -> list[str]:
    """Return what became of the letters of earlier rounds."""
    after = {letter.follows: letter for letter in details.letters}
    return [
        f"Dead letter {letter.id} of round {letter.round} is {letter.state}:"
        f" its replay {replay_outcome(letter, after.get(letter.id))}."
        for letter in details.letters
        if letter.outcome is not None
    ]


def _acts(details: JobDetails) -> list[str]:
    lines: list[str] = []
    for done in details.operations:
        because = "." if done.reason is None else f", because: {as_sentence(done.reason)}"
        lines.append(f"Done by {done.actor}: {act_of(done, details.facts.id)}{because}")
    return lines
