# SPDX-License-Identifier: Apache-2.0
"""The state of one guarded call: its attempts, holds and waits, as directives for a sync or an async loop.

`admit` asks the breaker (run, wait, or probe first); the loop runs the function; `failed` classifies a failure, informs the
breaker, decides, and returns how long to wait or that the call ends. Nothing here waits or calls the function, so the sync and the
async guard share every decision.
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
from redrive.core.decide import DeadLetter, Decision, History, Hold, Reason, RetryAt, decide
from redrive.core.failure import Failure, SignalKind
from redrive.core.policy import RetryPolicy
from redrive.core.signals import Finish, Retry, Signal, Skip, Snooze
from redrive.engine.classifier import Classifier
from redrive.engine.guard.breakers import BreakerCell
from redrive.engine.guard.events import CallHistory, Hook, Kind
from redrive.engine.runtime import Runtime
from redrive.errors import AttemptsSpentError, BreakerOpenError, ConfigurationError, DeadlineExceededError

HALF_OPEN_SLICE: Final = 0.25
"""Seconds between two checks of a half-open breaker, which may close at any moment."""
OPEN_SLICE: Final = 1.0
"""Seconds between two checks of an open breaker, which only an operator can close early."""

PROBING: Final[ContextVar[frozenset[BreakerCell]]] = ContextVar("redrive_probing", default=frozenset())
"""The breakers for which the current code is the probe."""

_TOKENS: Final = itertools.count(1)


class Step(Enum):
    """What a call does next, other than wait."""

    RUN = "run"
    PROBE = "probe"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """The options that are the same for every call of one guarded function."""

    name: str
    stage: str
    policy: RetryPolicy
    cell_in: Callable[[Runtime], BreakerCell | None]
    """Returns the breaker's cell in a runtime; None without a breaker."""
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
        "_history",
        "_is_hold_reported",
        "_last",
        "_probing",
        "_runtime",
        "_snoozes",
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
        """When the whole call must have ended, on the monotonic clock."""
        self._runtime = runtime
        self._cell = cell
        self._token = str(next(_TOKENS))
        self._codes: dict[str, int] = {}
        self._history = CallHistory(plan.name, plan.hooks)
        self._snoozes = 0
        self._last: BaseException | None = None
        self._held_at: float | None = None
        self._is_hold_reported = False
        self._probing: Token[frozenset[BreakerCell]] | None = None

    def remaining(self) -> float | None:
        """Return the seconds left until the deadline; None without one."""
        return None if self.deadline_at is None else max(0.0, self.deadline_at - self.clock.monotonic())

    def admit(self) -> Step | float:
        """Return what to do before the next attempt: run it, run the probe first, or the seconds to wait.

        Raises BreakerOpenError when the breaker refuses and waiting is useless, not wanted, or has lasted long enough.
        """
        cell = self._cell
        if cell is None or cell in PROBING.get():
            # A guarded call inside the probe of its own breaker is part of that probe.
            return Step.RUN
        now = self.clock.monotonic()
        if self._held_at is not None and now >= self._hold_ends_at(self._held_at):
            raise self._refused(
                cell, opens_at(cell.breaker, cell.state), "it held the call until its time limit"
            )
        answer = cell.admit(self._token)
        if isinstance(answer, Admitted):
            self._is_hold_reported = False
            if answer.is_probe:
                self._probing = PROBING.set(PROBING.get() | {cell})
            return Step.PROBE if answer.is_probe and cell.breaker.probe is not None else Step.RUN
        if cell.breaker.mode == "fail_fast" or answer.retry_at is None:
            raise self._refused(cell, answer.retry_at, answer.reason)
        return self._wait_for(cell, now, answer.retry_at, answer.reason)

    def run_probe(self) -> object:
        """Call the breaker's own probe; an exception means that the dependency is still down."""
        probe = None if self._cell is None else self._cell.breaker.probe
        return probe() if probe is not None else None

    def probe_limit(self) -> float | None:
        """Return how many seconds an async probe may take: until it expires, or until the deadline."""
        expires_after = None if self._cell is None else self._cell.probe_timeout
        limits = [limit for limit in (expires_after, self.remaining()) if limit is not None]
        return min(limits, default=None)

    def probed(self, *, is_alive: bool) -> None:
        """Record the result of the breaker's own probe."""
        self._record(Evidence.ALIVE if is_alive else Evidence.DOWN)

    def succeeded(self) -> None:
        """Record that the function returned."""
        self._record(Evidence.ALIVE)
        self._last = None

    def abandoned(self) -> None:
        """Record that the call was cancelled or interrupted, which proves nothing about the dependency."""
        self._record(Evidence.NOTHING)
        self._last = None

    def failed(self, exc: BaseException) -> Step | float:
        """Record a failure; return the seconds to wait before the next attempt, or `Step.END`.

        Raises AttemptsSpentError for a `Retry` or `Snooze` that is no longer allowed.
        """
        plan = self.plan
        if isinstance(exc, Skip | Finish):
            self.abandoned()
            # Only a stage can send these: a guarded call has no job to end.
            raise ConfigurationError(
                field="guard",
                value=f"{type(exc).__name__} from {plan.name}",
                rule="cannot end a job, because a guarded call has none",
                fix="Raise it in the stage itself; here, return a value, or raise Cancel.",
            ) from exc
        try:
            failure = plan.classifier.classify(
                exc, idempotent=plan.idempotent, codes=plan.codes, stage=plan.stage
            )
        except Exception:  # A broken rule raises its own error; the probe must still be released.
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
        return self._apply(self._unless_refused(decision), failure, exc, now)

    def returned(self, result: object) -> float:
        """Handle a special result: a signal counts like a raised one, and is raised if it ends the call; a coroutine is wrong."""
        if isinstance(result, Signal):
            wait = self.failed(result)
            if isinstance(wait, Step):
                raise result
            return wait
        self.abandoned()
        close = getattr(result, "close", None)
        if callable(close):
            close()
        raise ConfigurationError(
            field="guard",
            value=self.plan.name,
            rule="cannot guard a sync function that returns a coroutine, because the coroutine would run unguarded",
            fix="Make the function `async def` and await inside it.",
        )

    def _wait_for(self, cell: BreakerCell, now: float, retry_at: float, reason: str) -> float:
        if self._held_at is None:
            self._held_at = now
        wait = max(0.0, min(retry_at, self._hold_ends_at(self._held_at)) - now)
        if not self._is_hold_reported:
            self._is_hold_reported = True
            sentence = (
                f"breaker {cell.breaker.name!r} holds it: {reason}; waiting {wait:.3g} s, no attempt burned"
            )
            self._history.emit("hold", sentence, attempt=self.attempt, delay=wait)
        return min(wait, OPEN_SLICE if cell.state.phase is Phase.OPEN else HALF_OPEN_SLICE)

    def _hold_ends_at(self, held_at: float) -> float:
        """Return when waiting for the breaker ends: at the deadline, or without one `hold_max` after the first hold."""
        return held_at + self.plan.hold_max if self.deadline_at is None else self.deadline_at

    def _record(self, evidence: Evidence) -> None:
        if self._probing is not None:
            PROBING.reset(self._probing)
            self._probing = None
        if self._cell is not None:
            self._cell.record(evidence, self._token)

    def _evidence(self, failure: Failure, exc: BaseException) -> Evidence:
        # A signal, a refusal by a breaker and the call's own deadline prove nothing about the dependency.
        if self._cell is None or failure.signal or isinstance(exc, BreakerOpenError | DeadlineExceededError):
            return Evidence.NOTHING
        return self._cell.breaker.evidence_of(failure)

    def _unless_refused(self, decision: Decision) -> Decision:
        """Give up instead of waiting for a retry that a fail-fast breaker will refuse."""
        cell = self._cell
        if cell is None or cell.breaker.mode != "fail_fast" or not isinstance(decision, RetryAt):
            return decision
        opens = opens_at(cell.breaker, cell.state)
        if opens is not None and opens <= decision.at:
            return decision
        return DeadLetter(
            reason=Reason.BREAKER,
            code=decision.code,
            attempt=decision.attempt,
            max_attempts=decision.max_attempts,
            breaker=cell.breaker.name,
            phase=cell.state.phase,
        )

    def _apply(self, decision: Decision, failure: Failure, exc: BaseException, now: float) -> Step | float:
        self._history.add(failure, decision, now)
        if not isinstance(decision, RetryAt | Hold):
            # The caller gets the exception; a reference here would create a cycle with its frames.
            self._last = None
            self._history.attach(exc, self.attempt, now, decision)
            self._history.emit("dead", decision, attempt=self.attempt, failure=failure)
            if isinstance(exc, Retry | Snooze):
                raise AttemptsSpentError(name=self.plan.name, sentence=f"{exc}, but no run is left") from exc
            return Step.END
        self._last = exc
        if isinstance(decision, Hold):
            return self._hold(decision, failure, now)
        self._codes[failure.code] = self._codes.get(failure.code, 0) + 1
        self._history.emit("retry", decision, attempt=self.attempt, failure=failure, delay=decision.delay)
        self.attempt += 1
        return decision.delay

    def _hold(self, decision: Hold, failure: Failure, now: float) -> float:
        delay = None if decision.until is None else max(0.0, decision.until - now)
        self._history.emit("hold", decision, attempt=self.attempt, failure=failure, delay=delay)
        if failure.signal is SignalKind.SNOOZE:
            self._snoozes += 1
            return delay or 0.0
        self._is_hold_reported = True
        if self._held_at is None:
            self._held_at = now
        # Wait for the dependency's own delay in one piece; `admit` waits for the breaker in slices.
        delay = self.plan.policy.retry_after_delay(failure) or 0.0
        return max(0.0, min(delay, self._hold_ends_at(self._held_at) - now))

    def _refused(self, cell: BreakerCell, retry_at: float | None, reason: str) -> BreakerOpenError:
        instant = (
            None if retry_at is None else self._runtime.as_instant(max(retry_at, self.clock.monotonic()))
        )
        error = BreakerOpenError(breaker=cell.breaker.name, retry_at=instant, reason=reason)
        error.__cause__, self._last = self._last, None
        self._history.attach_history(error)
        self._history.emit("dead", str(error), attempt=self.attempt)
        return error
