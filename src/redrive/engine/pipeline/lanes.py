# SPDX-License-Identifier: Apache-2.0
"""Lanes: the stages of pipelines as the store numbers them and a worker serves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.resources import OpenedResources, resources_for
from redrive.engine.pipeline.stage import Stage
from redrive.errors import ConfigurationError
from redrive.store.protocol import Store
from redrive.store.records import LaneId
from redrive.store.statements import transfer as transfer_sql


@dataclass(frozen=True, slots=True)
class Installation:
    """What identifies this database among others."""

    ids: tuple[tuple[str, int], ...] = ()
    """Its id and its first job, then the same of the database that it is a copy of, and so on."""
    secret: bytes = b""
    """The key of hashes of values."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A stage of a pipeline as a worker serves it."""

    id: LaneId
    pipeline: Pipeline
    stage: Stage[..., object]
    following: LaneId | None
    """The lane of the next stage; None after the last."""
    resources: dict[str, object] = field(default_factory=dict[str, object])
    """The resources its stage takes, by parameter."""
    limit_names: tuple[str, ...] = ()
    installation: Installation = Installation()

    @property
    def stages_left(self) -> int:
        """How many stages come after this one."""
        stages = self.pipeline.stages
        return len(stages) - 1 - stages.index(self.stage)


def lanes_of(
    store: Store, pipelines: Sequence[Pipeline], resources: OpenedResources = MappingProxyType({})
) -> dict[LaneId, Lane]:
    """Return the lanes of some pipelines; stages get the resources they ask for by type."""
    _check_transactional(store, pipelines)
    lanes: dict[LaneId, Lane] = {}
    installation = installation_of(store, with_secret=True)
    for pipeline in pipelines:
        given = resources.get(pipeline.name, ())
        ids = store.lanes(pipeline.name, [stage.name for stage in pipeline.stages])
        for lane, following, stage in zip(ids, [*ids[1:], None], pipeline.stages, strict=True):
            names = tuple(limit.name for limit in stage.limits)
            mine = resources_for(stage, given)
            lanes[lane] = Lane(lane, pipeline, stage, following, mine, names, installation)
    return lanes


def _check_transactional(store: Store, pipelines: Sequence[Pipeline]) -> None:
    """Refuse stages that need a transaction where they cannot have one."""
    for stage in (each for pipeline in pipelines for each in pipeline.stages):
        if stage.is_transactional and store.callers.stages is None:
            raise ConfigurationError(
                field=f"stage({stage.name}).transactional",
                value=True,
                rule="needs a database on a PostgreSQL server: in a file, a stage that writes would block all other"
                " writers, and the renewal of its own worker's lease, for as long as it runs",
                fix="Connect to postgresql://..., or recognise effects that took place by ctx.idempotency_key.",
            )


def installation_of(store: Store, *, with_secret: bool = False) -> Installation:
    """Return what identifies this database among others; with the key of hashes of values, for workers alone."""
    rows = store.query(transfer_sql.installations())
    secret = store.query(transfer_sql.secret())[0] if with_secret else b""
    return Installation(tuple((row.id, row.first_job) for row in rows), secret)
