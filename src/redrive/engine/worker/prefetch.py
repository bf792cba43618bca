# SPDX-License-Identifier: Apache-2.0
"""How many jobs a worker may claim beyond its slots, so that these are filled again while a commit is under way.

Jobs that wait in one worker are out of reach for all others. So they are released when no slot has become free for a while.
"""

from __future__ import annotations

import asyncio
from typing import Final

from redrive.engine.worker.slots import Slots
from redrive.store.records import ClaimedJob

PREFETCH_SECONDS: Final = 1.0
"""How long the first of the waiting jobs may wait for a slot before all of them are released."""


class Prefetch:
    """How many jobs one worker prefetches, by how fast its slots become free."""

    def __init__(self, slots: Slots, concurrency: int) -> None:
        self._slots = slots
        self._most = concurrency
        self._ended = 0
        self._first: object = None
        self._since = 0.0
        self.count = 0
        """How many jobs may wait for a slot."""

    def committed(self) -> None:
        """Adapt after a commit: prefetch as many jobs as stages ended between the last commit and this one."""
        # One short commit in between must not bring it down at once.
        ended = max(self._slots.ended - self._ended, self.count * 3 // 4)
        self.count = min(self._most, ended)
        self._ended = self._slots.ended

    async def wait(self, wake: asyncio.Event) -> list[ClaimedJob]:
        """Wait until woken; return the jobs that have waited for a slot too long, to be released.

        After that nothing is prefetched until a stage has ended. A slot that becomes free takes the first of the waiting jobs: as
        long as the first one is the same, none did.
        """
        first = self._slots.first_waiting
        if first is None:
            self._first = None
            await wake.wait()
            return []
        loop = asyncio.get_running_loop()
        if first is not self._first:
            self._first, self._since = first, loop.time()
        left = self._since + PREFETCH_SECONDS - loop.time()
        if left <= 0:
            self._first, self.count = None, 0
            return self._slots.drop_waiting()
        timer = loop.call_later(left, wake.set)
        await wake.wait()
        timer.cancel()
        return []
