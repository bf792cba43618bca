# SPDX-License-Identifier: Apache-2.0
"""Handles on one job, for sync and for async code: its present state, waiting for it, and its result.

A handle holds nothing but the id; whatever it returns was read from the store just then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack, cast

from redrive.client.awaited import AsyncFace, awaited
from redrive.client.options import ActorOptions, actor_of
from redrive.core.arguments import seconds
from redrive.engine.pipeline.codec import Codec, codec_for
from redrive.engine.pipeline.pipeline import Pipeline, PipelineRef
from redrive.engine.runtime import CURRENT
from redrive.errors import WaitTimeoutError
from redrive.ops.jobs.cancel import ENDED, cancel_job
from redrive.ops.jobs.explain import Explanation, explain
from redrive.ops.jobs.facts import Attempt, job_attempts, job_events, job_facts
from redrive.ops.jobs.inspect import children_of
from redrive.ops.jobs.retry import retry_job
from redrive.ops.jobs.values import stored_result
from redrive.ops.pipelines import workers
from redrive.store.protocol import Store
from redrive.store.statements.jobs import JobEvent, JobFacts

logger = logging.getLogger("redrive.client")

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    Out = DefaultTypeVar("Out", default=object)
    Out_co = DefaultTypeVar("Out_co", covariant=True, default=object)
else:
    Out = TypeVar("Out")
    Out_co = TypeVar("Out_co", covariant=True)

LOOK_FIRST: Final = 0.002
LOOK_MOST: Final = 0.1
"""Between two looks at a job that is waited for, in seconds; each pause is twice the last."""
UNSERVED_SECONDS: Final = 5.0
"""After so long, and twice as long each time, a caller that waits learns that no worker serves the pipeline."""


class _Waiting:
    """How one caller waits for a job: until when, how long between two looks, and when to warn."""

    def __init__(self, job_id: int, timeout: float | None) -> None:
        self.clock = CURRENT.get().clock
        self._job_id = job_id
        self._limit = None if timeout is None else seconds("wait(timeout)", timeout)
        self._started_at = self.clock.monotonic()
        self._pause = LOOK_FIRST / 2
        self._long = UNSERVED_SECONDS

    def pause_after(self, status: str) -> float:
        """Return how long to pause before the next look; raises WaitTimeoutError when the time is up."""
        if self._limit is not None and self._waited() >= self._limit:
            raise WaitTimeoutError(job_id=self._job_id, status=status, timeout=self._limit)
        self._pause = min(2 * self._pause, LOOK_MOST)
        return self._pause

    def is_long(self) -> bool:
        """Return whether to warn now; the next time is after twice as long."""
        if self._waited() < self._long:
            return False
        self._long *= 2
        return True

    def _waited(self) -> float:
        return self.clock.monotonic() - self._started_at


class Job(Generic[Out_co]):
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
        """queued, processing, complete, failed, cancelled or skipped."""
        return self.facts.status

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the job has ended and return its status; raises WaitTimeoutError.

        Without a worker that serves the pipeline it may wait for ever: that is logged, after some seconds and then ever less often.
        """
        waiting = _Waiting(self.id, timeout)
        while (status := self.status) not in ENDED:
            pause = waiting.pause_after(status)
            if waiting.is_long():
                self.warn_if_unserved()
            waiting.clock.sleep(pause)
        return status

    def warn_if_unserved(self) -> None:
        """Log a warning if the job is queued and no live worker serves its pipeline."""
        facts = self.facts
        if facts.status == "queued" and not any(
            worker.is_live and facts.pipeline in worker.pipelines for worker in workers(self._store)
        ):
            logger.warning(
                "job %s waits in %s, and no worker serves that pipeline: start one with `redrive worker MODULE:PIPELINE`"
                " or rd.work([pipeline])",
                self.id,
                facts.pipeline,
            )

    def result(self, timeout: float | None = None) -> Out_co:
        """Wait for the job and return what its last stage returned.

        Raises:
            JobFailedError: it failed; the error carries its code.
            JobCancelledError: it was cancelled.
            JobSkippedError: a stage skipped it; the error carries the reason.
            JobErasedError: it completed, and its values were erased since.
            WaitTimeoutError: it has not ended within `timeout` seconds.
        """
        self.wait(timeout)
        return cast("Out_co", self._output.check(stored_result(self._store, self.facts)))

    def cancel(self, **by: Unpack[ActorOptions]) -> str:
        """Cancel the job, at once while it is queued; a running one is asked to end, as its stage allows. Return its status."""
        return cancel_job(self._store, self.id, actor_of(by)).status

    def retry(
        self,
        *,
        from_start: bool = False,
        owner: str | None = None,
        pipelines: Iterable[Pipeline] = (),
        **by: Unpack[ActorOptions],
    ) -> str:
        """Send the failed job back to the stage that failed, under the rules of a replay; return its status."""
        return retry_job(
            self._store, self.id, actor_of(by), from_start=from_start, owner=owner, pipelines=pipelines
        ).status

    def explain(self) -> Explanation:
        """Explain the state of the job, in sentences and in parts."""
        return explain(self._store, self.id)

    def children(self) -> list[Job]:
        """Return the jobs that stages of this one have submitted, in order."""
        return [Job(self._store, child) for child in children_of(self._store, self.id)]

    def attempts(self) -> list[Attempt]:
        """Return every attempt of this job, in order, with its outcome and the reason."""
        return job_attempts(self._store, self.id)

    def events(self) -> list[JobEvent]:
        """Return every transition of this job, in order: queued, processing, retry, hold, checkpoint, complete, failed, skipped."""
        return job_events(self._store, self.id)


