# SPDX-License-Identifier: Apache-2.0
"""The connection for async code: the methods of `Redrive`, to await.

Questions to the store go to a thread, so that the loop never waits for a disk; workers and runs live on the caller's own loop.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from redrive.client.connection import Redrive, check_run, run_options, work_options
from redrive.client.job import AsyncJob
from redrive.client.letters import AsyncDeadLetters
from redrive.client.replays import AsyncReplays
from redrive.client.reports import AsyncReports
from redrive.client.runs import AsyncRuns
from redrive.client.schedules import AsyncSchedules
from redrive.core.budget import FailureBudget, RunThresholds
from redrive.engine.pipeline.pipeline import Pipeline, check_pipelines
from redrive.engine.runs.driver import drive_run
from redrive.engine.runs.runs import OnProgress, RunReport
from redrive.engine.worker.service import serve
from redrive.engine.worker.worker import Ending


class AsyncRedrive:
    """A connection to a store for async code; `async with redrive.connect(...)` gives one."""

    def __init__(self, inner: Redrive) -> None:
        self._inner = inner
        self.reports = AsyncReports(inner.reports)
        """Why one job is where it is, and what the attempts of many add up to."""

    async def submit(
        self,
        pipeline: Pipeline,
        payload: object,
        *,
        key: str | None = None,
        run_at: datetime | None = None,
        priority: int = 5,
        owner: str | None = None,
        expires_at: datetime | None = None,
    ) -> AsyncJob:
        """Store one job; see `Redrive.submit`."""
        submit = functools.partial(
            self._inner.submit, key=key, run_at=run_at, priority=priority, owner=owner, expires_at=expires_at
        )
        return AsyncJob(await asyncio.to_thread(submit, pipeline, payload))

    async def submit_many(
        self,
        pipeline: Pipeline,
        payloads: Iterable[object],
        *,
        run: int | None = None,
        key: Callable[[object], str | None] | None = None,
        run_at: datetime | None = None,
        priority: int = 5,
        owner: str | None = None,
        expires_at: datetime | None = None,
    ) -> list[int]:
        """Store many jobs; see `Redrive.submit_many`. The payloads are read, and their keys made, on a thread."""
        submit = functools.partial(
            self._inner.submit_many,
            run=run,
            key=key,
            run_at=run_at,
            priority=priority,
            owner=owner,
            expires_at=expires_at,
        )
        return await asyncio.to_thread(submit, pipeline, payloads)

    async def job(self, job_id: int) -> AsyncJob:
        """Return a handle on a job; raises JobNotFoundError."""
        return AsyncJob(await asyncio.to_thread(self._inner.job, job_id))

    async def cancel(self, job_id: int, *, reason: str | None = None, actor: str = "api") -> str:
        """Cancel a job; see `Redrive.cancel`."""
        return await asyncio.to_thread(self._inner.cancel, job_id, reason=reason, actor=actor)

    async def counts(self) -> dict[str, int]:
        """Count all jobs by status."""
        return await asyncio.to_thread(self._inner.counts)

    async def work(
        self,
        pipelines: Sequence[Pipeline],
        *,
        concurrency: int = 64,
        lease: float = 30.0,
        until_idle: bool = False,
        hold_max: timedelta | float = 0.0,
        health: tuple[str, int] | None = None,
    ) -> Ending:
        """Work on the caller's own loop; see `Redrive.work`. Cancel it to stop: what is running is given back."""
        pipelines = check_pipelines("work(pipelines)", pipelines)
        options = replace(
            work_options(concurrency, lease, until_idle=until_idle, hold_max=hold_max, health=health),
            takes_signals=False,
        )
        return await serve(self._inner.store, pipelines, options)

    async def run(
        self,
        pipeline: Pipeline,
        items: Iterable[object] | AsyncIterable[object] | None,
        *,
        concurrency: int = 64,
        failure_budget: FailureBudget | float | None = 0.10,
        thresholds: RunThresholds | Mapping[str, float] | None = None,
        hold_max: timedelta | float = 3_600.0,
        resume: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> RunReport:
        """Send every item through a pipeline; see `Redrive.run`."""
        options = run_options(failure_budget, thresholds, hold_max)
        check_run(pipeline, () if items is None and resume is not None else items)
        how = replace(
            work_options(concurrency, 30.0, until_idle=False, hold_max=0.0, health=None), takes_signals=False
        )
        return await drive_run(
            self._inner.store,
            pipeline,
            items=items,
            options=options,
            how=how,
            resume=resume,
            on_progress=on_progress,
        )

    @property
    def runs(self) -> AsyncRuns:
        """What is known about runs."""
        return AsyncRuns(self._inner.runs)

    @property
    def schedules(self) -> AsyncSchedules:
        """Jobs that are submitted again and again by the clock."""
        return AsyncSchedules(self._inner.schedules)

    @property
    def dead_letters(self) -> AsyncDeadLetters:
        """What failed for good: look at it, judge it, mend it."""
        return AsyncDeadLetters(self._inner.dead_letters)

    @property
    def replays(self) -> AsyncReplays:
        """The way back for what failed: one job, or many in a replay."""
        return AsyncReplays(self._inner.replays)
