# SPDX-License-Identifier: Apache-2.0
"""What a program holds in its hand: a connection to a store, to submit jobs, look at them, and work on them.

The face is sync; inside, a worker runs on an event loop of its own. Everything is durable when the method returns.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Final, Self, cast

from redrive.config import database_url
from redrive.core.checks import seconds, whole
from redrive.engine.clock import fresh_name
from redrive.engine.leases import Heart, Leases
from redrive.engine.pipeline import Pipeline
from redrive.engine.runtime import CURRENT
from redrive.engine.threads import Threads
from redrive.engine.worker import Worker
from redrive.errors import ConfigurationError, JobNotFoundError, SerializationError
from redrive.store.protocol import JobId, LaneId, NewJob, Store
from redrive.store.sqlite import SqliteStore

DEFAULT_PATH: Final = "redrive.db"
PAYLOAD_MAX: Final = 16 * 1024 * 1024
"""Bytes of one payload; larger things belong into an object store, with their address in the payload."""
BATCH: Final = 1_000
"""Jobs per transaction when many are submitted."""


def connect(url: str | os.PathLike[str] | None = None) -> Redrive:
    """Open a store: a path, `sqlite:///relative.db` or `sqlite:////absolute.db`.

    Without an address it is `REDRIVE_DATABASE_URL`, or else `redrive.db` in the present folder.
    """
    return Redrive(SqliteStore(_path_of(str(url or database_url() or DEFAULT_PATH))))


@dataclass(frozen=True, slots=True)
class Job:
    """One job, as it was when this was read."""

    id: int
    pipeline: str
    stage: str
    status: str
    attempt: int
    error_code: str | None
    error_message: str | None
    is_twin: bool = False
    """True when `submit` found a job with the same key instead of making one."""


class Redrive:
    """A connection to a store. Close it, or use it in a `with` block."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lanes: dict[str, list[LaneId]] = {}

    def __enter__(self) -> Self:
        """Return the connection itself."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def submit(
        self,
        pipeline: Pipeline,
        payload: object,
        *,
        key: str | None = None,
        run_at: datetime | None = None,
        priority: int = 5,
        owner: str | None = None,
    ) -> Job:
        """Store one job; durable when it returns.

        With a `key`, a job of this pipeline that has it and is queued, processing or complete is returned instead. `run_at` is the
        earliest time to start, `priority` 0 goes first and 9 last.
        """
        new = self._new_job(pipeline, payload, key=key, run_at=run_at, priority=priority, owner=owner)
        (made,) = self._store.submit([new], self._now())
        return replace(self.job(made.id), is_twin=made.is_twin)

    def submit_many(self, pipeline: Pipeline, payloads: Iterable[object]) -> list[int]:
        """Store many jobs, a thousand per transaction; return their ids in order."""
        ids: list[int] = []
        batch: list[NewJob] = []
        for payload in payloads:
            batch.append(self._new_job(pipeline, payload))
            if len(batch) >= BATCH:
                ids += self._flush(batch)
        return ids + self._flush(batch)

    def job(self, job_id: int) -> Job:
        """Return a job as it is now; raises JobNotFoundError."""
        row = self._store.job(JobId(job_id))
        if row is None:
            raise JobNotFoundError(job_id=job_id)
        return Job(*cast("tuple[int, str, str, str, int, str | None, str | None]", row))

    def counts(self) -> dict[str, int]:
        """Count all jobs by status."""
        counted: dict[str, int] = {}
        for count in self._store.counts():
            counted[count.status] = counted.get(count.status, 0) + count.jobs
        return counted

    def work(
        self,
        pipelines: Sequence[Pipeline],
        *,
        concurrency: int = 64,
        lease: float = 30.0,
        until_idle: bool = False,
    ) -> None:
        """Work on the jobs of these pipelines until interrupted, or until nothing is queued any more."""
        whole("work(concurrency)", concurrency, minimum=1, fix="64 is the default.")
        seconds("work(lease)", lease, above=True)
        if _is_on_a_loop():
            raise ConfigurationError(
                field="work",
                value="a running event loop",
                rule="blocks, and cannot be called from async code",
                fix="Write: await asyncio.to_thread(rd.work, [pipeline]).",
            )
        asyncio.run(self._work(pipelines, concurrency=concurrency, lease=lease, until_idle=until_idle))

    async def _work(
        self, pipelines: Sequence[Pipeline], *, concurrency: int, lease: float, until_idle: bool
    ) -> None:
        threads = Threads(concurrency)
        worker = Worker(
            self._store,
            pipelines,
            names=_names(),
            concurrency=concurrency,
            lease=lease,
            ask_store=threads.ask_store,
            run_stage=threads.run_stage,
        )
        leases = Leases(self._store, CURRENT.get().clock, lease=lease, on_dead=worker.declared_dead)
        heart = Heart(leases, lambda: worker.name, lease=lease)
        heart.start()
        _stop_on_signals(worker)
        try:
            await worker.run(until_idle=until_idle)
        finally:
            heart.stop()
            threads.close()

    def _flush(self, batch: list[NewJob]) -> list[int]:
        made = [int(one.id) for one in self._store.submit(batch, self._now())] if batch else []
        batch.clear()
        return made

    def _new_job(
        self,
        pipeline: Pipeline,
        payload: object,
        *,
        key: str | None = None,
        run_at: datetime | None = None,
        priority: int = 5,
        owner: str | None = None,
    ) -> NewJob:
        codec = pipeline.stages[0].input
        encoded = codec.encode(payload)
        codec.check(encoded)
        if len(encoded) > PAYLOAD_MAX:
            raise SerializationError(
                where=f"{pipeline.name} (payload)",
                kind=f"{len(encoded)} bytes",
                problem=f"the limit is {PAYLOAD_MAX} bytes",
            )
        if isinstance(priority, bool) or priority not in range(10):
            raise ConfigurationError(
                field="priority",
                value=priority,
                rule="must be a whole number from 0 to 9",
                fix="0 goes first.",
            )
        if run_at is not None and run_at.tzinfo is None:
            raise ConfigurationError(
                field="run_at",
                value=run_at,
                rule="must carry its time zone",
                fix="datetime.now(UTC) + timedelta(...).",
            )
        due = self._now() if run_at is None else run_at.timestamp()
        lane = self._lanes_of(pipeline)[0]
        return NewJob(lane=lane, payload=encoded, run_at=due, priority=priority, key=key, owner=owner)

    def _lanes_of(self, pipeline: Pipeline) -> list[LaneId]:
        names = [stage.name for stage in pipeline.stages]
        if pipeline.name not in self._lanes:
            self._lanes[pipeline.name] = self._store.lanes(pipeline.name, names)
        return self._lanes[pipeline.name]

    def _now(self) -> float:
        return CURRENT.get().clock.wall()


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _stop_on_signals(worker: Worker) -> None:
    """Let SIGTERM and SIGINT end the work politely: what runs is settled, nothing more is claimed."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Only the main thread may do this, and not every platform can; elsewhere whoever owns the thread stops the work.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, worker.stop)


def _names() -> Iterator[str]:
    """Name a worker anew for every life: a name that came back would let a dead life speak for a living one."""
    while True:
        yield fresh_name("worker")


def _path_of(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    if scheme != "sqlite" or not rest.startswith("/") or not rest[1:]:
        raise ConfigurationError(
            field="connect(url)",
            value=f"{scheme}://...",
            rule="must be a path, sqlite:///relative.db or sqlite:////absolute.db",
            fix="The embedded store is the only one there is yet.",
        )
    return rest[1:]
