# SPDX-License-Identifier: Apache-2.0
"""Clocks and random numbers, to be passed as arguments.

Only this module reads the system clocks and draws random numbers. Everything else gets a `Clock` and a `Chance`, so that a test or
the simulator can pass virtual ones and nothing waits in real time.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from typing import Any, Protocol


class Clock(Protocol):
    """A source of time, and a way to wait."""

    def wall(self) -> float:
        """Return seconds since the epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never goes back."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Block this thread."""
        ...

    async def asleep(self, seconds: float, /) -> None:
        """Suspend this task."""
        ...


class Chance(Protocol):
    """A source of random numbers; `random.Random` is one."""

    def random(self) -> float:
        """Return a draw in [0, 1)."""
        ...


class SystemClock:
    """The system's clocks."""

    __slots__ = ()

    wall = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    # Looked up at each call: tests and gevent replace them after this was imported.
    def sleep(self, seconds: float, /) -> None:
        """Block this thread for this long."""
        time.sleep(seconds)

    async def asleep(self, seconds: float, /) -> None:
        """Suspend this task for this long."""
        await asyncio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


async def wait_for(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Wait until an event is set, for so many seconds at most."""
    waits = (asyncio.ensure_future(clock.asleep(seconds)), asyncio.ensure_future(event.wait()))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(*waits)


async def cancel_all(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks, and wait until they have ended; what they raise is dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def fresh_name(kind: str) -> str:
    """Return a new unique name, such as `worker-1f0c9a2b7d3e`."""
    return f"{kind}-{secrets.token_hex(6)}"


def fresh_secret() -> bytes:
    """Return 32 random bytes that nobody can guess."""
    return secrets.token_bytes(32)


_GENERATOR = random.Random()  # noqa: S311 - jitter, not cryptography.
SYSTEM_CHANCE: Chance = _GENERATOR
if hasattr(os, "register_at_fork"):
    # Otherwise forked workers would all draw the same jitter and retry together.
    os.register_at_fork(after_in_child=_GENERATOR.seed)
