# SPDX-License-Identifier: Apache-2.0
"""The live part of the page: rows that changed, sent as they are rendered, and whether the gateway holds the queue.

One task watches the store for all pages; each page then reads its own rows. Nothing is sent while nothing changes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from apps.pdf2xml.jobs import Jobs, JobView, failures_logged
from redrive.engine.clock import SYSTEM_CLOCK
from redrive.web import ServerEvent

LOOK_SECONDS: Final = 0.2
"""Between two looks at the store, and so between two updates of a page."""


class Watcher:
    """Wakes pages when the store has changed."""

    def __init__(self, jobs: Jobs, read: Callable[[Callable[[], object]], Awaitable[object]]) -> None:
        self._jobs = jobs
        self._read = read
        self._changed = asyncio.Event()
        self.pages = 0
        """How many are open."""

    async def run(self) -> None:
        """Watch the store until cancelled."""
        before: object = None
        while True:
            await SYSTEM_CLOCK.asleep(LOOK_SECONDS)
            if self.pages == 0:
                continue
            with failures_logged("look at the store"):
                now = await self._read(self._jobs.change_counter)
                if now != before:
                    before = now
                    self._changed.set()
                    self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()


Render = Callable[[JobView], str]


class Feed:
    """What one page shows, and what it has to be sent."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._rows: dict[int, str] = {}
        self._is_paused: bool | None = None

    def update(self, jobs: list[JobView], *, is_paused: bool) -> dict[str, object] | None:
        """Return what has changed since the last time, oldest first; None when nothing has."""
        rows = {job.id: self._render(job) for job in reversed(jobs)}
        changed = [{"id": job, "html": row} for job, row in rows.items() if self._rows.get(job) != row]
        if not changed and is_paused == self._is_paused:
            return None
        self._rows, self._is_paused = rows, is_paused
        return {"rows": changed, "is_paused": is_paused}

    @property
    def version(self) -> str:
        """A short name of all that the page shows."""
        return hashlib.sha256(repr((self._rows, self._is_paused)).encode()).hexdigest()[:16]


async def follow(
    last: str, watcher: Watcher, feed: Feed, look: Callable[[], Awaitable[tuple[list[JobView], bool]]]
) -> AsyncGenerator[ServerEvent]:
    """Yield the changes of one page; `last` is the version that it shows already."""
    watcher.pages += 1
    waiting: asyncio.Future[None] | None = None
    try:
        while True:
            waiting = asyncio.ensure_future(watcher.changed())
            jobs, is_paused = await look()
            change = feed.update(jobs, is_paused=is_paused)
            if change is not None and feed.version != last:
                yield ServerEvent(change, "queue", feed.version)
            await waiting
    finally:
        watcher.pages -= 1
        if waiting is not None:
            waiting.cancel()
