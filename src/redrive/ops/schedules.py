# SPDX-License-Identifier: Apache-2.0
"""Schedules: add, change, drop and list them. Every change is in the operator log, in the same transaction.

A schedule submits jobs, or prunes; the latter kind is added in `upkeep.prune`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict, cast

import msgspec

from redrive.engine.clock import instant
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.stage import check_name
from redrive.engine.pipeline.submission import new_job
from redrive.engine.replay.rules import record_entry
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
    pipeline: str | None
    """None for one that prunes."""
    cron: str
    zone: str
    next_at: datetime
    last_at: datetime | None
    prunes: Mapping[str, float] | None = None
    """How long each kind is kept, in seconds; None for a schedule that submits jobs."""
    deleted: Mapping[str, int] | None = None
    """How many of each kind the last tick deleted."""


def put(
    store: Store, name: str, pipeline: Pipeline, payload: object, by: Actor, *, options: ScheduleOptions
) -> None:
    """Add a schedule, or change the one with this name; one that is the same already is left alone, and nothing is logged."""
    check_name("schedule(name)", name)
    encoded = new_job(pipeline, payload, priority=options.priority).payload
    first = next_tick(options.cron, options.zone, CURRENT.get().clock.wall())
    record_entry(store, pipeline)
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
    log = by.log("drop", f"schedule {name}")
    ways = ("drop_schedule", "drop_retention")
    # Both: a schedule of each kind may have the name.
    return sum(store.apply(Step(way, (name,), rows=1), log) is not None for way in ways) > 0


def schedules(store: Store) -> list[Schedule]:
    """Return every schedule, by name."""
    submitting = [
        Schedule(name=str(name), pipeline=str(pipeline), cron=str(cron), zone=str(zone), **_times(*times))
        for name, pipeline, cron, zone, *times in store.query("schedules")
    ]
    pruning = [
        Schedule(
            name=str(name),
            pipeline=None,
            cron=str(cron),
            zone=str(zone),
            prunes=msgspec.json.decode(cast("bytes", ages), type=dict[str, float]),
            deleted=None if deleted is None else msgspec.json.decode(str(deleted), type=dict[str, int]),
            **_times(*times),
        )
        for name, ages, cron, zone, *times, deleted in store.query("retentions")
    ]
    return sorted([*submitting, *pruning], key=lambda each: each.name)


class _Times(TypedDict):
    next_at: datetime
    last_at: datetime | None


def _times(next_at: object, last_at: object) -> _Times:
    return {"next_at": instant(next_at), "last_at": None if last_at is None else instant(last_at)}
