# SPDX-License-Identifier: Apache-2.0
"""Events for a program: what `redrive events` shows, and follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from redrive.client.awaited import AsyncFace, awaited
from redrive.engine.runtime import CURRENT
from redrive.ops.breakers import BreakerEvent
from redrive.ops.events import POLL_SECONDS, EventReader, operations_on
from redrive.ops.jobs.inspect import Event
from redrive.store.protocol import Store
from redrive.store.statements.operations import Operation


class Events:
    """Ends of attempts, changes of breakers, and what operators did. An unknown job raises JobNotFoundError."""

    def __init__(self, store: Store) -> None:
        self.store = store
        """The store behind it."""

    def list(
        self, *, job: int | None = None, pipeline: str | None = None, limit: int = 50
    ) -> Sequence[Event | BreakerEvent]:
        """Return the latest attempts with outcome and reason, and changes of breakers with their cause, oldest first."""
        return EventReader(self.store, job=job, pipeline=pipeline).latest(limit)

    def follow(
        self, *, job: int | None = None, pipeline: str | None = None
    ) -> Iterator[Event | BreakerEvent]:
        """Return the events that come from now on, for ever; each is waited for."""
        return EventReader(self.store, job=job, pipeline=pipeline).follow()

    def operations(
        self,
        *,
        job: int | None = None,
        letter: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[Operation]:
        """Return what operators did, oldest first: all, or on a job or a letter.

        The id of the first one is the `before` of the page before.
        """
        return operations_on(self.store, job=job, letter=letter, before=before, limit=limit)


class AsyncEvents(AsyncFace[Events]):
    """Events for async code; see `Events`."""

    list = awaited(Events.list)
    operations = awaited(Events.operations)

    async def follow(
        self, *, job: int | None = None, pipeline: str | None = None
    ) -> AsyncIterator[Event | BreakerEvent]:
        """Yield the events that come from now on, for ever: `async for event in rd.events.follow()`."""
        reader = await asyncio.to_thread(EventReader, self.face.store, job=job, pipeline=pipeline)
        while True:
            for event in await asyncio.to_thread(reader.news):
                yield event
            if not reader.is_behind:
                await CURRENT.get().clock.asleep(POLL_SECONDS)
