# SPDX-License-Identifier: Apache-2.0
"""Calling the function of a batch stage, and deciding what becomes of each of its jobs.

The call is shared: its slot, its timeout and what it proves to the breaker. Everything else is of each job: input and output,
its failure, attempt and dead letter. A call that fails as a whole may be halved; the halves are called one after the other, in the
same slot. A job is settled once, with the part that it was called with last. A call has one slot from the start of its function
until its last job is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Sequence
from contextlib import contextmanager
from contextvars import Token
from dataclasses import dataclass
from typing import cast

from redrive.core.batch import halves
from redrive.core.decide import BreakerStatus
from redrive.core.signals import Finish
from redrive.core.units import instant
from redrive.engine.observers import Observers
from redrive.engine.pipeline.batch import arguments_for, results_of
from redrive.engine.pipeline.context import Context
from redrive.engine.worker.batches.gathering import Call
from redrive.engine.worker.dead_letter import CallValues, FailedAttempt, as_failure
from redrive.engine.worker.dispatch import (
    ABANDONED,
    ENDING,
    IN_PROCESS,
    LEFT_BEHIND,
    RUNNING,
    SETTLED,
    Dispatch,
)
from redrive.engine.worker.job_logging import CURRENT_CALL, CURRENT_JOB
from redrive.engine.worker.runner import Runner, limited, signalled
from redrive.engine.worker.settlements import decide_failure, gives_up, settlement_of_success
from redrive.engine.worker.threads import ThreadPool
from redrive.errors import BatchResultError
from redrive.store.records import JobId, LaneId, Settlement


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call ended, for each job in its order; `error` is the failure of the whole call, if it was one."""

    endings: list[bytes | Exception]
    error: Exception | None = None
    uncalled: Collection[int] = ()
    """Of a failed call, the places of jobs whose input does not fit: they fail alone, and the function is called without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSteps:
    """What the slots do for a call."""

    start_task: Callable[[Sequence[Dispatch], Coroutine[object, object, None]], None]
    settle: Callable[[Dispatch, Settlement], None]
    settle_broken: Callable[[Dispatch, BaseException], None]
    run_in_process: Callable[[Dispatch], Awaitable[None]]
    can_run_in_process: Callable[[Call], bool]
    forget_task: Callable[[Call], None]
    """Forget the task of a call whose function is on a thread now."""
    leave: Callable[[LaneId, int], None]
    """Free the slot of a call that ran on after its leases were given up, with so many jobs of a lane."""


class Calls:
    """Makes the calls of one worker. Belongs to its loop."""

    def __init__(self, runner: Runner, threads: ThreadPool, steps: SlotSteps, observers: Observers) -> None:
        self._runner = runner
        self._runtime = runner.runtime
        self._threads = threads
        self._steps = steps
        self._observers = observers
        self.call_of: dict[JobId, Call] = {}
        """The calls that run, by each of their jobs."""
        self.shared = 0
        """How many of the running jobs have a slot only because others of their call have it."""

    def start(self, call: Call, running: dict[JobId, Dispatch]) -> None:
        """Make a call in a task of its own: each of its jobs has a dispatch among those that run."""
        dispatches = [self._runner.begin(job, call.lane) for job in call.jobs]
        values = CallValues(*call.jobs) if len(call.jobs) > 1 else None
        for dispatch in dispatches:
            dispatch.call = values
            running[dispatch.job.id] = dispatch
            self.call_of[dispatch.job.id] = call
        call.dispatches = dispatches
        self.shared += call.left - 1
        self._steps.start_task(call.dispatches, self._guarded(call, self._begin))

    def undo(self, call: Call, running: dict[JobId, Dispatch]) -> None:
        """Undo the start of a call that could not be started."""
        if call.dispatches:
            self.shared -= call.left - 1
        for dispatch in call.dispatches:
            del running[dispatch.job.id], self.call_of[dispatch.job.id]
        call.dispatches = []

    def settled(self, dispatch: Dispatch) -> None:
        """Free the slot of a call with the last of its jobs."""
        call = self.call_of.pop(dispatch.job.id, None)
        if call is None:
            return
        call.left -= 1
        if call.left:
            self.shared -= 1
        else:
            call.gathering.call_ended()

    def keeps_slot(self, dispatch: Dispatch) -> bool:
        """Return whether what still runs keeps a slot of its own; of the jobs of a call only the first one does."""
        call = self.call_of.pop(dispatch.job.id, None)
        if call is None:
            return True
        is_first, call.is_orphan = not call.is_orphan, True
        self.shared -= 0 if is_first else 1
        return is_first

    async def _guarded(self, call: Call, work: Callable[[Call], Awaitable[None]]) -> None:
        """Await a part of the work, and settle every job whatever happens."""
        try:
            await work(call)
        except BaseException as error:  # noqa: BLE001 - sorted out there.
            for dispatch in call.dispatches:
                self._steps.settle_broken(dispatch, error)
        if any(dispatch.state is LEFT_BEHIND for dispatch in call.dispatches):
            self._leave(call)

    def _leave(self, call: Call) -> None:
        call.gathering.call_ended()
        self._steps.leave(call.lane.id, call.left)

    async def _begin(self, call: Call) -> None:
        """Settle the jobs that must not run after all, and call the function with the others."""
        part: list[Dispatch] = []
        for dispatch in call.dispatches:
            if dispatch.context.is_cancelled:
                dispatch.state = ENDING
                self._steps.settle(dispatch, self._runner.decide_cancelled(dispatch))
            elif (refusal := self._runner.refusal(dispatch)) is not None:
                dispatch.state = ENDING
                self._steps.settle(dispatch, await self._runner.decide(dispatch, refusal))
            else:
                part.append(dispatch)
        if len(part) == 1 and self._steps.can_run_in_process(call):
            part[0].state = IN_PROCESS
            self._note_call(call, part)
            await self._steps.run_in_process(part[0])
        elif part:
            call.parts.append(part)
            await self._call_parts(call)

    async def _call_parts(self, call: Call) -> None:
        """Call the function with one part after the other; after a thread, `_returned` continues."""
        while call.parts:
            part = call.parts.pop()
            if part[0].state >= SETTLED:
                # Its leases were given up while it ran.
                return
            self._start_clock(part)
            self._note_call(call, part)
            if not call.lane.stage.is_async:
                call.current = part
                self._steps.forget_task(call)
                self._threads.start(self._run_sync, call, self._returned)
                return
            with self._observed(part):
                result = await run_call(part)
            await self._end(call, part, result)

    def _run_sync(self, call: Call) -> CallResult:
        """Call a sync function, on whatever thread this is; not when it was dropped before there was a thread for it."""
        part = call.current
        if part[0].state >= ABANDONED:
            return CallResult([])
        with self._observed(part):
            result = run_call_sync(part)
        if part[0].state < ABANDONED:
            # Now, because the loop takes the result a little later.
            self._note_end(part)
        return result

    @contextmanager
    def _observed(self, part: list[Dispatch]) -> Generator[None]:
        """Report the attempts of a part to their observers; not again when it is called in halves."""
        new = [each for each in part if each.observing is None] if self._observers.of_attempts else []
        for dispatch in new:
            dispatch.observing = self._observers.start_attempt(dispatch.facts())
        try:
            yield
        finally:
            # The last first: each may have put something on top of what the one before it has put into the context.
            for dispatch in reversed(new):
                self._observers.end_call(dispatch.observing or ())

    def _returned(self, call: Call, result: CallResult) -> None:
        """Continue with what a thread has returned; a call that was dropped only leaves its slot."""
        part = call.current
        if part[0].state >= ABANDONED:
            self._leave(call)
            return

        async def resume(call: Call) -> None:
            await self._end(call, part, result)
            await self._call_parts(call)

        unsettled = [dispatch for dispatch in call.dispatches if dispatch.state < SETTLED]
        self._steps.start_task(unsettled, self._guarded(call, resume))

    async def _end(self, call: Call, part: list[Dispatch], result: CallResult) -> None:
        """Report a call to the breaker, once, then settle each of its jobs, or halve the call."""
        self._note_end(part)
        ended = self._classified(part, result)
        if not ended:
            return
        dispatches, _, failures = zip(*ended, strict=True)
        standing = await self._runner.report_call(dispatches, failures)
        if result.error is not None and not isinstance(result.error, BatchResultError):
            # A wrong number of results is a bug that smaller calls would only repeat.
            uncalled = [part[place] for place in result.uncalled]
            ended = self._split(call, ended, uncalled, standing)
        for dispatch, ending, failed in ended:
            try:
                settlement = (
                    settlement_of_success(dispatch, cast("bytes", ending))
                    if failed is None
                    else await decide_failure(dispatch, failed, self._runtime.chance.random(), standing)
                )
                self._steps.settle(dispatch, settlement)
            except Exception as error:  # noqa: BLE001 - a failure that cannot be read must not keep the others waiting.
                self._steps.settle_broken(dispatch, error)

    def _classified(self, part: list[Dispatch], result: CallResult) -> list[Ended]:
        """Return how each job ended; one whose failure breaks a rule of the user is settled here."""
        ended: list[Ended] = []
        for dispatch, ending in zip(part, result.endings, strict=True):
            dispatch.state = max(dispatch.state, ENDING)
            try:
                failed = None if isinstance(ending, bytes) else self._runner.classify(dispatch, ending)
                ended.append((dispatch, ending, failed))
            except Exception as error:  # noqa: BLE001 - as above.
                self._steps.settle_broken(dispatch, error)
        return ended

    def _split(
        self, call: Call, ended: list[Ended], uncalled: list[Dispatch], standing: BreakerStatus | None
    ) -> list[Ended]:
        """Halve a call that failed as a whole if it would give up any job; return what is left to settle."""
        batch = call.lane.stage.batch
        shared = [each for each in ended if each[0] not in uncalled]
        is_given_up = any(
            failed is not None and gives_up(dispatch, failed, standing) for dispatch, _, failed in shared
        )
        if batch is None or batch.on_error != "split" or len(shared) < 2 or not is_given_up:
            return ended
        for dispatch, _, _ in shared:
            # It is cut off like one that runs when its worker stops.
            dispatch.state = RUNNING
            # What the failed call reported is void: the limits have counted its usage, and the halves report anew.
            for reported in (dispatch.context.children, dispatch.context.notes, dispatch.context.usage):
                reported.clear()
        call.is_split = True
        # The first half is called next.
        call.parts += reversed(halves([dispatch for dispatch, _, _ in shared]))
        return [each for each in ended if each not in shared]

    def _start_clock(self, part: list[Dispatch]) -> None:
        """Start the clock of the attempts of a part; after a split, anew."""
        now, timeout = self._runtime.clock.wall(), part[0].lane.stage.timeout
        for dispatch in part:
            dispatch.state, dispatch.started_at, dispatch.ended_at = RUNNING, now, 0.0
            if timeout is not None:
                dispatch.context.deadline = instant(now + timeout)

    def _note_call(self, call: Call, part: list[Dispatch]) -> None:
        """Count a call for the limits of its stage."""
        for dispatch in part:
            dispatch.shared_by = len(part)
        if self._runner.limits is not None:
            self._runner.limits.called(call.lane, len(part), is_again=call.is_split)

    def _note_end(self, part: list[Dispatch]) -> None:
        now = self._runtime.clock.wall()
        for dispatch in part:
            dispatch.ended_at = dispatch.ended_at or now


Ended = tuple[Dispatch, bytes | Exception, FailedAttempt | None]
"""How one job of a call ended, and its failure, if it is one."""


def run_call_sync(part: Sequence[Dispatch]) -> CallResult:
    """Call a sync batch function, on whatever thread this is; whatever it raises is a failure of its jobs."""
    stage, (inputs, contexts, bad) = part[0].lane.stage, _inputs_of(part)
    call, job = _present(contexts)
    try:
        returned: object = () if not inputs else stage.fn(inputs, **_extras(part, contexts))
        return _call_end(part, bad, results_of(stage, returned, len(inputs)))
    except BaseException as exc:  # noqa: BLE001 - whatever a stage raises is a failure of its attempt.
        return _failed_call(part, bad, exc)
    finally:
        CURRENT_JOB.reset(job)
        CURRENT_CALL.reset(call)


async def run_call(part: Sequence[Dispatch]) -> CallResult:
    """Call an async batch function; a cancellation of this task is raised."""
    stage, (inputs, contexts, bad) = part[0].lane.stage, _inputs_of(part)
    _present(contexts)
    try:
        returned: object = ()
        if inputs:
            call = cast("Awaitable[object]", stage.fn(inputs, **_extras(part, contexts)))
            returned = await (call if stage.timeout is None else limited(stage.name, stage.timeout, call))
        return _call_end(part, bad, results_of(stage, returned, len(inputs)))
    except asyncio.CancelledError as exc:
        # Perhaps a task that the stage waited for was cancelled; only a cancellation of this one is meant for us.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _failed_call(part, bad, exc)
    except GeneratorExit:
        raise
    except BaseException as exc:  # noqa: BLE001 - whatever a stage raises is a failure of its attempt.
        return _failed_call(part, bad, exc)


Bad = dict[int, Exception]
"""Inputs that do not fit the stage's type, by their place: they fail alone, and the function is called without them."""


