# SPDX-License-Identifier: Apache-2.0
"""Checks the work: missing workers, expired leases, what waits and for what, what has failed.

Reads only the store. The stages of a pipeline are known only for pipelines whose code is passed in; for others, two stages at the
same position mean that one was renamed.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from typing import Final

from redrive.core.units import format_duration, plural
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.replay.record import counts_of
from redrive.engine.runtime import CURRENT
from redrive.ops.breakers import breakers
from redrive.ops.checkup.findings import REPORT, Finding, fine, problem, warning
from redrive.ops.limits import limits
from redrive.ops.pipelines import stale_lanes, workers
from redrive.ops.replay.progress import waits_for
from redrive.ops.replay.replays import list_replays
from redrive.store.protocol import Store
from redrive.store.records import HOOK
from redrive.store.statements import outbox as outbox_sql
from redrive.store.statements import runs as run_sql
from redrive.store.statements import upkeep as upkeep_sql
from redrive.store.statements import workers as worker_sql
from redrive.store.statements.workers import LaneFacts

LONG_SECONDS: Final = 3_600.0
"""A stage that runs longer than this is reported."""
LATE_SECONDS: Final = 600.0
"""A schedule or a hook that is due for longer than this is reported."""
TRIES_MANY: Final = 3
"""A sink whose delivery failed this often is reported."""
LISTED_MAX: Final = 5
REPLAYS_MAX: Final = 100


class _State:
    """What is read once for all checks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = CURRENT.get().clock.wall()
        self.workers = workers(store)
        self.lanes = store.query(worker_sql.lanes())
        self.served = {name for worker in self.workers if worker.is_live for name in worker.pipelines}
        """The pipelines that a live worker serves."""

    def due(self, lane: LaneFacts) -> tuple[int, float]:
        """Return how many jobs of a lane are due, and for how long the oldest has been."""
        count, first = self.store.query(upkeep_sql.due_of_lane(lane=lane.id, now=self.now))[0]
        return count, 0.0 if first is None else self.now - first


def check_work(store: Store, known: Collection[Pipeline] = ()) -> Iterator[Finding]:
    """Yield the findings about the work in a store; `known` are pipelines as their code defines them now."""
    state = _State(store)
    yield from _leases(state)
    yield from _missing_workers(state)
    yield from _stages(state, known)
    yield from _paused(state)
    yield from _breakers(state)
    yield from _limits(state)
    yield from _letters(state)
    yield from _deliveries(state, known)
    yield from _schedules_and_runs(state)
    yield from _replays(state)


def _leases(state: _State) -> Iterator[Finding]:
    live = [worker for worker in state.workers if worker.is_live]
    gone = [worker for worker in state.workers if not worker.is_live]
    dead = [worker for worker in gone if worker.leased]
    for worker in gone:
        if not worker.leased:
            yield warning(
                "workers",
                f"{worker.id} on {worker.host} (pid {worker.process}) was not stopped in order; it had no jobs",
                "Nothing is lost; the next worker that starts removes its record.",
            )
    for worker in dead:
        silent = format_duration(state.now - worker.expires_at.timestamp())
        yield problem(
            "leases",
            f"{worker.id} on {worker.host} (pid {worker.process}): lease on {plural(worker.leased, 'job')} expired {silent} ago",
            "Start a worker: it claims them within one lease. If the old one still runs, check why it cannot reach the database.",
        )
    lost = [str(job) for job in state.store.query(upkeep_sql.ownerless_jobs(limit=LISTED_MAX))]
    if lost:
        yield problem(
            "leases", f"jobs that are processing but leased by no worker: {', '.join(lost)}", REPORT
        )
    for job, pipeline, stage, started_at in state.store.query(
        upkeep_sql.long_running(before=state.now - LONG_SECONDS, limit=LISTED_MAX)
    ):
        took = format_duration(state.now - started_at)
        yield warning(
            "leases",
            f"job {job} has been in {pipeline}.{stage} for {took}",
            f"See redrive job show {job}; give the stage a timeout, or redrive job cancel {job}.",
        )
    if not dead and not lost:
        leased = plural(sum(worker.leased for worker in live), "job")
        yield fine("leases", f"no lease has expired; {plural(len(live), 'worker')} with {leased}")


