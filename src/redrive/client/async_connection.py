# SPDX-License-Identifier: Apache-2.0
"""The connection for async code: the methods of `Redrive`, to await.

Questions to the store go to a thread, so that the loop never waits for a disk; workers and runs live on the caller's own loop.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast

from redrive.client.awaited import AsyncFace, awaited
from redrive.client.breakers import AsyncBreakers
from redrive.client.connection import BATCH, Redrive
from redrive.client.events import AsyncEvents
from redrive.client.job import AsyncJob, Out, job_of
from redrive.client.jobs import AsyncJobs
from redrive.client.letters import AsyncLetters
from redrive.client.limits import AsyncLimits
from redrive.client.pipelines import AsyncPipelines
from redrive.client.replays import AsyncReplays
from redrive.client.reports import AsyncReports
from redrive.client.runs import AsyncRuns
from redrive.client.schedules import AsyncSchedules
from redrive.client.submissions import Submissions
from redrive.engine.pipeline.pipeline import PipelineRef
from redrive.engine.pipeline.submission import JobOptions, ManyOptions
from redrive.engine.worker.service import Options

In = TypeVar("In")
P = ParamSpec("P")
T = TypeVar("T")


class _OnLoop(Redrive):
    """Returns what starts a worker instead: its loop and its signals are the caller's."""

    def _drive(self, _method: str, how: Options, start: Callable[[Options], Coroutine[Any, Any, T]], /) -> T:
        return cast("T", functools.partial(start, replace(how, takes_signals=False)))


def _driven(
    method: Callable[Concatenate[Redrive, P], T],
) -> Callable[Concatenate[AsyncRedrive, P], Coroutine[None, None, T]]:
    """Return a method that drives a worker as one to await, on the loop of the caller."""

    @functools.wraps(method)
    async def call(on: AsyncRedrive, /, *args: P.args, **kwargs: P.kwargs) -> T:
        start = await asyncio.to_thread(method, _OnLoop(on.face.store), *args, **kwargs)
        return await cast("Callable[[], Coroutine[Any, Any, T]]", start)()

    return call


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
        new = await asyncio.to_thread(lambda: self._submissions.new(pipeline, payload, connection, **options))
        (made,) = await self._submissions.stored_async([new], connection)
        return AsyncJob(job_of(self.face.store, made.id, pipeline, is_duplicate=made.is_duplicate))

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
        batches = bulk.batches(payloads, BATCH)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            bulk.stored(await self._submissions.stored_async(batch, connection))
        return bulk.ids

    doctor = awaited(Redrive.doctor)
    prune = awaited(Redrive.prune)

    async def job(self, job_id: int, pipeline: PipelineRef[Any, Out] | None = None) -> AsyncJob[Out]:
        """Return a handle on a job; with its pipeline, its result has the type of that. Raises JobNotFoundError."""
        return AsyncJob(await asyncio.to_thread(self.face.job, job_id, pipeline))

    work = _driven(Redrive.work)
    run = _driven(Redrive.run)
