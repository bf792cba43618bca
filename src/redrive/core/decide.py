# SPDX-License-Identifier: Apache-2.0
"""The one decision about a failure: try again later, hold, dead-letter, cancel, or skip.

Total and pure. The order of the questions is the contract: what the stage asked for, then what is never retried, then the
breaker, then what is spent, then when to come back. So a hold never keeps alive what the policy would not have tried again.
A decision is a value and is stored as one; `decision_text` renders it as a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import BreakerState, Phase, opens_at
from redrive.core.failure import Failure, SignalKind
from redrive.core.policy import RetryPolicy
from redrive.core.taxonomy import BREAKER_OPEN


class Reason(StrEnum):
    """Why a run ended as it did; stable, stored with the attempt."""

    RETRYABLE = "retryable"  # its code is retryable, or retry_on allows it, and attempts are left
    RETRY_AFTER = "retry_after"  # as above, and the dependency asked for the delay
    ASKED = "asked"  # the stage asked for it by a signal
    BREAKER = "breaker"  # the dependency is down; the attempt is not to blame
    PERMANENT = "permanent"  # its code is not retryable, or retry_on does not allow it
    GIVEN_UP = "given_up"  # the policy's give_up_on names it
    EXHAUSTED = "exhausted"  # max_attempts is spent
    CODE_EXHAUSTED = "code_exhausted"  # this code's own limit is spent
    SNOOZES_EXHAUSTED = "snoozes_exhausted"
    DEADLINE = "deadline"  # the next attempt would start after the deadline
    # Nothing was decided: the run ended by itself, or was ended from outside.
    OVERRAN = "overran"  # it succeeded after its timeout
    REQUESTED = "requested"  # somebody cancelled the job
    WORKER_LOST = "worker_lost"  # its worker's lease ended
    WORKER_STOPPED = "worker_stopped"  # its worker stopped before it ended
    PROCESS_LOST = "process_lost"  # the process it shared with other runs died
    OWN_PROCESS_LOST = "own_process_lost"  # the process it ran in alone died


class History(Struct, frozen=True, kw_only=True):
    """What came before this failure, in this round and stage."""

    attempt: int = 1
    """The number of the attempt that failed; holds, snoozes and crashes do not move it."""
    failures_by_code: Mapping[str, int] = {}
    """How many *earlier* attempts failed with each code."""
    snoozes: int = 0
    deadline_at: float | None = None


class BreakerStatus(Struct, frozen=True):
    """A breaker's configuration together with its present state."""

    breaker: Breaker
    state: BreakerState

    @property
    def is_closed(self) -> bool:
        """Whether calls may start freely."""
        return self.state.phase is Phase.CLOSED

    def holds(self, failure: Failure) -> bool:
        """Return whether this failure is the dependency's and its breaker makes work wait."""
        if self.is_closed or self.breaker.mode != "hold":
            return False
        # A call that the breaker itself refused was never made, so it cannot be held against the attempt.
        is_refused = failure.canonical == BREAKER_OPEN.name
        return is_refused or self.breaker.evidence_of(failure) is Evidence.DOWN


DelaySource = Literal["backoff", "dependency", "stage"]


class RetryOnRule(Struct, frozen=True, kw_only=True):
    """How the policy's `retry_on` decided, whatever the classifier held."""

    retry_on: Literal["all", "none", "listed", "unlisted"]
    is_retryable: bool
    """What the classifier held."""


class RetryAt(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="retry"):
    """Try again at `at`; burns the attempt."""

    at: float
    delay: float
    delay_from: DelaySource = "backoff"
    reason: Reason
    code: str
    attempt: int
    max_attempts: int
    policy: RetryOnRule | None = None
    burned: ClassVar[bool] = True


class Hold(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="hold"):
    """Wait without burning the attempt, until `until`; None means until somebody closes the breaker by hand."""

    until: float | None
    reason: Reason
    code: str
    delay: float = 0.0
    """What a stage that snoozes asked for."""
    breaker: str | None = None
    phase: Phase | None = None
    """Of the breaker."""
    burned: ClassVar[bool] = False


class DeadLetter(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="dead"):
    """Give it up. Which of the optional fields are set depends on the reason."""

    reason: Reason
    code: str
    attempt: int
    max_attempts: int
    limit: int = 0
    """The limit that is spent: of this code, or of snoozes."""
    delay: float = 0.0
    """How long the next attempt would have had to wait, beyond the deadline."""
    rule: str | None = None
    """The classifier's rule for a permanent failure."""
    policy: RetryOnRule | None = None
    is_retried_otherwise: bool | None = None
    """Whether the policy without its give_up_on would have allowed a retry."""
    breaker: str | None = None
    phase: Phase | None = None
    burned: ClassVar[bool] = True


class Cancel(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="cancel"):
    """Stop it, as cancelled."""

    reason: Reason
    burned: ClassVar[bool] = True


class Skip(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="skip"):
    """End it as skipped: neither a success nor a failure."""

    reason: Reason
    burned: ClassVar[bool] = True


class Finish(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="finish"):
    """Recorded of a success that ended its job before the last stage."""

    reason: Reason = Reason.ASKED
    stages_left: int
    """How many stages did not run."""


class NoDecision(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="ended"):
    """Recorded of a run about which nothing was decided."""

    reason: Reason


class OldDecision(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="old"):
    """A decision of which only the reason is kept: the store refused the rest, or it was made before decisions were values.

    The latter has its sentence of that time.
    """

    reason: str | None = None
    text: str | None = None


