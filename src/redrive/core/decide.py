# SPDX-License-Identifier: Apache-2.0
"""The one decision about a failure: try again later, hold, dead-letter, or cancel.

Total and pure. The order of the questions is the contract: what the stage asked for, then what is never retried, then the
breaker, then what is spent, then when to come back. So a hold never keeps alive what the policy would not have tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import BreakerState, Phase, opens_at
from redrive.core.failure import Asked, Failure
from redrive.core.policy import RetryPolicy
from redrive.core.taxonomy import BREAKER_OPEN


class Reason(StrEnum):
    """Why a decision was taken; stable, stored with the attempt."""

    RETRYABLE = "retryable"  # it can heal and attempts are left
    TOLD_DELAY = "told_delay"  # as above, and the dependency said when to come back
    ASKED = "asked"  # the stage itself asked for it by a signal
    BREAKER = "breaker"  # the dependency is down; the attempt is not to blame
    PERMANENT = "permanent"  # nothing heals it
    GIVEN_UP = "given_up"  # the policy's give_up_on names it
    EXHAUSTED = "exhausted"  # max_attempts is spent
    CODE_EXHAUSTED = "code_exhausted"  # this code's own limit is spent
    SNOOZES_EXHAUSTED = "snoozes_exhausted"
    DEADLINE = "deadline"  # the next attempt would start after the deadline


class History(Struct, frozen=True, kw_only=True):
    """What came before this failure, in this round and stage."""

    attempt: int = 1
    """The number of the attempt that failed; holds, snoozes and crashes do not move it."""
    failures_by_code: Mapping[str, int] = {}
    """How many *earlier* attempts failed with each code."""
    snoozes: int = 0
    deadline_at: float | None = None


class Standing(Struct, frozen=True):
    """A breaker's configuration together with its present state."""

    breaker: Breaker
    state: BreakerState

    def holds(self, failure: Failure) -> bool:
        """Say whether this failure is the dependency's and its breaker makes work wait."""
        if self.state.phase is Phase.CLOSED or self.breaker.mode != "hold":
            return False
        # A call that the breaker itself refused was never made, so it cannot be held against the attempt.
        is_refused = failure.canonical == BREAKER_OPEN.name
        return is_refused or self.breaker.evidence_of(failure) is Evidence.DOWN


class RetryAt(Struct, frozen=True, kw_only=True):
    """Try again at `at`; burns the attempt."""

    at: float
    delay: float
    reason: Reason
    sentence: str
    burned: ClassVar[bool] = True


class Hold(Struct, frozen=True, kw_only=True):
    """Wait without burning the attempt, until `until`; None means until somebody closes the breaker by hand."""

    until: float | None
    reason: Reason
    sentence: str
    burned: ClassVar[bool] = False


class DeadLetter(Struct, frozen=True, kw_only=True):
    """Give it up."""

    reason: Reason
    sentence: str
    burned: ClassVar[bool] = True


class Cancel(Struct, frozen=True, kw_only=True):
    """Stop it, as cancelled."""

    reason: Reason
    sentence: str
    burned: ClassVar[bool] = True


Decision = RetryAt | Hold | DeadLetter | Cancel


def decide(
    policy: RetryPolicy,
    failure: Failure,
    history: History,
    now: float,
    draw: float,
    breaker: Standing | None = None,
) -> Decision:
    """Decide what to do about a failure; `draw` in [0, 1) is the chance in the backoff."""
    if failure.asked is not None:
        return _as_asked(policy, failure, history, now, draw)
    if policy.gives_up_on(failure):
        return DeadLetter(reason=Reason.GIVEN_UP, sentence=f"the policy gives up on {failure.code}")
    if not policy.allows(failure):
        return DeadLetter(reason=Reason.PERMANENT, sentence=f"{failure.code} is not retried ({failure.rule})")
    if breaker is not None and breaker.holds(failure):
        return _hold(policy, failure, breaker, now)
    return _spent(policy, failure, history) or _retry(policy, failure, history, now, draw)


