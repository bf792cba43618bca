# SPDX-License-Identifier: Apache-2.0
"""Resources that stages share in a worker: clients and pools, opened once, passed to stages by type, closed at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import cast

from redrive.engine.pipeline.pipeline import Pipeline, Resource
from redrive.engine.pipeline.stage import Stage
from redrive.errors import ConfigurationError

OpenedResources = Mapping[str, Sequence[object]]
"""The opened resources of each pipeline, by its name."""


async def open_resources(stack: AsyncExitStack, pipelines: Sequence[Pipeline]) -> OpenedResources:
    """Open every resource of these pipelines once, even if several share it; refuse a stage that asks for one that is missing."""
    opened: dict[int, object] = {}
    given: dict[str, list[object]] = {}
    for pipeline in pipelines:
        for resource in pipeline.resources:
            if id(resource) not in opened:
                opened[id(resource)] = await open_resource(stack, resource)
        given[pipeline.name] = [opened[id(resource)] for resource in pipeline.resources]
        for stage in pipeline.stages:
            resources_for(stage, given[pipeline.name])
    return given


async def open_resource(stack: AsyncExitStack, resource: object) -> object:
    """Open a resource; one that is ready is used as it is, and stays open."""
    if not callable(resource):
        return resource
    manager = cast("Resource", resource)()
    if isinstance(manager, AbstractAsyncContextManager):
        return await stack.enter_async_context(cast("AbstractAsyncContextManager[object]", manager))
    return stack.enter_context(manager)


def resources_for(stage: Stage[..., object], given: Sequence[object]) -> dict[str, object]:
    """Return the resource for each parameter that asks for one."""
    found: dict[str, object] = {}
    for name, kind in stage.resources.items():
        fitting = [each for each in given if isinstance(each, kind)]
        if not fitting:
            raise ConfigurationError(
                field=f"stage({stage.name}).{name}",
                value=kind.__name__,
                rule="asks for a resource that its pipeline does not open",
                fix=f"Pipeline(..., resources=[open_it]) opens a {kind.__name__}; or give the object itself.",
            )
        found[name] = fitting[0]
    return found
