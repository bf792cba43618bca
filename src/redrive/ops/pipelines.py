# SPDX-License-Identifier: Apache-2.0
"""Pipelines as the store knows them, and pausing them: nothing of a paused pipeline is claimed until it is resumed.

Jobs that run when a pipeline is paused finish their stage. Of the code of a pipeline only what workers
have recorded is known here, unless it is given.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from redrive.core.units import instant
from redrive.engine.pipeline.pipeline import Pipeline, PipelineRef
from redrive.engine.pipeline.wiring import mismatch, shape_of
from redrive.engine.replay.rules import recorded
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError
from redrive.ops.audit import Actor, Subject
from redrive.ops.suggest import unknown
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.records import Step
from redrive.store.statements import workers as worker_sql
from redrive.store.statements.workers import LaneFacts
from redrive.store.steps import lease_time


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """One registered worker."""

    id: str
    host: str
    process: int
    pipelines: Sequence[str]
    concurrency: int
    started_at: datetime
    expires_at: datetime
    leased: int
    is_live: bool
    """False if its lease has expired: it died, or cannot reach the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """One pipeline, and who works on it."""

    name: str
    lanes: Sequence[LaneFacts]
    workers: int

    @property
    def paused_at(self) -> datetime | None:
        """Since when a part of it is paused."""
        return min((lane.paused_at for lane in self.lanes if lane.paused_at), default=None)

    @property
    def queued(self) -> int:
        """How many of its jobs are queued."""
        return sum(lane.queued for lane in self.lanes)

    @property
    def processing(self) -> int:
        """How many of its jobs workers have leased."""
        return sum(lane.processing for lane in self.lanes)


def lane_names(store: Reader) -> list[tuple[str, str]]:
    """Return pipeline and stage of every lane that was ever stored; cheap, because no jobs are counted."""
    return [*store.query(worker_sql.lane_names())]


def workers(store: Reader) -> list[WorkerFacts]:
    """Return the registered workers, dead ones included."""
    now = lease_time(store, CURRENT.get().clock.wall())
    return [
        WorkerFacts(
            id=worker.id,
            host=worker.host,
            process=worker.process,
            pipelines=msgspec.json.decode(worker.pipelines, type=list[str]),
            concurrency=worker.concurrency,
            started_at=instant(worker.started_at),
            expires_at=instant(worker.expires_at),
            leased=worker.leased,
            is_live=worker.expires_at >= now,
        )
        for worker in store.query(worker_sql.workers())
    ]


def pipelines(store: Reader) -> list[PipelineFacts]:
    """Return every pipeline that was ever submitted to or worked on, by name, with the stages that it has now or that have jobs."""
    by_name: dict[str, list[LaneFacts]] = {}
    for lane in store.query(worker_sql.lanes()):
        by_name.setdefault(lane.pipeline, []).append(lane)
    for name, found in by_name.items():
        present = recorded(store, name).stages
        if present:
            by_name[name] = [
                lane for lane in found if lane.stage in present or lane.queued or lane.processing
            ]
    live = [worker for worker in workers(store) if worker.is_live]
    return [
        PipelineFacts(name=name, lanes=found, workers=sum(1 for worker in live if name in worker.pipelines))
        for name, found in by_name.items()
    ]


def pause(store: Store, pipeline: str, by: Actor) -> bool:
    """Pause a pipeline: none of its jobs are claimed; False if it was paused already."""
    step = worker_sql.pause_lanes(now=CURRENT.get().clock.wall(), pipeline=pipeline)
    return _is_changed(store, pipeline, step, by, verb="pause", after="paused")


def resume(store: Store, pipeline: str, by: Actor) -> bool:
    """Resume a pipeline; False if it was not paused."""
    step = worker_sql.resume_lanes(pipeline=pipeline)
    return _is_changed(store, pipeline, step, by, verb="resume", after="running")


def known_pipeline(store: Reader, name: str) -> None:
    """Refuse the name of an unknown pipeline; raises UnknownNameError with similar names."""
    known = {pipeline for pipeline, _ in lane_names(store)}
    if name not in known:
        raise unknown(name, known, kind="pipeline", otherwise="There is none yet; submit a job first.")


def recorded_stages(store: Reader, reference: PipelineRef) -> tuple[str, ...]:
    """Return the stages of a pipeline whose code is elsewhere, as they are recorded.

    Raises:
        UnknownNameError: nobody has recorded it yet.
        ConfigurationError: its payloads can never be of the type that the reference names.
    """
    known = recorded(store, reference.name)
    if not known.stages:
        names = {pipeline for pipeline, _ in lane_names(store)}
        otherwise = "No worker has recorded a pipeline here yet: start one first."
        raise unknown(reference.name, names, kind="pipeline", otherwise=otherwise)
    why = mismatch(shape_of(reference.payload.kind), known.payload)
    if why is not None:
        raise ConfigurationError(
            field=f"Pipeline.ref({reference.name}).payload",
            value=getattr(reference.payload.kind, "__name__", str(reference.payload.kind)),
            rule=f"can never be a payload of the pipeline as a worker has recorded it: {why}",
            fix="Use the type of its first stage.",
        )
    return known.stages


def stale_lanes(store: Reader, known: Collection[Pipeline]) -> list[LaneFacts]:
    """Return lanes of these pipelines with queued jobs whose stage the code no longer has."""
    stages = {pipeline.name: {stage.name for stage in pipeline.stages} for pipeline in known}
    return [
        lane
        for lane in store.query(worker_sql.lanes())
        if lane.queued and lane.pipeline in stages and lane.stage not in stages[lane.pipeline]
    ]


def _is_changed(store: Store, pipeline: str, step: Step, by: Actor, *, verb: str, after: str) -> bool:
    """Change the lanes of a known pipeline; return whether that affected any."""
    known_pipeline(store, pipeline)
    act = by.line(verb, Subject("pipeline", pipeline))
    # The log goes first, because it reads the state before.
    answer = store.apply(worker_sql.log_pipeline(act=act, after=after, pipeline=pipeline), step)
    return bool(answer and answer[-1])
