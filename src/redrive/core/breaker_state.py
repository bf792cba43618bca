# SPDX-License-Identifier: Apache-2.0
"""A circuit breaker as pure step functions: configuration and state in, the next state out.

    closed --(threshold reached)--> open --(open_for passed, one probe taken)--> half_open
    half_open --(close_after probes in a row succeed)--> closed        half_open --(the probe fails)--> open
    any --(isolate)--> isolated: refuses every call until an operator closes it

The owner of the state (a process for `guard`, the store for the engine) applies these functions to it. A half-open breaker
admits one probe at a time, identified by its token; a probe without a result expires after `probe_timeout`. Only the probe's
own result moves a half-open breaker; late results of older calls change nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final

from redrive.core.arguments import seconds
from redrive.core.breaker import Breaker

BUCKETS: Final = 12
"""Slices of the sliding window; it covers at least 11/12 of `window` and at most all of it."""
RAMP_DOUBLINGS: Final = 10.0
"""While ramping, starts begin at one per second and double this many times before the ramp ends."""


class Phase(StrEnum):
    """The states of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    ISOLATED = "isolated"


@dataclass(frozen=True, slots=True)
class Sample:
    """The calls counted in one slice of the window."""

    bucket: int
    ok: int
    failed: int


@dataclass(frozen=True, slots=True)
class Probe:
    """The one call that tests whether the dependency is back."""

    token: str
    taken_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState:
    """The whole state of a breaker. The default is a breaker that has counted no call yet."""

    phase: Phase = Phase.CLOSED
    changed_at: float | None = None
    """When the phase last changed; None if it never did, so that a new breaker does not ramp."""
    failures: int = 0
    """In a row, until it closes."""
    successes: int = 0
    samples: tuple[Sample, ...] = ()
    probe: Probe | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The call may start, possibly as the probe."""

    is_probe: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The call may not start before `retry_at`; None means not until an operator closes the breaker."""

    retry_at: float | None
    reason: str


def admit(
    breaker: Breaker, state: BreakerState, now: float, token: str
) -> tuple[BreakerState, Admitted | Refused]:
    """Admit or refuse one call; a caller admitted as the probe must `record` or `release` with the same token."""
    if state.phase is Phase.CLOSED:
        return state, Admitted(is_probe=False)
    retry_at = opens_at(breaker, state)
    if retry_at is None:
        return state, Refused(None, "it is isolated by an operator")
    if now < retry_at:
        reason = "it is open" if state.phase is Phase.OPEN else "it is half open and a probe is running"
        return state, Refused(retry_at, reason)
    changed_at = now if state.phase is Phase.OPEN else state.changed_at
    taken = replace(state, phase=Phase.HALF_OPEN, changed_at=changed_at, probe=Probe(token, now))
    return taken, Admitted(is_probe=True)


def opens_at(breaker: Breaker, state: BreakerState) -> float | None:
    """Return the instant from which one call may be admitted again; None if only an operator can admit one."""
    if state.phase is Phase.ISOLATED:
        return None
    if state.phase is Phase.OPEN:
        return (state.changed_at or 0.0) + _seconds(breaker.open_for)
    # Closed has no probe; half open waits for the current one.
    return -math.inf if state.probe is None else state.probe.taken_at + _seconds(breaker.probe_timeout)


def record(
    breaker: Breaker,
    state: BreakerState,
    now: float,
    *,
    ok: int = 0,
    failed: int = 0,
    token: str | None = None,
) -> BreakerState:
    """Count results: first `ok` calls that found the dependency alive, then `failed` calls that did not.

    `token` identifies the probe whose result this is. Returns the same object when nothing changes.
    """
    if state.phase is Phase.CLOSED:
        return _recorded_closed(breaker, state, now, ok, failed)
    if state.phase is not Phase.HALF_OPEN or state.probe is None or state.probe.token != token:
        return state
    if failed:
        return opened(now, state.failures + failed)
    if state.successes + ok >= breaker.close_after:
        return closed(now)
    return replace(state, successes=state.successes + ok, probe=None)


def release(state: BreakerState, token: str) -> BreakerState:
    """Release the probe without a result, so that another call may become the probe at once."""
    return replace(state, probe=None) if state.probe is not None and state.probe.token == token else state


def opened(now: float, failures: int = 0) -> BreakerState:
    """Return an open breaker, tripped after so many failures in a row, or opened by an operator."""
    return BreakerState(phase=Phase.OPEN, changed_at=now, failures=failures)


def closed(now: float) -> BreakerState:
    """Return a closed breaker without counts, at the start of its ramp."""
    return BreakerState(phase=Phase.CLOSED, changed_at=now)