def _as_asked(policy: RetryPolicy, failure: Failure, history: History, now: float, draw: float) -> Decision:
    """Do what the stage asked for by a signal; only limits and the deadline stand above that."""
    if failure.asked is Asked.CANCEL:
        return Cancel(reason=Reason.ASKED, sentence="the stage asked to cancel")
    if failure.asked is Asked.FAIL:
        return DeadLetter(reason=Reason.ASKED, sentence=f"the stage gave up with {failure.code}")
    if failure.asked is Asked.SNOOZE:
        return _snooze(policy, failure, history, now)
    return _spent(policy, failure, history) or _retry(policy, failure, history, now, draw)


def _hold(policy: RetryPolicy, failure: Failure, standing: Standing, now: float) -> Hold:
    """Wait for the dependency: until its breaker lets a call through, and as long as it told us to."""
    until = opens_at(standing.breaker, standing.state)
    told = policy.told_delay(failure)
    if until is not None and told is not None:
        until = max(until, now + told)
    phase = standing.state.phase
    sentence = f"{failure.code} while breaker {standing.breaker.name!r} is {phase}: held, no attempt burned"
    return Hold(until=until, reason=Reason.BREAKER, sentence=sentence)


def _snooze(policy: RetryPolicy, failure: Failure, history: History, now: float) -> Hold | DeadLetter:
    if history.snoozes >= policy.snooze_max:
        sentence = f"the stage snoozed {history.snoozes} times, which is the limit"
        return DeadLetter(reason=Reason.SNOOZES_EXHAUSTED, sentence=sentence)
    delay = failure.retry_after or 0.0
    if _is_late(history, now + delay):
        return DeadLetter(
            reason=Reason.DEADLINE, sentence=f"the snooze of {delay:.3g} s ends after the deadline"
        )
    return Hold(
        until=now + delay,
        reason=Reason.ASKED,
        sentence=f"the stage asked to be run again in {delay:.3g} s",
    )


def _spent(policy: RetryPolicy, failure: Failure, history: History) -> DeadLetter | None:
    """Say which limit is spent, or None if another attempt is left."""
    code = failure.code
    if history.attempt >= policy.max_attempts:
        sentence = f"attempt {history.attempt} of {policy.max_attempts} failed with {code}: none is left"
        return DeadLetter(reason=Reason.EXHAUSTED, sentence=sentence)
    limit = policy.limit_for(failure)
    if limit is not None and history.failures_by_code.get(code, 0) + 1 >= limit:
        return DeadLetter(reason=Reason.CODE_EXHAUSTED, sentence=f"{code} may fail {limit} attempts, and has")
    return None


def _retry(
    policy: RetryPolicy, failure: Failure, history: History, now: float, draw: float
) -> RetryAt | DeadLetter:
    delay = policy.backoff.delay(history.attempt, draw)
    reason, why = Reason.RETRYABLE, "backoff"
    if failure.asked is Asked.RETRY and failure.retry_after is not None:
        delay, reason, why = failure.retry_after, Reason.ASKED, "as the stage asked"
    else:
        told = policy.told_delay(failure)
        if told is not None and told >= delay:
            delay, reason, why = told, Reason.TOLD_DELAY, "as the dependency told us"
    at = now + delay
    if _is_late(history, at):
        sentence = f"the next attempt would start in {delay:.3g} s, after the deadline"
        return DeadLetter(reason=Reason.DEADLINE, sentence=sentence)
    sentence = f"attempt {history.attempt} of {policy.max_attempts} failed with {failure.code}: again in {delay:.3g} s ({why})"
    return RetryAt(at=at, delay=delay, reason=reason, sentence=sentence)


def _is_late(history: History, at: float) -> bool:
    return history.deadline_at is not None and at >= history.deadline_at
