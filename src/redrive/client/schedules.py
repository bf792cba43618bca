# SPDX-License-Identifier: Apache-2.0
"""Schedules for a program: the same use cases as `redrive schedule`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Unpack

from redrive.client.awaited import AsyncFace, Face, awaited
from redrive.client.options import ActorOptions, actor_of
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.retention import Retention
from redrive.ops import schedules
from redrive.ops.schedules import ScheduleOptions
from redrive.ops.upkeep.prune import schedule_prune
from redrive.store.statements.runs import Schedule


class Schedules(Face):
    """The schedules of a store."""

    def add(
        self,
        name: str,
        pipeline: Pipeline,
        payload: object,
        *,
        cron: str,
        zone: str = "UTC",
        priority: int = 5,
        **by: Unpack[ActorOptions],
    ) -> None:
        """Add a schedule, or change the one with this name: a job at every tick of a cron expression in a time zone."""
        options = ScheduleOptions(cron=cron, zone=zone, priority=priority)
        schedules.put(self._store, name, pipeline, payload, actor_of(by), options=options)

    def prune(
        self,
        name: str,
        *,
        cron: str,
        zone: str = "UTC",
        complete: timedelta | float | None = None,
        cancelled: timedelta | float | None = None,
        skipped: timedelta | float | None = None,
        failed: timedelta | float | None = None,
        runs: timedelta | float | None = None,
        **by: Unpack[ActorOptions],
    ) -> None:
        """Add a schedule by which workers delete what ended long ago, or change the one with this name.

        Each kind is kept for its age after its end; a kind without an age is kept forever. `failed` is failed jobs with their dead
        letters, `runs` the runs alone: what is left of their jobs stays.
        """
        retention = Retention(
            complete=complete, cancelled=cancelled, skipped=skipped, failed=failed, runs=runs
        )
        schedule_prune(self._store, name, retention, actor_of(by), cron=cron, zone=zone)

    def drop(self, name: str, **by: Unpack[ActorOptions]) -> bool:
        """Remove a schedule; return whether there was one."""
        return schedules.drop(self._store, name, actor_of(by))

    def list(self) -> Sequence[Schedule]:
        """Return every schedule, by name."""
        return schedules.schedules(self._store)


class AsyncSchedules(AsyncFace[Schedules]):
    """The schedules of a store, for async code; see `Schedules`."""

    add = awaited(Schedules.add)
    prune = awaited(Schedules.prune)
    drop = awaited(Schedules.drop)
    list = awaited(Schedules.list)
