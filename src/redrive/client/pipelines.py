# SPDX-License-Identifier: Apache-2.0
"""Pipelines for a program: the same use cases as `redrive pipeline`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from redrive.client.awaited import AsyncFace, Face, awaited
from redrive.client.options import ActorOptions, actor_of
from redrive.ops import pipelines
from redrive.ops.pipelines import PipelineFacts, WorkerFacts


class Pipelines(Face):
    """The pipelines of a store, by name. An unknown one raises UnknownNameError, which names those that are known."""

    def list(self) -> Sequence[PipelineFacts]:
        """Return pipelines by name, with their stages, queued jobs and workers."""
        return pipelines.pipelines(self._store)

    def workers(self) -> Sequence[WorkerFacts]:
        """Return the registered workers, dead ones included."""
        return pipelines.workers(self._store)

    def pause(self, pipeline: str, **by: Unpack[ActorOptions]) -> bool:
        """Pause a pipeline: none of its jobs are claimed; False if it was paused already."""
        return pipelines.pause(self._store, pipeline, actor_of(by))

    def resume(self, pipeline: str, **by: Unpack[ActorOptions]) -> bool:
        """Resume a pipeline; False if it was not paused."""
        return pipelines.resume(self._store, pipeline, actor_of(by))


class AsyncPipelines(AsyncFace[Pipelines]):
    """Pipelines for async code; see `Pipelines`."""

    list = awaited(Pipelines.list)
    workers = awaited(Pipelines.workers)
    pause = awaited(Pipelines.pause)
    resume = awaited(Pipelines.resume)
