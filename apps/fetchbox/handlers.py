# SPDX-License-Identifier: Apache-2.0
"""Handlers: plug-ins that turn a manifest into tasks, choose the keys of objects, and add headers just before a download.

A handler is an entry point of the group `fetchbox.handlers`: a class without arguments. `plan` runs in the API, `headers` in the
worker. `HandlerRefusedError` refuses a manifest or a task; any other exception is a bug of the handler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final, Protocol

from apps.fetchbox.manifest import Manifest, Task
from apps.fetchbox.settings import Config
from redrive import ConfigurationError

GROUP: Final = "fetchbox.handlers"


class HandlerRefusedError(Exception):
    """The handler refuses this manifest, or this task; the message is shown to the client."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One task of a manifest: which resource, where to fetch it, and the key of its object below the prefix."""

    resource_id: str
    url: str
    key: str
    headers: Mapping[str, str]


class Handler(Protocol):
    """What a plug-in implements."""

    def plan(self, manifest: Manifest) -> Sequence[Planned]:
        """Return the tasks of a manifest; may leave out resources, or make several tasks of one."""
        ...

    def headers(self, task: Task) -> Mapping[str, str]:
        """Return headers for one download, in addition to those of the task; called for every attempt."""
        ...


class DefaultHandler:
    """One task per resource; the key is the resource's id."""

    def plan(self, manifest: Manifest) -> Sequence[Planned]:
        """Return one task per resource."""
        return [Planned(each.id, each.url, each.id, each.headers) for each in manifest.resources]

    def headers(self, _task: Task) -> Mapping[str, str]:
        """Return no further headers."""
        return {}


def load_handlers(config: Config) -> dict[str, Handler]:
    """Return the handlers that the job types name; raises ConfigurationError for one that is not installed or does not start."""
    found: dict[str, Handler] = {"default": DefaultHandler()}
    installed = {each.name: each for each in entry_points(group=GROUP)}
    for name, kind in config.types.items():
        if kind.handler in found:
            continue
        if kind.handler not in installed:
            raise ConfigurationError(
                field=f"types.{name}.handler",
                value=kind.handler,
                rule="is not installed",
                fix=f"Known: {', '.join(sorted({*found, *installed}))}.",
            )
        try:
            found[kind.handler] = installed[kind.handler].load()()
        except Exception as error:
            raise ConfigurationError(
                field=f"types.{name}.handler",
                value=kind.handler,
                rule=f"cannot be started: {type(error).__name__}",
                fix="Import it in a shell to see why.",
            ) from error
    return found
