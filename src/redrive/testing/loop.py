# SPDX-License-Identifier: Apache-2.0
"""An event loop on a virtual clock: timers fire in order as soon as nothing else is left to do, and nobody waits for them.

Real work is still waited for. While a thread that the loop started is at work, time is as real as the thread; while a socket or
pipe is open, the clock stands still until it has been silent for a moment. It never runs slower than the machine's own clock.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from redrive.testing.clock import VirtualClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SILENT_SECONDS: Final = 0.25
"""How long, on the machine's clock, open sockets and pipes must be silent before the virtual clock moves."""
OWN_FILES: Final = 1
"""The loop itself registers one file, by which threads wake it."""


class _Selector(selectors.DefaultSelector):
    """Lets virtual time pass where a plain selector would block."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(min(timeout, self._patience()))
        if not found:
            self._clock.advance(timeout)
        return found

    def _patience(self) -> float:
        if self.threads:
            return float("inf")
        return SILENT_SECONDS if len(self.get_map()) > OWN_FILES else 0.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is that of a virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._waiting = _Selector(clock)
        super().__init__(self._waiting)

    def time(self) -> float:
        """Return virtual monotonic seconds."""
        return self.clock.monotonic()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function on a thread; virtual time does not jump over it."""
        running = super().run_in_executor(executor, func, *args)
        self._waiting.threads += 1
        running.add_done_callback(self._returned)
        return running

    def _returned(self, _running: asyncio.Future[T]) -> None:
        self._waiting.threads -= 1
