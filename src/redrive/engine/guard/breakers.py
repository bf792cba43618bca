# SPDX-License-Identifier: Apache-2.0
"""Breakers with their state in this process, for `guard`, which has no store.

A `BreakerCell` applies the pure steps of `core.breaker_state` under a lock. The fast path takes no lock: while the breaker is quiet
(closed, no consecutive failure, not ramping) a success only increments a counter, which is folded into the window when a slice of
the window ends or a failure arrives.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from redrive.core import breaker_state as step
from redrive.core.arguments import seconds
from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import Admitted, BreakerState, Phase, Refused
from redrive.core.decide import BreakerStatus
from redrive.engine.clock import Clock


class BreakerCell:
    """One breaker's state in this process. Every method is safe to call from any thread."""

    __slots__ = (
        "__weakref__",
        "_count_ok",
        "_counted",
        "_lock",
        "_monotonic",
        "_slice_at",
        "_slice_ends_at",
        "_starts",
        "_state",
        "breaker",
        "counts_successes",
        "is_quiet",
    )

    def __init__(self, breaker: Breaker, clock: Clock) -> None:
        self.breaker: Final = breaker
        self._monotonic = clock.monotonic
        self._lock = threading.Lock()
        self._state = BreakerState()
        self._starts = 0
        self._counted = 0
        # Incremented in C, so that threads without the lock lose no count.
        self._count_ok = itertools.count().__next__
        self.is_quiet = True
        """True while a success changes only the counter, so that the fast path is correct."""
        self.counts_successes: Final = breaker.failure_rate is not None
        """True when successes must be counted, because the breaker has a failure rate."""
        self._slice_at = clock.monotonic()
        self._slice_ends_at = step.slice_end(breaker, self._slice_at)

    @property
    def standing(self) -> BreakerStatus:
        """The configuration and the current state, for `decide`."""
        return BreakerStatus(self.breaker, self._state)

    @property
    def probe_timeout(self) -> float:
        """Seconds after which a probe without a result expires."""
        return seconds("Breaker.probe_timeout", self.breaker.probe_timeout)

    @property
    def state(self) -> BreakerState:
        """The current state."""
        return self._state

    def succeeded(self) -> None:
        """Count a success on the fast path; record it if the breaker is no longer quiet."""
        if not self.is_quiet:
            self.record(Evidence.ALIVE, "")
            return
        now = self._monotonic()
        if now >= self._slice_ends_at:
            with self._lock:
                self._fold(now)
        self._count_ok()

    def admit(self, token: str) -> Admitted | Refused:
        """Admit or refuse one call; while ramping after a hold, calls are released gradually."""
        with self._lock:
            now = self._monotonic()
            if self.breaker.mode == "hold":
                start_at = step.next_start_at(self.breaker, self._state, self._starts)
                if start_at > now:
                    return Refused(start_at, "it closed recently and releases work gradually")
            after, answer = step.admit(self.breaker, self._state, now, token)
            if isinstance(answer, Admitted):
                self._starts += 1
            self._set(after, now)
            return answer

    def record(self, evidence: Evidence, token: str) -> None:
        """Record what one call proved about the dependency."""
        with self._lock:
            now = self._monotonic()
            self._fold(now)
            if evidence is Evidence.NOTHING:
                after = step.release(self._state, token)
            else:
                ok = int(evidence is Evidence.ALIVE)
                after = step.record(self.breaker, self._state, now, ok=ok, failed=1 - ok, token=token)
            self._set(after, now)

    def open(self) -> None:
        """Open the breaker; a probe closes it again by itself."""
        self._force(step.opened)

    def close(self) -> None:
        """Close the breaker at once; held work is released gradually. Does nothing if it is closed."""
        if self._state.phase is not Phase.CLOSED:
            self._force(step.closed)

    def isolate(self) -> None:
        """Refuse every call until `close` is called."""
        self._force(step.isolated)

    def _force(self, change: Callable[[float], BreakerState]) -> None:
        with self._lock:
            now = self._monotonic()
            self._fold(now)
            self._starts = 0
            self._set(change(now), now)

    def _fold(self, now: float) -> None:
        if not self.counts_successes:
            return
        # Reading the counter increments it, so each reading is excluded from the next difference.
        reached = self._count_ok()
        ok, self._counted = reached - self._counted, reached + 1
        if ok:
            self._state = step.record(self.breaker, self._state, self._slice_at, ok=ok)
        self._slice_at, self._slice_ends_at = now, step.slice_end(self.breaker, now)

    def _set(self, after: BreakerState, now: float) -> None:
        if after.phase is not self._state.phase:
            self._starts = 0
        self._state = after
        is_ramping = self.breaker.mode == "hold" and step.is_ramping(self.breaker, after, now)
        self.is_quiet = after.phase is Phase.CLOSED and after.failures == 0 and not is_ramping


class Breakers:
    """The cells of one runtime: one per `Breaker` object, for as long as the cell is referenced.

    Guards share a breaker by sharing the object; two equal breakers are two.
    """

    __slots__ = ("__weakref__", "_cells", "_clock", "_lock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # A cell keeps its breaker alive, so no other object can have that id while the cell is in this table.
        self._cells: WeakValueDictionary[int, BreakerCell] = WeakValueDictionary()
        self._lock = threading.Lock()

    def cell(self, breaker: Breaker) -> BreakerCell:
        """Return the cell of this breaker."""
        with self._lock:
            cell = self._cells.get(id(breaker))
            if cell is None:
                cell = self._cells[id(breaker)] = BreakerCell(breaker, self._clock)
            return cell
