# SPDX-License-Identifier: Apache-2.0
"""Time and chance, as things that are passed in.

This is the one module that reads the machine's clocks and draws random numbers. Everything else gets a `Clock` and a `Chance`,
so that a test (or the simulator) can put virtual ones in their place and nothing ever waits for real.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from datetime import UTC, datetime
from typing import Final, Protocol, cast

LATEST: Final = 253402300799.0
"""The last second that a calendar can show; a job of a paused run is due later than that."""


class Clock(Protocol):
    """Where the time comes from, and how to let it pass."""

    def wall(self) -> float:
        """Return seconds since the epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        ...

    async def asleep(self, seconds: float) -> None:
        """Suspend this task."""
        ...


class Chance(Protocol):
    """Where chance comes from; `random.Random` is one."""

    def random(self) -> float:
        """Return a draw in [0, 1)."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    wall = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        """Block this thread for this long."""
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """Suspend this task for this long."""
        await asyncio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def fresh_name(kind: str) -> str:
    """Return a name that nobody had before, such as `worker-1f0c9a2b7d3e`."""
    return f"{kind}-{secrets.token_hex(6)}"


_GENERATOR = random.Random()  # noqa: S311 - jitter, not cryptography.
SYSTEM_CHANCE: Chance = _GENERATOR
if hasattr(os, "register_at_fork"):
    # Forked workers would otherwise all draw the same jitter and come back together.
    os.register_at_fork(after_in_child=_GENERATOR.seed)


def instant(at: object) -> datetime:
    """Return seconds since the epoch as an aware datetime; what no calendar can show becomes the last it can."""
    return datetime.fromtimestamp(min(cast("float", at), LATEST), UTC)
