# SPDX-License-Identifier: Apache-2.0
"""Runs one job with a real worker on a store in memory.

The worker claims, decides, holds, retries and commits as in production. Only three parts are replaced: stages run where the test
wants them, a crash of a stage is the loss of its process, and jobs that stages submit are listed and not stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final, Literal, NoReturn, TypeVar, cast

import msgspec

from redrive.core.decision_text import reason_and_sentence
from redrive.core.failure import Failure
from redrive.core.lifecycle import JobState
from redrive.engine.classifier import DEFAULT, Classifier
from redrive.engine.clock import cancel_all
from redrive.engine.delivery.outbox import Delivery
from redrive.engine.delivery.recipients import record_listeners
from redrive.engine.health_probes import HealthProbes
from redrive.engine.observers import installed
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.pipeline.pipeline import Event, Hook, Pipeline
from redrive.engine.pipeline.resources import OpenedResources, open_resources
from redrive.engine.runtime import Runtime
from redrive.engine.worker.batches.calls import run_call, run_call_sync
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.dead_letter import StageEndingError
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.probes import Probes
from redrive.engine.worker.processes import LostProcessError
from redrive.engine.worker.runner import Runner
from redrive.engine.worker.slots import WorkerParts
from redrive.engine.worker.threads import BlockingCall
from redrive.engine.worker.worker import Worker
from redrive.errors import AttemptTimeoutError
from redrive.store.protocol import Store
from redrive.store.records import Child, Exchange, ExchangeRequest, LaneId, NewJob, Settlement
from redrive.store.sqlite.store import SqliteStore
from redrive.testing.faults import EXIT_CODE, Crash
from redrive.testing.results import InlineAttempt, InlineChild, InlineResult

T = TypeVar("T")

DISPATCHES_MAX: Final = 2_000
"""The most runs of stages for one job; a job that is held for ever would otherwise never return."""


async def run_job(
    pipeline: Pipeline,
    payload: bytes,
    runtime: Runtime,
    *,
    resources: Sequence[object] | Literal["open"],
    call: BlockingCall,
) -> InlineResult:
    """Run a job to its end; `call` runs sync functions. Without objects, those of the pipeline are opened and closed."""
    events: list[Event] = []
    inline = _inline(pipeline, events)
    clock = runtime.clock
    async with AsyncExitStack() as stack:
        given: OpenedResources = (
            {pipeline.name: resources}
            if resources and not isinstance(resources, str)
            else await open_resources(stack, [pipeline])
        )
        store = stack.enter_context(closing(_RecordingStore()))
        classifier = _RecordingClassifier()
        stages = _StagesHere(store, runtime, call)
        parts = WorkerParts(ask_store=_at_once, threads=stages, processes=stages)
        worker = Worker(
            store,
            [inline],
            parts,
            names=(f"inline-{number}" for number in count(1)),
            concurrency=1,
            resources=given,
            classifier=classifier,
        )
        delivery = Delivery(store, worker.lanes, clock, ask_store=_at_once, call=call)
        worker.listeners.append(delivery.committed)
        record_listeners(store, worker.lanes)
        stages.stop = store.stop = worker.stop
        began_at = clock.wall()
        store.submit([NewJob(lane=next(iter(worker.lanes)), payload=payload, run_at=began_at)], began_at)
        probing = HealthProbes(
            worker.probes,
            clock,
            name=lambda: worker.name,
            ask_store=_at_once,
            call=call,
            on_close=worker.wake,
        )
        beside = [asyncio.ensure_future(each.run()) for each in (delivery, probing)]
        try:
            await worker.run(until_idle=True)
            await delivery.flush()
        finally:
            await cancel_all(*beside)
        if stages.ending is not None:
            raise stages.ending
        return _result_of(
            pipeline, store, worker.lanes, error=classifier.error, events=events, began_at=began_at
        )


def _inline(pipeline: Pipeline, events: list[Event]) -> Pipeline:
    """Return a copy of a pipeline whose stages run where `_StagesHere` runs them, whose events are kept, and without sinks."""
    made = copy(pipeline)
    stages = tuple(replace(stage, is_process=True) for stage in pipeline.stages)
    hooks = {kind: _kept(hook, events) for kind, hook in pipeline.hooks.items()}
    for name, value in (("stages", stages), ("hooks", hooks), ("sinks", ())):
        object.__setattr__(made, name, value)
    return made


def _kept(hook: Hook, events: list[Event]) -> Hook:
    """Return a hook that keeps each event once: one that fails gets its event again."""

    def keep(event: Event) -> object:
        if event not in events:
            events.append(event)
        return hook(event)

    return cast("Hook", keep)


class _RecordingStore(SqliteStore):
    """A store in memory that keeps what was settled; jobs that stages submit are not stored, so that nothing runs them."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.settled: list[Settlement] = []
        self.stop: Callable[[], None] = lambda: None

    def exchange(self, asked: ExchangeRequest) -> Exchange:
        childless = [msgspec.structs.replace(one, children=()) if one.children else one for one in asked.done]
        answer = super().exchange(msgspec.structs.replace(asked, done=childless))
        refused = {*answer.broken, *answer.lost}
        self.settled += [one for one in asked.done if one.job.id not in refused]
        if len(self.settled) >= DISPATCHES_MAX:
            self.stop()
        return answer


