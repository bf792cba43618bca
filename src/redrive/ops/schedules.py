# SPDX-License-Identifier: Apache-2.0
"""Schedules: add, change, drop and list them. Every change is in the operator log, in the same transaction.

A schedule submits jobs, or prunes; the latter kind is added in `upkeep.prune`.
"""

from __future__ import annotations

from dataclasses import dataclass

from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.stage import check_name
from redrive.engine.pipeline.submission import new_job
from redrive.engine.replay.rules import record_entry
from redrive.engine.runtime import CURRENT
from redrive.engine.schedules import next_tick
from redrive.ops.audit import Actor, Subject
from redrive.store.protocol import Store
from redrive.store.statements import runs as run_sql
from redrive.store.statements import upkeep as upkeep_sql
from redrive.store.statements.runs import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions:
    """When a schedule submits a job, and how urgent the job is."""

    cron: str
    zone: str = "UTC"
    priority: int = 5


def put(
    store: Store, name: str, pipeline: Pipeline, payload: object, by: Actor, *, options: ScheduleOptions
) -> None:
    """Add a schedule, or change the one with this name; one that is the same already is left alone, and nothing is logged."""
    check_name("schedule(name)", name)
    encoded = new_job(pipeline, payload, priority=options.priority).payload
    first = next_tick(options.cron, options.zone, CURRENT.get().clock.wall())
    record_entry(store, pipeline)
    lane = store.lanes(pipeline.name, [stage.name for stage in pipeline.stages])[0]
    wanted = run_sql.Planned(lane, options.cron, options.zone, encoded, options.priority)
    if store.query(run_sql.schedule(name=name)) == [wanted]:
        return
    after = {"pipeline": pipeline.name, "cron": options.cron, "zone": options.zone}
    store.apply(
        run_sql.put_schedule(name=name, planned=wanted, next_at=first),
        by.log("schedule", Subject("schedule", name), change={"after": after}),
    )


def drop(store: Store, name: str, by: Actor) -> bool:
    """Remove a schedule; return whether there was one. Jobs that were submitted stay."""
    log = by.log("drop", Subject("schedule", name))
    ways = (run_sql.drop_schedule(name=name), upkeep_sql.drop_retention(name=name))
    # Both: a schedule of each kind may have the name.
    return sum(store.apply(way.touching(1), log) is not None for way in ways) > 0


def schedules(store: Store) -> list[Schedule]:
    """Return every schedule, by name."""
    both = [*store.query(run_sql.schedules()), *store.query(upkeep_sql.retentions())]
    return sorted(both, key=lambda each: each.name)