def _missing_workers(state: _State) -> Iterator[Finding]:
    waiting: dict[str, tuple[int, float]] = {}
    for lane in state.lanes:
        if lane.queued and lane.paused_at is None and lane.pipeline not in state.served:
            count, since = state.due(lane)
            before = waiting.get(lane.pipeline, (0, 0.0))
            waiting[lane.pipeline] = (before[0] + count, max(before[1], since))
    for pipeline, (count, since) in waiting.items():
        if count:
            yield problem(
                "workers",
                f"no live worker serves {pipeline}: {plural(count, 'job')} due, the oldest for {format_duration(since)}",
                f"Start one: redrive worker MODULE:PIPELINE, where {pipeline} is defined.",
            )
        else:
            yield warning(
                "workers",
                f"no live worker serves {pipeline}: its jobs are due later",
                f"Start one in time: redrive worker MODULE:PIPELINE, where {pipeline} is defined.",
            )
    if not waiting:
        yield fine("workers", "every pipeline with queued jobs has a worker or is paused")


def _stages(state: _State, known: Collection[Pipeline]) -> Iterator[Finding]:
    names = {pipeline.name for pipeline in known}
    for lane in stale_lanes(state.store, known):
        yield problem(
            "stages",
            f"{plural(lane.queued, 'job')} queued in {lane.pipeline}.{lane.stage}, a stage the pipeline no longer has",
            f"Restore the stage's name with @stage(name={lane.stage!r}), or cancel these jobs.",
        )
    newest: dict[tuple[str, int], LaneFacts] = {}
    for lane in sorted(state.lanes, key=lambda each: each.id):
        newest[lane.pipeline, lane.position] = lane
    for lane in state.lanes:
        other = newest[lane.pipeline, lane.position]
        if lane.queued and other is not lane and lane.pipeline not in names:
            yield warning(
                "stages",
                f"{plural(lane.queued, 'job')} queued in {lane.pipeline}.{lane.stage}, which {other.stage} has replaced",
                f"If the stage was renamed, restore its name with @stage(name={lane.stage!r}); "
                "redrive doctor MODULE:PIPELINE checks it against the code.",
            )


def _paused(state: _State) -> Iterator[Finding]:
    paused: dict[str, tuple[int, float]] = {}
    for lane in state.lanes:
        if lane.paused_at is not None:
            queued, since = paused.get(lane.pipeline, (0, 0.0))
            longest = max(since, state.now - lane.paused_at.timestamp())
            paused[lane.pipeline] = (queued + lane.queued, longest)
    for pipeline, (queued, since) in paused.items():
        yield warning(
            "paused",
            f"{pipeline} has been paused for {format_duration(since)} with {plural(queued, 'queued job')}",
            f"To resume it: redrive pipeline resume {pipeline}.",
        )


def _breakers(state: _State) -> Iterator[Finding]:
    every = breakers(state.store)
    for breaker in every:
        since = (
            "" if breaker.changed_at is None else format_duration(state.now - breaker.changed_at.timestamp())
        )
        if breaker.phase == "isolated":
            yield warning(
                "breakers",
                f"{breaker.name} was isolated by hand {since} ago; jobs that need it are held",
                f"To call the dependency again: redrive breaker close {breaker.name}.",
            )
        elif breaker.phase != "closed":
            yield warning(
                "breakers",
                f"{breaker.name} has been {breaker.phase.replace('_', ' ')} for {since}; jobs that need it are held",
                "Check the dependency. The breaker closes when a worker's probe succeeds.",
            )
    if all(breaker.phase == "closed" for breaker in every):
        yield fine("breakers", f"{len(every)} known, all closed")


