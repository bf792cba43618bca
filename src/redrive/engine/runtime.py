# SPDX-License-Identifier: Apache-2.0
"""The runtime: the clock and the random numbers that everything here uses, and the breakers of the guards of this process.

The runtime is a context variable, not a process-wide switch: `redrive.testing` sets a virtual one for one test, without effect on
other tests and tasks.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from redrive.core.units import instant
from redrive.engine.clock import SYSTEM_CHANCE, SYSTEM_CLOCK, Chance, Clock
from redrive.engine.guard.breakers import Breakers


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """A clock, a source of random numbers and the breakers that use them."""

    clock: Clock
    chance: Chance
    breakers: Breakers

    def as_instant(self, monotonic: float) -> datetime:
        """Return a point on the monotonic clock as an aware UTC instant."""
        return instant(self.clock.wall() + monotonic - self.clock.monotonic())


SYSTEM: Final = Runtime(SYSTEM_CLOCK, SYSTEM_CHANCE, Breakers(SYSTEM_CLOCK))

CURRENT: Final[ContextVar[Runtime]] = ContextVar("redrive_runtime", default=SYSTEM)
