# SPDX-License-Identifier: Apache-2.0
"""How many jobs a worker may hold beyond its places, so that these are filled again while a commit goes on.

Jobs that wait in one worker are out of reach for all others. So they go back when no place has come free for a while.
"""

from __future__ import annotations

import asyncio
from typing import Final

from redrive.engine.worker.slots import Slots
from redrive.store.protocol import Claimed

PREFETCH_SECONDS: Final = 1.0
"""How long the first of the waiting jobs may wait for a place before all of them are given back."""


class Prefetch:
    """What one worker knows about how fast its places come free."""

    def __init__(self, slots: Slots, concurrency: int) -> None:
        self._slots = slots
        self._most = concurrency
        self._ended = 0
        self._first: Claimed | None = None
        self._since = 0.0
        self.count = 0
        """How many jobs may wait for a place."""

    def committed(self) -> None:
        """Take in that a commit is over: as many stages as ended from the last one to this may wait from now on."""
        # A short commit in between must not make it forget how many that can be.
        ended = max(self._slots.ended - self._ended, self.count * 3 // 4)
        self.count = min(self._most, ended)
        self._ended = self._slots.ended

    async def stand_by(self, wake: asyncio.Event) -> list[Claimed]:
        """Wait until woken; return the jobs that have waited for a place too long, to be given back.

        None is claimed ahead then until a stage has ended. While jobs wait, a place that comes free takes the first of them: as
        long as that one is the same, none did.
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
