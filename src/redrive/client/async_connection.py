# SPDX-License-Identifier: Apache-2.0
"""The connection for async code: the methods of `Redrive`, to await.

Questions to the store go to a thread, so that the loop never waits for a disk; workers and runs live on the caller's own loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, Unpack, overload

from msgspec import UNSET, UnsetType

from redrive.client.awaited import AsyncFace, awaited
from redrive.client.breakers import AsyncBreakers
from redrive.client.connection import BATCH, Redrive, check_run, run_options, work_options
from redrive.client.events import AsyncEvents
from redrive.client.job import AsyncJob, job_of
from redrive.client.jobs import AsyncJobs
from redrive.client.letters import AsyncLetters
from redrive.client.limits import AsyncLimits
from redrive.client.pipelines import AsyncPipelines
from redrive.client.replays import AsyncReplays
from redrive.client.reports import AsyncReports
from redrive.client.runs import AsyncRuns
from redrive.client.schedules import AsyncSchedules
from redrive.client.submissions import JobOptions, ManyOptions, Submissions
from redrive.core.budget import FailureBudget, RunThresholds
from redrive.engine.pipeline.pipeline import Pipeline, check_pipelines
from redrive.engine.pipeline.reference import PipelineRef
from redrive.engine.runs.driver import drive_run
from redrive.engine.runs.runs import OnProgress, RunReport
from redrive.engine.worker.service import StopSignal, serve
from redrive.engine.worker.worker import Ending

In = TypeVar("In")
Out = TypeVar("Out")


class AsyncRedrive(AsyncFace[Redrive]):
    """A connection to a store for async code; `async with redrive.connect(...)` returns one."""

    def __init__(self, face: Redrive) -> None:
        super().__init__(face)
        self._submissions = Submissions(face.store)
        self.jobs = AsyncJobs(face.jobs)
        """Jobs: list, explain, cancel, retry and erase them."""
        self.letters = AsyncLetters(face.letters)
        """Dead letters: list, triage, edit, export and import them."""
        self.replays = AsyncReplays(face.replays)
        """Replays of many dead letters."""
        self.runs = AsyncRuns(face.runs)
        """Runs: reports and options."""
        self.schedules = AsyncSchedules(face.schedules)
        """Schedules: jobs that are submitted by the clock."""
        self.pipelines = AsyncPipelines(face.pipelines)
        """Pipelines: list, pause and resume them."""
        self.breakers = AsyncBreakers(face.breakers)
        """Breakers: list, open, close and isolate them."""
        self.limits = AsyncLimits(face.limits)
        """Limits: list, set, pause and resume them."""
        self.events = AsyncEvents(face.events)
        """What happened to jobs and breakers, and what operators did."""
        self.reports = AsyncReports(face.reports)
        """Reports: many jobs summed up."""

    async def submit(
        self,
        pipeline: PipelineRef[In, Out],
        payload: In,
        *,
        connection: object | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncJob[Out]:
        """Store one job; see `Redrive.submit`. A `connection` is an async one, of this loop."""
        if connection is None:
            return AsyncJob(await asyncio.to_thread(lambda: self.face.submit(pipeline, payload, **options)))
        made = await self._submissions.submit_async(pipeline, payload, connection, **options)
        return AsyncJob(job_of(self.face.store, pipeline, made))

    async def submit_many(
        self,
        pipeline: PipelineRef[In],
        payloads: Iterable[In],
        *,
        run: int | None = None,
        key: Callable[[object], str | None] | None = None,
        connection: object | None = None,
        **options: Unpack[ManyOptions],
    ) -> list[int]:
        """Store many jobs; see `Redrive.submit_many`. A `connection` is an async one, of this loop."""
        if connection is None:
            return await asyncio.to_thread(
                lambda: self.face.submit_many(pipeline, payloads, run=run, key=key, **options)
            )
        bulk = await asyncio.to_thread(
            lambda: self._submissions.bulk(pipeline, connection, key=key, run=run, **options)
        )
        return await self._submissions.submit_many_async(bulk, payloads, connection, BATCH)

    doctor = awaited(Redrive.doctor)
    prune = awaited(Redrive.prune)

    @overload
    async def job(self, job_id: int) -> AsyncJob[object]: ...
    @overload
    async def job(self, job_id: int, pipeline: PipelineRef[Any, Out]) -> AsyncJob[Out]: ...

    async def job(self, job_id: int, pipeline: PipelineRef[Any, Out] | None = None) -> AsyncJob[Out]:
        """Return a handle on a job; with its pipeline, its result has the type of that. Raises JobNotFoundError."""
        return AsyncJob(await asyncio.to_thread(self.face.job, job_id, pipeline))

    async def work(
        self,
        pipelines: Sequence[Pipeline],
        *,
        concurrency: int = 64,
        lease: float = 30.0,
        until_idle: bool = False,
        hold_max: timedelta | float = 0.0,
        health: tuple[str, int] | None = None,
        stop: StopSignal | None = None,
    ) -> Ending:
        """Work on the caller's own loop; see `Redrive.work`.

        `stop` ends it when what runs is settled; cancelling it releases leased jobs at once.
        """
        pipelines = check_pipelines("work(pipelines)", pipelines)
        options = replace(
            work_options(
                concurrency, lease, until_idle=until_idle, hold_max=hold_max, health=health, stop=stop
            ),
            takes_signals=False,
        )
        return await serve(self.face.store, pipelines, options)

    async def run(
        self,
        pipeline: Pipeline,
        items: Iterable[object] | AsyncIterable[object] | None,
        *,
        concurrency: int = 64,
        lease: float = 30.0,
        failure_budget: FailureBudget | float | UnsetType | None = UNSET,
        thresholds: RunThresholds | Mapping[str, float] | None = None,
        hold_max: timedelta | float | None = None,
        serve: Sequence[Pipeline] = (),
        resume: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> RunReport:
        """Send every item through a pipeline; see `Redrive.run`."""
        options = await asyncio.to_thread(
            run_options, self.face.store, resume, failure_budget, thresholds, hold_max
        )
        check_run(pipeline, () if items is None and resume is not None else items)
        also = check_pipelines("run(serve)", (pipeline, *serve))[1:]
        how = replace(
            work_options(concurrency, lease, until_idle=False, hold_max=0.0, health=None), takes_signals=False
        )
        return await drive_run(
            self.face.store,
            pipeline,
            items=items,
            options=options,
            how=how,
            also=also,
            resume=resume,
            on_progress=on_progress,
        )
