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
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeVar, cast

from redrive.engine.classifier import DEFAULT, Classifier
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.resources import Given
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.idle import IdleWait
from redrive.engine.worker.journal import COMMIT_MAX, Journal
from redrive.engine.worker.leases import Heartbeat
from redrive.engine.worker.prefetch import Prefetch
from redrive.engine.worker.progress import Progress
from redrive.engine.worker.runner import Runner
from redrive.engine.worker.settlements import settle_cut_off
from redrive.engine.worker.slots import ProcessPool, Slots
from redrive.engine.worker.threads import AskStore, ThreadPool
from redrive.errors import StoreError, StoreUnavailableError
from redrive.store.protocol import (
    About,
    Claimed,
    Exchange,
    JobId,
    Settlement,
    Store,
    Want,
)

logger = logging.getLogger("redrive.worker")

T = TypeVar("T")
Ending = Literal["idle", "held", "stopped"]
"""Why a worker ended: nothing is left, all that is left is held, or it was told to stop."""

RESEND_SECONDS: Final = 1.0
"""How long to wait before a batch that the store did not take is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker works with: how it reaches the store, threads and processes, and how often it looks around."""

    ask_store: AskStore
    threads: ThreadPool
    processes: ProcessPool
    watch: float | None = None
    """Seconds between two looks at whether anybody changed the store, while idle; None to wait for the next poll."""


