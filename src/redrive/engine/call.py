# SPDX-License-Identifier: Apache-2.0
"""One guarded call under way: its attempts, holds and waits, as directives that a sync or an async loop carries out.

The walk of a call: `before` asks the breaker (go, wait, or probe first); the function runs; `after` classifies its failure, tells
the breaker, decides, and answers how long to wait or that it is over. Nothing here waits or calls the function itself, so the sync
and the async guard share every decision.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import Admitted, Phase, opens_at
from redrive.core.codeset import CodeSet
from redrive.core.decide import Cancel, DeadLetter, Decision, History, Hold, Reason, RetryAt, decide
from redrive.core.failure import Asked, Failure
from redrive.core.policy import RetryPolicy
from redrive.engine.breakers import BreakerCell
from redrive.engine.classifier import Classifier
from redrive.engine.runtime import Runtime
from redrive.errors import BreakerOpenError
from redrive.redaction import redact

logger = logging.getLogger("redrive.guard")

HOLD_SLICE: Final = 0.25
"""Seconds between two looks at a breaker that holds us, since another call may close it at any moment."""
NOTE_MESSAGE_MAX: Final = 200
NOTES_MAX: Final = 50
NOTE_START: Final = "redrive gave up on"

_TOKENS: Final = itertools.count(1)


Kind = Literal["retry", "hold", "dead"]


class Step(Enum):
    """What a call has to do next, other than wait."""

    GO = "go"
    PROBE = "probe"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent:
    """What a hook sees: one retry, hold or giving up of one guarded call."""

    kind: Kind
    name: str
    """The guarded function."""
    attempt: int
    failure: Failure | None
    """None when a breaker refused the call before it was made."""
    delay: float | None
    """Seconds until the next look; None when there is none."""
    reason: Reason
    sentence: str


Hook = Callable[[CallEvent], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """What is the same for every call of one guarded function."""

    name: str
    policy: RetryPolicy
    breaker: Breaker | None
    timeout: float | None
    deadline: float | None
    idempotent: bool
    codes: CodeSet | None
    classifier: Classifier
    hooks: Mapping[Kind, Hook]


class Call:
    """The state of one call. Belongs to one thread or task."""

    __slots__ = (
        "_cell",
        "_codes",
        "_held_since",
        "_last",
        "_notes",
        "_runtime",
        "_snoozes",
        "_started_at",
        "_token",
        "attempt",
        "clock",
        "plan",
    )

    def __init__(self, plan: CallPlan, runtime: Runtime, cell: BreakerCell | None, started_at: float) -> None:
        self.plan = plan
        self.clock = runtime.clock
        self._runtime = runtime
        self._cell = cell
        self._token = str(next(_TOKENS))
        self._started_at = started_at
        self._codes: dict[str, int] = {}
        self._notes: list[str] = []
        self._snoozes = 0
        self._last: BaseException | None = None
        self._held_since: float | None = None
        self.attempt = 1

    @property
    def deadline_at(self) -> float | None:
        """When the call as a whole must have ended, on the monotonic clock."""
        return None if self.plan.deadline is None else self._started_at + self.plan.deadline

    def remaining(self) -> float | None:
        """Return the seconds left until the deadline; None without one."""
        return None if self.deadline_at is None else max(0.0, self.deadline_at - self.clock.monotonic())

    def before(self) -> Step | float:
        """Say what comes before the next attempt: go, run the probe, or wait so many seconds.

        Raises BreakerOpenError when the breaker refuses and waiting is no use or not wanted.
        """
        if self._cell is None:
            return Step.GO
        answer = self._cell.admit(self._token)
        if isinstance(answer, Admitted):
            self._held_since = None
            return Step.PROBE if answer.is_probe and self._cell.breaker.probe is not None else Step.GO
        now = self.clock.monotonic()
        deadline_at = self.deadline_at
        is_over = deadline_at is not None and now >= deadline_at
        if self._cell.breaker.mode == "fail_fast" or answer.retry_at is None or is_over:
            raise self._refused(answer.retry_at, answer.reason) from self._last
        until = answer.retry_at if deadline_at is None else min(answer.retry_at, deadline_at)
        self._tell_held(now, until, answer.reason)
        return min(max(until - now, 0.0), HOLD_SLICE)

    def run_probe(self) -> object:
        """Call the breaker's own probe; what it raises means that the dependency is not back."""
        probe = None if self._cell is None else self._cell.breaker.probe
        return probe() if probe is not None else None

    def probed(self, *, is_alive: bool) -> None:
        """Take in what the breaker's own probe found."""
        if self._cell is not None:
            self._cell.record(Evidence.ALIVE if is_alive else Evidence.DOWN, self._token)

    def succeeded(self) -> None:
        """Take in that the function returned."""
        if self._cell is not None:
            self._cell.record(Evidence.ALIVE, self._token)

    def abandoned(self) -> None:
        """Take in that the call was cancelled or interrupted, which says nothing about the dependency."""
        if self._cell is not None:
            self._cell.record(Evidence.NOTHING, self._token)

    def after(self, exc: BaseException) -> Step | float:
        """Take in a failure; answer how many seconds to wait before the next attempt, or that it is over."""
        plan = self.plan
        try:
            failure = plan.classifier.classify(
                exc, idempotent=plan.idempotent, codes=plan.codes, stage=plan.name
            )
        except Exception:  # A broken rule is reported as such; the probe must be given back all the same.
            self.abandoned()
            raise
        if self._cell is not None:
            self._cell.record(self._evidence(failure), self._token)
        history = History(
            attempt=self.attempt,
            failures_by_code=self._codes,
            snoozes=self._snoozes,
            deadline_at=self.deadline_at,
        )
        now = self.clock.monotonic()
        standing = None if self._cell is None else self._cell.standing
        decision = decide(plan.policy, failure, history, now, self._runtime.chance.random(), standing)
        return self._carry_out(self._quick(decision), failure, exc, now)

    def _evidence(self, failure: Failure) -> Evidence:
        return (
            Evidence.NOTHING
            if self._cell is None or failure.asked
            else self._cell.breaker.evidence_of(failure)
        )

    def _quick(self, decision: Decision) -> Decision:
        """Do not wait for a retry that a fail-fast breaker is bound to refuse."""
        cell = self._cell
        if cell is None or cell.breaker.mode != "fail_fast" or not isinstance(decision, RetryAt):
            return decision
        opens = opens_at(cell.breaker, cell.state)
        if cell.state.phase is Phase.CLOSED or (opens is not None and opens <= decision.at):
            return decision
        return DeadLetter(
            reason=Reason.BREAKER,
            sentence=f"breaker {cell.breaker.name!r} is {cell.state.phase}: no use trying again",
        )

    def _carry_out(
        self, decision: Decision, failure: Failure, exc: BaseException, now: float
    ) -> Step | float:
        self._note(failure, decision)
        self._last = exc
        match decision:
            case RetryAt():
                self._codes[failure.code] = self._codes.get(failure.code, 0) + 1
                self._tell("retry", failure, decision.delay, decision.reason, decision.sentence)
                self.attempt += 1
                return decision.delay
            case Hold():
                if failure.asked is Asked.SNOOZE:
                    self._snoozes += 1
                    self._tell("hold", failure, failure.retry_after, decision.reason, decision.sentence)
                    return failure.retry_after or 0.0
                # The breaker says for how long, and `before` waits for it in slices.
                self._held_since = now
                delay = None if decision.until is None else max(0.0, decision.until - now)
                self._tell("hold", failure, delay, decision.reason, decision.sentence)
                return 0.0
            case DeadLetter() | Cancel():
                self._end(exc, decision, now)
                self._tell("dead", failure, None, decision.reason, decision.sentence)
                return Step.OVER

    def _note(self, failure: Failure, decision: Decision) -> None:
        # Redacted before it is cut: half a secret would no longer be known for one.
        message = redact(failure.message).partition("\n")[0]
        said = message if len(message) <= NOTE_MESSAGE_MAX else message[:NOTE_MESSAGE_MAX] + "..."
        if len(self._notes) < NOTES_MAX:
            self._notes.append(f"  {failure.error_class}: {said} -> {decision.sentence}")

    def _end(self, exc: BaseException, decision: DeadLetter | Cancel, now: float) -> None:
        """Attach the history to the exception that is about to reach the caller."""
        tries = f"{self.attempt} attempt" + ("" if self.attempt == 1 else "s")
        first = f"{NOTE_START} {self.plan.name} after {tries} in {now - self._started_at:.3g} s: {decision.sentence}"
        # Some libraries raise one exception object again and again; the newest history replaces the one before.
        others = [note for note in getattr(exc, "__notes__", ()) if not note.startswith(NOTE_START)]
        exc.__notes__ = [*others, "\n".join([first, *(self._notes if len(self._notes) > 1 else ())])]

    def _refused(self, retry_at: float | None, reason: str) -> BreakerOpenError:
        name = "" if self._cell is None else self._cell.breaker.name
        instant = None if retry_at is None else self._runtime.as_instant(retry_at)
        error = BreakerOpenError(breaker=name, retry_at=instant, reason=reason)
        if self._notes:
            error.add_note("\n".join(self._notes))
        self._tell("dead", None, None, Reason.BREAKER, str(error))
        return error

    def _tell_held(self, now: float, until: float, reason: str) -> None:
        """Report a hold once, when it begins, not at every look."""
        if self._held_since is None:
            self._held_since = now
            sentence = f"breaker refuses: {reason}; waiting {max(0.0, until - now):.3g} s, no attempt burned"
            self._tell("hold", None, max(0.0, until - now), Reason.BREAKER, sentence)

    def _tell(
        self, kind: Kind, failure: Failure | None, delay: float | None, reason: Reason, sentence: str
    ) -> None:
        # Never louder than INFO: whoever called gets the exception itself, and decides how loud that is.
        logger.info("%s: %s", self.plan.name, sentence)
        hook = self.plan.hooks.get(kind)
        if hook is None:
            return
        event = CallEvent(
            kind=kind,
            name=self.plan.name,
            attempt=self.attempt,
            failure=failure,
            delay=delay,
            reason=reason,
            sentence=sentence,
        )
        try:
            hook(event)
        except Exception:  # A hook observes; its failure must not change the outcome of the call.
            logger.exception("%s: the on_%s hook failed", self.plan.name, kind)
