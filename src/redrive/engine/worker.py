# SPDX-License-Identifier: Apache-2.0
"""A worker: claims jobs, runs their stages, and settles outcomes together with the next claim.

One commit carries the outcomes of everything that ended since the last one, and brings the next jobs; the next commit starts when
the last one ended, so that the batch grows with the load and nobody waits for a timer. A stage's successor starts only after its
output is committed. What a worker holds when it stops goes back unburned. A worker that was declared dead lets go of everything and
goes on under a new name.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar, cast

import msgspec

from redrive.core.breaker import Evidence
from redrive.engine.classifier import DEFAULT, Classifier
from redrive.engine.outcomes import Lane
from redrive.engine.pipeline import Pipeline, Stage
from redrive.engine.runner import Elsewhere, Runner
from redrive.engine.runtime import CURRENT
from redrive.engine.shared_breakers import SharedBreakers
from redrive.errors import StoreUnavailableError
from redrive.store.protocol import Claimed, Exchange, LaneId, Settlement, Store, Want

logger = logging.getLogger("redrive.worker")

T = TypeVar("T")

POLL_SECONDS: Final = 1.0
"""How long an idle worker sleeps before it looks for jobs that other processes submitted."""

LANE_SHIFT: Final = 40
"""Tokens of commits stay below this many bits; above stands the lane whose probe a token claims."""

RESEND_SECONDS: Final = 1.0
"""How long to wait before a batch that the store did not take is sent again."""


class Worker:
    """Serves the stages of some pipelines. Belongs to one loop."""

    def __init__(
        self,
        store: Store,
        pipelines: Sequence[Pipeline],
        *,
        names: Iterator[str],
        concurrency: int = 64,
        lease: float = 30.0,
        classifier: Classifier = DEFAULT,
        ask_store: Elsewhere,
        run_stage: Elsewhere,
    ) -> None:
        self._store = store
        self._names = names
        self._name = next(names)
        self._concurrency = concurrency
        self._lease = lease
        self._ask_store = ask_store
        self._runtime = CURRENT.get()
        self._lanes = _lanes_of(store, pipelines)
        self._order = tuple(sorted(self._lanes, reverse=True))
        self._breakers = SharedBreakers(
            store, (lane.stage.breaker for lane in self._lanes.values() if lane.stage.breaker)
        )
        self._runner = Runner(
            self._breakers, self._runtime, classifier=classifier, ask_store=ask_store, run_stage=run_stage
        )
        self._tokens = itertools.count(1)
        self._done: list[Settlement] = []
        self._running: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._is_dead = False

    def stop(self) -> None:
        """Claim nothing more; `run` returns when what is running has been settled."""
        self._is_stopping = True
        self._wake.set()

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until stopped, or until nothing is queued any more."""
        self._loop = asyncio.get_running_loop()
        await self._introduce()
        try:
            while not (self._is_stopping and not self._running and not self._done):
                self._wake.clear()
                if self._is_dead:
                    await self._rise()
                if await self._exchange():
                    continue
                if until_idle and not self._running and not self._done:
                    if await self._is_idle():
                        return
                    continue
                await self._pause()
        finally:
            await self._let_go()
            await self._say_goodbye()

    @property
    def name(self) -> str:
        """The name under which this worker holds its leases now."""
        return self._name

    def declared_dead(self) -> None:
        """Take in, from any thread, that the store no longer knows this worker."""
        self._loop.call_soon_threadsafe(self._die)

    def _die(self) -> None:
        self._is_dead = True
        self._wake.set()

    async def _rise(self) -> None:
        """Drop whatever was going on under the old name, and go on under a new one."""
        logger.warning(
            "worker %s was declared dead; its runs are dropped and it goes on under a new name", self._name
        )
        await self._let_go()
        self._done.clear()
        self._is_dead = False
        self._name = next(self._names)
        await self._introduce()

    async def _introduce(self) -> None:
        await self._insist(functools.partial(self._store.start_worker, self._name, self._now(), self._lease))

    async def _say_goodbye(self) -> None:
        """Give back what is left; without an answer, others will when the lease has ended."""
        try:
            await self._ask(functools.partial(self._store.stop_worker, self._name))
        except StoreUnavailableError as error:
            logger.warning("worker %s: its leases are left to end by themselves: %s", self._name, error)

    async def _let_go(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _exchange(self) -> bool:
        """Commit what is done and start what comes next; say whether there was anything."""
        done, self._done = self._done, []
        free = 0 if self._is_stopping else self._concurrency - len(self._running)
        if not done and free <= 0:
            return False
        token = next(self._tokens)
        answer = await self._insist(lambda: self._commit(done, free, token))
        if answer is None:
            return True
        if not answer.is_known:
            self._die()
        for lost in answer.lost:
            logger.warning("job %s: its lease was lost, the outcome of this run does not count", lost)
        by_id = {settled.job.id: settled for settled in done}
        self._done += [
            self._runner.unstorable(by_id[broken], self._lanes[by_id[broken].job.lane])
            for broken in answer.broken
        ]
        for job in answer.claimed:
            self._start(job)
        return bool(done or answer.claimed)

    async def _insist(self, question: Callable[[], T]) -> T | None:
        """Ask the store until it answers; every call is safe to repeat. None when this worker was declared dead meanwhile."""
        while not self._is_dead:
            try:
                return await self._ask(question)
            except StoreUnavailableError as error:
                logger.warning(
                    "worker %s: the store did not answer and is asked again: %s", self._name, error
                )
                await self._runtime.clock.asleep(RESEND_SECONDS)
        return None

    def _commit(self, done: list[Settlement], free: int, token: int) -> Exchange:
        """Settle and claim in one transaction, then send probes where it is time for one."""
        now = self._now()
        self._breakers.flush(now)
        open_lanes = tuple(lane for lane in self._order if self._may_claim(self._lanes[lane].stage))
        answer = self._store.exchange(self._name, done, Want(open_lanes, free), now=now, token=token)
        claimed = list(answer.claimed)
        for lane in self._order if len(claimed) < free else ():
            claimed += self._probe(self._lanes[lane], now, token)
        return msgspec.structs.replace(answer, claimed=tuple(claimed))

    def _may_claim(self, stage: Stage[..., object]) -> bool:
        """A closed breaker lets everything through; so does a fail-fast one, whose jobs are refused one by one."""
        breaker = stage.breaker
        return breaker is None or breaker.mode == "fail_fast" or self._breakers.is_closed(breaker)

    def _probe(self, lane: Lane, now: float, token: int) -> tuple[Claimed, ...]:
        """Claim one job of a lane as the probe of its breaker, if that is not closed and it is time.

        Its tokens follow from the commit's own, so that a commit that is made again finds the probe it took before.
        """
        breaker = lane.stage.breaker
        if breaker is None or self._breakers.is_closed(breaker):
            return ()
        probe = f"{self._name}:{token}"
        if not self._breakers.take_probe(breaker, now, probe):
            return ()
        want = Want((lane.id,), 1)
        claimed = self._store.exchange(
            self._name, [], want, now=now, token=token + (lane.id << LANE_SHIFT)
        ).claimed
        if not claimed:
            self._breakers.end_probe(breaker, now, probe, Evidence.NOTHING)
        for job in claimed:
            self._runner.expect_probe(job.id, probe)
        return claimed

    def _start(self, job: Claimed) -> None:
        task = asyncio.ensure_future(self._dispatch(job, self._lanes[job.lane]))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()

    async def _dispatch(self, job: Claimed, lane: Lane) -> None:
        settled = await self._runner.run(job, lane)
        # Looked up only now: while the stage ran, a commit has taken the list away and put a new one in its place.
        self._done.append(settled)

    async def _is_idle(self) -> bool:
        """Say whether nothing is queued or held by anybody; otherwise wait until it is worth another look."""
        outlook = await self._insist(functools.partial(self._store.outlook, self._order))
        if outlook is None:
            return False
        if outlook.next_due_at is None and not outlook.held:
            return True
        due_in = POLL_SECONDS if outlook.next_due_at is None else outlook.next_due_at - self._now()
        # What another worker holds may come back at any moment; without such, the next due time is exact.
        wait = min(due_in, POLL_SECONDS) if outlook.held else due_in
        # What is due and was not claimed is held by a breaker.
        await self._runtime.clock.asleep(
            wait if wait > 0 else self._breakers.opens_in(self._now(), POLL_SECONDS)
        )
        return False

    async def _pause(self) -> None:
        """Wait until something ends or is asked for; with room for more, only until it is time to look again."""
        if self._done:
            return
        is_full = self._is_stopping or len(self._running) >= self._concurrency
        with suppress(TimeoutError):
            async with asyncio.timeout(None if is_full else POLL_SECONDS):
                await self._wake.wait()

    async def _ask(self, question: Callable[[], T]) -> T:
        return cast("T", await self._ask_store(question))

    def _now(self) -> float:
        return self._runtime.clock.wall()


def _lanes_of(store: Store, pipelines: Sequence[Pipeline]) -> dict[LaneId, Lane]:
    lanes: dict[LaneId, Lane] = {}
    for pipeline in pipelines:
        ids = store.lanes(pipeline.name, [stage.name for stage in pipeline.stages])
        for place, (lane, stage) in enumerate(zip(ids, pipeline.stages, strict=True)):
            following = ids[place + 1] if place + 1 < len(ids) else None
            lanes[lane] = Lane(lane, pipeline, stage, following)
    return lanes
