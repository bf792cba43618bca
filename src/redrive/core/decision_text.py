# SPDX-License-Identifier: Apache-2.0
"""Decisions as text: how they are stored, as JSON, and the sentence that people read, rendered only when it is read.

This is the one place that renders a decision: command line, exports, events, hooks and notes of exceptions all show this sentence.
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from redrive.core.decide import (
    Cancel,
    DeadLetter,
    Finish,
    Hold,
    NoDecision,
    OldDecision,
    Reason,
    Recorded,
    RetryAt,
    RetryOnRule,
    Skip,
)

_DECODER: Final = msgspec.json.Decoder(Recorded)
_ENDED: Final = {
    Reason.OVERRAN: "it took longer than its timeout",
    Reason.REQUESTED: "it was cancelled on request",
    Reason.WORKER_LOST: "the worker died",
    Reason.WORKER_STOPPED: "the worker was stopped while it ran",
    Reason.PROCESS_LOST: "the process it shared died",
    Reason.OWN_PROCESS_LOST: "the process it ran in alone died",
}
_RETRY_ON: Final = {
    "all": 'retry_on="all" retries whatever fails',
    "none": 'retry_on="none" retries nothing',
    "listed": "the list retry_on names it",
    "unlisted": "the list retry_on does not name it",
}
_DELAYS: Final = {
    "backoff": "backoff",
    "dependency": "as the dependency asked",
    "stage": "as the stage asked",
}
_DEAD: Final = {
    Reason.ASKED: "the stage gave up with {0.code}",
    Reason.EXHAUSTED: "attempt {0.attempt} of {0.max_attempts} failed with {0.code}: none is left",
    Reason.CODE_EXHAUSTED: "{0.code} reached its limit of {0.limit} attempts",
    Reason.SNOOZES_EXHAUSTED: "the stage snoozed {0.limit} times, which is the limit",
    Reason.DEADLINE: "the next attempt would start in {0.delay:.3g} s, after the deadline",
    Reason.BREAKER: "breaker {0.breaker!r} is {0.phase}: it would refuse a retry",
}


def encode_decision(decision: Recorded) -> str:
    """Return a decision as the store keeps it."""
    return msgspec.json.encode(decision).decode()


def decode_decision(text: str | None) -> Recorded | None:
    """Return the decision that is stored with an attempt; None when there is none, or none that can be read."""
    try:
        return None if text is None else _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def reason_and_sentence(text: str | None) -> tuple[str | None, str | None]:
    """Return the reason of a stored decision, and its sentence; None for what it does not have."""
    decision = decode_decision(text)
    if decision is None:
        return None, None
    return None if decision.reason is None else str(decision.reason), sentence_of(decision)


def sentence_of(decision: Recorded) -> str | None:
    """Return a decision as a sentence without its end; None for one of which only the reason is kept."""
    text: str | None
    match decision:
        case RetryAt():
            text = _retry(decision)
        case Hold():
            text = _hold(decision)
        case DeadLetter():
            text = _dead(decision)
        case Cancel():
            text = "the stage asked to cancel"
        case Skip():
            text = "the stage skipped it"
        case Finish():
            text = _finish(decision)
        case NoDecision():
            text = _ENDED.get(decision.reason, decision.reason)
        case OldDecision():
            text = decision.text
        case _:
            assert_never(decision)
    return text


def retry_on_text(rule: RetryOnRule, subject: str) -> str:
    """Return how `retry_on` decided, and what the classifier held about the subject."""
    is_retried = rule.retry_on in {"all", "listed"}
    link = "and" if rule.is_retryable is is_retried else "though"
    kind = "retryable" if rule.is_retryable else "permanent"
    return f"{_RETRY_ON[rule.retry_on]}, {link} {subject} counts as {kind}"


def _retry(decision: RetryAt) -> str:
    why = _DELAYS[decision.delay_from]
    if decision.reason is Reason.ASKED and decision.delay_from == "backoff":
        why = "backoff, as the stage asked to be tried again"
    rule = "" if decision.policy is None else f": {retry_on_text(decision.policy, 'it')}"
    failed = f"attempt {decision.attempt} of {decision.max_attempts} failed with {decision.code}"
    return f"{failed}: again in {decision.delay:.3g} s ({why}){rule}"


def _hold(decision: Hold) -> str:
    if decision.breaker is None:
        return f"the stage asked to be run again in {decision.delay:.3g} s"
    return f"{decision.code} while breaker {decision.breaker!r} is {decision.phase}: held, no attempt burned"


def _finish(decision: Finish) -> str:
    left = "1 stage was" if decision.stages_left == 1 else f"{decision.stages_left} stages were"
    return f"the stage finished the job: {left} left and did not run"


def _dead(decision: DeadLetter) -> str:
    if decision.reason in _DEAD:
        return _DEAD[decision.reason].format(decision)
    if decision.reason is Reason.GIVEN_UP:
        rest = "would have retried" if decision.is_retried_otherwise else "does not retry anyway"
        return f"the policy gives up on {decision.code}, which it {rest}"
    rule = "" if decision.policy is None else f": {retry_on_text(decision.policy, 'it')}"
    return f"{decision.code} is not retried{rule} ({decision.rule})"
