# SPDX-License-Identifier: Apache-2.0
"""A virtual clock: it moves only when code waits on it or advances it.

Its wall time and its monotonic time start at unusual, unequal values, so that code that mixes them, or reads the machine's clock
instead, is wrong by decades and fails at once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final
from weakref import WeakKeyDictionary

from redrive.core.arguments import seconds
from redrive.engine.clock import SYSTEM_CLOCK
from redrive.engine.guard.breakers import Breakers
from redrive.engine.runtime import CURRENT, Runtime
from redrive.testing.loop import VirtualLoop

WALL_START: Final = 1_000_000_000.0
MONOTONIC_START: Final = 7_000.0
PACE: Final = 20
"""How much faster than real time is while an executor works: a lease of 30 seconds is not overtaken by a call of one."""


class VirtualClock:
    """A clock for tests. Sleeping returns at once and moves the clock; sleepers wake in the order in which they are due.

    Time moves only when no other task of the loop is ready, so that tasks that are slow to yield are not overtaken; while an
    executor works for the loop, it moves at most PACE times as fast as the machine's. It does not see real I/O: while a task waits
    for a socket, time may move, except on the loop of `run_inline`, which checks.
    """

    def __init__(self, *, wall: float = WALL_START, monotonic: float = MONOTONIC_START) -> None:
        self._offset = wall - monotonic
        self._now = monotonic
        self._lock = threading.Lock()
        self._sleepers: dict[asyncio.AbstractEventLoop, list[tuple[float, int]]] = {}
        self._order = itertools.count()
        self.waits: list[float] = []
        """Every wait so far, in seconds, in the order in which they began."""

    def wall(self) -> float:
        """Return virtual seconds since the epoch."""
        return self._now + self._offset

    def monotonic(self) -> float:
        """Return virtual monotonic seconds."""
        return self._now

    def advance(self, by: timedelta | float) -> None:
        """Move the clock forward by this much."""
        passed = seconds("advance", by)
        with self._lock:
            self._now += passed

    def sleep(self, seconds: float) -> None:
        """Move the clock at once instead of blocking."""
        self.waits.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Let the other tasks run; when this sleeper is the next one due, move the clock to its time and return."""
        self.waits.append(seconds)
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop) and loop.clock is self:
            # The timers of that loop are on this clock already, and so are the timeouts that may end this sleep.
            due_at = self.wall() + seconds
            await asyncio.sleep(seconds)
            self._reach(due_at)
            return
        if loop not in self._sleepers:
            _count_calls(loop)
        sleepers = self._sleepers.setdefault(loop, [])
        due_at = self.wall() + seconds
        mine = (self._now + seconds, next(self._order))
        heapq.heappush(sleepers, mine)
        awake_at = SYSTEM_CLOCK.monotonic() + seconds / PACE
        try:
            await asyncio.sleep(0)
            while sleepers[0] is not mine or _is_busy(loop, len(sleepers), awake_at):  # noqa: ASYNC110 - virtual time has no event to wait on.
                await asyncio.sleep(0)
            with self._lock:
                self._now = max(self._now, mine[0])
            self._reach(due_at)
        finally:
            sleepers.remove(mine)
            heapq.heapify(sleepers)
            if not sleepers:
                del self._sleepers[loop]

    def _reach(self, wall: float) -> None:
        """Move the clock on by what rounding left out: who slept until an instant must not wake before it."""
        with self._lock:
            while self.wall() < wall:
                self._now += max(wall - self.wall(), math.ulp(wall) / 4)


def _is_busy(loop: asyncio.AbstractEventLoop, sleepers: int, awake_at: float) -> bool:
    """Return whether an executor works, until then, or tasks are ready other than the sleepers, which always are."""
    if _calls.get(loop) and SYSTEM_CLOCK.monotonic() < awake_at:
        return True
    # The list of ready callbacks is private; without it, the sleeper wakes after one iteration of the others.
    return len(getattr(loop, "_ready", ())) >= sleepers


_calls: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, set[asyncio.Future[Any]]]] = WeakKeyDictionary()
"""What executors are doing for a loop, since the first sleep on it."""


def _count_calls(loop: asyncio.AbstractEventLoop) -> None:
    """Note from now on what executors do for a loop."""
    if loop in _calls:
        return
    calls = _calls[loop] = set()
    run = loop.run_in_executor

    def run_counted(*args: Any) -> asyncio.Future[Any]:
        call = run(*args)
        calls.add(call)
        call.add_done_callback(calls.discard)
        return call

    loop.run_in_executor = run_counted  # type: ignore[method-assign,assignment] # - of this loop alone.


@contextmanager
def virtual_time(*, seed: int = 0, clock: VirtualClock | None = None) -> Generator[VirtualClock]:
    """Use a virtual clock, seeded random numbers and fresh breakers for every guard called in this context.

    This applies to this thread, or to this task and the tasks it starts; nothing else in the process changes.
    """
    virtual = clock or VirtualClock()
    token = CURRENT.set(Runtime(virtual, random.Random(seed), Breakers(virtual)))  # noqa: S311 - seeded on purpose.
    try:
        yield virtual
    finally:
        CURRENT.reset(token)
