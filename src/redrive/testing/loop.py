# SPDX-License-Identifier: Apache-2.0
"""An event loop on a virtual clock: timers fire in order, without waiting, as soon as nothing else is ready.

The loop still waits for real work. While a thread or a process that it started runs, time is real; while a socket is open, the
clock stands still until all sockets have been silent for a moment.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from redrive.testing.clock import VirtualClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SILENT_SECONDS: Final = 1.0
"""How long, on the machine's clock, open sockets must be silent before the virtual clock moves."""
OWN_FILES: Final = 1
"""The loop itself registers one file, by which threads wake it."""


class _Selector(selectors.DefaultSelector):
    """Advances the virtual clock instead of blocking."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.threads = 0
        self.processes: list[asyncio.SubprocessTransport] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(min(timeout, self._patience()))
        if not found:
            self._clock.advance(timeout)
        return found

    def _patience(self) -> float:
        self.processes = [each for each in self.processes if each.get_returncode() is None]
        if self.threads or self.processes:
            return float("inf")
        return SILENT_SECONDS if len(self.get_map()) > OWN_FILES else 0.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that uses a virtual clock."""

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

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        """Start a program; virtual time does not jump over it."""
        return self._started(await super().subprocess_exec(*args, **kwargs))

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> Any:
        """Start a command line; virtual time does not jump over it."""
        return self._started(await super().subprocess_shell(*args, **kwargs))

    def _started(self, made: tuple[asyncio.SubprocessTransport, T]) -> tuple[asyncio.SubprocessTransport, T]:
        self._waiting.processes.append(made[0])
        return made

    def _returned(self, _running: asyncio.Future[T]) -> None:
        self._waiting.threads -= 1
