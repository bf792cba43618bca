# SPDX-License-Identifier: Apache-2.0
"""A worker: claims jobs, runs their stages, and commits their settlements together with the next claim.

A stage's successor starts only after its output is committed. Jobs that are leased when a worker stops go back unburned. A worker
that was declared dead drops everything and continues under a new name.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final, Literal, TypeVar, cast

import msgspec

from redrive.core.limit_state import TURN_SECONDS
from redrive.engine.classifier import DEFAULT, Classifier
from redrive.engine.limits.limits import SharedLimits
from redrive.engine.observers import CommitFacts
from redrive.engine.outage import Outage
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.resources import OpenedResources
from redrive.engine.runtime import CURRENT
from redrive.engine.transactional import TransactionalRuns
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.idle import IdleWait
from redrive.engine.worker.journal import COMMIT_MAX, Journal
from redrive.engine.worker.leases import Heartbeat
from redrive.engine.worker.prefetch import Prefetch
from redrive.engine.worker.probes import Probes
from redrive.engine.worker.progress import Progress
from redrive.engine.worker.runner import GRACE_SECONDS, Runner
from redrive.engine.worker.settlements import settlement_of_stop
from redrive.engine.worker.slots import Slots, WorkerParts
from redrive.errors import StoreError, StoreUnavailableError
from redrive.store.protocol import Store
from redrive.store.records import (
    ClaimedJob,
    ClaimRequest,
    Exchange,
    ExchangeRequest,
    JobId,
    LaneId,
    Settlement,
    WorkerFacts,
)

logger = logging.getLogger("redrive.worker")

T = TypeVar("T")
Ending = Literal["idle", "held", "stopped"]
"""Why a worker ended: nothing is left, all that is left is held or in a stage that is gone, or it was stopped."""

RESEND_SECONDS: Final = 1.0
"""How long to wait before a batch that the store did not take is sent again."""


class Worker:
    """Serves the stages of some pipelines. Belongs to one loop."""

    heartbeat: Heartbeat | None = None
    """The thread that renews its lease, if there is one."""
    known_as: str | None = None
    """The name under which it is registered in the store; None while it is not. May be read from any thread."""
    _stops = 0
    _is_dead = False
    _error: StoreError | None = None
    _is_sated = False
    """Whether the last claim brought all it asked for."""
    _is_claiming = False
    """Whether jobs may have been claimed that are not in their slots yet."""
    _stopped_at = 0.0
    """When it was stopped first, by the monotonic clock."""
    _commit_seconds = 0.0
    """How long the store took for the last commit; measured on its thread, and only if somebody observes."""

    def __init__(
        self,
        store: Store,
        pipelines: Sequence[Pipeline],
        parts: WorkerParts,
        *,
        names: Iterator[str],
        concurrency: int = 64,
        lease: float = 30.0,
        resources: OpenedResources = MappingProxyType({}),
        classifier: Classifier = DEFAULT,
        about: WorkerFacts | None = None,
        leased_max: Callable[[], int | None] | None = None,
    ) -> None:
        self._store = store
        self._names, self.name = names, next(names)
        """The name under which this worker leases jobs now."""
        self._lease = lease
        self._ask_store = parts.ask_store
        self._about = about or WorkerFacts(pipelines=tuple(each.name for each in pipelines))
        self.listeners: list[Callable[[list[Settlement]], None]] = []
        """Called with what was committed."""
        self._leased_max = leased_max
        self._runtime = CURRENT.get()
        self._observers = parts.observers
        self.lanes = lanes_of(store, pipelines, resources)
        known = [lane.stage.breaker for lane in self.lanes.values() if lane.stage.breaker is not None]
        self.breakers = breakers = SharedBreakers(store, known, worker=lambda: self.name)
        self.probes = probes = Probes(store, self.lanes, breakers)
        self.limits = SharedLimits(
            store, self.lanes, breakers, worker=lambda: self.name, is_probe=probes.is_probe
        )
        runner = self._runner(classifier)
        self._wake = asyncio.Event()
        self._journal = Journal(store, self.lanes, runner)
        self.slots = self._new_slots(runner, parts, concurrency)
        self.progress = Progress(store, self._runtime.clock, self.slots.dispatches, lease=lease)
        self._prefetch = Prefetch(self.slots, concurrency)
        self._idle_wait = IdleWait(
            store,
            self._journal,
            breakers,
            self._runtime.clock,
            limits=self.limits,
            pipelines=self._about.pipelines,
            wake=self._wake,
            ask_until_answered=self._ask_until_answered,
            parts=parts,
        )
        self._stops_by: dict[str, int] = {}
        self._outage = Outage(logger)
        self._unstarted: list[ClaimedJob] = []

    def _runner(self, classifier: Classifier) -> Runner:
        return Runner(
            self.probes,
            self._runtime,
            classifier=classifier,
            ask_store=self._ask_store,
            observers=self._observers,
            limits=self.limits,
        )

    def _new_slots(self, runner: Runner, parts: WorkerParts, concurrency: int) -> Slots:
        return Slots(
            self.lanes,
            runner,
            parts,
            concurrency=concurrency,
            transactional=TransactionalRuns(
                self._store, runner, parts.threads, parts.processes, worker=lambda: self.name
            ),
            on_settlement=self._add_settlement,
            on_committed=self._committed,
            on_room=self._wake.set,
        )

    def stop(self, by: str = "owner") -> None:
        """Claim nothing more; `run` returns when everything that runs has been settled. The second time, it drops what runs.

        A store that does not answer is asked for a few more seconds; then what runs is dropped, too.

        Each source of stops is counted alone: the first signal is not the second stop because a run has just ended.
        """
        if not self._stops:
            self._stopped_at = self._runtime.clock.monotonic()
        self._stops_by[by] = self._stops_by.get(by, 0) + 1
        self._stops = max(self._stops_by.values())
        self._unstarted += self.slots.drop_waiting()
        self._wake.set()

    def wake(self) -> None:
        """Look for jobs now: something on this loop has queued some."""
        self._wake.set()

    async def run(self, *, until_idle: bool = False, hold_max: float = float("inf")) -> Ending:
        """Work until stopped; or until nothing is queued any more, or all that is has been held for `hold_max` seconds."""
        self._loop = asyncio.get_running_loop()
        await self._register()
        returning = asyncio.ensure_future(self._return_unused()) if self.limits.is_needed else None
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
                    ending = await self._idle_wait.until_idle(hold_max)
                    if ending is not None:
                        return ending
                    continue
                await self._pause()
        finally:
            if returning is not None:
                returning.cancel()
            # One that was cancelled, not stopped, still has jobs that wait: their tokens are returned, too.
            self._unstarted += self.slots.drop_waiting()
            await self._sign_off(await self.slots.release())

    async def held_for(self) -> float:
        """Return for how many seconds all that is left to do has been held; see `IdleWait.held_for`."""
        return await self._idle_wait.held_for(is_idle=self._is_idle)

    @property
    def _is_idle(self) -> bool:
        """Whether nothing runs here, waits, or is still to be committed."""
        return self.slots.is_empty and not self._journal

    def declare_dead(self, name: str) -> None:
        """Report, from any thread, that the store no longer knows a worker of this name."""
        self._loop.call_soon_threadsafe(self._note_dead, name)

    def lose_store(self, error: StoreError) -> None:
        """Report, from any thread, that the store cannot be used any more: the worker ends with this error."""
        self._error = error
        self._loop.call_soon_threadsafe(self.stop, "store")

    def cancel(self, jobs: Iterable[JobId]) -> None:
        """Report, from any thread, that somebody asked to cancel these jobs."""
        self._loop.call_soon_threadsafe(self.slots.cancel, tuple(jobs))

    def _add_settlement(self, settlement: Settlement) -> None:
        self._journal.add(settlement)
        self._wake.set()

    def _committed(self, settlement: Settlement) -> None:
        """Report what a stage has committed together with its own writes."""
        self._report_commit([settlement], Exchange(lost=(), broken=(), claimed=()))
        self._idle_wait.settled()
        for listener in self.listeners:
            listener([settlement])
        self._wake.set()

    def _note_dead(self, name: str) -> None:
        # An answer for an earlier name may arrive after the restart.
        if name == self.name:
            self._is_dead = True
            self._wake.set()

    async def _restart_under_new_name(self) -> None:
        """Drop everything that belongs to the old name, and register under a new one."""
        logger.warning(
            "worker %s was declared dead: its attempts are dropped, and it continues under a new name",
            self.name,
        )
        self.known_as = None
        dropped = len(self.slots.jobs())
        self._observers.report(lambda each: each.declared_dead(dropped))
        await self.slots.release()
        self._journal.clear()
        self._is_dead = False
        self.name = next(self._names)
        await self._register()

    async def _register(self) -> None:
        def register() -> None:
            # The time is read for each try: after an outage a lease that began before it would have expired already.
            heartbeat = self.heartbeat
            now, lease = (self._now(), self._lease) if heartbeat is None else heartbeat.leases.new_lease()
            self._store.start_worker(self.name, now, lease, self._about)
            # Only now: a heartbeat under a name that the store does not know would be answered as dead.
            self.known_as = self.name
            if heartbeat is not None:
                # The call may have taken long, or the clock have come back meanwhile.
                heartbeat.wake()

        await self._ask_until_answered(register)

    async def _sign_off(self, cut_off: list[Dispatch]) -> None:
        """Record the attempts that were cut off, and release all leases; without an answer, others do so when they have expired."""
        now = self._now()
        for dispatch in cut_off:
            dispatch.ended_at = now
            self._journal.add(settlement_of_stop(dispatch))
        try:
            await self._ask(functools.partial(self._journal.flush_breakers, now))
            while self._journal:
                batch, token = self._journal.take()
                commit = functools.partial(self._commit_only, batch, now=now, token=token)
                self._report_commit(batch, await self._ask(commit))
            self.known_as = None
            if self.limits.is_needed:
                self.limits.unstarted(self._unstarted)
                await self._ask(functools.partial(self.limits.release, now))
            await self._ask(functools.partial(self._store.stop_worker, self.name))
        except StoreUnavailableError as error:
            logger.warning("worker %s: leases not released; they will expire: %s", self.name, error)

    async def _exchange(self) -> bool:
        """Commit what has been settled, claim and start what comes next; return whether there was anything."""
        if self._unstarted:
            await self._release_unstarted()
        room = 0 if self._stops else max(0, self._room(self._prefetch.count))
        most = self._leasable()
        if not self._journal and not room:
            self.slots.fill()
            return False
        batch, token = self._journal.take()
        commit = functools.partial(self._commit, batch, room, token, most)
        self._is_claiming = True
        # The store is at work already while the jobs of the last claim are started.
        asked = self._ask_store(commit)
        try:
            self.slots.fill()
        finally:
            answer = await self._answer_to(commit, asked, batch)
        if answer is None:
            return True
        self._prefetch.committed()
        self._report_commit(batch, answer)
        if not answer.is_known:
            self._note_dead(self.name)
        for lost in answer.lost:
            logger.warning("job %s: its lease was lost, the outcome of this attempt does not count", lost)
        if answer.cancel:
            self.slots.cancel(answer.cancel)
        self._journal.add_refused(answer, batch)
        self._is_sated = 0 < room <= len(answer.claimed)
        self.slots.put(answer.claimed)
        self._is_claiming = False
        if self._stops:
            # It was stopped while this commit was under way.
            self._unstarted += self.slots.drop_waiting()
        if any(settlement.outcome != "hold" for settlement in batch):
            self._idle_wait.settled()
        for listener in self.listeners if batch else ():
            listener(batch)
        return bool(batch or answer.claimed)

    async def _answer_to(
        self, commit: Callable[[], Exchange], asked: Awaitable[object], batch: list[Settlement]
    ) -> Exchange | None:
        """Return the answer to a commit; without one, put back what it was to settle."""
        try:
            answer = await self._ask_until_answered(commit, asked)
        except asyncio.CancelledError:
            # For the last commit of `_sign_off`. What was taken anyway counts as done when it is sent again.
            self._journal.put_back(batch)
            raise
        if answer is None:
            self._journal.put_back(batch)
        return answer

    async def _return_unused(self) -> None:
        """Return, now and then, what its limits gave this worker and it does not use; also while it is full, or stops."""
        while True:
            await self._runtime.clock.asleep(TURN_SECONDS)
            if not self._is_claiming:
                with suppress(StoreUnavailableError):
                    await self._ask(lambda: self.limits.give_back(self.slots, self._now()))

    async def _release_unstarted(self) -> None:
        """Release what was claimed and will not be started, at once and with its probes: others may have room for it."""
        jobs, self._unstarted = self._unstarted, []
        if self.limits.is_needed:
            self.limits.unstarted(jobs)
        await self._ask_until_answered(lambda: self._journal.release(jobs, self._now()))

    def _commit(self, batch: list[Settlement], room: int, token: int, most: int) -> Exchange:
        """Settle and claim, at most so many; what to claim is decided anew for each try, because breakers may have changed."""
        now = self._now()
        self._idle_wait.before_claim(is_sated=self._is_sated)
        self._journal.flush_breakers(now, with_commit=True)
        self.limits.keys.keep_recorded(now)
        limits, batched = self.slots.lane_limits(room), frozenset(self.slots.gatherings)
        # Jobs that share slots come on top of those that each need one.
        limit = min(most, room + sum(limits[lane] for lane in batched)) if batched and room else room
        want = self._journal.want(limit, limits, now)
        if batched:
            want = msgspec.structs.replace(want, slots=room, batched=batched)
        if self.limits.is_needed:
            want = self.limits.limited(want, batch, self.slots, now=now, token=token)
        if not self._observers:
            return self._claim(batch, want, now=now, token=token)
        began_at = self._runtime.clock.monotonic()
        answer = self._claim(batch, want, now=now, token=token)
        self._commit_seconds = self._runtime.clock.monotonic() - began_at
        return self._observed(answer, want)

    def _claim(self, batch: list[Settlement], want: ClaimRequest, *, now: float, token: int) -> Exchange:
        """Settle and claim; what was claimed and costs more than its limits allow now is released again."""
        answer = self._journal.commit(self.name, batch, want, now=now, token=token)
        costly = self.limits.claimed(answer.claimed, token=token, now=now) if self.limits.is_needed else ()
        if not costly:
            return answer
        self._journal.release(costly, now)
        self._report_limited({job.lane for job in costly})
        ids = {job.id for job in costly}
        kept = tuple(job for job in answer.claimed if job.id not in ids)
        return msgspec.structs.replace(answer, claimed=kept)

    def _commit_only(self, batch: list[Settlement], *, now: float, token: int) -> Exchange:
        """Commit what has been settled, and claim nothing."""
        began_at = self._runtime.clock.monotonic()
        answer = self._store.exchange(
            ExchangeRequest(self.name, batch, ClaimRequest((), 0), now=now, token=token)
        )
        self._commit_seconds = self._runtime.clock.monotonic() - began_at
        return answer

    def _observed(self, answer: Exchange, want: ClaimRequest) -> Exchange:
        """Report which lanes a claim had to leave out; return the answer with what traces need."""
        full = {
            lane for lane, left in want.limits.items() if left <= 0 < want.limit and lane not in want.batched
        }
        # A lane whose limits have keys is left out when jobs wait there and none of their keys may start one.
        full |= {lane for lane, keys in want.keys.items() if not keys and lane in self.limits.opens}
        if full:
            self._report_limited(full)
        if self._observers.of_attempts and answer.claimed:
            return self._observers.with_traces(self._store, answer)
        return answer

    def _report_limited(self, lanes: Iterable[LaneId]) -> None:
        found = [self.lanes[lane] for lane in lanes]
        self._observers.report(lambda each: each.limited(found))

    def _report_commit(self, batch: list[Settlement], answer: Exchange) -> None:
        if self._observers and (batch or answer.claimed):
            commit = CommitFacts(batch=batch, answer=answer, lanes=self.lanes, seconds=self._commit_seconds)
            self._observers.report(lambda each: each.committed(commit))

    async def _ask_until_answered(
        self, question: Callable[[], T], asked: Awaitable[object] | None = None
    ) -> T | None:
        """Ask the store until it answers; every call is safe to repeat. None when declared dead or stopped twice meanwhile.

        `asked` is the first call if it is under way already.
        """
        failed_at: float | None = None
        while asked is not None or (not self._is_dead and self._stops <= 1):
            try:
                first, asked = asked, None
                answer = await self._ask(question) if first is None else cast("T", await first)
            except StoreUnavailableError as error:
                self._outage.failed("worker %s: the store did not answer, asking again: %s", self.name, error)
                now = self._runtime.clock.monotonic()
                failed_at = now if failed_at is None else failed_at
                if self._stops and now - max(failed_at, self._stopped_at) >= GRACE_SECONDS:
                    # Nothing can be stored: a worker that was stopped ends anyway, as by a second signal.
                    self._stops_by["store"] = self._stops = max(2, self._stops)
                    self._wake.set()
                await self._runtime.clock.asleep(RESEND_SECONDS)
            else:
                if failed_at is not None:
                    self._outage.answered()
                return answer
        return None

    async def _pause(self) -> None:
        """Wait until something ends or is asked for; with room for more, only until it is time to look again."""
        if self._journal:
            return
        if self._stops or self._room(0) <= 0:
            self._unstarted += await self._prefetch.wait(self._wake)
            return
        await self._idle_wait.pause()

    def _room(self, prefetch: int) -> int:
        """Return how many more jobs may be claimed; with a limit, what is leased or not committed yet counts."""
        return min(self.slots.room(prefetch), self._leasable())

    def _leasable(self) -> int:
        """Return how many more jobs may be leased; not more than one commit claims."""
        most = None if self._leased_max is None else self._leased_max()
        if most is None:
            return COMMIT_MAX
        return min(COMMIT_MAX, most - len(self.slots.jobs()) - len(self._journal))

    async def _ask(self, question: Callable[[], T]) -> T:
        return await self._ask_store(question)

    def _now(self) -> float:
        return self._runtime.clock.wall()
