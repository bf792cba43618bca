# SPDX-License-Identifier: Apache-2.0
"""A worker: claims jobs, runs their stages, and commits outcomes together with the next claim.

A stage's successor starts only after its output is committed. What a worker holds when it stops goes back unburned. A worker that
was declared dead lets go of everything and goes on under a new name.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeVar, cast

from redrive.engine.ahead import Ahead
from redrive.engine.classifier import DEFAULT, Classifier
from redrive.engine.journal import COMMIT_MAX, Journal
from redrive.engine.outcomes import Dispatch, settle_cut_off
from redrive.engine.pipeline import Pipeline
from redrive.engine.resources import Given, lanes_of
from redrive.engine.runner import Elsewhere, Runner
from redrive.engine.runtime import CURRENT
from redrive.engine.shared_breakers import SharedBreakers
from redrive.engine.slots import Apart, Slots
from redrive.engine.threads import Hands
from redrive.engine.waiting import doze, due_in
from redrive.errors import StoreError, StoreUnavailableError
from redrive.store.protocol import (
    About,
    Claimed,
    Exchange,
    JobId,
    Outlook,
    Progress,
    Settlement,
    Step,
    Store,
    Want,
)

logger = logging.getLogger("redrive.worker")

T = TypeVar("T")
Ending = Literal["idle", "held", "stopped"]
"""Why a worker ended: nothing is left, all that is left is held, or it was told to stop."""

POLL_SECONDS: Final = 1.0
"""How long an idle worker waits at most before it looks for jobs."""
RAMP_SECONDS: Final = 0.05
"""How often it looks while a breaker lets calls go gradually."""
RESEND_SECONDS: Final = 1.0
"""How long to wait before a batch that the store did not take is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a worker works with: how it reaches the store, threads and processes, and how often it looks around."""

    ask_store: Elsewhere
    hands: Hands
    apart: Apart
    watch: float | None = None
    """Seconds between two looks at whether anybody changed the store, while idle; None to wait for the next poll."""


class Worker:
    """Serves the stages of some pipelines. Belongs to one loop."""

    def __init__(
        self,
        store: Store,
        pipelines: Sequence[Pipeline],
        means: Means,
        *,
        names: Iterator[str],
        concurrency: int = 64,
        lease: float = 30.0,
        resources: Given = MappingProxyType({}),
        classifier: Classifier = DEFAULT,
        about: About | None = None,
        on_commit: Callable[[list[Settlement]], None] | None = None,
    ) -> None:
        self._store = store
        self._names = names
        self._name = next(names)
        self._lease = lease
        self._means = means
        self._about = about or About(pipelines=tuple(each.name for each in pipelines))
        self._on_commit = on_commit
        self._runtime = CURRENT.get()
        self.lanes = lanes_of(store, pipelines, resources)
        self.breakers = SharedBreakers(
            store, (lane.stage.breaker for lane in self.lanes.values() if lane.stage.breaker)
        )
        runner = Runner(self.breakers, self._runtime, classifier=classifier, ask_store=means.ask_store)
        self._wake = asyncio.Event()
        self._journal = Journal(store, self.lanes, self.breakers, runner, self._runtime.chance)
        self.slots = Slots(
            self.lanes,
            runner,
            means.hands,
            means.apart,
            concurrency=concurrency,
            on_settled=self._settled,
            on_room=self._wake.set,
        )
        self._ahead = Ahead(self.slots, concurrency)
        self._stamp: object = None
        self._is_sated = False
        self._stops = 0
        self._stopped_by: dict[str, int] = {}
        self._unstarted: list[Claimed] = []
        self._is_dead = False
        self._error: StoreError | None = None
        self._held_since: float | None = None

    def stop(self, by: str = "owner") -> None:
        """Claim nothing more; `run` returns when what is running has been settled. The second time, when it has been let go.

        Each of those who may stop it counts alone: the first signal is none the second because a run happens to be over.
        """
        self._stopped_by[by] = self._stopped_by.get(by, 0) + 1
        self._stops = max(self._stopped_by.values())
        self._unstarted += self.slots.drop_waiting()
        self._wake.set()

    def look(self) -> None:
        """Look for jobs now: somebody on this loop has queued some."""
        self._wake.set()

    async def run(self, *, until_idle: bool = False, hold_max: float = float("inf")) -> Ending:
        """Work until stopped; or until nothing is queued any more, or all that is has been held for `hold_max` seconds."""
        self._loop = asyncio.get_running_loop()
        await self._introduce()
        try:
            while True:
                self._wake.clear()
                if self._is_dead:
                    await self._rise()
                if self._stops and (self._stops > 1 or (self.slots.is_empty and self._journal.is_empty)):
                    if self._error is not None:
                        raise self._error
                    return "stopped"
                if await self._exchange():
                    continue
                if until_idle and self.slots.is_empty and self._journal.is_empty and not self._stops:
                    ending = await self._rest(hold_max)
                    if ending is not None:
                        return ending
                    continue
                await self._pause()
        finally:
            await self._say_goodbye(await self.slots.let_go())

    @property
    def name(self) -> str:
        """The name under which this worker holds its leases now."""
        return self._name

    async def held_for(self) -> float:
        """Return for how many seconds all that is left to do has been held, by breakers or because it was paused.

        Probes that fail do not interrupt it; an outcome of any other kind does.
        """
        if self.slots.is_empty and self._journal.is_empty:
            outlook = await self._insist(functools.partial(self._store.outlook, self._journal.order))
            if outlook is None or not outlook.due or self._next_look(outlook, self._now()) is not None:
                self._held_since = None
                return 0.0
            self._note_held()
        return 0.0 if self._held_since is None else self._runtime.clock.monotonic() - self._held_since

    def _note_held(self) -> float:
        """Remember since when all that is left is held; return for how long that has been."""
        now = self._runtime.clock.monotonic()
        self._held_since = now if self._held_since is None else self._held_since
        return now - self._held_since

    def declared_dead(self, name: str) -> None:
        """Take in, from any thread, that the store no longer knows a worker of this name."""
        self._loop.call_soon_threadsafe(self._die, name)

    def lost_store(self, error: StoreError) -> None:
        """Take in, from any thread, that the store cannot be worked with any more: the worker ends with this error."""
        self._error = error
        self._loop.call_soon_threadsafe(self.stop, "store")

    def cancel(self, jobs: Iterable[JobId]) -> None:
        """Take in, from any thread, that somebody asked to cancel these jobs."""
        self._loop.call_soon_threadsafe(self.slots.cancel, tuple(jobs))

    def progress(self) -> list[Progress]:
        """Return how far running stages say they are."""
        return self.slots.progress()

    def _settled(self, settled: Settlement) -> None:
        self._journal.add(settled)
        self._wake.set()

    def _die(self, name: str) -> None:
        # Whoever asked under a name of an earlier life may be answered in this one.
        if name == self._name:
            self._is_dead = True
            self._wake.set()

    async def _rise(self) -> None:
        """Drop whatever was going on under the old name, and go on under a new one."""
        logger.warning(
            "worker %s was declared dead; its runs are dropped and it goes on under a new name", self._name
        )
        await self.slots.let_go()
        self._journal.drop()
        self._is_dead = False
        self._name = next(self._names)
        await self._introduce()

    async def _introduce(self) -> None:
        # The time is read for each try: after an outage a lease that began before it would have ended already.
        await self._insist(
            lambda: self._store.start_worker(self._name, self._now(), self._lease, self._about)
        )

    async def _say_goodbye(self, cut_off: list[Dispatch]) -> None:
        """Give back what is left, and put on record what was cut off; without an answer, others will when the lease has ended."""
        now = self._now()
        for dispatch in cut_off:
            dispatch.ended_at = now
            self._journal.add(settle_cut_off(dispatch))
        try:
            await self._ask(functools.partial(self.breakers.flush, now))
            while not self._journal.is_empty:
                done, token = self._journal.take()
                exchange = functools.partial(self._store.exchange, now=now, token=token)
                await self._ask(functools.partial(exchange, self._name, done, Want((), 0)))
            await self._ask(functools.partial(self._store.stop_worker, self._name))
        except StoreUnavailableError as error:
            logger.warning("worker %s: its leases are left to end by themselves: %s", self._name, error)

    async def _exchange(self) -> bool:
        """Commit what is done and start what comes next; say whether there was anything."""
        if self._unstarted:
            await self._give_back()
        room = 0 if self._stops else min(max(0, self.slots.room(self._ahead.count)), COMMIT_MAX)
        if self._journal.is_empty and not room:
            self.slots.fill()
            return False
        done, token = self._journal.take()
        commit = functools.partial(self._commit, done, room, token)
        # The store is at work already while the jobs that the last commit brought are started.
        asked = self._means.ask_store(commit)
        self.slots.fill()
        answer = await self._insist(commit, asked)
        if answer is None:
            if not self._is_dead:
                self._journal.put_back(done)
            return True
        self._ahead.committed()
        if not answer.is_known:
            self._die(self._name)
        for lost in answer.lost:
            logger.warning("job %s: its lease was lost, the outcome of this run does not count", lost)
        self._journal.again(answer, done)
        self._is_sated = 0 < room <= len(answer.claimed)
        self.slots.put(answer.claimed)
        if self._stops:
            # It was told to stop while this commit was on its way.
            self._unstarted += self.slots.drop_waiting()
        if any(settled.outcome != "hold" for settled in done):
            self._held_since = None
        if self._on_commit is not None and done:
            self._on_commit(done)
        return bool(done or answer.claimed)

    async def _give_back(self) -> None:
        """Give back what was claimed and will not be started, at once and with its probes: others may have room for it."""
        jobs, self._unstarted = self._unstarted, []
        steps = [Step("give_back_one", (job.id, job.token, job.dispatch)) for job in jobs]

        def give_back() -> None:
            self._store.apply(*steps)
            self.breakers.flush(self._now())

        await self._insist(give_back)

    def _commit(self, done: list[Settlement], room: int, token: int) -> Exchange:
        """Settle and claim; the wish list is made anew each time, because breakers may have changed."""
        now = self._now()
        if self._means.watch is not None:
            # Seen before the claim: what comes after it makes a difference. While there is more to take, nobody waits for one.
            self._stamp = None if self._is_sated else self._store.stamp()
        self.breakers.flush(now)
        want = self._journal.want(self.slots, room, now)
        return self._journal.commit(self._name, done, want, now=now, token=token)

    async def _insist(self, question: Callable[[], T], asked: Awaitable[object] | None = None) -> T | None:
        """Ask the store until it answers; every call is safe to repeat. None when this worker was declared dead meanwhile.

        `asked` is the question on its way already.
        """
        while asked is not None or (not self._is_dead and self._stops <= 1):
            try:
                first, asked = asked, None
                return await self._ask(question) if first is None else cast("T", await first)
            except StoreUnavailableError as error:
                logger.warning(
                    "worker %s: the store did not answer and is asked again: %s", self._name, error
                )
                await self._runtime.clock.asleep(RESEND_SECONDS)
        return None

    async def _rest(self, hold_max: float) -> Ending | None:
        """Say why there is nothing left to do; otherwise wait until it is worth another look."""
        outlook = await self._insist(functools.partial(self._store.outlook, self._journal.order))
        if outlook is None:
            return None
        if not outlook.due and not outlook.held:
            if not await self._is_replaying():
                return "idle"
            await self._doze(POLL_SECONDS)
            return None
        now = self._now()
        wait = self._next_look(outlook, now)
        if wait is None:
            held = self._note_held()
            if held >= hold_max:
                return "held"
            wait = min(self.breakers.opens_in(now, POLL_SECONDS), hold_max - held)
        await self._doze(wait)
        return None

    async def _is_replaying(self) -> bool:
        """Say whether a campaign over these pipelines is under way and may release more jobs."""
        rows = await self._insist(functools.partial(self._store.query, "live_campaigns"))
        return any(row[1] in self._about.pipelines for row in rows or ())

    async def _doze(self, seconds: float) -> None:
        """Sleep, or less: in the real world others may submit jobs at any time."""
        if self._means.watch is not None:
            seconds = min(seconds, POLL_SECONDS)
        await doze(self._runtime.clock, seconds, self._wake)

    def _next_look(self, outlook: Outlook, now: float) -> float | None:
        """Return in how many seconds something may be claimable; None when all that is left is held."""
        if outlook.held:
            # What another worker holds may come back at any moment.
            return POLL_SECONDS
        wait = due_in(outlook, self._journal.blocked(), now)
        # What is due and was not claimed is let go gradually.
        return None if wait is None else max(wait, RAMP_SECONDS)

    async def _pause(self) -> None:
        """Wait until something ends or is asked for; with room for more, only until it is time to look again."""
        if not self._journal.is_empty:
            return
        if self._stops or self.slots.room(0) <= 0:
            self._unstarted += await self._ahead.stand_by(self._wake)
            return
        wait = await self._until_due()
        watch = min(self._means.watch or wait, wait)
        waited = 0.0
        while waited < wait and not self._wake.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(watch):
                    await self._wake.wait()
            waited += watch
            if self._means.watch is not None and await self._is_changed():
                return

    async def _until_due(self) -> float:
        """Return how long to wait for the next job that is due by itself; never longer than until the next look."""
        now = self._now()
        if self.breakers.is_ramping(now):
            return RAMP_SECONDS
        if self._means.watch is None:
            return POLL_SECONDS
        outlook = await self._insist(functools.partial(self._store.outlook, self._journal.order))
        wait = None if outlook is None else due_in(outlook, self._journal.blocked(), now)
        return POLL_SECONDS if wait is None else min(max(wait, self._means.watch), POLL_SECONDS)

    async def _is_changed(self) -> bool:
        """Say whether anybody has changed the store since the last claim; a store that does not answer will be asked later."""
        with suppress(StoreUnavailableError):
            return await self._ask(self._store.stamp) != self._stamp
        return False

    async def _ask(self, question: Callable[[], T]) -> T:
        return cast("T", await self._means.ask_store(question))

    def _now(self) -> float:
        return self._runtime.clock.wall()
