# SPDX-License-Identifier: Apache-2.0
"""One guarded call under way: its attempts, holds and waits, as directives that a sync or an async loop carries out.

The walk of a call: `before` asks the breaker (go, wait, or probe first); the function runs; `after` classifies its failure, tells
the breaker, decides, and answers how long to wait or that it is over. Nothing here waits or calls the function itself, so the sync
and the async guard share every decision.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from enum import Enum
from typing import Final

from redrive.core.breaker import Evidence
from redrive.core.breaker_state import Admitted, Phase, opens_at
from redrive.core.codeset import CodeSet
from redrive.core.decide import Cancel, DeadLetter, Decision, History, Hold, Reason, RetryAt, decide
from redrive.core.failure import Failure, SignalKind
from redrive.core.policy import RetryPolicy
from redrive.core.signals import Retry, Signal, Snooze
from redrive.engine.classifier import Classifier
from redrive.engine.guard.breakers import BreakerCell
from redrive.engine.guard.events import Hook, Kind, Story
from redrive.engine.runtime import Runtime
from redrive.errors import AttemptsSpentError, BreakerOpenError, ConfigurationError, DeadlineExceededError

HALF_OPEN_SLICE: Final = 0.25
"""Seconds between two looks at a breaker whose probe is out, since it may close at any moment."""
OPEN_SLICE: Final = 1.0
"""Seconds between two looks at an open breaker, which only a hand can close before its time."""

PROBING: Final[ContextVar[frozenset[BreakerCell]]] = ContextVar("redrive_probing", default=frozenset())
"""The breakers for which the running code is the probe."""

_TOKENS: Final = itertools.count(1)


class Step(Enum):
    """What a call has to do next, other than wait."""

    GO = "go"
    PROBE = "probe"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """What is the same for every call of one guarded function."""

    name: str
    stage: str
    policy: RetryPolicy
    cell_in: Callable[[Runtime], BreakerCell | None]
    """Finds the breaker's cell in a runtime; None without a breaker."""
    timeout: float | None
    deadline: float | None
    hold_max: float
    idempotent: bool
    codes: CodeSet | None
    classifier: Classifier
    hooks: Mapping[Kind, Hook]