def _inputs_of(part: Sequence[Dispatch]) -> tuple[list[object], list[Context], Bad]:
    """Return the inputs of a call and their contexts, and what cannot be an input."""
    inputs: list[object] = []
    contexts: list[Context] = []
    bad: Bad = {}
    for place, dispatch in enumerate(part):
        try:
            inputs.append(dispatch.lane.stage.input.check(dispatch.job.input))
            contexts.append(dispatch.context)
        except Exception as exc:  # noqa: BLE001 - as whatever a stage raises.
            bad[place] = exc
    return inputs, contexts, bad


def _extras(part: Sequence[Dispatch], contexts: list[Context]) -> dict[str, object]:
    lane = part[0].lane
    return arguments_for(lane.stage, lane.resources, contexts)


def _call_end(part: Sequence[Dispatch], bad: Bad, results: Sequence[object]) -> CallResult:
    """Return the outputs of a call as JSON; one that does not fit its type is a failure of its job alone."""
    seal, rest = part[0].lane.stage.output.seal, iter(results)
    endings: list[bytes | Exception] = []
    for place, dispatch in enumerate(part):
        result = bad[place] if place in bad else next(rest)
        try:
            ending = signalled(dispatch, result) if isinstance(result, BaseException) else seal(result)
            endings.append(ending)
        except Exception as exc:  # noqa: BLE001 - as whatever a stage raises.
            endings.append(exc)
    return CallResult(endings)


def _failed_call(part: Sequence[Dispatch], bad: Bad, raised: BaseException) -> CallResult:
    """Return what the function raised as the ending of every job it was called with; a signal is for all of them, too."""
    endings = [bad.get(place) or signalled(dispatch, raised) for place, dispatch in enumerate(part)]
    return CallResult(endings, None if isinstance(raised, Finish) else as_failure(raised), bad)


def _present(contexts: list[Context]) -> tuple[Token[tuple[Context, ...]], Token[Context | None]]:
    """Let log records and injected faults know for which jobs the function is called."""
    call = CURRENT_CALL.set(tuple(contexts))
    return call, CURRENT_JOB.set(contexts[0] if len(contexts) == 1 else None)
