# SPDX-License-Identifier: Apache-2.0
"""Checks of the work: who should be working and is not, what waits and for what, what has failed.

Only looks at the store. Which stages a pipeline has by its code is known only for the pipelines that are passed in; for the others
two stages at one place of a pipeline tell that one of them was renamed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.runtime import CURRENT
from redrive.ops.breakers import breakers
from redrive.ops.checkup.findings import Finding, age, fine, jobs, problem, warning
from redrive.ops.pipelines import LaneFacts, WorkerFacts, lanes, stale_lanes, workers
from redrive.store.protocol import HOOK, Store

LONG_SECONDS: Final = 3_600.0
"""From when on a running stage is worth a word."""
LATE_SECONDS: Final = 600.0
"""From when on a schedule or a hook counts as late."""
TRIES_MANY: Final = 3
"""From so many tries on a sink that does not take its letters is worth a word."""
SHOWN_MAX: Final = 5


@dataclass(slots=True)
class _Look:
    """What was read once, for all checks."""

    store: Store
    now: float = field(init=False)
    workers: list[WorkerFacts] = field(init=False)
    lanes: list[LaneFacts] = field(init=False)

    def __post_init__(self) -> None:
        self.now = CURRENT.get().clock.wall()
        self.workers = workers(self.store)
        self.lanes = lanes(self.store)

    @property
    def served(self) -> set[str]:
        """The pipelines that some live worker serves."""
        return {name for worker in self.workers if worker.is_live for name in worker.pipelines}

    def due(self, lane: LaneFacts) -> tuple[int, float]:
        """Return how many jobs of a lane are due, and for how long the first has been."""
        count, first = self.store.query("due_of_lane", lane.id, self.now)[0]
        return cast("int", count), 0.0 if first is None else self.now - cast("float", first)


def check_work(store: Store, known: Collection[Pipeline] = ()) -> Iterator[Finding]:
    """Yield what there is to say about the work in a store; `known` are pipelines as the code has them now."""
    look = _Look(store)
    yield from _leases(look)
    yield from _missing_workers(look)
    yield from _stages(look, known)
    yield from _paused(look)
    yield from _breakers(look)
    yield from _letters(look)
    yield from _untold(look, known)
    yield from _loose_ends(look)


def _leases(look: _Look) -> Iterator[Finding]:
    live = [worker for worker in look.workers if worker.is_live]
    dead = [worker for worker in look.workers if not worker.is_live]
    for worker in dead:
        silent = age(look.now - worker.expires_at.timestamp())
        yield problem(
            "leases",
            f"{worker.id} on {worker.host} (pid {worker.process}) has been silent for {silent} and holds {jobs(worker.held)}",
            "Start a worker: it takes them over within one lease. If that one still runs, see why it cannot reach the database.",
        )
    lost = [str(row[0]) for row in look.store.query("ownerless_jobs", SHOWN_MAX)]
    if lost:
        yield problem(
            "leases",
            f"nobody holds these jobs, although they are processing: {', '.join(lost)}",
            "Report this with the output of `redrive doctor --deep -o json`.",
        )
    for job, pipeline, stage, started_at in look.store.query(
        "long_running", look.now - LONG_SECONDS, SHOWN_MAX
    ):
        took = age(look.now - cast("float", started_at))
        yield warning(
            "leases",
            f"job {job} has been in {pipeline}.{stage} for {took}",
            f"redrive job show {job}; give the stage a timeout, or `redrive job cancel {job}`.",
        )
    if not dead and not lost:
        yield fine("leases", f"no lease is stuck; {len(live)} workers hold {jobs(sum(w.held for w in live))}")


def _missing_workers(look: _Look) -> Iterator[Finding]:
    waiting: dict[str, tuple[int, float]] = {}
    for lane in look.lanes:
        if lane.queued and lane.paused_at is None and lane.pipeline not in look.served:
            count, since = look.due(lane)
            before = waiting.get(lane.pipeline, (0, 0.0))
            waiting[lane.pipeline] = (before[0] + count, max(before[1], since))
    for pipeline, (count, since) in waiting.items():
        if count:
            yield problem(
                "workers",
                f"{jobs(count)} of {pipeline} are due, the first for {age(since)}, and no live worker serves it",
                f"Start one: redrive worker MODULE:PIPELINE, where {pipeline} is defined.",
            )
        else:
            yield warning(
                "workers",
                f"jobs of {pipeline} will be due later, and no live worker serves it",
                f"Start one in time: redrive worker MODULE:PIPELINE, where {pipeline} is defined.",
            )
    if not waiting:
        yield fine("workers", "every pipeline with queued jobs has a worker, or is paused")


def _stages(look: _Look, known: Collection[Pipeline]) -> Iterator[Finding]:
    told = {pipeline.name for pipeline in known}
    for lane in stale_lanes(look.store, known):
        yield problem(
            "stages",
            f"{jobs(lane.queued)} wait in {lane.pipeline}.{lane.stage}, a stage the pipeline no longer has",
            f"Give the stage its name back with @stage(name={lane.stage!r}), or cancel these jobs.",
        )
    newest: dict[tuple[str, int], LaneFacts] = {}
    for lane in sorted(look.lanes, key=lambda each: each.id):
        newest[lane.pipeline, lane.position] = lane
    for lane in look.lanes:
        other = newest[lane.pipeline, lane.position]
        if lane.queued and other is not lane and lane.pipeline not in told:
            yield warning(
                "stages",
                f"{jobs(lane.queued)} wait in {lane.pipeline}.{lane.stage}, whose place {other.stage} has taken",
                f"If it was renamed, give the stage its old name with @stage(name={lane.stage!r}); "
                "redrive doctor MODULE:PIPELINE says it for sure.",
            )


def _paused(look: _Look) -> Iterator[Finding]:
    paused: dict[str, tuple[int, float]] = {}
    for lane in look.lanes:
        if lane.paused_at is not None:
            queued, since = paused.get(lane.pipeline, (0, 0.0))
            paused[lane.pipeline] = (
                queued + lane.queued,
                max(since, look.now - lane.paused_at.timestamp()),
            )
    for pipeline, (queued, since) in paused.items():
        yield warning(
            "paused",
            f"{pipeline} has been paused for {age(since)}; {jobs(queued)} wait",
            f"redrive pipeline resume {pipeline}, when it may go on.",
        )


def _breakers(look: _Look) -> Iterator[Finding]:
    every = breakers(look.store)
    for breaker in every:
        since = "" if breaker.changed_at is None else age(look.now - breaker.changed_at.timestamp())
        if breaker.phase == "isolated":
            yield warning(
                "breakers",
                f"{breaker.name} was isolated by hand {since} ago; what needs it is held",
                f"redrive breaker close {breaker.name}, when the dependency may be called again.",
            )
        elif breaker.phase != "closed":
            yield warning(
                "breakers",
                f"{breaker.name} is {breaker.phase.replace('_', ' ')} since {since}; what needs it is held",
                "Check the dependency. It closes by itself once a probe succeeds, which takes a worker.",
            )
    if all(breaker.phase == "closed" for breaker in every):
        yield fine("breakers", f"none of {len(every)} is open")


def _letters(look: _Look) -> Iterator[Finding]:
    count, first = look.store.query("open_letters")[0]
    if count:
        since = age(look.now - cast("float", first))
        yield warning(
            "dead letters",
            f"{jobs(cast('int', count))} failed for good and nobody has looked at them; the first {since} ago",
            "redrive dlq groups, then redrive dlq show ID.",
        )
    else:
        yield fine("dead letters", "none is open")


def _untold(look: _Look, known: Collection[Pipeline]) -> Iterator[Finding]:
    """Look for hooks nobody was told, and for sinks that do not take their letters or that nobody has any more."""
    told = {pipeline.name: {sink.name for sink in pipeline.sinks} for pipeline in known}
    for row in look.store.query("undelivered", look.now - LATE_SECONDS):
        pipeline, recipient = str(row[0]), str(row[1])
        count, late, first, tries = (cast("int", each) for each in row[2:])
        since = age(look.now - first)
        waiting = "1 dead letter" if count == 1 else f"{count:,} dead letters"
        if recipient == HOOK:
            if late:
                yield warning(
                    "hooks",
                    f"{late} hook calls are late, the first by {since}, of {pipeline}",
                    "See the worker's log for what the hook raises; hooks are told again and again.",
                )
        elif pipeline in told and recipient not in told[pipeline]:
            yield warning(
                "sinks",
                f"the sink {recipient}, which the code of {pipeline} does not have, has not taken {waiting}",
                f"Give Pipeline({pipeline!r}) a sink of that name again; they are kept until one takes them.",
            )
        elif late or tries >= TRIES_MANY:
            tried = f"tried {tries} times so far" if tries else f"due for {since} and never tried"
            yield warning(
                "sinks",
                f"the sink {recipient} of {pipeline} has not taken {waiting}, {tried}",
                "See the worker's log for what the sink raises, and whether a worker runs whose code has that sink; "
                "redrive doctor MODULE:PIPELINE says the latter for sure.",
            )


def _loose_ends(look: _Look) -> Iterator[Finding]:
    """Look for schedules nobody ticks, and runs nobody drives."""
    for name, pipeline, _, _, next_at, _ in look.store.query("schedules"):
        late = look.now - cast("float", next_at)
        if late > LATE_SECONDS:
            yield problem(
                "schedules",
                f"the schedule {name} of {pipeline} has been due for {age(late)}",
                "Start a worker, of any pipeline: workers keep the schedules.",
            )
    for run, pipeline in look.store.query("running_runs", SHOWN_MAX):
        if str(pipeline) not in look.served:
            yield warning(
                "runs",
                f"run {run} of {pipeline} was not ended, and nobody drives it",
                f"redrive run resume {run}",
            )
