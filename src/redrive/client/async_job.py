# SPDX-License-Identifier: Apache-2.0
"""A handle on one job for async code: what `Job` offers, to await. Questions to the store go to a thread."""

from __future__ import annotations

import asyncio

from redrive.core.arguments import seconds
from redrive.engine.job import ENDED, LOOK_FIRST, LOOK_MOST, Job, JobFacts
from redrive.engine.runtime import CURRENT
from redrive.errors import WaitTimeoutError


class AsyncJob:
    """A handle on one job, to await."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.id = job.id
        self.is_duplicate = job.is_duplicate

    def __repr__(self) -> str:
        """Show the id; everything else would have to be asked for."""
        return f"AsyncJob({self.id})"

    async def facts(self) -> JobFacts:
        """Return the job as it is now."""
        return await asyncio.to_thread(lambda: self._job.facts)

    async def status(self) -> str:
        """Return queued, processing, complete, failed or cancelled."""
        return (await self.facts()).status

    async def wait(self, timeout: float | None = None) -> str:  # noqa: ASYNC109 - the same arguments as the sync handle's.
        """Wait until the job has ended and return its status; raises WaitTimeoutError."""
        clock = CURRENT.get().clock
        limit = None if timeout is None else seconds("wait(timeout)", timeout)
        end_at = None if limit is None else clock.monotonic() + limit
        pause = LOOK_FIRST
        # No thread is kept while it waits: many may wait at once.
        while (status := await self.status()) not in ENDED:
            if end_at is not None and clock.monotonic() >= end_at:
                raise WaitTimeoutError(job_id=self.id, status=status, timeout=limit or 0.0)
            await clock.asleep(pause)
            pause = min(2 * pause, LOOK_MOST)
        return status

    async def result(self, timeout: float | None = None) -> object:  # noqa: ASYNC109 - the same arguments as the sync handle's.
        """Wait for the job and return what its last stage returned; raises as `Job.result` does."""
        await self.wait(timeout)
        return await asyncio.to_thread(self._job.result, 0)

    async def attempts(self) -> list[dict[str, object]]:
        """Return every attempt of this job; see `Job.attempts`."""
        return await asyncio.to_thread(self._job.attempts)

    async def events(self) -> list[dict[str, object]]:
        """Return every arrow this job has gone along; see `Job.events`."""
        return await asyncio.to_thread(self._job.events)
