# SPDX-License-Identifier: Apache-2.0
"""Deletes what ended long enough ago, now or by a schedule: jobs with their attempts, values and letters, and runs.

Everything is kept unless a kind is named with an age; that includes failed jobs, and so dead letters. Jobs with messages that
were not delivered to a hook or a sink are kept unless they are named too: the message is built from the job. Pruned jobs stay
counted, by state, and in their run while that is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from redrive.engine.pipeline.stage import check_name
from redrive.engine.retention import RUNS, Retention, job_windows, prune_steps
from redrive.engine.runtime import CURRENT
from redrive.engine.schedules import next_tick
from redrive.ops.audit import Actor, Subject
from redrive.store.protocol import Store
from redrive.store.statements import upkeep as upkeep_sql


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePreview:
    """What pruning would do now."""

    jobs: Mapping[str, int]
    """What would be deleted, by kind: jobs by state, and runs."""
    undelivered: int
    """Jobs as old that are kept, because a message to a hook or a sink was not delivered yet."""


def prunable(store: Store, retention: Retention, *, with_undelivered: bool = False) -> PrunePreview:
    """Count what `prune` would delete now; changes nothing."""
    cutoffs = retention.cutoffs(CURRENT.get().clock.wall())
    counted: Counter[str] = Counter(dict.fromkeys(cutoffs, 0))
    undelivered = 0
    for window in job_windows(store, cutoffs):
        for state, jobs in window.items():
            kept = 0 if with_undelivered else sum(is_undelivered for _, is_undelivered in jobs)
            counted[state] += len(jobs) - kept
            undelivered += kept
    if RUNS in cutoffs:
        counted[RUNS] = len(store.query(upkeep_sql.prunable_runs(before=cutoffs[RUNS])))
    return PrunePreview(jobs=dict(counted), undelivered=undelivered)


def prune(
    store: Store,
    retention: Retention,
    by: Actor,
    *,
    with_undelivered: bool = False,
    on_step: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Delete what ended long enough ago; return how many of each kind.

    Jobs with undelivered messages are kept; with `with_undelivered` they are deleted with their messages. Each step is its own
    transaction and checks again what it deletes: an interrupted prune leaves whole jobs, and a job that was replayed meanwhile
    stays. `on_step` is called with the number of jobs or runs that each step deleted.
    """
    cutoffs = retention.cutoffs(CURRENT.get().clock.wall())
    deleted: Counter[str] = Counter(dict.fromkeys(cutoffs, 0))
    log = by.log(
        "prune", Subject("jobs", f"{retention}{' with undelivered ones' if with_undelivered else ''}")
    )
    for kind, gone in prune_steps(store, cutoffs, with_undelivered=with_undelivered, log=(log,)):
        deleted[kind] += gone
        if on_step is not None:
            on_step(gone)
    return dict(deleted)


def schedule_prune(store: Store, name: str, retention: Retention, by: Actor, *, cron: str, zone: str) -> None:
    """Add a schedule by which workers prune, or change the one with this name; one that is the same already is left alone."""
    check_name("schedule(name)", name)
    ages = retention.ages()
    first = next_tick(cron, zone, CURRENT.get().clock.wall())
    wanted = upkeep_sql.RetentionPlan(msgspec.json.encode(ages), cron, zone)
    if store.query(upkeep_sql.retention(name=name)) == [wanted]:
        return
    store.apply(
        upkeep_sql.put_retention(name=name, plan=wanted, next_at=first),
        by.log(
            "schedule",
            Subject("schedule", name),
            change={"after": {"prune": ages, "cron": cron, "zone": zone}},
        ),
    )