def _limits(state: _State) -> Iterator[Finding]:
    every = limits(state.store)
    for limit in every:
        if limit.status == "paused":
            key = f" --key {shlex.quote(limit.key)}" if limit.key else ""
            yield warning(
                "limits",
                f"{limit.title} is paused by hand; jobs that need it do not start",
                f"To start them again: redrive limit resume {limit.name}{key}.",
            )
        elif limit.until is not None:
            yield fine(
                "limits", f"{limit.title} waits until {limit.until:%H:%M:%S} UTC, as the dependency asked"
            )
    if every and all(limit.status == "open" for limit in every):
        yield fine("limits", f"{len(every)} known, none paused")


def _letters(state: _State) -> Iterator[Finding]:
    count, first = state.store.query(upkeep_sql.open_letters())[0]
    if first is not None:
        since = format_duration(state.now - first)
        yield warning(
            "dead letters",
            f"{plural(count, 'open dead letter')}, the oldest from {since} ago",
            "Run redrive dlq groups, then redrive dlq show ID.",
        )
    else:
        yield fine("dead letters", "no open dead letters")


def _deliveries(state: _State, known: Collection[Pipeline]) -> Iterator[Finding]:
    """Find late hook calls, and notices that a sink did not accept or whose sink no longer exists."""
    sinks = {pipeline.name: {sink.name for sink in pipeline.sinks} for pipeline in known}
    for row in state.store.query(outbox_sql.undelivered(before=state.now - LATE_SECONDS)):
        pipeline, recipient, count, late, first, tries = row
        since = format_duration(state.now - first)
        notices = plural(count, "notice")
        if recipient == HOOK:
            if late:
                yield warning(
                    "hooks",
                    f"{plural(late, 'hook call')} of {pipeline} late, the oldest by {since}",
                    "See the worker's log for what the hook raises; calls are repeated until they succeed.",
                )
        elif pipeline in sinks and recipient not in sinks[pipeline]:
            yield warning(
                "sinks",
                f"{notices} undelivered to the sink {recipient}, which the code of {pipeline} does not have",
                f"Add a sink of that name to Pipeline({pipeline!r}) again; the notices are kept until it accepts them.",
            )
        elif late or tries >= TRIES_MANY:
            tried = f"after {plural(tries, 'attempt')}" if tries else f"due for {since} and never tried"
            yield warning(
                "sinks",
                f"{notices} undelivered to the sink {recipient} of {pipeline}, {tried}",
                "See the worker's log for what the sink raises, and check that a worker whose code has that sink runs; "
                "redrive doctor MODULE:PIPELINE compares the code.",
            )


def _schedules_and_runs(state: _State) -> Iterator[Finding]:
    """Find schedules that are late, and runs that no worker serves."""
    for each in state.store.query(run_sql.schedules()):
        late = state.now - each.next_at.timestamp()
        if late > LATE_SECONDS:
            yield problem(
                "schedules",
                f"the schedule {each.name} of {each.pipeline} has been due for {format_duration(late)}",
                "Start a worker of any pipeline: workers submit scheduled jobs.",
            )
    for run, pipeline in state.store.query(run_sql.running_runs(limit=LISTED_MAX)):
        if pipeline not in state.served:
            yield warning(
                "runs",
                f"run {run} of {pipeline} has not ended, and no live worker serves it",
                f"redrive run resume {run}",
            )


def _replays(state: _State) -> Iterator[Finding]:
    """Find replays that wait for an operator or a worker."""
    found = list_replays(state.store, limit=REPLAYS_MAX)
    live = [replay for replay in found if replay.ended_at is None]
    for replay in live:
        waiting = waits_for(state.store, replay, counts_of(state.store, replay.id))
        if replay.status in {"paused", "stopped"}:
            yield warning(
                "replays",
                f"replay {replay.id} of {replay.pipeline} waits for {waiting}",
                f"See redrive replay status {replay.id}, then resume or cancel it.",
            )
        elif replay.pipeline not in state.served:
            yield warning(
                "replays",
                f"replay {replay.id} waits for {waiting}",
                f"Start a worker for {replay.pipeline}.",
            )
    if not live:
        yield fine("replays", "no replay is in progress")