class Call:
    """The state of one call. Belongs to one thread or task."""

    __slots__ = (
        "_cell",
        "_codes",
        "_held_at",
        "_is_told",
        "_last",
        "_riding",
        "_runtime",
        "_snoozes",
        "_story",
        "_token",
        "attempt",
        "clock",
        "deadline_at",
        "plan",
    )

    def __init__(self, plan: CallPlan, runtime: Runtime, cell: BreakerCell | None) -> None:
        self.plan = plan
        self.clock = runtime.clock
        self.attempt = 1
        self.deadline_at = None if plan.deadline is None else runtime.clock.monotonic() + plan.deadline
        """When the call as a whole must have ended, on the monotonic clock."""
        self._runtime = runtime
        self._cell = cell
        self._token = str(next(_TOKENS))
        self._codes: dict[str, int] = {}
        self._story = Story(plan.name, plan.hooks)
        self._snoozes = 0
        self._last: BaseException | None = None
        self._held_at: float | None = None
        self._is_told = False
        self._riding: Token[frozenset[BreakerCell]] | None = None

    def remaining(self) -> float | None:
        """Return the seconds left until the deadline; None without one."""
        return None if self.deadline_at is None else max(0.0, self.deadline_at - self.clock.monotonic())

    def before(self) -> Step | float:
        """Say what comes before the next attempt: go, run the probe, or wait so many seconds.

        Raises BreakerOpenError when the breaker refuses and waiting is no use, not wanted, or has lasted long enough.
        """
        cell = self._cell
        if cell is None or cell in PROBING.get():
            # A guarded call inside the probe of its own breaker is part of that probe.
            return Step.GO
        now = self.clock.monotonic()
        if self._held_at is not None and now >= self._hold_ends_at(self._held_at):
            raise self._refused(
                cell, opens_at(cell.breaker, cell.state), "it held the call until its time was up"
            )
        answer = cell.admit(self._token)
        if isinstance(answer, Admitted):
            self._is_told = False
            if answer.is_probe:
                self._riding = PROBING.set(PROBING.get() | {cell})
            return Step.PROBE if answer.is_probe and cell.breaker.probe is not None else Step.GO
        if cell.breaker.mode == "fail_fast" or answer.retry_at is None:
            raise self._refused(cell, answer.retry_at, answer.reason)
        return self._wait_for(cell, now, answer.retry_at, answer.reason)

    def run_probe(self) -> object:
        """Call the breaker's own probe; what it raises means that the dependency is not back."""
        probe = None if self._cell is None else self._cell.breaker.probe
        return probe() if probe is not None else None

    def probe_limit(self) -> float | None:
        """Return how many seconds an async probe may take: until it counts as lost, or until the deadline."""
        lost_after = None if self._cell is None else self._cell.probe_timeout
        limits = [limit for limit in (lost_after, self.remaining()) if limit is not None]
        return min(limits, default=None)

    def probed(self, *, is_alive: bool) -> None:
        """Take in what the breaker's own probe found."""
        self._record(Evidence.ALIVE if is_alive else Evidence.DOWN)

    def succeeded(self) -> None:
        """Take in that the function returned."""
        self._record(Evidence.ALIVE)
        self._last = None

    def abandoned(self) -> None:
        """Take in that the call was cancelled or interrupted, which says nothing about the dependency."""
        self._record(Evidence.NOTHING)
        self._last = None

    def after(self, exc: BaseException) -> Step | float:
        """Take in a failure; answer how many seconds to wait before the next attempt, or that it is over."""
        plan = self.plan
        try:
            failure = plan.classifier.classify(
                exc, idempotent=plan.idempotent, codes=plan.codes, stage=plan.stage
            )
        except Exception:  # A broken rule is reported as such; the probe must be given back all the same.
            self.abandoned()
            raise
        self._record(self._evidence(failure, exc))
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

    def returned(self, result: object) -> Step | float:
        """Take in a result that is no plain value: a signal counts like a raised one, a coroutine is a mistake."""
        if isinstance(result, Signal):
            return self.after(result)
        self.abandoned()
        close = getattr(result, "close", None)
        if callable(close):
            close()
        raise ConfigurationError(
            field="guard",
            value=self.plan.name,
            rule="cannot be put on a sync function that returns a coroutine, because the coroutine would run unguarded",
            fix="Make the function `async def` and await inside it.",
        )

    def end(self, exc: BaseException) -> None:
        """Turn a wish for another run that cannot be granted into an error; anything else ends the call as it is."""
        if isinstance(exc, Retry | Snooze):
            raise AttemptsSpentError(name=self.plan.name, sentence=f"{exc}, and no run is left") from exc

    def _wait_for(self, cell: BreakerCell, now: float, retry_at: float, reason: str) -> float:
        if self._held_at is None:
            self._held_at = now
        wait = max(0.0, min(retry_at, self._hold_ends_at(self._held_at)) - now)
        if not self._is_told:
            self._is_told = True
            sentence = (
                f"breaker {cell.breaker.name!r} holds it: {reason}; waiting {wait:.3g} s, no attempt burned"
            )
            self._story.tell(
                "hold",
                attempt=self.attempt,
                failure=None,
                delay=wait,
                reason=Reason.BREAKER,
                sentence=sentence,
            )
        return min(wait, OPEN_SLICE if cell.state.phase is Phase.OPEN else HALF_OPEN_SLICE)

    def _hold_ends_at(self, held_at: float) -> float:
        """Return when waiting for the breaker must end: at the deadline, or without one `hold_max` after the first hold."""
        return held_at + self.plan.hold_max if self.deadline_at is None else self.deadline_at

    def _record(self, evidence: Evidence) -> None:
        if self._riding is not None:
            PROBING.reset(self._riding)
            self._riding = None
        if self._cell is not None:
            self._cell.record(evidence, self._token)

    def _evidence(self, failure: Failure, exc: BaseException) -> Evidence:
        # A wish of the function, a refusal by a breaker and the end of our own patience say nothing about the dependency.
        if self._cell is None or failure.signal or isinstance(exc, BreakerOpenError | DeadlineExceededError):
            return Evidence.NOTHING
        return self._cell.breaker.evidence_of(failure)

    def _quick(self, decision: Decision) -> Decision:
        """Do not wait for a retry that a fail-fast breaker is bound to refuse."""
        cell = self._cell
        if cell is None or cell.breaker.mode != "fail_fast" or not isinstance(decision, RetryAt):
            return decision
        opens = opens_at(cell.breaker, cell.state)
        if opens is not None and opens <= decision.at:
            return decision
        sentence = f"breaker {cell.breaker.name!r} is {cell.state.phase}: no use trying again"
        return DeadLetter(reason=Reason.BREAKER, sentence=sentence)

    def _carry_out(
        self, decision: Decision, failure: Failure, exc: BaseException, now: float
    ) -> Step | float:
        self._story.note(failure, decision, now)
        if isinstance(decision, DeadLetter | Cancel):
            # The caller is about to get the exception; keeping it here would tie its frames into a cycle.
            self._last = None
            self._story.attach(exc, self.attempt, now, decision.sentence)
            self._tell("dead", failure, None, decision)
            return Step.OVER
        self._last = exc
        if isinstance(decision, Hold):
            return self._hold(decision, failure, now)
        self._codes[failure.code] = self._codes.get(failure.code, 0) + 1
        self._tell("retry", failure, decision.delay, decision)
        self.attempt += 1
        return decision.delay

    def _hold(self, decision: Hold, failure: Failure, now: float) -> float:
        delay = None if decision.until is None else max(0.0, decision.until - now)
        self._tell("hold", failure, delay, decision)
        if failure.signal is SignalKind.SNOOZE:
            self._snoozes += 1
            return delay or 0.0
        self._is_told = True
        if self._held_at is None:
            self._held_at = now
        # What the dependency told us is waited for at once; for its breaker, `before` waits in slices.
        told = self.plan.policy.retry_after_delay(failure) or 0.0
        return max(0.0, min(told, self._hold_ends_at(self._held_at) - now))

    def _tell(self, kind: Kind, failure: Failure, delay: float | None, decision: Decision) -> None:
        self._story.tell(
            kind,
            attempt=self.attempt,
            failure=failure,
            delay=delay,
            reason=decision.reason,
            sentence=decision.sentence,
        )

    def _refused(self, cell: BreakerCell, retry_at: float | None, reason: str) -> BreakerOpenError:
        instant = (
            None if retry_at is None else self._runtime.as_instant(max(retry_at, self.clock.monotonic()))
        )
        error = BreakerOpenError(breaker=cell.breaker.name, retry_at=instant, reason=reason)
        error.__cause__, self._last = self._last, None
        self._story.attach_history(error)
        self._story.tell(
            "dead", attempt=self.attempt, failure=None, delay=None, reason=Reason.BREAKER, sentence=str(error)
        )
        return error
