# SPDX-License-Identifier: Apache-2.0
"""The connection of a program to a store: submit jobs, inspect them, and work on them.

The methods are sync; a worker runs on an event loop of its own. Everything is durable when the method returns. In async code,
`async with redrive.connect(...)` gives the same methods to await.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, cast

import msgspec
from msgspec import UNSET, UnsetType

from redrive.client.breakers import Breakers
from redrive.client.events import Events
from redrive.client.job import Job, Out, job_of
from redrive.client.jobs import Jobs
from redrive.client.letters import Letters
from redrive.client.limits import Limits
from redrive.client.options import ActorOptions, actor_of
from redrive.client.pipelines import Pipelines
from redrive.client.replays import Replays
from redrive.client.reports import Reports
from redrive.client.runs import Runs
from redrive.client.schedules import Schedules
from redrive.client.submissions import Submissions, checked_ref
from redrive.core.arguments import seconds, whole
from redrive.core.budget import FailureBudget, RunThresholds
from redrive.engine.pipeline.pipeline import Pipeline, PipelineRef, check_pipeline, check_pipelines
from redrive.engine.retention import Retention
from redrive.engine.runs.driver import drive_run
from redrive.engine.runs.runs import OnProgress, RunOptions, RunReport
from redrive.engine.worker.health import check_address
from redrive.engine.worker.service import Options, StopSignal, serve
from redrive.engine.worker.worker import Ending
from redrive.errors import ConfigurationError
from redrive.ops.checkup.doctor import examine
from redrive.ops.checkup.file import Limits as CheckupLimits
from redrive.ops.checkup.findings import Finding
from redrive.ops.upkeep.location import database_of
from redrive.ops.upkeep.prune import prune
from redrive.store.location import open_store
from redrive.store.protocol import Store

if TYPE_CHECKING:
    from redrive.client.async_connection import AsyncRedrive

In = TypeVar("In")
T = TypeVar("T")

BATCH: Final = 1_000
"""Jobs per transaction when many are submitted."""


def connect(url: str | os.PathLike[str] | None = None) -> Redrive:
    """Open a store: a path, `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/name`.

    Without an address it is `REDRIVE_DATABASE_URL`, `database_url` in `redrive.toml` or in `[tool.redrive]` of `pyproject.toml`, or
    else `redrive.db`, all of the present folder. Use it in a `with` block, or in an `async with` block for the same methods to
    await. A file that is not there, or empty, becomes a new database; one of another
    schema version is left as it is.

    Raises:
        SchemaMismatchError: the database is older (`redrive migrate` brings it up to date) or newer than this redrive.
        StoreRefusedError: the file is another program's database.
    """
    address = os.fspath(url) if isinstance(url, str | os.PathLike) else url
    if address is not None and not isinstance(address, str):
        raise ConfigurationError(
            field="connect(url)",
            value=url,
            rule="must be a path or an address",
            fix='connect("jobs.db"), for example.',
        )
    return Redrive(open_store(database_of(address)))


class Redrive:
    """A connection to a store. Close it, or use it in a `with` block."""

    def __init__(self, store: Store) -> None:
        self.store = store
        """The store behind it."""
        self.jobs = Jobs(store)
        """Jobs: list, explain, cancel, retry and erase them."""
        self.letters = Letters(store)
        """Dead letters: list, triage, edit, export and import them."""
        self.replays = Replays(store)
        """Replays of many dead letters."""
        self.runs = Runs(store)
        """Runs: open, report, pause, resume, cancel and label them."""
        self.schedules = Schedules(store)
        """Schedules: jobs that are submitted by the clock."""
        self.pipelines = Pipelines(store)
        """Pipelines: list, pause and resume them."""
        self.breakers = Breakers(store)
        """Breakers: list, open, close and isolate them."""
        self.limits = Limits(store)
        """Limits: list, set, pause and resume them."""
        self.events = Events(store)
        """What happened to jobs and breakers, and what operators did."""
        self.reports = Reports(store)
        """Reports: many jobs summed up."""
        self._submissions = Submissions(store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> AsyncRedrive:
        """Return the connection with methods to await."""
        from redrive.client.async_connection import AsyncRedrive

        return AsyncRedrive(self)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def submit(
        self,
        pipeline: PipelineRef[In, Out],
        payload: In,
        *,
        key: str | None = None,
        run_at: datetime | None = None,
        delay: timedelta | float | None = None,
        priority: int = 5,
        owner: str | None = None,
        expires_at: datetime | None = None,
        connection: object | None = None,
    ) -> Job[Out]:
        """Store one job; durable when it returns.

        With a `key`, a job of this pipeline that has it and is queued, processing or complete is returned instead. `run_at` is the
        earliest time to start, or `delay` the time until then; `priority` 0 goes first and 9 last; a job that is not started by
        `expires_at` becomes a dead letter. With a `connection` of yours to the same database (psycopg, asyncpg, SQLAlchemy, Django,
        sqlite3) the job is stored in its transaction: it exists if and only if that commits.
        """
        new = self._submissions.new(
            pipeline,
            payload,
            connection,
            key=key,
            run_at=run_at,
            delay=delay,
            priority=priority,
            owner=owner,
            expires_at=expires_at,
        )
        (made,) = self._submissions.stored([new], connection)
        return job_of(self.store, made.id, pipeline, is_duplicate=made.is_duplicate)

    def submit_many(
        self,
        pipeline: PipelineRef[In],
        payloads: Iterable[In],
        *,
        run: int | None = None,
        key: Callable[[object], str | None] | None = None,
        run_at: datetime | None = None,
        delay: timedelta | float | None = None,
        priority: int = 5,
        owner: str | None = None,
        expires_at: datetime | None = None,
        connection: object | None = None,
    ) -> list[int]:
        """Store many jobs, a thousand per transaction; return their ids in order.

        `key` makes a job's key of its payload; if a job has that key already, its id is returned and no job is made. With
        `run`, the jobs are the next items of that run. Each thousand is checked whole before it is stored, and stays stored
        whatever comes after it. With a `connection` of yours, all are stored in its transaction; see `submit`.

        Raises:
            SerializationError: a payload does not fit; `index` is its place and `stored` has the ids of the jobs before it.
            RunError: the run has ended, is another pipeline's, or its source is not read to its end.
        """
        bulk = self._submissions.bulk(
            pipeline,
            connection,
            key=key,
            run=run,
            run_at=run_at,
            delay=delay,
            priority=priority,
            owner=owner,
            expires_at=expires_at,
        )
        return bulk.submit(payloads, BATCH)

    def job(self, job_id: int, pipeline: PipelineRef[Any, Out] | None = None) -> Job[Out]:
        """Return a handle on a job; with its pipeline, its result has the type of that. Raises JobNotFoundError."""
        job = job_of(self.store, job_id, pipeline)
        facts = job.facts
        if pipeline is not None and facts.pipeline != checked_ref("pipeline", pipeline).name:
            raise ConfigurationError(
                field="pipeline",
                value=pipeline.name,
                rule=f"is not the one of job {job_id}, {facts.pipeline}",
                fix="Name that one, or none.",
            )
        return job

    def work(
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
        """Work on the jobs of these pipelines until interrupted, or until nothing is queued any more.

        `until_idle` returns "idle" when nothing is left, and "held" when all that is left has been held for `hold_max` seconds: by
        an open breaker, or because it was paused; or when jobs are queued in a stage that a pipeline no longer has. `health` is an
        address for supervisors to ask. `stop`, an event or a function that returns whether to stop, ends a worker on a thread of
        your own: it claims nothing more, and returns when what runs is settled. To await it works on the loop of the caller:
        cancelling it releases leased jobs at once.
        """
        pipelines = check_pipelines("work(pipelines)", pipelines)
        options = work_options(
            concurrency, lease, until_idle=until_idle, hold_max=hold_max, health=health, stop=stop
        )
        return self._drive("work", options, lambda how: serve(self.store, pipelines, how))

    def run(
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
        """Send every item through a pipeline, in this process, and return the account of it.

        A run that fails more than its budget (0.10; None for no limit) stops itself. One that was interrupted or paused continues
        with `resume=` and the same source; or with None in its place, if that was read to its end. It keeps its budget and limits,
        unless others are given. `hold_max` ends a run, resumable, whose rest has been held for so long (an hour). `thresholds` are
        the success rates from which it counts as `completed` (0.95) and as `partial_success` (0.50), by these names. After a crash,
        another process takes over the items that were in a stage when `lease` seconds have passed. `serve` are further pipelines to
        work on meanwhile, those of children that stages submit; the run waits for the children that join it.

        Raises:
            FailureBudgetExceededError: too much failed; its `report` accounts for every item.
            RunError: the run cannot be resumed like this.
        """
        options = _run_options(self.store, resume, failure_budget, thresholds, hold_max)
        check_pipeline("run(pipeline)", pipeline)
        is_rest = items is None and resume is not None
        if not is_rest and not isinstance(items, Iterable | AsyncIterable):
            raise ConfigurationError(
                field="run(items)",
                value=items,
                rule="must be something to iterate over",
                fix="Pass a list, a generator or an async generator of payloads.",
            )
        also = check_pipelines("run(serve)", (pipeline, *serve))[1:]
        return self._drive(
            "run",
            work_options(concurrency, lease, until_idle=False, hold_max=0.0, health=None),
            lambda how: drive_run(
                self.store,
                pipeline,
                items=items,
                options=options,
                how=how,
                also=also,
                resume=resume,
                on_progress=on_progress,
            ),
        )

    def _drive(self, method: str, how: Options, start: Callable[[Options], Coroutine[Any, Any, T]], /) -> T:
        """Run a worker to its end, on a loop of its own."""
        _refuse_on_a_loop(method)
        return asyncio.run(start(how))

    def prune(
        self,
        *,
        complete: timedelta | float | None = None,
        cancelled: timedelta | float | None = None,
        skipped: timedelta | float | None = None,
        failed: timedelta | float | None = None,
        runs: timedelta | float | None = None,
        **by: Unpack[ActorOptions],
    ) -> dict[str, int]:
        """Delete now what ended so long ago, by kind; return how many of each. `rd.schedules.prune` lets workers do it.

        Failed jobs are deleted with their dead letters; jobs with notices that were not delivered yet are kept.
        """
        retention = Retention(
            complete=complete, cancelled=cancelled, skipped=skipped, failed=failed, runs=runs
        )
        return prune(self.store, retention, actor_of(by))

    def doctor(
        self, *pipelines: Pipeline, deep: bool = False, limits: CheckupLimits | None = None
    ) -> Sequence[Finding]:
        """Check the database, its schema, clock, disk, workers, leases and breakers, and advise what to do; changes nothing.

        With the code of pipelines, that is compared as well. `deep` reads everything.
        """
        return examine(self.store, known=pipelines, is_deep=deep, limits=limits)


def work_options(
    concurrency: int,
    lease: float,
    *,
    until_idle: bool,
    hold_max: timedelta | float,
    health: tuple[str, int] | None,
    stop: StopSignal | None = None,
) -> Options:
    """Return the options of a worker; raises ConfigurationError."""
    return Options(
        concurrency=whole("work(concurrency)", concurrency, minimum=1, fix="64 is the default."),
        lease=seconds("work(lease)", lease, above=True),
        until_idle=until_idle,
        hold_max=seconds("work(hold_max)", hold_max),
        health=None if health is None else check_address("health", health),
        stop=None if stop is None else _is_asked(stop),
    )


def _is_asked(stop: StopSignal) -> Callable[[], bool]:
    """Return the function that returns whether to stop; refuse what is neither an event nor a function."""
    asked: object = getattr(stop, "is_set", stop)
    if not callable(asked):
        raise ConfigurationError(
            field="work(stop)",
            value=stop,
            rule="must be an event, or a function that returns whether to stop",
            fix="threading.Event() is one.",
        )
    return cast("Callable[[], bool]", asked)


def _run_options(
    store: Store,
    resume: int | None,
    budget: FailureBudget | float | UnsetType | None,
    thresholds: RunThresholds | Mapping[str, float] | None,
    hold_max: timedelta | float | None,
) -> RunOptions:
    """Return the options of a run; what is not given is as before, or for a new run the default. Raises ConfigurationError."""
    changes: dict[str, object] = {}
    if not isinstance(budget, UnsetType):
        if budget is not None and not isinstance(budget, FailureBudget):
            budget = FailureBudget(max_rate=budget)
        changes["budget"] = budget
    if thresholds is not None:
        changes["thresholds"] = RunThresholds.of("thresholds", thresholds)
    if hold_max is not None:
        changes["hold_max"] = seconds("run(hold_max)", hold_max)
    before = RunOptions(budget=FailureBudget()) if resume is None else Runs(store).options(resume)
    return msgspec.structs.replace(before, **changes)


def _refuse_on_a_loop(method: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        field=method,
        value="a running event loop",
        rule="blocks, and cannot be called from async code",
        fix=f"Write: await rd.{method}(...) inside `async with redrive.connect(...)`.",
    )
