# SPDX-License-Identifier: Apache-2.0
"""Keeps several worker processes running: one that dies is restarted, each time after a longer delay.

It passes signals on and waits: on the first SIGTERM or SIGINT the workers settle what runs, on the second they release it. If the
supervisor itself is killed, the workers notice by a closed pipe and end. It knows nothing about jobs; leases protect those.
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
from redrive.engine.clock import wait_for
from redrive.engine.runtime import CURRENT

logger = logging.getLogger("redrive.supervisor")

BACKOFF_FIRST: Final = 0.5
BACKOFF_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""After running this long, earlier deaths no longer count."""
DEATHS_MAX: Final = 5
"""Consecutive deaths after which a worker with --until-idle is not restarted."""


class Supervisor:
    """Keeps processes of one command running."""

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
        """Run until a signal stops them or all have ended; return the worst of their exit codes."""
        return asyncio.run(self._run())

    async def _run(self) -> int:
        self._stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        # Nothing is ever written: the workers wait for the other end to be closed.
        lifeline, kept = os.pipe()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._keep(place, lifeline)) for place in range(self._processes)]
        finally:
            os.close(lifeline)
            os.close(kept)
        return worst([task.result() for task in tasks])

    def stop(self) -> None:
        """Ask every worker to end; the second time, at once."""
        self._stopped.set()
        for process in self._running:
            _terminate(process)

    async def _keep(self, place: int, lifeline: int) -> int:
        clock = CURRENT.get().clock
        deaths = 0
        while True:
            started_at = clock.monotonic()
            code = await self._live(place, lifeline)
            if self._stopped.is_set():
                # Stopped before it installed its signal handler: it had no leases yet.
                return DONE if code == -signal.SIGTERM else code
            if self._is_ending and code in {DONE, HELD}:
                return code
            if code == WRONG:
                # Wrong arguments would be wrong again.
                self.stop()
                return code
            deaths = 1 if clock.monotonic() - started_at >= STEADY_SECONDS else deaths + 1
            if self._is_ending and deaths >= DEATHS_MAX:
                logger.error("worker %s died %s times in a row and is not restarted", place, deaths)
                return code
            delay = min(BACKOFF_MAX, BACKOFF_FIRST * 2.0 ** (deaths - 1))
            logger.warning("worker %s ended with exit code %s and is restarted in %g s", place, code, delay)
            await wait_for(self._stopped, clock, delay)
            if self._stopped.is_set():
                return FAILED

    async def _live(self, place: int, lifeline: int) -> int:
        command = [*self._command, "--lifeline", str(lifeline)]
        if self._health_port is not None:
            command += ["--health-port", str(self._health_port + place)]
        # In its own session: Ctrl-C reaches only the supervisor, which passes it on once instead of twice.
        process = await asyncio.create_subprocess_exec(*command, pass_fds=(lifeline,), start_new_session=True)
        self._running.add(process)
        if self._stopped.is_set():
            _terminate(process)
        try:
            return await process.wait()
        finally:
            self._running.discard(process)


def _terminate(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end. Its own `send_signal` would poll it, and so take its exit code away from the loop."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)


def worst(codes: Sequence[int]) -> int:
    """Return the most severe exit code: failed, then wrong arguments, then held, then done."""
    known = [code if code in {DONE, FAILED, WRONG, HELD} else FAILED for code in codes]
    return next((code for code in (FAILED, WRONG, HELD) if code in known), DONE)
