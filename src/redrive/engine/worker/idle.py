# SPDX-License-Identifier: Apache-2.0
"""How an idle worker waits: until the next job is due, somebody changes the store, or somebody wakes it.

It also knows whether anything is left to do, and since when all that is left has been held. Nothing here claims, starts or settles.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Literal, Protocol, TypeVar

from redrive.core.units import plural
from redrive.engine.clock import Clock, wait_for
from redrive.engine.limits.limits import SharedLimits
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.journal import Journal
from redrive.engine.worker.slots import WorkerParts
from redrive.errors import StoreUnavailableError
from redrive.store.protocol import ChangeSignal, Store
from redrive.store.records import UpcomingWork
from redrive.store.statements import replays as replay_sql
from redrive.store.statements import workers as worker_sql

logger = logging.getLogger("redrive.worker")

T = TypeVar("T")

POLL_SECONDS: Final = 1.0
"""How long an idle worker waits at most before it looks for jobs again."""
LOOK_SECONDS: Final = 0.005
"""How much time is at least between two looks because of changes: a busy worker must not make an idle one look all the time."""
WATCH_MAX: Final = 0.25
"""How much time is at most between two looks at whether anybody changed the store; from the first one it doubles up to this."""
RAMP_SECONDS: Final = 0.05
"""How often it looks while a breaker that has just closed limits how many calls start."""
PAUSED_FROM: Final = 1e12
"""The due time of jobs of a paused run: they wait for an operator, not for a time."""


class StoreCall(Protocol):
    """Asks the store until it answers; returns None when the worker was declared dead or stopped twice meanwhile."""

    def __call__(self, question: Callable[[], T]) -> Awaitable[T | None]:
        """Ask the store."""
        ...


class IdleWait:
    """Waits for one worker while it is idle. Belongs to its loop."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        breakers: SharedBreakers,
        clock: Clock,
        *,
        limits: SharedLimits,
        pipelines: Sequence[str],
        wake: asyncio.Event,
        ask_until_answered: StoreCall,
        parts: WorkerParts,
    ) -> None:
        self._store = store
        self._journal = journal
        self._breakers = breakers
        self._clock = clock
        self._limits = limits
        self._pipelines = frozenset(pipelines)
        self._wake = wake
        self._ask_until_answered = ask_until_answered
        self._ask_store = parts.ask_store
        self._watch = parts.watch
        self._next_watch = parts.watch or 0.0
        """In how many seconds to look next whether anybody changed the store: the longer ago the last work, the rarer."""
        self._signal = parts.signal
        self._looked_at = -POLL_SECONDS
        self._counter: object = None
        self._held_since: float | None = None

    def before_claim(self, *, is_sated: bool) -> None:
        """Remember, on the store's thread, the state before a claim: only what others change after it matters.

        A worker that got all it asked for claims again anyway and need not remember it.
        """
        if self._watch is not None:
            self._counter = None if is_sated else self._store.change_counter()

    def settled(self) -> None:
        """Note that a job was settled otherwise than by a hold."""
        self._held_since = None
        self._next_watch = self._watch or 0.0

    async def held_for(self, *, is_idle: bool) -> float:
        """Return for how many seconds all that is left to do has been held, by breakers or because it was paused.

        Probes that fail do not interrupt it; an outcome of any other kind does. Only an idle worker looks anew.
        """
        if is_idle:
            upcoming = await self._look()
            if upcoming is None or not upcoming.due or self._next_look(upcoming) is not None:
                self._held_since = None
                return 0.0
            self._mark_held()
        return 0.0 if self._held_since is None else self._clock.monotonic() - self._held_since

    async def until_idle(self, hold_max: float) -> Literal["idle", "held"] | None:
        """Return why there is nothing left to do; otherwise wait until it is time to look again, and return None."""
        upcoming = await self._look()
        if upcoming is None:
            return None
        if not upcoming.due and not upcoming.leased:
            if not await self._is_replaying():
                return "held" if await self._has_stranded() else "idle"
            await self._sleep(POLL_SECONDS)
            return None
        wait = self._next_look(upcoming)
        if wait is None:
            held = self._mark_held()
            if held >= hold_max:
                return "held"
            wait = min(self._breakers.opens_in(self._clock.wall(), POLL_SECONDS), hold_max - held)
        await self._sleep(wait)
        return None

    async def pause(self) -> None:
        """Wait until woken, until somebody changes the store, or until it is time to look again."""
        wait = await self._until_due()
        if self._signal is not None:
            await self._until_signal(self._signal, wait)
            return
        if self._watch is None:
            await self._woken_within(wait)
            return
        waited = 0.0
        while waited < wait and not self._wake.is_set():
            watch = min(self._next_watch, wait - waited)
            await self._woken_within(watch)
            waited += watch
            # Not anew at a change: it may be one of another program on the same server, and brings no job.
            self._next_watch = min(2 * self._next_watch, WATCH_MAX)
            if await self._is_changed():
                return

    async def _until_signal(self, signal: ChangeSignal, wait: float) -> None:
        """Wait until woken, until the signal reports a change, or until it is time to look again."""
        loop, heard = asyncio.get_running_loop(), False

        def hear() -> None:
            nonlocal heard
            heard = True
            loop.remove_reader(signal.fileno())
            look_at = self._looked_at + LOOK_SECONDS
            if loop.time() < look_at:
                loop.call_at(look_at, self._wake.set)
            else:
                self._wake.set()

        loop.add_reader(signal.fileno(), hear)
        try:
            await self._woken_within(wait)
        finally:
            loop.remove_reader(signal.fileno())
        if heard:
            signal.clear()
            self._looked_at = loop.time()

    async def _woken_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _look(self) -> UpcomingWork | None:
        return await self._ask_until_answered(functools.partial(self._store.upcoming, self._journal.order))

    def _mark_held(self) -> float:
        """Remember since when all that is left is held; return for how long that has been."""
        now = self._clock.monotonic()
        self._held_since = now if self._held_since is None else self._held_since
        return now - self._held_since

    async def _is_replaying(self) -> bool:
        """Return whether a replay over these pipelines is under way and may release more jobs."""
        rows = await self._ask_until_answered(lambda: self._store.query(replay_sql.live_replays()))
        return any(row.pipeline in self._pipelines for row in rows or ())

    async def _has_stranded(self) -> bool:
        """Return whether jobs are queued in stages that these pipelines no longer have, and log which."""
        asked = worker_sql.stranded(pipelines=sorted(self._pipelines), lanes=list(self._journal.order))
        rows = await self._ask_until_answered(lambda: self._store.query(asked))
        for pipeline, stage, jobs in rows or ():
            logger.warning(
                "%s queued in %s.%s, a stage the pipeline no longer has: restore its name with @stage(name=%r)",
                plural(jobs, "job"),
                pipeline,
                stage,
                stage,
            )
        return bool(rows)

    async def _sleep(self, seconds: float) -> None:
        """Sleep until woken; for less when this worker watches the store, because others may submit jobs at any time."""
        limit = seconds if self._watch is None else min(seconds, POLL_SECONDS)
        await wait_for(self._wake, self._clock, limit)

    def _next_look(self, upcoming: UpcomingWork) -> float | None:
        """Return in how many seconds something may be claimable; None when all that is left is held."""
        if upcoming.leased:
            # What another worker has leased may come back at any moment.
            return POLL_SECONDS
        wait = self._due_in(upcoming, self._clock.wall())
        # What is due and was not claimed is behind a breaker or a limit that bounds how many calls start.
        return None if wait is None else max(wait, RAMP_SECONDS)

    async def _until_due(self) -> float:
        """Return how long to wait for the next job that is due; never longer than until the next look."""
        now = self._clock.wall()
        if self._breakers.is_ramping(now):
            return RAMP_SECONDS
        if self._watch is None and not self._limits.opens:
            return POLL_SECONDS
        upcoming = await self._look()
        wait = None if upcoming is None else self._due_in(upcoming, now)
        return POLL_SECONDS if wait is None else min(max(wait, self._watch or RAMP_SECONDS), POLL_SECONDS)

    def _due_in(self, upcoming: UpcomingWork, now: float) -> float | None:
        """Return in how many seconds the next job is due that is neither held nor paused; None without one.

        Jobs of a lane that is limited are due when it opens.
        """
        shut, opens = self._journal.blocked() | upcoming.paused, self._limits.opens
        due = [max(at, opens.get(lane, at)) for lane, at in upcoming.due.items() if lane not in shut]
        open_ = [at for at in due if at < PAUSED_FROM]
        return min(open_) - now if open_ else None

    async def _is_changed(self) -> bool:
        """Return whether anybody has changed the store since the last claim; a store that does not answer is asked later."""
        with suppress(StoreUnavailableError):
            return await self._ask_store(self._store.change_counter) != self._counter
        return False
