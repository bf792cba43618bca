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
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar, cast

import msgspec

from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import opens_at
from redrive.core.signals import Signal
from redrive.engine.classifier import DEFAULT, Classifier
from redrive.engine.outcomes import Dispatch, Lane, settle_failure, settle_success
from redrive.engine.pipeline import Context, Pipeline, Stage
from redrive.engine.runtime import CURRENT
from redrive.engine.shared_breakers import SharedBreakers
from redrive.errors import AttemptTimeoutError, BreakerOpenError, SerializationError
from redrive.store.protocol import Claimed, Exchange, JobId, LaneId, Settlement, Store, Want

logger = logging.getLogger("redrive.worker")

T = TypeVar("T")

POLL_SECONDS: Final = 1.0
"""How long an idle worker sleeps before it looks for jobs that other processes submitted."""

Elsewhere = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a blocking function away from the loop."""


async def in_thread(work: Callable[[], object]) -> object:
    """Run a blocking function on a thread of the loop's pool."""
    return await asyncio.to_thread(work)


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
        elsewhere: Elsewhere = in_thread,
    ) -> None:
        self._store = store
        self._names = names
        self._name = next(names)
        self._concurrency = concurrency
        self._lease = lease
        self._classifier = classifier
        self._elsewhere = elsewhere
        self._runtime = CURRENT.get()
        self._lanes = _lanes_of(store, pipelines)
        self._order = tuple(sorted(self._lanes, reverse=True))
        self._breakers = SharedBreakers(
            store, (lane.stage.breaker for lane in self._lanes.values() if lane.stage.breaker)
        )
        self._probes: dict[JobId, str] = {}
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
            await self._ask(functools.partial(self._store.stop_worker, self._name))

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
        await self._ask(functools.partial(self._store.start_worker, self._name, self._now(), self._lease))

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
        answer = await self._ask(lambda: self._commit(done, free))
        for lost in answer.lost:
            logger.warning("job %s: its lease was lost, the outcome of this run does not count", lost)
        by_id = {settled.job.id: settled for settled in done}
        self._done += [self._unstorable(by_id[broken]) for broken in answer.broken]
        for job in answer.claimed:
            self._start(job)
        return bool(done or answer.claimed)

    def _commit(self, done: list[Settlement], free: int) -> Exchange:
        """Settle and claim in one transaction, then send probes where it is time for one."""
        now = self._now()
        self._breakers.flush(now)
        open_lanes = tuple(lane for lane in self._order if self._may_claim(self._lanes[lane].stage))
        answer = self._exchange_once(done, Want(open_lanes, free), now)
        claimed = list(answer.claimed)
        for lane in self._order if len(claimed) < free else ():
            claimed += self._probe(self._lanes[lane], now)
        return msgspec.structs.replace(answer, claimed=tuple(claimed))

    def _exchange_once(self, done: list[Settlement], want: Want, now: float) -> Exchange:
        return self._store.exchange(self._name, done, want, now=now, token=next(self._tokens))

    def _may_claim(self, stage: Stage[..., object]) -> bool:
        """A closed breaker lets everything through; so does a fail-fast one, whose jobs are refused one by one."""
        breaker = stage.breaker
        return breaker is None or breaker.mode == "fail_fast" or self._breakers.is_closed(breaker)

    def _probe(self, lane: Lane, now: float) -> tuple[Claimed, ...]:
        """Claim one job of a lane as the probe of its breaker, if that is not closed and it is time."""
        breaker = lane.stage.breaker
        if breaker is None or self._breakers.is_closed(breaker):
            return ()
        token = f"{self._name}:{next(self._tokens)}"
        if not self._breakers.take_probe(breaker, now, token):
            return ()
        claimed = self._exchange_once([], Want((lane.id,), 1), now).claimed
        if not claimed:
            self._breakers.end_probe(breaker, now, token, Evidence.NOTHING)
        for job in claimed:
            self._probes[job.id] = token
        return claimed

    def _start(self, job: Claimed) -> None:
        task = asyncio.ensure_future(self._dispatch(job, self._lanes[job.lane]))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()

    async def _dispatch(self, job: Claimed, lane: Lane) -> None:
        started_at = self._now()
        try:
            output = lane.stage.output.encode(await self._run_stage(job, lane))
        except Exception as exc:  # noqa: BLE001 - whatever a stage raises is a failure of its attempt.
            await self._failed(Dispatch(job, lane, started_at, self._now()), exc)
        except (
            BaseException
        ):  # A cancelled run says nothing about the dependency, but its probe must be given back.
            await self._tell_breaker(job, lane, Evidence.NOTHING)
            raise
        else:
            await self._tell_breaker(job, lane, Evidence.ALIVE)
            self._done.append(settle_success(Dispatch(job, lane, started_at, self._now()), output))

    async def _failed(self, dispatch: Dispatch, exc: Exception) -> None:
        stage = dispatch.lane.stage
        failure = self._classifier.classify(exc, idempotent=stage.is_idempotent, stage=stage.name)
        breaker = stage.breaker
        standing = None
        if breaker is not None:
            is_told = failure.asked is not None or isinstance(exc, BreakerOpenError)
            evidence = Evidence.NOTHING if is_told else breaker.evidence_of(failure)
            await self._tell_breaker(dispatch.job, dispatch.lane, evidence)
            standing = self._breakers.standing(breaker)
        self._done.append(settle_failure(dispatch, exc, failure, self._runtime.chance.random(), standing))

    async def _tell_breaker(self, job: Claimed, lane: Lane, evidence: Evidence) -> None:
        """Tell the stage's breaker what a run found; a failure at once, so that it may open before the next claim."""
        breaker, probe = lane.stage.breaker, self._probes.pop(job.id, None)
        if breaker is None:
            return
        if probe is not None:
            await self._ask(lambda: self._breakers.end_probe(breaker, self._now(), probe, evidence))
            return
        self._breakers.note(breaker, evidence)
        if evidence is Evidence.DOWN:
            await self._ask(lambda: self._breakers.flush(self._now()))

    async def _run_stage(self, job: Claimed, lane: Lane) -> object:
        stage = lane.stage
        value = stage.input.check(job.input)
        if (
            stage.breaker is not None
            and job.id not in self._probes
            and not self._breakers.is_closed(stage.breaker)
        ):
            self._refuse(stage.breaker)
        call = functools.partial(stage.fn, value, **_context_of(job, lane))
        if not stage.is_async:
            result = await self._elsewhere(call)
        else:
            result = await _limited(stage, cast("Callable[[], Awaitable[object]]", call))
        if isinstance(result, Signal):
            raise result
        return result

    def _refuse(self, breaker: Breaker) -> None:
        """Refuse a job without running it: its breaker opened after it was claimed, or fails fast."""
        opens = opens_at(breaker, self._breakers.standing(breaker).state)
        retry_at = None if opens is None else datetime.fromtimestamp(max(opens, self._now()), UTC)
        raise BreakerOpenError(breaker=breaker.name, retry_at=retry_at, reason="it is not closed")

    def _unstorable(self, settled: Settlement) -> Settlement:
        """Settle as a failure what the store could not take."""
        lane = self._lanes[settled.job.lane]
        error = SerializationError(
            where=f"{lane.stage.name} (output)", kind="row", problem="the store refused it"
        )
        dispatch = Dispatch(settled.job, lane, settled.started_at, settled.ended_at)
        failure = self._classifier.classify(error, stage=lane.stage.name)
        return settle_failure(dispatch, error, failure, self._runtime.chance.random())

    async def _is_idle(self) -> bool:
        """Say whether nothing is queued or held by anybody; otherwise wait until it is worth another look."""
        outlook = await self._ask(functools.partial(self._store.outlook, self._order))
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
        """Wait until something ends or is asked for; with nothing running, until it is time to look again."""
        if self._running or self._done:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _ask(self, question: Callable[[], T]) -> T:
        return cast("T", await self._elsewhere(question))

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


def _context_of(job: Claimed, lane: Lane) -> dict[str, Context]:
    if lane.stage.context_name is None:
        return {}
    context = Context(job_id=job.id, pipeline=lane.pipeline.name, stage=lane.stage.name, attempt=job.attempt)
    return {lane.stage.context_name: context}


async def _limited(stage: Stage[..., object], call: Callable[[], Awaitable[object]]) -> object:
    if stage.timeout is None:
        return await call()
    scope = asyncio.timeout(stage.timeout)
    try:
        async with scope:
            return await call()
    except TimeoutError as exc:
        if not scope.expired():
            raise
        raise AttemptTimeoutError(timeout=stage.timeout) from exc
