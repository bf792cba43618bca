# SPDX-License-Identifier: Apache-2.0
"""Storing jobs for a connection: in a transaction of redrive's own, or in one of the caller's.

Where a pipeline begins is looked up once for each connection. Nothing is run here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Unpack

from redrive.engine.pipeline.pipeline import Pipeline, PipelineRef, check_pipeline
from redrive.engine.pipeline.submission import BulkSubmission, JobOptions, ManyOptions, job_maker, new_job
from redrive.engine.replay.rules import record_entry, recorded
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError
from redrive.ops.pipelines import recorded_stages
from redrive.store.protocol import Store
from redrive.store.records import LaneId, NewJob, SubmittedJob


class Submissions:
    """Stores jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lanes: dict[tuple[str, tuple[str, ...]], LaneId] = {}

    def new(
        self,
        pipeline: PipelineRef[Any, Any],
        payload: object,
        connection: object | None,
        **options: Unpack[JobOptions],
    ) -> NewJob:
        """Return one job to store."""
        lane = self._first_lane(pipeline, is_joined=connection is not None)
        return new_job(pipeline, payload, lane=lane, **options)

    def bulk(
        self,
        pipeline: PipelineRef[Any, Any],
        connection: object | None,
        *,
        key: Callable[[object], str | None] | None,
        run: int | None,
        **options: Unpack[ManyOptions],
    ) -> BulkSubmission:
        """Return what stores many jobs."""
        if connection is not None and run is not None:
            raise ConfigurationError(
                field="submit_many(run)",
                value=run,
                rule="cannot be combined with connection: items of a run are counted in transactions of redrive's own",
                fix="Leave one of the two out.",
            )
        lane = self._first_lane(pipeline, is_joined=connection is not None)
        make = job_maker(pipeline, lane=lane, **options)
        store = functools.partial(self.stored, connection=connection)
        return BulkSubmission(self._store, pipeline, make, key=key, run=run, store_jobs=store)

    def stored(self, jobs: list[NewJob], connection: object | None) -> list[SubmittedJob]:
        """Store jobs; with a connection, in its transaction."""
        if connection is None:
            return self._store.submit(jobs, _now())
        return self._store.callers.submit(connection, jobs, _now())

    async def stored_async(self, jobs: list[NewJob], connection: object) -> list[SubmittedJob]:
        """Store jobs in the transaction of an async connection."""
        return await self._store.callers.submit_async(connection, jobs, _now())

    def _first_lane(self, pipeline: PipelineRef[Any, Any], *, is_joined: bool) -> LaneId:
        if isinstance(pipeline, Pipeline):
            names = tuple(stage.name for stage in pipeline.stages)
        else:
            names = recorded_stages(self._store, checked_ref("pipeline", pipeline))
        known = self._lanes.get((pipeline.name, names))
        if known is None:
            if is_joined and self._store.callers.is_exclusive:
                self._refuse_new(pipeline.name)
            if isinstance(pipeline, Pipeline):
                record_entry(self._store, pipeline)
            known = self._lanes[pipeline.name, names] = self._store.lanes(pipeline.name, names)[0]
        return known

    def _refuse_new(self, pipeline: str) -> None:
        """Refuse to make a pipeline known while the caller's transaction may be the only one that can write."""
        if not recorded(self._store, pipeline).stages:
            raise ConfigurationError(
                field="connection",
                value=pipeline,
                rule="cannot take the first job of a pipeline that is new to the database: it may be the only one that can write",
                fix="Start a worker for it first, or submit its first job without connection=.",
            )


def checked_ref(field: str, value: PipelineRef[Any, Any]) -> PipelineRef[Any, Any]:
    """Return a pipeline or a reference to one; refuse anything else."""
    return value if isinstance(value, PipelineRef) else check_pipeline(field, value)


def _now() -> float:
    return CURRENT.get().clock.wall()
