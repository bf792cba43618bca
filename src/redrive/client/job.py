# SPDX-License-Identifier: Apache-2.0
"""Handles on one job, for sync and for async code: its present state, waiting for it, and its result.

A handle holds nothing but the id; whatever it returns was read from the store just then.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Concatenate, Final, ParamSpec, TypeVar, cast

from redrive.client.awaited import AsyncFace
from redrive.core.arguments import seconds
from redrive.engine.pipeline.codec import Codec, codec_for
from redrive.engine.runtime import CURRENT
from redrive.errors import JobCancelledError, JobErasedError, JobFailedError, WaitTimeoutError
from redrive.ops.jobs.facts import JobFacts, job_attempts, job_events, job_facts
from redrive.store.protocol import Store

F = TypeVar("F")
P = ParamSpec("P")

LOOK_FIRST: Final = 0.002
LOOK_MOST: Final = 0.1
"""Between two looks at a job that is waited for, in seconds; each pause is twice the last."""
ENDED: Final = frozenset({"complete", "failed", "cancelled"})


class Job:
    """A handle on one job; reads the store whenever it is asked."""

    def __init__(
        self, store: Store, job_id: int, *, is_duplicate: bool = False, output: Codec | None = None
    ) -> None:
        self._store = store
        self._output = output or codec_for("result", None)
        self.id = job_id
        self.is_duplicate = is_duplicate
        """True when `submit` found a job with the same key instead of making one."""

    def __repr__(self) -> str:
        """Show the id; everything else would have to be read."""
        return f"Job({self.id})"

    @property
    def facts(self) -> JobFacts:
        """The job as it is now; raises JobNotFoundError."""
        return job_facts(self._store, self.id)

    @property
    def status(self) -> str:
        """queued, processing, complete, failed or cancelled."""
        return self.facts.status

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the job has ended and return its status; raises WaitTimeoutError."""
        clock = CURRENT.get().clock
        limit = None if timeout is None else seconds("wait(timeout)", timeout)
        end_at = None if limit is None else clock.monotonic() + limit
        pause = LOOK_FIRST
        while (status := self.status) not in ENDED:
            if end_at is not None and clock.monotonic() >= end_at:
                raise WaitTimeoutError(job_id=self.id, status=status, timeout=limit or 0.0)
            clock.sleep(pause)
            pause = min(2 * pause, LOOK_MOST)
        return status

    def result(self, timeout: float | None = None) -> object:
        """Wait for the job and return what its last stage returned.

        Raises:
            JobFailedError: it failed; the error carries its code.
            JobCancelledError: it was cancelled.
            JobErasedError: it completed, and its values were erased since.
            WaitTimeoutError: it has not ended within `timeout` seconds.
        """
        status = self.wait(timeout)
        if status == "failed":
            facts = self.facts
            raise JobFailedError(
                job_id=self.id, error_code=facts.error_code or "", message=facts.error_message or ""
            )
        if status == "cancelled":
            raise JobCancelledError(job_id=self.id)
        result = cast("bytes | None", self._store.query("result", self.id)[0][1])
        if result is None:
            raise JobErasedError(job_id=self.id)
        return self._output.check(result)

    def attempts(self) -> list[dict[str, object]]:
        """Return every attempt of this job, in order, with its outcome and the reason."""
        return job_attempts(self._store, self.id)

    def events(self) -> list[dict[str, object]]:
        """Return every transition of this job, in order: queued, processing, retry, hold, checkpoint, complete, failed."""
        return job_events(self._store, self.id)


class AsyncJob:
    """A handle on one job, to await."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.id = job.id
        self.is_duplicate = job.is_duplicate

    def __repr__(self) -> str:
        """Show the id; everything else would have to be read."""
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
        """Return every transition of this job; see `Job.events`."""
        return await asyncio.to_thread(self._job.events)


def awaited_job(
    method: Callable[Concatenate[F, P], Job],
) -> Callable[Concatenate[AsyncFace[F], P], Coroutine[None, None, AsyncJob]]:
    """Return a method of a sync face that returns a job as one to await, with the same signature and docstring."""

    @functools.wraps(method)
    async def call(on: AsyncFace[F], /, *args: P.args, **kwargs: P.kwargs) -> AsyncJob:
        return AsyncJob(await asyncio.to_thread(method, on.face, *args, **kwargs))

    return call
