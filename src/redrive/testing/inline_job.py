# SPDX-License-Identifier: Apache-2.0
"""Runs one job through its pipeline with the engine's own runner and decisions, and a variable instead of the store.

Nothing is decided here. `next_claim` does what a store does between two runs: pass the output to the next stage with a fresh
budget, or queue the job again with its counts. Breakers and crashes are treated as a worker does, as far as one job allows.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final, cast

import msgspec

from redrive.core.breaker import Breaker
from redrive.core.decision_text import reason_and_sentence
from redrive.core.lifecycle import JobState
from redrive.engine.classifier import DEFAULT
from redrive.engine.delivery.messages import category_of
from redrive.engine.pipeline.lanes import Lane, breakers_of, lanes_of
from redrive.engine.pipeline.pipeline import Event, Pipeline
from redrive.engine.pipeline.resources import OpenedResources, open_resources
from redrive.engine.runtime import Runtime
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.dead_letter import StageEndingError
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.idle import POLL_SECONDS
from redrive.engine.worker.probes import Probes
from redrive.engine.worker.runner import Runner
from redrive.engine.worker.slots import SUSPECT_MIN
from redrive.engine.worker.threads import RunBlocking
from redrive.errors import AttemptTimeoutError, WorkerCrashError
from redrive.redaction.process import redact
from redrive.store.protocol import Store
from redrive.store.records import Child, ClaimedJob, JobId, LaneId, PhaseChange, Settlement
from redrive.testing.faults import Crash
from redrive.testing.results import InlineAttempt, InlineChild, InlineResult

logger = logging.getLogger("redrive.testing")

DISPATCHES_MAX: Final = 2_000
"""The most runs of stages for one job; a job that is held for ever would otherwise never return."""
JOB: Final = JobId(1)


class _InlineStore:
    """Holds breakers and the ids of lanes: all that the runner needs from a store."""

    def __init__(self) -> None:
        self._breakers: dict[str, bytes] = {}
        self._lanes: dict[tuple[str, str], LaneId] = {}

    def lanes(self, pipeline: str, stages: Sequence[str]) -> list[LaneId]:
        return [self._lanes.setdefault((pipeline, stage), LaneId(len(self._lanes) + 1)) for stage in stages]

    def breaker(self, name: str) -> bytes | None:
        return self._breakers.get(name)

    def swap_breaker(
        self, name: str, before: bytes | None, after: bytes, _change: PhaseChange | None = None
    ) -> bool:
        is_same = self._breakers.get(name) == before
        if is_same:
            self._breakers[name] = after
        return is_same


async def run_job(
    pipeline: Pipeline, payload: bytes, runtime: Runtime, *, resources: Sequence[object], call: RunBlocking
) -> InlineResult:
    """Run a job to its end; `call` runs sync functions. Without resources, those of the pipeline are opened and closed."""
    async with AsyncExitStack() as stack:
        given = {pipeline.name: resources} if resources else await open_resources(stack, [pipeline])
        return await _InlineJob(pipeline, runtime, given, call).run(payload)


class _InlineJob:
    """One running job."""

    def __init__(
        self, pipeline: Pipeline, runtime: Runtime, resources: OpenedResources, call: RunBlocking
    ) -> None:
        store = cast("Store", _InlineStore())
        self._pipeline = pipeline
        self._clock = runtime.clock
        self._call = call
        self._lanes = lanes_of(store, [pipeline], resources)
        self._breakers = SharedBreakers(store, breakers_of(self._lanes))
        self._probes = Probes(store, self._lanes, self._breakers)
        self._runner = Runner(self._breakers, self._probes, runtime, classifier=DEFAULT, ask_store=_at_once)
        self._error: BaseException | None = None
        self._attempts: list[InlineAttempt] = []
        self._children: list[Child] = []
        self._events: list[Event] = []

    async def run(self, payload: bytes) -> InlineResult:
        """Dispatch until the job has ended, waiting on the virtual clock in between."""
        began_at = self._clock.monotonic()
        job = _first(payload, next(iter(self._lanes)))
        settled = await self._dispatch(job)
        while settled.status is JobState.QUEUED and len(self._attempts) < DISPATCHES_MAX:
            wait = settled.run_at - self._clock.wall()
            if wait > 0:
                self._clock.sleep(wait)
            settled = await self._dispatch(next_claim(settled))
        return self._result(settled, began_at)

    async def _dispatch(self, job: ClaimedJob) -> Settlement:
        """Run one stage once and settle it, then call the hooks."""
        lane = self._lanes[job.lane]
        self._admit(job, lane.stage.breaker)
        dispatch = self._runner.begin(job, lane)
        refusal = self._runner.refusal(dispatch)
        ended = await self._run(dispatch) if refusal is None else refusal
        settled = await self._settled(dispatch, ended)
        self._probes.release_dropped(self._clock.wall())
        self._breakers.flush(self._clock.wall())
        self._record(dispatch, settled)
        if settled.is_noticed:
            await self._call_hook(lane, settled)
        return settled

    def _admit(self, job: ClaimedJob, breaker: Breaker | None) -> None:
        """If the breaker is not closed, wait until the job may run as its probe."""
        while breaker is not None and not self._breakers.is_closed(breaker):
            if self._probes.assign(job.id, breaker, self._clock.wall(), f"inline:{job.dispatch}"):
                return
            if breaker.mode == "fail_fast":
                return
            self._clock.sleep(self._breakers.opens_in(self._clock.wall(), POLL_SECONDS))

    async def _run(self, dispatch: Dispatch) -> bytes | Exception | Crash:
        stage = dispatch.lane.stage
        if stage.is_async:
            try:
                ended = await asyncio.ensure_future(self._runner.run_async(dispatch))
            except Crash as crash:
                return crash
        else:
            called = await self._call(functools.partial(self._runner.run_sync, dispatch))
            ended = cast("bytes | Exception", called)
        dispatch.ended_at = self._clock.wall()
        ending = _intended_ending(ended)
        if isinstance(ending, Crash):
            return ending
        if ending is not None:
            raise ending
        if stage.timeout is not None and dispatch.overran and (stage.is_async or stage.is_abandoned):
            # A worker would have cancelled or abandoned it on time; here it has already returned.
            return AttemptTimeoutError(timeout=stage.timeout)
        return ended

    async def _settled(self, dispatch: Dispatch, ended: bytes | Exception | Crash) -> Settlement:
        if isinstance(ended, Crash):
            # As `Slots` does when a process was lost.
            job, crash_max = dispatch.job, dispatch.lane.pipeline.crash_max
            is_alone = job.suspects >= SUSPECT_MIN
            crashes = job.crashes + int(is_alone)
            if crashes < crash_max:
                return self._runner.decide_crashed(dispatch, is_alone=is_alone)
            ended = WorkerCrashError(stage=dispatch.lane.stage.name, exit_code=None, crashes=crashes)
        if isinstance(ended, Exception):
            self._error = ended
        return await self._runner.decide(dispatch, ended)

    def _record(self, dispatch: Dispatch, settled: Settlement) -> None:
        self._children += settled.children
        is_again = settled.status is JobState.QUEUED
        reason, sentence = reason_and_sentence(settled.decision)
        self._attempts.append(
            InlineAttempt(
                stage=dispatch.lane.stage.name,
                attempt=settled.job.attempt,
                outcome=settled.outcome,
                burned=settled.burned,
                code=settled.code,
                message=settled.message,
                reason=reason,
                sentence=sentence,
                waited=_exact(max(0.0, settled.run_at - settled.ended_at)) if is_again else 0.0,
                notes=_notes_of(settled),
            )
        )

    async def _call_hook(self, lane: Lane, settled: Settlement) -> None:
        """Call the hook; an exception of it changes nothing."""
        event = _event_of(lane, settled)
        self._events.append(event)
        try:
            await self._call(functools.partial(lane.pipeline.hooks[event.kind], event))
        except Exception as error:  # noqa: BLE001 - a hook must not change anything.
            logger.warning("hook on_%s raised %s", event.kind, redact(repr(error)))

    def _result(self, settled: Settlement, began_at: float) -> InlineResult:
        output = self._pipeline.stages[-1].output
        is_complete = settled.status is JobState.COMPLETE
        return InlineResult(
            status=settled.status.value,
            value=output.check(settled.value or b"") if is_complete else None,
            error=self._error,
            attempts=tuple(self._attempts),
            letter=settled.letter,
            notes={name: text for each in self._attempts for name, text in each.notes.items()},
            children=tuple(_child_of(each) for each in self._children),
            events=tuple(self._events),
            elapsed=_exact(self._clock.monotonic() - began_at),
        )


async def _at_once(question: Callable[[], object]) -> object:
    return question()


def _intended_ending(ended: bytes | Exception) -> BaseException | None:
    """Return what a stage raised and a worker would settle as a failure, but a test intends: a crash, an exit, an interrupt."""
    ending = ended.ending if isinstance(ended, StageEndingError) else None
    return None if isinstance(ending, SystemExit | asyncio.CancelledError) else ending


def _first(payload: bytes, lane: LaneId) -> ClaimedJob:
    return ClaimedJob(
        id=JOB,
        token=1,
        dispatch=1,
        lane=lane,
        attempt=1,
        round=1,
        snoozes=0,
        suspects=0,
        crashes=0,
        restarts=0,
        cancel_asked=0,
        expires_at=None,
        codes=None,
        input=payload,
    )


def next_claim(settled: Settlement) -> ClaimedJob:
    """Return the job as a store would return the next claim: the next stage with a fresh budget, or the same with its counts."""
    job = settled.job
    again = msgspec.structs.replace(job, token=job.token + 1, dispatch=job.dispatch + 1)
    if settled.outcome == "ok" and settled.value is not None:
        return msgspec.structs.replace(
            _first(settled.value, settled.lane), token=again.token, dispatch=again.dispatch
        )
    return msgspec.structs.replace(
        again,
        attempt=settled.attempt,
        snoozes=settled.snoozes,
        codes=settled.codes,
        suspects=settled.suspects,
        crashes=settled.crashes,
    )


def _exact(seconds: float) -> float:
    """Return a difference of two instants as a test would write it: a double is not precise below a tenth of this."""
    return round(seconds, 6)


def _child_of(child: Child) -> InlineChild:
    job = child.job
    return InlineChild(
        pipeline=child.pipeline,
        payload=msgspec.json.decode(job.payload),
        key=job.key,
        owner=job.owner,
        priority=job.priority,
    )


def _event_of(lane: Lane, settled: Settlement) -> Event:
    letter = settled.letter
    reason, sentence = reason_and_sentence(settled.decision)
    return Event(
        kind=settled.outcome,
        job_id=settled.job.id,
        pipeline=lane.pipeline.name,
        stage=lane.stage.name,
        attempt=settled.job.attempt,
        round=settled.job.round,
        code=str(settled.code),
        message=str(settled.message),
        reason=str(reason),
        sentence=str(sentence),
        at=datetime.fromtimestamp(settled.ended_at, UTC),
        due_at=datetime.fromtimestamp(settled.run_at, UTC),
        http_status=settled.http_status,
        notes=_notes_of(settled),
        category=category_of(lane, str(settled.code)) if letter is None else letter.category,
        exception=settled.exception or "",
        stack="" if letter is None else letter.stack,
    )


def _notes_of(settled: Settlement) -> dict[str, str]:
    return {} if settled.notes is None else msgspec.json.decode(settled.notes, type=dict[str, str])
