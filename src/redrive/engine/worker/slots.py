# SPDX-License-Identifier: Apache-2.0
"""The slots of a worker: each runs one stage at a time.

A slot is free as soon as its function returns, not when the settlement is committed; prefetched jobs wait here for the next free
slot. Async stages are tasks of the loop, sync ones go to threads, and a job that is suspected of killing workers runs alone in a
process of its own. The jobs of a batch share a slot. Whatever happens, every job that was started is settled once, or its lease is
given up.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from redrive.engine.error_text import error_text
from redrive.engine.observers import Observers, installed
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.transactional import TransactionalRuns
from redrive.engine.worker.batches.calls import Calls, SlotSteps
from redrive.engine.worker.batches.gathering import Call, Gathering, marked
from redrive.engine.worker.dead_letter import FailedAttempt, as_failure, literals_of
from redrive.engine.worker.dispatch import (
    ABANDONED,
    DROPPED,
    ENDING,
    IN_PROCESS,
    LEFT_BEHIND,
    RUNNING,
    SETTLED,
    SUSPECT_MIN,
    Dispatch,
)
from redrive.engine.worker.processes import LostProcessError, ProcessPool
from redrive.engine.worker.runner import GRACE_SECONDS, Runner
from redrive.engine.worker.threads import AskStore, ThreadPool
from redrive.errors import AttemptTimeoutError
from redrive.store.protocol import ChangeSignal
from redrive.store.records import ClaimedJob, JobId, LaneId, Settlement

logger = logging.getLogger("redrive.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker is made of: its way to the store, its threads and processes, and how it notices changes."""

    ask_store: AskStore
    threads: ThreadPool
    processes: ProcessPool
    watch: float | None = None
    """Seconds between two looks at whether anybody changed the store, while idle; None to wait for the next poll."""
    signal: ChangeSignal | None = None
    """What wakes an idle worker when somebody has changed the store; then there need be no looks in between."""
    observers: Observers = field(default_factory=installed)


