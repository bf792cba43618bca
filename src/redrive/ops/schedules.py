# SPDX-License-Identifier: Apache-2.0
"""Schedules: add, change, drop and list them. Every change is in the operator log, in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import cast

from redrive.engine.clock import instant
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.stage import check_name
from redrive.engine.pipeline.submission import new_job
from redrive.engine.runtime import CURRENT
from redrive.engine.schedules import next_tick
from redrive.ops.audit import Actor
from redrive.store.protocol import Store
from redrive.store.records import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions:
    """When a schedule submits a job, and how urgent the job is."""

    cron: str
    zone: str = "UTC"
    priority: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The current state of a schedule."""

    name: str
    pipeline: str
    cron: str
    zone: str
    next_at: datetime
    last_at: datetime | None


def put(
    store: Store, name: str, pipeline: Pipeline, payload: object, by: Actor, *, options: ScheduleOptions
) -> None:
    """Add a schedule, or change the one with this name; one that is the same already is left alone, and nothing is logged."""
    check_name("schedule(name)", name)
    encoded = new_job(pipeline, payload, priority=options.priority).payload
    first = next_tick(options.cron, options.zone, CURRENT.get().clock.wall())
    lane = store.lanes(pipeline.name, [stage.name for stage in pipeline.stages])[0]
    wanted = (lane, options.cron, options.zone, encoded, options.priority)
    if store.query("schedule", name) == [wanted]:
        return
    after = {"pipeline": pipeline.name, "cron": options.cron, "zone": options.zone}
    store.apply(
        Step("put_schedule", (name, *wanted, first)),
        by.log("schedule", f"schedule {name}", change={"after": after}),
    )


def drop(store: Store, name: str, by: Actor) -> bool:
    """Remove a schedule; return whether there was one. Jobs that were submitted stay."""
    removed = Step("drop_schedule", (name,), rows=1)
    return store.apply(removed, by.log("drop", f"schedule {name}")) is not None


def schedules(store: Store) -> list[Schedule]:
    """Return every schedule, by name."""
    return [
        Schedule(
            name=str(name),
            pipeline=str(pipeline),
            cron=str(cron),
            zone=str(zone),
            next_at=instant(cast("float", next_at)),
            last_at=None if last_at is None else instant(cast("float", last_at)),
        )
        for name, pipeline, cron, zone, next_at, last_at in store.query("schedules")
    ]
