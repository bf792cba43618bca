# SPDX-License-Identifier: Apache-2.0
"""How an idle worker waits: until the next job is due by itself, or somebody wakes it."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import Final

from redrive.engine.clock import Clock
from redrive.store.protocol import LaneId, Outlook

PAUSED_FROM: Final = 1e12
"""Jobs of a paused run are due this late; they wait for somebody, not for a time."""


def due_in(outlook: Outlook, blocked: AbstractSet[LaneId], now: float) -> float | None:
    """Return in how many seconds the next job is due that is neither held nor paused; None without one."""
    shut = blocked | outlook.paused
    due = [at for lane, at in outlook.due.items() if lane not in shut and at < PAUSED_FROM]
    return min(due) - now if due else None


async def doze(clock: Clock, seconds: float, wake: asyncio.Event) -> None:
    """Sleep, but wake when there is something to do."""
    nap = asyncio.ensure_future(clock.asleep(seconds))
    woken = asyncio.ensure_future(wake.wait())
    await asyncio.wait((nap, woken), return_when=asyncio.FIRST_COMPLETED)
    nap.cancel()
    woken.cancel()
    await asyncio.gather(nap, woken, return_exceptions=True)