class Slots:
    """What a worker runs, and the claimed jobs that wait for a free slot."""

    def __init__(
        self,
        lanes: Mapping[LaneId, Lane],
        runner: Runner,
        parts: WorkerParts,
        *,
        concurrency: int,
        transactional: TransactionalRuns,
        on_settlement: Callable[[Settlement], None],
        on_committed: Callable[[Settlement], None],
        on_room: Callable[[], None],
    ) -> None:
        self._lanes = lanes
        self._runner = runner
        self._probes = runner.probes
        self._threads = parts.threads
        self._processes = parts.processes
        self._observers = parts.observers
        self._is_observed = bool(parts.observers.of_attempts)
        self._concurrency = concurrency
        self._on_settlement = on_settlement
        self._on_committed, self._transactional = on_committed, transactional
        self._on_room = on_room
        # Runs begin in copies of this: one begins where another ends, and must not see what that one has set.
        self._context = contextvars.copy_context()
        self._ready: deque[ClaimedJob | Call] = deque()
        self._running: dict[JobId, Dispatch] = {}
        self._tasks: dict[JobId, asyncio.Task[None]] = {}
        self.in_use = self._in_use = dict.fromkeys(lanes, 0)
        """How many dispatches of each lane have a slot or wait for one."""
        clock, on_call = runner.runtime.clock, self._ready.append
        self.gatherings = {
            lane.id: Gathering(lane, lane.stage.batch, clock, on_call=on_call, on_due=on_room)
            for lane in lanes.values()
            if lane.stage.batch is not None
        }
        self._calls = Calls(runner, parts.threads, self._steps(), parts.observers)
        self._is_releasing = False
        self._orphans = 0
        """Slots kept by abandoned threads, and by what still runs although its lease was given up."""
        self.ended = 0
        """How many stages have ended here so far."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs, waits or is being settled here."""
        is_gathering = any(each.waiting for each in self.gatherings.values())
        return not (self._running or self._ready or self._tasks or is_gathering)

    @property
    def running(self) -> int:
        """How many stages run now."""
        return len(self._running)

    def jobs(self) -> list[ClaimedJob]:
        """Return the jobs that run or wait here; may be called from any thread."""
        ready = (each.jobs if isinstance(each, Call) else (each,) for each in tuple(self._ready))
        running = (each.job for each in self.dispatches())
        gathered = (each.jobs() for each in self.gatherings.values())
        return [*running, *chain.from_iterable(ready), *chain.from_iterable(gathered)]

    def dispatches(self) -> list[Dispatch]:
        """Return what runs now; may be called from any thread."""
        return list(self._running.values())

    def room(self, prefetch: int) -> int:
        """Return how many more jobs can be claimed, `prefetch` of which would have to wait for a slot."""
        taken = len(self._running) - self._calls.shared + len(self._ready) + self._orphans
        return self._concurrency + prefetch - taken

    def lane_limits(self, room: int) -> dict[LaneId, int]:
        """Return how many more jobs can be claimed of each lane that has a limit of its own; waiting jobs count.

        A batch lane can fill all of the `room`, but only one call more than there are free slots.
        """
        slots = min(room, max(0, self.room(0)) + 1)
        limits = {lane: gathering.room(slots) for lane, gathering in self.gatherings.items()}
        for lane in self._lanes.values():
            if lane.id in limits:
                continue
            most = [lane.stage.concurrency] if lane.stage.concurrency is not None else []
            if lane.stage.is_process:
                most.append(self._processes.size)
            if most:
                limits[lane.id] = max(0, min(most) - self._in_use[lane.id])
        return limits

    @property
    def first_waiting(self) -> ClaimedJob | Call | None:
        """The job or call that takes the next free slot; None when none waits."""
        return self._ready[0] if self._ready else None

    def put(self, jobs: Iterable[ClaimedJob]) -> None:
        """Take claimed jobs; `fill` starts them."""
        for job in jobs:
            if job.lane in self.gatherings:
                self.gatherings[job.lane].add(job)
            else:
                self._ready.append(job)
            self._in_use[job.lane] += 1
        for gathering in self.gatherings.values():
            gathering.form()

    def fill(self) -> None:
        """Start as many of the waiting jobs as there are free slots. One that cannot be started waits on; its error is raised."""
        while self._ready and len(self._running) - self._calls.shared + self._orphans < self._concurrency:
            waiting = self._ready.popleft()
            try:
                if isinstance(waiting, Call):
                    self._calls.start(waiting, self._running)
                else:
                    self._start(waiting)
            except BaseException:
                if isinstance(waiting, Call):
                    self._calls.undo(waiting, self._running)
                else:
                    self._running.pop(waiting.id, None)
                self._ready.appendleft(waiting)
                raise

    def drop_waiting(self) -> list[ClaimedJob]:
        """Forget the jobs that were not started, and return them."""
        waiting = list(self._ready)
        self._ready.clear()
        dropped = [job for gathering in self.gatherings.values() for job in gathering.drop()]
        for each in waiting:
            if isinstance(each, Call):
                each.gathering.call_ended()
                dropped += each.jobs
            else:
                dropped.append(each)
        for job in dropped:
            self._in_use[job.lane] -= 1
            self._probes.drop(job.id, self._lanes[job.lane].stage.breaker)
        return dropped

    def cancel(self, jobs: Iterable[JobId]) -> None:
        """Cancel jobs that somebody asked to cancel. A function on a thread or in a process ends when it checks for that."""
        asked = set(jobs)
        for place, waiting in enumerate(self._ready):
            if isinstance(waiting, Call):
                waiting.jobs = tuple(marked(job, asked) for job in waiting.jobs)
            else:
                self._ready[place] = marked(waiting, asked)
        for gathering in self.gatherings.values():
            gathering.cancel(asked)
        for job in asked:
            dispatch, task = self._running.get(job), self._tasks.get(job)
            if dispatch is None or dispatch.context.is_cancelled:
                continue
            dispatch.context.is_cancelled = True
            # A task in STARTING looks for itself: cancelled now, it would end without having run a line. A call continues for the
            # other jobs of its batch.
            if task is not None and dispatch.state is RUNNING and job not in self._calls.call_of:
                task.cancel()

    async def release(self) -> list[Dispatch]:
        """Drop everything; return the dispatches cut off. A thread continues and keeps its slot; its result is ignored."""
        self.drop_waiting()
        dispatches = list(self._running.values())
        # Each once: the jobs of a call have one task.
        tasks = list(dict.fromkeys(self._tasks.values()))
        self._is_releasing = True
        for task in tasks:
            task.cancel()
        if tasks:
            _, stubborn = await asyncio.wait(tasks, timeout=GRACE_SECONDS)
            if stubborn:
                logger.warning(
                    "%d stages did not end: they ignored cancellation and keep their slots", len(stubborn)
                )
        self._is_releasing = False
        cut_off = [dispatch for dispatch in dispatches if dispatch.state < ENDING]
        for job, task in tuple(self._tasks.items()):
            if task.done():
                # It was cancelled before it had begun.
                del self._tasks[job]
                dispatch = self._running[job]
                self._drop_probe(dispatch)
                self._free(dispatch)
        for dispatch in self._running.values():
            dispatch.state = LEFT_BEHIND if dispatch.job.id in self._tasks else DROPPED
            self._observers.end_attempt(dispatch.observing or (), "crashed", None)
            self._orphans += self._calls.keeps_slot(dispatch)
            self._drop_probe(dispatch)
        self._running.clear()
        self._tasks.clear()
        return cut_off

    def _start(self, job: ClaimedJob) -> None:
        lane = self._lanes[job.lane]
        dispatch = self._runner.begin(job, lane)
        self._running[job.id] = dispatch
        if dispatch.context.is_cancelled:
            dispatch.state = ENDING
            self._start_task(dispatch, self._guarded(dispatch, self._settle_cancelled))
        elif (refusal := self._runner.refusal(dispatch)) is not None:
            dispatch.state = ENDING
            self._start_deciding(dispatch, refusal)
        elif self._needs_process(job, lane):
            dispatch.state = IN_PROCESS
            self._start_task(dispatch, self._guarded(dispatch, self._run_in_process))
        elif lane.stage.is_transactional:
            self._start_task(dispatch, self._guarded(dispatch, self._run_in_transaction))
        elif lane.stage.is_async:
            self._start_task(dispatch, self._run_on_loop(dispatch))
        else:
            dispatch.state = RUNNING
            self._threads.start(self._runner.run_sync, dispatch, self._returned)
            if lane.stage.is_abandoned and lane.stage.timeout is not None:
                loop = asyncio.get_running_loop()
                dispatch.overrun = loop.call_later(
                    lane.stage.timeout, self._abandon, dispatch, context=self._context.copy()
                )

    def _steps(self) -> SlotSteps:
        return SlotSteps(
            start_task=self._start_shared_task,
            settle=self._settle,
            settle_broken=self._settle_broken,
            run_in_process=self._run_in_process,
            can_run_in_process=lambda call: self._needs_process(call.jobs[0], call.lane),
            forget_task=self._forget_task,
            leave=self._leave,
        )

    def _needs_process(self, job: ClaimedJob, lane: Lane) -> bool:
        if not (lane.stage.is_process or job.suspects >= SUSPECT_MIN) or lane.stage.is_transactional:
            return False
        return self._processes.can_run(lane)

    def _forget_task(self, call: Call) -> None:
        for dispatch in call.dispatches:
            self._tasks.pop(dispatch.job.id, None)

    def _start_shared_task(
        self, dispatches: Sequence[Dispatch], body: Coroutine[object, object, None]
    ) -> None:
        """Start the task of a call; it is the task of each of its jobs."""
        first, *others = dispatches
        self._start_task(first, body)
        if (task := self._tasks.get(first.job.id)) is not None:
            self._tasks.update({dispatch.job.id: task for dispatch in others})

    def _start_task(self, dispatch: Dispatch, body: Coroutine[object, object, None]) -> None:
        # The task itself frees its slot: a callback for its end would be one more step of the loop for each job.
        loop, context = asyncio.get_running_loop(), self._context.copy()
        if loop.get_task_factory() is None:
            # With the stage's name: another one, such as `Task-1024`, would be put together for each of them.
            task = asyncio.Task(body, loop=loop, name=dispatch.lane.stage.name, context=context)
        else:
            try:
                # Not every factory knows that a task can be given a context.
                task = context.run(loop.create_task, body)
            except BaseException:
                body.close()
                raise
        if not task.done():
            # The task of an eager factory may have ended already; it would never be removed from here.
            self._tasks[dispatch.job.id] = task

    def _start_deciding(self, dispatch: Dispatch, ended: bytes | Exception) -> None:
        """Decide in a task of its own, because the outcome may have to be reported to the stage's breaker first."""
        self._start_task(dispatch, self._guarded(dispatch, functools.partial(self._decide, ended=ended)))

    async def _run_on_loop(self, dispatch: Dispatch) -> None:
        """Run an async stage, and settle its job whatever happens. As `_guarded`, without a call more for each job."""
        dispatch.state = RUNNING
        try:
            if dispatch.context.is_cancelled:
                self._settle(dispatch, self._runner.decide_cancelled(dispatch))
            else:
                ended = await self._runner.run_async(dispatch)
                settlement = self._runner.decide_now(dispatch, ended)
                if settlement is None:
                    await self._decide(dispatch, ended)
                else:
                    self._settle(dispatch, settlement)
        except BaseException as error:  # noqa: BLE001 - sorted out there.
            self._settle_broken(dispatch, error)
        if dispatch.state is LEFT_BEHIND:
            self._leave(dispatch.job.lane)

    async def _guarded(
        self, dispatch: Dispatch, work: Callable[[Dispatch], Coroutine[object, object, None]]
    ) -> None:
        """Await what is done for a dispatch instead of running its stage on the loop, and settle its job whatever happens."""
        try:
            await work(dispatch)
        except BaseException as error:  # noqa: BLE001 - sorted out there.
            self._settle_broken(dispatch, error)
        if dispatch.state is LEFT_BEHIND:
            self._leave(dispatch.job.lane)

    async def _run_in_process(self, dispatch: Dispatch) -> None:
        """Run a stage in another process. Stages that ask for a process share them; a suspect has one alone."""
        is_alone = dispatch.job.suspects >= SUSPECT_MIN
        try:
            ended: bytes | Exception | FailedAttempt = await self._processes.run(dispatch, is_alone=is_alone)
        except LostProcessError as died:
            dispatch.state = max(dispatch.state, ENDING)
            settlement = await self._runner.decide_crashed(
                dispatch, is_alone=is_alone, exit_code=died.exit_code
            )
            self._settle(dispatch, settlement)
            return
        except Exception as exc:  # noqa: BLE001 - a process that could not even be started is a failure of the attempt.
            ended = exc
        await self._decide(dispatch, ended)

    async def _run_in_transaction(self, dispatch: Dispatch) -> None:
        """Run a stage whose writes are committed with its outcome."""
        settlement, how = await self._transactional.run(dispatch)
        if how != "lost":
            self._settle(dispatch, settlement, is_committed=how == "committed")
            return
        if dispatch.state >= SETTLED:
            # Given up before it ended: its slot is freed as that of what was left behind, and the job may run here again.
            return
        dispatch.state = DROPPED
        self._tasks.pop(dispatch.job.id, None)
        self._observers.end_attempt(dispatch.observing or (), "crashed", None)
        self._free(dispatch)
        self._on_room()

    def _returned(self, dispatch: Dispatch, ended: bytes | Exception) -> None:
        """Settle what a thread has returned; one that was abandoned or dropped only leaves its slot."""
        dispatch.cancel_overrun()
        if dispatch.state >= ABANDONED:
            self._leave(dispatch.job.lane)
            self.fill()
            return
        try:
            settlement = self._runner.decide_now(dispatch, ended)
        except BaseException as exc:  # noqa: BLE001 - a failure that cannot be read must not keep the others waiting.
            settlement, ended = None, as_failure(exc)
        if settlement is None:
            dispatch.state = ENDING
            self._start_deciding(dispatch, ended)
        else:
            self._settle(dispatch, settlement)

    def _abandon(self, dispatch: Dispatch) -> None:
        """Settle an attempt that overran as a timeout; its thread continues, and counts as one more dispatch until it returns."""
        timeout, dispatch.overrun = dispatch.lane.stage.timeout, None
        if dispatch.state >= ABANDONED or dispatch.ended_at or timeout is None:
            # Its thread may have ended in time, and the loop has yet to take the result.
            return
        dispatch.state = ABANDONED
        self._orphans += 1
        self._in_use[dispatch.job.lane] += 1
        self._start_deciding(dispatch, AttemptTimeoutError(timeout=timeout))

    async def _decide(self, dispatch: Dispatch, ended: bytes | Exception | FailedAttempt) -> None:
        """Decide what becomes of a job whose stage has ended, and settle it."""
        dispatch.state = max(dispatch.state, ENDING)
        self._settle(dispatch, await self._runner.decide(dispatch, ended))

    async def _settle_cancelled(self, dispatch: Dispatch) -> None:
        self._settle(dispatch, self._runner.decide_cancelled(dispatch))

    def _settle_broken(self, dispatch: Dispatch, error: BaseException) -> None:
        """Settle a job whose task raised, or just free its slot when everything is given up.

        Whatever it raised is a failure of this attempt: a stage cannot end the worker.
        """
        if isinstance(error, GeneratorExit) and not _is_in_task():
            raise error
        if dispatch.state >= SETTLED:
            return
        self._tasks.pop(dispatch.job.id, None)
        if self._is_releasing and not dispatch.context.is_cancelled:
            self._drop_probe(dispatch)
            self._observers.end_attempt(dispatch.observing or (), "crashed", None)
        else:
            try:
                self._settle(dispatch, self._runner.decide_broken(dispatch, error))
            except Exception as worse:  # noqa: BLE001 - the slot must be free, whatever happened.
                text = error_text(worse, literals_of(dispatch.job))
                logger.error("job %s could not be settled and stays leased: %s", dispatch.job.id, text)  # noqa: TRY400 - redacted.
        self._free(dispatch)

    def _settle(self, dispatch: Dispatch, settlement: Settlement, *, is_committed: bool = False) -> None:
        """Hand a settlement to the journal unless it is committed already, and free the slot."""
        if dispatch.state >= SETTLED:
            return
        dispatch.state = SETTLED
        if self._is_observed:
            self._report(dispatch, settlement)
        # Nothing is left to do for its task, so whoever is woken by the settlement finds this slot empty.
        self._tasks.pop(dispatch.job.id, None)
        # First the settlement: the next job that takes this slot may be one that cannot be started.
        (self._on_committed if is_committed else self._on_settlement)(settlement)
        self._free(dispatch)

    def _report(self, dispatch: Dispatch, settlement: Settlement) -> None:
        """Report an attempt to its observers; one whose function was never called begins and ends here for them."""
        observing = dispatch.observing
        if observing is None:
            observing = self._observers.start_attempt(dispatch.facts())
            self._observers.end_call(observing)
        self._observers.end_attempt(observing, settlement.outcome, settlement.code)

    def _free(self, dispatch: Dispatch) -> None:
        # The same job may be here again by now, with its next stage.
        if self._running.get(dispatch.job.id) is dispatch:
            del self._running[dispatch.job.id]
            self._in_use[dispatch.job.lane] -= 1
            self.ended += 1
            if self._calls.call_of:
                self._calls.settled(dispatch)
            self.fill()

    def _leave(self, lane: LaneId, jobs: int = 1) -> None:
        """Free the slot of what ran on after its leases were given up."""
        self._orphans -= 1
        self._in_use[lane] -= jobs
        self._on_room()

    def _drop_probe(self, dispatch: Dispatch) -> None:
        self._probes.drop(dispatch.job.id, dispatch.lane.stage.breaker)


def _is_in_task() -> bool:
    """Return whether a task of a loop runs; otherwise a coroutine is being closed that will never run."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False