Decision = RetryAt | Hold | DeadLetter | Cancel | Skip
Recorded = Decision | Finish | NoDecision | OldDecision
"""What the store keeps with an attempt, as JSON."""


def decide(
    policy: RetryPolicy,
    failure: Failure,
    history: History,
    now: float,
    draw: float,
    breaker: BreakerStatus | None = None,
) -> Decision:
    """Decide what to do about a failure; `draw` in [0, 1) is the chance in the backoff."""
    if failure.signal is not None:
        return _as_asked(policy, failure, history, now, draw)
    if policy.gives_up_on(failure):
        dead = _dead(Reason.GIVEN_UP, policy, failure, history)
        return replace(dead, is_retried_otherwise=policy.allows(failure))
    if not policy.allows(failure):
        dead = _dead(Reason.PERMANENT, policy, failure, history)
        rule = _retry_on_rule(policy, failure, is_retried=False)
        return replace(dead, rule=failure.rule, policy=rule)
    if breaker is not None and breaker.holds(failure):
        return _hold(policy, failure, breaker, now)
    return _spent(policy, failure, history) or _retry(policy, failure, history, now, draw)


def _as_asked(policy: RetryPolicy, failure: Failure, history: History, now: float, draw: float) -> Decision:
    """Do what the stage asked for by a signal; only limits and the deadline stand above that."""
    if failure.signal is SignalKind.CANCEL:
        return Cancel(reason=Reason.ASKED)
    if failure.signal is SignalKind.SKIP:
        return Skip(reason=Reason.ASKED)
    if failure.signal is SignalKind.FAIL:
        return _dead(Reason.ASKED, policy, failure, history)
    if failure.signal is SignalKind.SNOOZE:
        return _snooze(policy, failure, history, now)
    return _spent(policy, failure, history) or _retry(policy, failure, history, now, draw)


def _retry_on_rule(policy: RetryPolicy, failure: Failure, *, is_retried: bool) -> RetryOnRule | None:
    """Return how `retry_on` decided; None when the classifier did."""
    if policy.retry_on == "classified":
        return None
    if policy.allows(replace(failure, retryable=not failure.retryable)) is not is_retried:
        return None
    if isinstance(policy.retry_on, str):
        return RetryOnRule(retry_on="all" if is_retried else "none", is_retryable=failure.retryable)
    return RetryOnRule(retry_on="listed" if is_retried else "unlisted", is_retryable=failure.retryable)


def _hold(policy: RetryPolicy, failure: Failure, standing: BreakerStatus, now: float) -> Hold:
    """Wait for the dependency: until its breaker admits a call, and not before the delay it asked for."""
    until = opens_at(standing.breaker, standing.state)
    asked = policy.retry_after_delay(failure)
    if until is not None and asked is not None:
        until = max(until, now + asked)
    return Hold(
        until=until,
        reason=Reason.BREAKER,
        code=failure.code,
        breaker=standing.breaker.name,
        phase=standing.state.phase,
    )


def _snooze(policy: RetryPolicy, failure: Failure, history: History, now: float) -> Hold | DeadLetter:
    if history.snoozes >= policy.snooze_max:
        dead = _dead(Reason.SNOOZES_EXHAUSTED, policy, failure, history)
        return replace(dead, limit=history.snoozes)
    delay = failure.retry_after or 0.0
    if _is_late(history, now + delay):
        return replace(_dead(Reason.DEADLINE, policy, failure, history), delay=delay)
    return Hold(until=now + delay, reason=Reason.ASKED, code=failure.code, delay=delay)


def _spent(policy: RetryPolicy, failure: Failure, history: History) -> DeadLetter | None:
    """Return which limit is spent; None if another attempt is left."""
    if history.attempt >= policy.max_attempts:
        return _dead(Reason.EXHAUSTED, policy, failure, history)
    limit = policy.limit_for(failure)
    if limit is not None and history.failures_by_code.get(failure.code, 0) + 1 >= limit:
        return replace(_dead(Reason.CODE_EXHAUSTED, policy, failure, history), limit=limit)
    return None


def _retry(
    policy: RetryPolicy, failure: Failure, history: History, now: float, draw: float
) -> RetryAt | DeadLetter:
    delay = policy.backoff.delay(history.attempt, draw)
    reason = Reason.RETRYABLE
    delay_from: DelaySource = "backoff"
    rule: RetryOnRule | None = None
    if failure.signal is SignalKind.RETRY:
        reason = Reason.ASKED
        if failure.retry_after is not None:
            delay, delay_from = failure.retry_after, "stage"
    else:
        rule = _retry_on_rule(policy, failure, is_retried=True)
        asked = policy.retry_after_delay(failure)
        if asked is not None and asked >= delay:
            delay, reason, delay_from = asked, Reason.RETRY_AFTER, "dependency"
    at = now + delay
    if _is_late(history, at):
        return replace(_dead(Reason.DEADLINE, policy, failure, history), delay=delay)
    return RetryAt(
        at=at,
        delay=delay,
        delay_from=delay_from,
        reason=reason,
        code=failure.code,
        attempt=history.attempt,
        max_attempts=policy.max_attempts,
        policy=rule,
    )


def _dead(reason: Reason, policy: RetryPolicy, failure: Failure, history: History) -> DeadLetter:
    return DeadLetter(
        reason=reason, code=failure.code, attempt=history.attempt, max_attempts=policy.max_attempts
    )


def _is_late(history: History, at: float) -> bool:
    return history.deadline_at is not None and at >= history.deadline_at