class AsyncJob(AsyncFace[Job[Out_co]], Generic[Out_co]):
    """A handle on one job for async code; it reads as `Job` does, with `await`: `await job.status`, `await job.result()`."""

    def __init__(self, face: Job[Out_co]) -> None:
        super().__init__(face)
        self.id = face.id
        self.is_duplicate = face.is_duplicate
        """True when `submit` found a job with the same key instead of making one."""

    def __repr__(self) -> str:
        """Show the id; everything else would have to be read."""
        return f"AsyncJob({self.id})"

    @property
    def facts(self) -> Coroutine[None, None, JobFacts]:
        """The job as it is now, to await; raises JobNotFoundError."""
        return asyncio.to_thread(lambda: self.face.facts)

    @property
    def status(self) -> Coroutine[None, None, str]:
        """queued, processing, complete, failed, cancelled or skipped; to await."""
        return asyncio.to_thread(lambda: self.face.status)

    async def wait(self, timeout: float | None = None) -> str:  # noqa: ASYNC109 - the same arguments as the sync handle's.
        """Wait until the job has ended and return its status; see `Job.wait`."""
        waiting = _Waiting(self.id, timeout)
        # No thread is kept while it waits: many may wait at once.
        while (status := await self.status) not in ENDED:
            pause = waiting.pause_after(status)
            if waiting.is_long():
                await asyncio.to_thread(self.face.warn_if_unserved)
            await waiting.clock.asleep(pause)
        return status

    async def result(self, timeout: float | None = None) -> Out_co:  # noqa: ASYNC109 - the same arguments as the sync handle's.
        """Wait for the job and return what its last stage returned; raises as `Job.result` does."""
        await self.wait(timeout)
        return await asyncio.to_thread(self.face.result, 0)

    async def children(self) -> list[AsyncJob]:
        """Return the jobs that stages of this one have submitted, in order."""
        return [AsyncJob(child) for child in await asyncio.to_thread(self.face.children)]

    cancel = awaited(Job.cancel)
    retry = awaited(Job.retry)
    explain = awaited(Job.explain)
    attempts = awaited(Job.attempts)
    events = awaited(Job.events)


def job_of(
    store: Store, job_id: int, pipeline: PipelineRef[Any, Out] | None, *, is_duplicate: bool = False
) -> Job[Out]:
    """Return a handle on a job of a pipeline; its result has the type of that, if its code is here."""
    output = pipeline.stages[-1].output if isinstance(pipeline, Pipeline) else None
    return Job(store, job_id, is_duplicate=is_duplicate, output=output)
