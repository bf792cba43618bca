# SPDX-License-Identifier: Apache-2.0
"""Several workers in processes of their own, kept up: one that dies is started again, each time a little later.

It passes signals on and waits: a first SIGTERM or SIGINT lets the workers settle what runs, a second one makes them let go. If the
supervisor itself is killed, the workers notice by a pipe and end. It knows nothing of jobs; leases take care of those.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from redrive.cli.output.errors import DONE, FAILED, HELD, WRONG
from redrive.engine.runtime import CURRENT

logger = logging.getLogger("redrive.supervisor")

BACKOFF_FIRST: Final = 0.5
BACKOFF_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A worker that ran for so long starts with a clean slate."""
DEATHS_MAX: Final = 5
"""How often in a row a worker that should end by itself may die before it is given up."""


class Supervisor:
    """Keeps some processes of one command up."""

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        *,
        is_ending: bool,
        health_port: int | None = None,
    ) -> None:
        self._command = list(command)
        self._processes = processes
        self._is_ending = is_ending
        self._health_port = health_port
        self._running: set[asyncio.subprocess.Process] = set()

    def run(self) -> int:
        """Keep them up until told to stop, or all have ended by themselves; return the worst of their exit codes."""
        return asyncio.run(self._run())

    async def _run(self) -> int:
        self._stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        # Nobody ever writes: that the other end is closed is what the workers wait for.
        lifeline, kept = os.pipe()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._keep(place, lifeline)) for place in range(self._processes)]
        finally:
            os.close(lifeline)
            os.close(kept)
        return worst([task.result() for task in tasks])

    def stop(self) -> None:
        """Tell every worker to end; the second time, at once."""
        self._stopped.set()
        for process in self._running:
            _tell(process)

    async def _keep(self, place: int, lifeline: int) -> int:
        clock = CURRENT.get().clock
        deaths = 0
        while True:
            started_at = clock.monotonic()
            code = await self._live(place, lifeline)
            if self._stopped.is_set():
                # One that was told to stop before it could listen held nothing yet.
                return DONE if code == -signal.SIGTERM else code
            if self._is_ending and code in {DONE, HELD}:
                return code
            if code == WRONG:
                # What it was told to do is wrong; it would be so again.
                self.stop()
                return code
            deaths = 1 if clock.monotonic() - started_at >= STEADY_SECONDS else deaths + 1
            if self._is_ending and deaths >= DEATHS_MAX:
                logger.error("worker %s died %s times in a row and is given up", place, deaths)
                return code
            delay = min(BACKOFF_MAX, BACKOFF_FIRST * 2.0 ** (deaths - 1))
            logger.warning("worker %s ended with %s and is started again in %g s", place, code, delay)
            await self._wait(delay)
            if self._stopped.is_set():
                return FAILED

    async def _live(self, place: int, lifeline: int) -> int:
        """Start one process and wait for its end."""
        command = [*self._command, "--lifeline", str(lifeline)]
        if self._health_port is not None:
            command += ["--health-port", str(self._health_port + place)]
        # A session of its own: Ctrl-C reaches the supervisor alone, which passes it on once instead of twice.
        process = await asyncio.create_subprocess_exec(*command, pass_fds=(lifeline,), start_new_session=True)
        self._running.add(process)
        if self._stopped.is_set():
            _tell(process)
        try:
            return await process.wait()
        finally:
            self._running.discard(process)

    async def _wait(self, delay: float) -> None:
        stopped = asyncio.ensure_future(self._stopped.wait())
        napping = asyncio.ensure_future(CURRENT.get().clock.asleep(delay))
        await asyncio.wait({stopped, napping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, napping):
            task.cancel()


def _tell(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end. Its own `send_signal` would look whether it has ended, and so take its exit code away from the loop."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)


def worst(codes: Sequence[int]) -> int:
    """Return the exit code that says most: failed before called wrongly, before held, before done."""
    known = [code if code in {DONE, FAILED, WRONG, HELD} else FAILED for code in codes]
    return next((code for code in (FAILED, WRONG, HELD) if code in known), DONE)
