# SPDX-License-Identifier: Apache-2.0
"""A clock that moves only when somebody waits on it or pushes it.

The two faces of the clock start at odd, unequal values, so that code which mixes wall time with monotonic time, or reads the
machine's clock past it, is wrong by decades and fails at once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from redrive.core.arguments import seconds
from redrive.engine.guard.breakers import Breakers
from redrive.engine.runtime import CURRENT, Runtime
from redrive.testing.loop import VirtualLoop

WALL_START: Final = 1_000_000_000.0
MONOTONIC_START: Final = 7_000.0


class VirtualClock:
    """A clock for tests. Sleeping returns at once and moves the clock; sleepers wake in the order in which they are due.

    Time moves only when no other task of the loop has anything to do, so that tasks that are merely slow to yield are not
    overtaken. Real I/O is invisible to it: while a task waits for a socket, time may move on (but for the loop of `run_inline`,
    which looks).
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
        """Let this much time pass."""
        passed = seconds("advance", by)
        with self._lock:
            self._now += passed

    def sleep(self, seconds: float) -> None:
        """Move the clock at once instead of blocking."""
        self.waits.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Let the other tasks run, then move the clock to when this sleeper, being the next one due, wakes."""
        self.waits.append(seconds)
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop) and loop.clock is self:
            # Its timers are on this clock already, and so are the timeouts that may end this sleep.
            await asyncio.sleep(seconds)
            return
        sleepers = self._sleepers.setdefault(loop, [])
        mine = (self._now + seconds, next(self._order))
        heapq.heappush(sleepers, mine)
        try:
            await asyncio.sleep(0)
            while sleepers[0] is not mine or _is_busy(loop, len(sleepers)):  # noqa: ASYNC110 - nobody signals the passing of virtual time.
                await asyncio.sleep(0)
            with self._lock:
                self._now = max(self._now, mine[0])
        finally:
            sleepers.remove(mine)
            heapq.heapify(sleepers)
            if not sleepers:
                del self._sleepers[loop]


def _is_busy(loop: asyncio.AbstractEventLoop, sleepers: int) -> bool:
    """Say whether tasks other than the sleepers, each of which is ready at every turn, have something to do right now."""
    # The loop keeps what is ready under a private name; without it, the sleeper goes after one turn of the others.
    return len(getattr(loop, "_ready", ())) >= sleepers


@contextmanager
def virtual_time(*, seed: int = 0, clock: VirtualClock | None = None) -> Generator[VirtualClock]:
    """Put a virtual clock, seeded chance and fresh breakers under every guard called in this context.

    It holds for this thread, or this task and the tasks it starts; nothing else in the process is touched.
    """
    virtual = clock or VirtualClock()
    token = CURRENT.set(Runtime(virtual, random.Random(seed), Breakers(virtual)))  # noqa: S311 - seeded on purpose.
    try:
        yield virtual
    finally:
        CURRENT.reset(token)
