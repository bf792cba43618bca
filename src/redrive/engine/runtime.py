# SPDX-License-Identifier: Apache-2.0
"""What a guard runs on: a clock, a source of chance, and the breakers of this process.

The runtime is a context variable rather than a switch for the whole process: `redrive.testing` puts a virtual one in place for
one test, and neither other tests nor other tasks notice.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from redrive.engine.clock import SYSTEM_CHANCE, SYSTEM_CLOCK, Chance, Clock
from redrive.engine.guard.breakers import Breakers


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """Clock, chance and breakers that belong together."""

    clock: Clock
    chance: Chance
    breakers: Breakers

    def as_instant(self, monotonic: float) -> datetime:
        """Return a point on the monotonic clock as an aware UTC instant."""
        return datetime.fromtimestamp(self.clock.wall() + monotonic - self.clock.monotonic(), UTC)


SYSTEM: Final = Runtime(SYSTEM_CLOCK, SYSTEM_CHANCE, Breakers(SYSTEM_CLOCK))

CURRENT: Final[ContextVar[Runtime]] = ContextVar("redrive_runtime", default=SYSTEM)