class Worker:
    """Serves the stages of some pipelines. Belongs to one loop."""

    def __init__(
        self,
        store: Store,
        pipelines: Sequence[Pipeline],
        parts: WorkerParts,
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
        self._known_as: str | None = None
        self._lease = lease
        self._parts = parts
        self._about = about or About(pipelines=tuple(each.name for each in pipelines))
        self._on_commit = on_commit
        self._runtime = CURRENT.get()
        self.lanes = lanes_of(store, pipelines, resources)
        self.breakers = SharedBreakers(
            store, (lane.stage.breaker for lane in self.lanes.values() if lane.stage.breaker)
        )
        runner = Runner(self.breakers, self._runtime, classifier=classifier, ask_store=parts.ask_store)
        self._wake = asyncio.Event()
        self._journal = Journal(store, self.lanes, self.breakers, runner, self._runtime.chance)
        self.slots = Slots(
            self.lanes,
            runner,
            parts.threads,
            parts.processes,
            concurrency=concurrency,
            on_settled=self._settled,
            on_room=self._wake.set,
        )
        self._progress = Progress(store, self._runtime.clock, self.slots.dispatches, lease=lease)
        self._prefetch = Prefetch(self.slots, concurrency)
        self._waiting = IdleWait(
            store,
            self._journal,
            self.breakers,
            self._runtime.clock,
            pipelines=self._about.pipelines,
            wake=self._wake,
            ask_until_answered=self._ask_until_answered,
            ask_store=parts.ask_store,
            watch=parts.watch,
        )
        self._is_sated = False
        self._stops = 0
        self._stopped_by: dict[str, int] = {}
        self._unstarted: list[Claimed] = []
        self._is_dead = False
        self._error: StoreError | None = None
        self.heartbeat: Heartbeat | None = None
        """What keeps its lease, if anything does: it knows how long a new one must be, and is asked to beat at once."""

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
        await self._register()
        try:
            while True:
                self._wake.clear()
                if self._is_dead:
                    await self._restart_under_new_name()
                if self._stops and (self._stops > 1 or self._is_idle):
                    if self._error is not None:
                        raise self._error
                    return "stopped"
                if await self._exchange():
                    continue
                if until_idle and self._is_idle and not self._stops:
                    ending = await self._waiting.rest(hold_max)
                    if ending is not None:
                        return ending
                    continue
                await self._pause()
        finally:
            await self._sign_off(await self.slots.let_go())

    @property
    def name(self) -> str:
        """The name under which this worker holds its leases now."""
        return self._name

    @property
    def known_as(self) -> str | None:
        """The name that the store has heard; None before the first life and between two. To be read from any thread."""
        return self._known_as

    async def held_for(self) -> float:
        """Return for how many seconds all that is left to do has been held; see `Waiting.held_for`."""
        return await self._waiting.held_for(is_idle=self._is_idle)

    @property
    def _is_idle(self) -> bool:
        """Whether nothing runs here, waits, or is still to be committed."""
        return self.slots.is_empty and self._journal.is_empty

    def declare_dead(self, name: str) -> None:
        """Take in, from any thread, that the store no longer knows a worker of this name."""
        self._loop.call_soon_threadsafe(self._note_dead, name)

    def lost_store(self, error: StoreError) -> None:
        """Take in, from any thread, that the store cannot be worked with any more: the worker ends with this error."""
        self._error = error
        self._loop.call_soon_threadsafe(self.stop, "store")

    def cancel(self, jobs: Iterable[JobId]) -> None:
        """Take in, from any thread, that somebody asked to cancel these jobs."""
        self._loop.call_soon_threadsafe(self.slots.cancel, tuple(jobs))

    def progress(self, name: str) -> None:
        """Write down, under the name of this life, how far running stages say they are; from one thread at a time."""
        self._progress.tell(name)

    def _settled(self, settled: Settlement) -> None:
        self._journal.add(settled)
        self._wake.set()

    def _note_dead(self, name: str) -> None:
        # Whoever asked under a name of an earlier life may be answered in this one.
        if name == self._name:
            self._is_dead = True
            self._wake.set()

    async def _restart_under_new_name(self) -> None:
        """Drop whatever was going on under the old name, and go on under a new one."""
        logger.warning(
            "worker %s was declared dead; its runs are dropped and it goes on under a new name", self._name
        )
        self._known_as = None
        await self.slots.let_go()
        self._journal.drop()
        self._is_dead = False
        self._name = next(self._names)
        await self._register()

    async def _register(self) -> None:
        def introduce() -> None:
            # The time is read for each try: after an outage a lease that began before it would have ended already.
            now, lease = (self._now(), self._lease) if self.heartbeat is None else self.heartbeat.new_lease()
            self._store.start_worker(self._name, now, lease, self._about)
            # Only now: of a name that it has not heard, the store would say that its worker is dead.
            self._known_as = self._name
            if self.heartbeat is not None:
                # The store may have had to be waited for, or the clock come back meanwhile.
                self.heartbeat.beat_soon()

        await self._ask_until_answered(introduce)

    async def _sign_off(self, cut_off: list[Dispatch]) -> None:
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
            self._known_as = None
            await self._ask(functools.partial(self._store.stop_worker, self._name))
        except StoreUnavailableError as error:
            logger.warning("worker %s: its leases are left to end by themselves: %s", self._name, error)

    async def _exchange(self) -> bool:
        """Commit what is done and start what comes next; say whether there was anything."""
        if self._unstarted:
            await self._give_back()
        room = 0 if self._stops else min(max(0, self.slots.room(self._prefetch.count)), COMMIT_MAX)
        if self._journal.is_empty and not room:
            self.slots.fill()
            return False
        done, token = self._journal.take()
        commit = functools.partial(self._commit, done, room, token)
        # The store is at work already while the jobs that the last commit brought are started.
        asked = self._parts.ask_store(commit)
        try:
            self.slots.fill()
        finally:
            answer = await self._sent(commit, asked, done)
        if answer is None:
            return True
        self._prefetch.committed()
        if not answer.is_known:
            self._note_dead(self._name)
        for lost in answer.lost:
            logger.warning("job %s: its lease was lost, the outcome of this run does not count", lost)
        self._journal.again(answer, done)
        self._is_sated = 0 < room <= len(answer.claimed)
        self.slots.put(answer.claimed)
        if self._stops:
            # It was told to stop while this commit was on its way.
            self._unstarted += self.slots.drop_waiting()
        if any(settled.outcome != "hold" for settled in done):
            self._waiting.moved()
        if self._on_commit is not None and done:
            self._on_commit(done)
        return bool(done or answer.claimed)

    async def _sent(
        self, commit: Callable[[], Exchange], asked: Awaitable[object], done: list[Settlement]
    ) -> Exchange | None:
        """Return the answer to a commit; without one, what it was to settle is put back."""
        try:
            answer = await self._ask_until_answered(commit, asked)
        except asyncio.CancelledError:
            # For the goodbye. It may have been taken all the same: then it counts as done when it is sent again.
            self._journal.put_back(done)
            raise
        if answer is None and not self._is_dead:
            self._journal.put_back(done)
        return answer

    async def _give_back(self) -> None:
        """Give back what was claimed and will not be started, at once and with its probes: others may have room for it."""
        jobs, self._unstarted = self._unstarted, []
        await self._ask_until_answered(lambda: self._journal.give_back(jobs, self._now()))

    def _commit(self, done: list[Settlement], room: int, token: int) -> Exchange:
        """Settle and claim; the wish list is made anew each time, because breakers may have changed."""
        now = self._now()
        self._waiting.claims(is_sated=self._is_sated)
        self.breakers.flush(now)
        want = self._journal.want(self.slots, room, now)
        return self._journal.commit(self._name, done, want, now=now, token=token)

    async def _ask_until_answered(
        self, question: Callable[[], T], asked: Awaitable[object] | None = None
    ) -> T | None:
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

    async def _pause(self) -> None:
        """Wait until something ends or is asked for; with room for more, only until it is time to look again."""
        if not self._journal.is_empty:
            return
        if self._stops or self.slots.room(0) <= 0:
            self._unstarted += await self._prefetch.stand_by(self._wake)
            return
        await self._waiting.pause()

    async def _ask(self, question: Callable[[], T]) -> T:
        return cast("T", await self._parts.ask_store(question))

    def _now(self) -> float:
        return self._runtime.clock.wall()
