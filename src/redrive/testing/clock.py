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
from typing import Any, Final, NamedTuple
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
        self._sleepers: dict[asyncio.AbstractEventLoop, _Sleepers] = {}
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
        loop, due_at = asyncio.get_running_loop(), self.wall() + seconds
        if isinstance(loop, VirtualLoop) and loop.clock is self:
            # The timers of that loop are on this clock already, and so are the timeouts that may end this sleep.
            await asyncio.sleep(seconds)
        else:
            sleepers = self._sleepers.setdefault(loop, _Sleepers(loop, self))
            try:
                await sleepers.wait(self._now + seconds, SYSTEM_CLOCK.monotonic() + seconds / PACE)
            finally:
                if not sleepers.queue and self._sleepers.get(loop) is sleepers:
                    del self._sleepers[loop]
        self._reach(due_at)

    def _move_to(self, at: float) -> None:
        with self._lock:
            self._now = max(self._now, at)

    def _reach(self, wall: float) -> None:
        """Move the clock on by what rounding left out: who slept until an instant must not wake before it."""
        with self._lock:
            while self.wall() < wall:
                self._now += max(wall - self.wall(), math.ulp(wall) / 4)


class _Sleepers:
    """Those who sleep in one loop. None of them runs before it is due: while an executor works, the loop waits without spinning."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: VirtualClock) -> None:
        self._loop = loop
        self._clock = clock
        self.queue: list[_Sleeper] = []
        """A heap."""
        self._order = itertools.count()
        self._calls = _calls_of(loop)
        self._turn: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None

    async def wait(self, due_at: float, awake_at: float) -> None:
        """Return when time has moved to an instant; an executor can hold it up until `awake_at` of the machine's clock."""
        sleeper = _Sleeper(due_at, next(self._order), awake_at, self._loop.create_future())
        heapq.heappush(self.queue, sleeper)
        self._look_soon()
        try:
            await sleeper.woken
        finally:
            if sleeper in self.queue:
                self.queue.remove(sleeper)
                heapq.heapify(self.queue)

    def _look_soon(self, *_: object) -> None:
        # One look at a time: a second one would be taken for a task that is ready.
        if self._turn is None:
            self._turn = self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Wake the next one due, unless tasks are ready or an executor works."""
        self._turn = None
        if self._later is not None:
            self._later.cancel()
        if not self.queue:
            return
        # The list of ready callbacks is private; without it, the sleeper wakes after one iteration of the others.
        if getattr(self._loop, "_ready", ()):
            self._look_soon()
            return
        left = self.queue[0].awake_at - SYSTEM_CLOCK.monotonic()
        if self._calls and left > 0:
            next(iter(self._calls)).add_done_callback(self._look_soon)
            self._later = self._loop.call_later(left, self._look_soon)
            return
        sleeper = heapq.heappop(self.queue)
        self._clock._move_to(sleeper.due_at)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - they are parts of it.
        if not sleeper.woken.done():
            sleeper.woken.set_result(None)
        if self.queue:
            self._look_soon()


class _Sleeper(NamedTuple):
    due_at: float
    order: int
    awake_at: float
    woken: asyncio.Future[None]


_calls: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, set[asyncio.Future[Any]]]] = WeakKeyDictionary()
"""What executors are doing for a loop, since the first sleep on it."""


def _calls_of(loop: asyncio.AbstractEventLoop) -> set[asyncio.Future[Any]]:
    """Return what executors are doing for a loop, noted from the first time on."""
    if loop in _calls:
        return _calls[loop]
    calls: set[asyncio.Future[Any]] = set()
    _calls[loop] = calls
    run = loop.run_in_executor

    def run_counted(*args: Any) -> asyncio.Future[Any]:
        call = run(*args)
        calls.add(call)
        call.add_done_callback(calls.discard)
        return call

    loop.run_in_executor = run_counted  # type: ignore[method-assign,assignment] # - of this loop alone.
    return calls


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
