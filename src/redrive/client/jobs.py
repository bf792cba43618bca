# SPDX-License-Identifier: Apache-2.0
"""Jobs for a program: the same use cases as `redrive job`.

Nothing is decided here: each method calls one function of `ops`. A handle on one job is in `client.job`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Unpack

from redrive.client.awaited import AsyncFace, Face, awaited
from redrive.client.job import AsyncJob, Job
from redrive.client.options import ActorOptions, actor_of
from redrive.core.failure import Failure
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.ops.jobs import inspect
from redrive.ops.jobs.bury import bury
from redrive.ops.jobs.cancel import cancel_job
from redrive.ops.jobs.erase import ErasureReport, erase, free_key
from redrive.ops.jobs.explain import Explanation, explain
from redrive.ops.jobs.facts import jobs_of_owner
from redrive.ops.jobs.inspect import JobDetails, JobFilter
from redrive.ops.jobs.retry import retry_job
from redrive.ops.jobs.timeline import TimelineEntry, timeline
from redrive.ops.jobs.values import Part, read_value
from redrive.store.statements.jobs import JobFacts, JobLine


class JobView(Face):
    """What is known about the jobs of a store."""

    def list(
        self,
        *,
        status: str | None = None,
        pipeline: str | None = None,
        stage: str | None = None,
        run: int | None = None,
        owner: str | None = None,
        key: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[JobLine]:
        """Return jobs, newest first; the id of the last one is the `before` of the next page."""
        which = JobFilter(status=status, pipeline=pipeline, stage=stage, run=run, owner=owner, key=key)
        return inspect.list_jobs(self._store, which, before=before, limit=limit)

    def of_owner(
        self, owner: str, pipeline: str, *, before: int | None = None, limit: int = 50
    ) -> Sequence[JobFacts]:
        """Return the jobs of an owner in a pipeline, newest first, in full; `before` as for `list`."""
        return jobs_of_owner(self._store, owner, pipeline, before=before, limit=limit)

    def find(self, pipeline: Pipeline | str, key: str) -> Job | None:
        """Return the job with this key: the one that holds it, or else the newest that failed, was cancelled or was skipped."""
        name = pipeline if isinstance(pipeline, str) else pipeline.name
        found = inspect.find_job(self._store, name, key)
        return None if found is None else Job(self._store, found)

    def show(self, job: int) -> JobDetails:
        """Return everything that is known about a job."""
        return inspect.job_details(self._store, job)

    def explain(self, job: int) -> Explanation:
        """Explain the state of a job, in sentences and in parts."""
        return explain(self._store, job)

    def timeline(self, job: int) -> Sequence[TimelineEntry]:
        """Return what happened to a job and what people did about it, in order."""
        return timeline(self._store, job)

    def counts(self, *, pipeline: str | None = None) -> dict[str, int]:
        """Count jobs by status, of all pipelines or of one; reads counters, and is cheap however many jobs there are."""
        counted: dict[str, int] = {}
        for (name, _), found in inspect.counts(self._store).items():
            if pipeline in {None, name}:
                for status, jobs in found.items():
                    counted[status] = counted.get(status, 0) + jobs
        return counted


class Jobs(JobView):
    """The jobs of a store. Methods about one job raise JobNotFoundError, whose hint names ids that are near."""

    def bury(
        self, pipeline: Pipeline, payload: object, failure: Failure, *, owner: str | None = None
    ) -> JobFacts:
        """Store a job that failed before it could be queued, with its dead letter; return its facts.

        `failure` is what `redrive.classify` returned, under the codes of the pipeline.
        """
        return bury(self._store, pipeline, payload, failure, owner=owner)

    def free_key(self, job: int, **by: Unpack[ActorOptions]) -> bool:
        """Free the key of a complete job whose effect is gone: its work can be submitted anew. Return whether it had one."""
        return free_key(self._store, job, actor_of(by))

    def value(self, job: int, *, part: Part, **by: Unpack[ActorOptions]) -> bytes:
        """Return the payload or the result of a job as JSON, not redacted; who read it, and why, is logged.

        Raises JobErasedError when its values were erased; a job without a result raises as `Job.result` does.
        """
        return read_value(self._store, job, part, actor_of(by))

    def cancel(self, job: int, **by: Unpack[ActorOptions]) -> JobFacts:
        """Cancel a job: at once while it is queued; a running one is asked to end, as its stage allows. Return its facts then."""
        return cancel_job(self._store, job, actor_of(by))

    def retry(
        self,
        job: int,
        *,
        from_start: bool = False,
        owner: str | None = None,
        pipelines: Iterable[Pipeline] = (),
        **by: Unpack[ActorOptions],
    ) -> JobFacts:
        """Send a failed job back to the stage that failed, under the rules of a replay; return its new facts.

        `owner` acts for somebody who may touch only their own jobs. With the code of its pipeline in `pipelines`, the value it
        starts with is checked against the present types first.
        """
        return retry_job(
            self._store, job, actor_of(by), from_start=from_start, owner=owner, pipelines=pipelines
        )

    def erase(self, job: int, **by: Unpack[ActorOptions]) -> ErasureReport:
        """Erase the values of a job that has ended; the record stays, and it can never be replayed."""
        return erase(self._store, job, actor_of(by))


class AsyncJobs(AsyncFace[Jobs]):
    """Jobs for async code; see `Jobs`."""

    list = awaited(Jobs.list)
    of_owner = awaited(Jobs.of_owner)
    value = awaited(Jobs.value)
    bury = awaited(Jobs.bury)
    free_key = awaited(Jobs.free_key)

    async def find(self, pipeline: Pipeline | str, key: str) -> AsyncJob | None:
        """Return the job with this key; see `Jobs.find`."""
        found = await asyncio.to_thread(self.face.find, pipeline, key)
        return None if found is None else AsyncJob(found)

    show = awaited(Jobs.show)
    explain = awaited(Jobs.explain)
    timeline = awaited(Jobs.timeline)
    cancel = awaited(Jobs.cancel)
    retry = awaited(Jobs.retry)
    erase = awaited(Jobs.erase)
    counts = awaited(Jobs.counts)
