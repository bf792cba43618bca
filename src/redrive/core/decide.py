# SPDX-License-Identifier: Apache-2.0
"""The one decision about a failure: try again later, hold, dead-letter, or cancel.

Total and pure. The order of the questions is the contract: what the stage asked for, then what is never retried, then the
breaker, then what is spent, then when to come back. So a hold never keeps alive what the policy would not have tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import BreakerState, Phase, opens_at
from redrive.core.failure import Failure, SignalKind
from redrive.core.policy import RetryPolicy
from redrive.core.taxonomy import BREAKER_OPEN

RETRIES_ALL: Final = 'retry_on="all" retries whatever fails'
RETRIES_NONE: Final = 'retry_on="none" retries nothing'
LISTED: Final = "the list retry_on names it"
UNLISTED: Final = "the list retry_on does not name it"
BY_POLICY: Final = (RETRIES_ALL, RETRIES_NONE, LISTED, UNLISTED)
"""How sentences say that `retry_on` decided, whatever the classifier held; stored with the attempt, and read by `explain`."""
RETRIED_ELSE: Final = "which it would have retried"
NOT_RETRIED_ELSE: Final = "which it does not retry anyway"
"""How sentences about `give_up_on` say what the rest of the policy holds."""


class Reason(StrEnum):
    """Why a decision was taken; stable, stored with the attempt. The sentence beside it says whether `retry_on` decided."""

    RETRYABLE = "retryable"  # it can heal, or retry_on has it tried again, and attempts are left
    TOLD_DELAY = "told_delay"  # as above, and the dependency said when to come back
    ASKED = "asked"  # the stage itself asked for it by a signal
    BREAKER = "breaker"  # the dependency is down; the attempt is not to blame
    PERMANENT = "permanent"  # nothing heals it, or retry_on does not have it tried again
    GIVEN_UP = "given_up"  # the policy's give_up_on speaks of it
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
    if failure.signal is not None:
        return _as_asked(policy, failure, history, now, draw)
    if policy.gives_up_on(failure):
        rest = RETRIED_ELSE if policy.allows(failure) else NOT_RETRIED_ELSE
        return DeadLetter(reason=Reason.GIVEN_UP, sentence=f"the policy gives up on {failure.code}, {rest}")
    if not policy.allows(failure):
        ruling = _ruling(policy, failure, is_retried=False)
        sentence = f"{failure.code} is not retried{ruling} ({failure.rule})"
        return DeadLetter(reason=Reason.PERMANENT, sentence=sentence)
    if breaker is not None and breaker.holds(failure):
        return _hold(policy, failure, breaker, now)
    return _spent(policy, failure, history) or _retry(policy, failure, history, now, draw)


def _as_asked(policy: RetryPolicy, failure: Failure, history: History, now: float, draw: float) -> Decision:
    """Do what the stage asked for by a signal; only limits and the deadline stand above that."""
    if failure.signal is SignalKind.CANCEL:
        return Cancel(reason=Reason.ASKED, sentence="the stage asked to cancel")
    if failure.signal is SignalKind.FAIL:
        return DeadLetter(reason=Reason.ASKED, sentence=f"the stage gave up with {failure.code}")
    if failure.signal is SignalKind.SNOOZE:
        return _snooze(policy, failure, history, now)
    return _spent(policy, failure, history) or _retry(policy, failure, history, now, draw)


def _ruling(policy: RetryPolicy, failure: Failure, *, is_retried: bool) -> str:
    """Say how `retry_on` decided; nothing when it would have decided otherwise had the classifier done so."""
    if policy.retry_on == "classified":
        return ""
    if policy.allows(replace(failure, retryable=not failure.retryable)) is not is_retried:
        return ""
    yes, no = (RETRIES_ALL, RETRIES_NONE) if isinstance(policy.retry_on, str) else (LISTED, UNLISTED)
    said = yes if is_retried else no
    link = "and" if failure.retryable is is_retried else "though"
    return f": {said}, {link} it counts as {'retryable' if failure.retryable else 'permanent'}"


def _hold(policy: RetryPolicy, failure: Failure, standing: Standing, now: float) -> Hold:
    """Wait for the dependency: until its breaker lets a call through, and as long as it told us to."""
    until = opens_at(standing.breaker, standing.state)
    told = policy.retry_after_delay(failure)
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
    reason, why, ruling = Reason.RETRYABLE, "backoff", ""
    if failure.signal is SignalKind.RETRY:
        reason, why = Reason.ASKED, "backoff, as the stage asked to be tried again"
        if failure.retry_after is not None:
            delay, why = failure.retry_after, "as the stage asked"
    else:
        ruling = _ruling(policy, failure, is_retried=True)
        told = policy.retry_after_delay(failure)
        if told is not None and told >= delay:
            delay, reason, why = told, Reason.TOLD_DELAY, "as the dependency told us"
    at = now + delay
    if _is_late(history, at):
        sentence = f"the next attempt would start in {delay:.3g} s, after the deadline"
        return DeadLetter(reason=Reason.DEADLINE, sentence=sentence)
    again = f"again in {delay:.3g} s ({why}){ruling}"
    sentence = f"attempt {history.attempt} of {policy.max_attempts} failed with {failure.code}: {again}"
    return RetryAt(at=at, delay=delay, reason=reason, sentence=sentence)


def _is_late(history: History, at: float) -> bool:
    return history.deadline_at is not None and at >= history.deadline_at