class _RecordingClassifier(Classifier):
    """Classifies as every worker does, and keeps the exception."""

    error: BaseException | None = None

    def classify(self, exc: BaseException, **options: object) -> Failure:
        self.error = exc
        return DEFAULT.classify(exc, **options)  # type: ignore[arg-type] # Passed on.


class _StagesHere:
    """Runs stages in place of processes: async ones on this loop, sync ones by `call`."""

    size = 1

    def __init__(self, store: Store, runtime: Runtime, call: BlockingCall) -> None:
        self._runner = Runner(
            Probes(store, {}, SharedBreakers(store, ())),
            runtime,
            classifier=DEFAULT,
            ask_store=_at_once,
            observers=installed(),
        )
        self._now = runtime.clock.wall
        self._call = call
        self.ending: BaseException | None = None
        """What a stage raised and a worker would settle as a failure, but a test intends: an interrupt, or its own failure."""
        self.stop: Callable[[], None] = lambda: None

    def start(self, work: object, of: object, done: object) -> NoReturn:  # noqa: ARG002 - nothing is run here.
        """Refuse what would be run on a thread: every stage is run by `run`."""
        raise AssertionError

    def can_run(self, lane: Lane) -> bool:  # noqa: ARG002 - every stage runs here.
        return True

    async def run(self, dispatch: Dispatch, *, is_alone: bool) -> bytes | Exception:  # noqa: ARG002 - there is one place.
        stage = dispatch.lane.stage
        if stage.batch is not None:
            call = run_call([dispatch]) if stage.is_async else self._call(partial(run_call_sync, [dispatch]))
            (ended,) = (await call).endings
        elif stage.is_async:
            ended = await self._runner.run_async(dispatch)
        else:
            ended = await self._call(partial(self._runner.run_sync, dispatch))
        dispatch.ended_at = self._now()
        ending = ended.ending if isinstance(ended, StageEndingError) else None
        if isinstance(ending, Crash):
            raise LostProcessError(EXIT_CODE)
        if ending is not None and not isinstance(ending, SystemExit | asyncio.CancelledError):
            self.ending = ending
            self.stop()
            self.stop()
            await asyncio.Event().wait()
        if stage.timeout is not None and dispatch.overran and (stage.is_async or stage.is_abandoned):
            # A worker would have cancelled or abandoned it on time; here it has already returned.
            return AttemptTimeoutError(timeout=stage.timeout)
        return ended


async def _at_once(question: Callable[[], T]) -> T:
    return question()


def _result_of(
    pipeline: Pipeline,
    store: _RecordingStore,
    lanes: Mapping[LaneId, Lane],
    *,
    error: BaseException | None,
    events: list[Event],
    began_at: float,
) -> InlineResult:
    last = store.settled[-1]
    attempts = tuple(_attempt_of(one, lanes[one.job.lane]) for one in store.settled)
    is_complete = last.status is JobState.COMPLETE
    return InlineResult(
        status=last.status.value,
        value=pipeline.stages[-1].output.check(last.value or b"") if is_complete else None,
        error=error,
        attempts=attempts,
        letter=last.letter,
        notes={name: text for each in attempts for name, text in each.notes.items()},
        children=tuple(_child_of(each) for one in store.settled for each in one.children),
        events=tuple(events),
        elapsed=_exact(last.ended_at - began_at),
    )


def _attempt_of(settled: Settlement, lane: Lane) -> InlineAttempt:
    is_again = settled.status is JobState.QUEUED
    reason, sentence = reason_and_sentence(settled.decision)
    return InlineAttempt(
        stage=lane.stage.name,
        attempt=settled.job.attempt,
        outcome=settled.outcome,
        burned=settled.burned,
        code=settled.code,
        message=settled.message,
        reason=reason,
        sentence=sentence,
        waited=_exact(max(0.0, settled.run_at - settled.ended_at)) if is_again else 0.0,
        notes={} if settled.notes is None else msgspec.json.decode(settled.notes, type=dict[str, str]),
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