def isolated(now: float) -> BreakerState:
    """Return a breaker that refuses every call until an operator closes it."""
    return BreakerState(phase=Phase.ISOLATED, changed_at=now)


def change_text(
    before: str, after: str, *, code: str | None, operator: str | None = None, reason: str | None = None
) -> str:
    """Return in a sentence why a breaker changed: by an operator, for a reason, or by itself, after a failure with a code."""
    if operator is not None:
        verb = {Phase.OPEN: "opened", Phase.CLOSED: "closed", Phase.ISOLATED: "isolated"}[Phase(after)]
        return f"{operator} {verb} it" + (f": {reason}" if reason else "")
    if after == Phase.OPEN:
        found = "its probe failed" if before == Phase.HALF_OPEN else "too many calls failed, the last one"
        return f"{found} with {code or 'an unknown code'}"
    return "a probe was sent" if after == Phase.HALF_OPEN else "its probes succeeded"


def next_start_at(breaker: Breaker, state: BreakerState, starts: int) -> float:
    """Return the instant from which one more call may start, when `starts` have started since the breaker closed.

    A pure function of the closing time: starts per second begin at 1 and double ten times over `ramp` seconds; then there is no
    limit.
    """
    ramp = _seconds(breaker.ramp)
    if state.phase is not Phase.CLOSED or state.changed_at is None or ramp == 0:
        return -math.inf
    pace = RAMP_DOUBLINGS / ramp
    return state.changed_at + min(ramp, math.log2(1.0 + starts * pace * math.log(2.0)) / pace)


def starts_allowed(breaker: Breaker, state: BreakerState, now: float) -> float:
    """Return how many calls may have started since the breaker closed; infinite unless it is ramping."""
    if not is_ramping(breaker, state, now) or state.changed_at is None:
        return math.inf
    pace = RAMP_DOUBLINGS / _seconds(breaker.ramp)
    return (math.exp2(max(0.0, now - state.changed_at) * pace) - 1.0) / (pace * math.log(2.0))


def is_ramping(breaker: Breaker, state: BreakerState, now: float) -> bool:
    """Return whether the breaker closed so recently that work is still released gradually."""
    return (
        state.phase is Phase.CLOSED
        and state.changed_at is not None
        and now < state.changed_at + _seconds(breaker.ramp)
    )


def slice_end(breaker: Breaker, now: float) -> float:
    """Return the end of the slice of the window that contains `now`."""
    return (_bucket(breaker, now) + 1) * _seconds(breaker.window) / BUCKETS


def window_totals(breaker: Breaker, state: BreakerState, now: float) -> tuple[int, int]:
    """Return how many calls within the window found the dependency alive, and how many did not."""
    oldest = _bucket(breaker, now) - BUCKETS + 1
    live = [sample for sample in state.samples if sample.bucket >= oldest]
    return sum(sample.ok for sample in live), sum(sample.failed for sample in live)


def _recorded_closed(breaker: Breaker, state: BreakerState, now: float, ok: int, failed: int) -> BreakerState:
    failures = (0 if ok else state.failures) + failed
    samples = (
        state.samples if breaker.failure_rate is None else _sampled(breaker, state.samples, now, ok, failed)
    )
    if failures == state.failures and samples is state.samples:
        return state
    after = replace(state, failures=failures, samples=samples)
    return opened(now, failures) if failed and _is_tripped(breaker, after, now) else after


def _is_tripped(breaker: Breaker, state: BreakerState, now: float) -> bool:
    if breaker.consecutive is not None and state.failures >= breaker.consecutive:
        return True
    if breaker.failure_rate is None:
        return False
    ok, failed = window_totals(breaker, state, now)
    return ok + failed >= breaker.min_calls and failed >= breaker.failure_rate * (ok + failed)


def _sampled(
    breaker: Breaker, samples: tuple[Sample, ...], now: float, ok: int, failed: int
) -> tuple[Sample, ...]:
    bucket = _bucket(breaker, now)
    kept = tuple(sample for sample in samples if sample.bucket > bucket - BUCKETS)
    if kept and kept[-1].bucket >= bucket:
        last = kept[-1]
        return (*kept[:-1], Sample(last.bucket, last.ok + ok, last.failed + failed))
    return (*kept, Sample(bucket, ok, failed))


def _bucket(breaker: Breaker, now: float) -> int:
    return math.floor(now * BUCKETS / _seconds(breaker.window))


def _seconds(value: timedelta | float) -> float:
    """Narrow a duration that `__post_init__` already converted to a float; the field's type cannot express that."""
    return value if isinstance(value, float) else seconds("duration", value)
