# SPDX-License-Identifier: Apache-2.0
"""The places in a worker where stages run.

A place is free as soon as its function returns, not when the outcome is committed; jobs that were claimed ahead wait here for the
next free place. Async stages are tasks of the loop, sync ones go to threads, and a job that is suspected of killing workers runs
alone in a process of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Final, Protocol

from redrive.engine.error_text import shown
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.dead_letter import FailedAttempt, literals_of
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.runner import GRACE_SECONDS, Runner, failure_of
from redrive.engine.worker.threads import ThreadPool
from redrive.errors import AttemptTimeoutError, WorkerCrashError
from redrive.store.protocol import Claimed, JobId, LaneId, Settlement

logger = logging.getLogger("redrive.worker")

SUSPECT_MIN: Final = 2
"""So many workers must have died over a job before it runs alone."""


class ProcessPool(Protocol):
    """What runs stages in processes of their own."""

    def run(self, dispatch: Dispatch, *, is_alone: bool) -> Awaitable[bytes | FailedAttempt]:
        """Run a stage in a process; raises LostProcessError when that died."""
        ...

    @property
    def places(self) -> int:
        """How many stages run at once in processes."""
        ...

    def can_run(self, lane: Lane) -> bool:
        """Say whether a process could find this stage."""
        ...


class LostProcessError(Exception):
    """The process that ran a stage died."""

    def __init__(self, exit_code: int | None) -> None:
        self.exit_code = exit_code
        super().__init__(exit_code)


class Slots:
    """What a worker runs, and what waits in it to be run."""

    def __init__(
        self,
        lanes: Mapping[LaneId, Lane],
        runner: Runner,
        threads: ThreadPool,
        processes: ProcessPool,
        *,
        concurrency: int,
        on_settled: Callable[[Settlement], None],
        on_room: Callable[[], None],
    ) -> None:
        self._lanes = lanes
        self._runner = runner
        self._threads = threads
        self._processes = processes
        self._concurrency = concurrency
        self._on_settled = on_settled
        self._on_room = on_room
        # Runs begin in copies of this: one begins where another ends, and must not see what that one has set.
        self._context = contextvars.copy_context()
        self._ready: deque[Claimed] = deque()
        self._running: dict[JobId, Dispatch] = {}
        self._tasks: dict[JobId, asyncio.Task[None]] = {}
        self._in_use = dict.fromkeys(lanes, 0)
        self._unwanted: set[JobId] = set()
        self._is_letting_go = False
        self._orphans = 0
        self.ended = 0
        """How many stages have ended here so far."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs, waits or is being settled here."""
        return not (self._running or self._ready or self._tasks)

    @property
    def running(self) -> int:
        """How many stages run now."""
        return len(self._running)

    def dispatches(self) -> list[Dispatch]:
        """Return what runs now; may be asked from any thread."""
        return list(self._running.values())

    def room(self, ahead: int) -> int:
        """Return how many more jobs can be taken, `ahead` of which would have to wait for a place."""
        return self._concurrency + ahead - len(self._running) - len(self._ready) - self._orphans

    @property
    def places_in_processes(self) -> int:
        """How many stages run at once in processes."""
        return self._processes.places

    def in_use(self, lane: LaneId) -> int:
        """Return how many jobs of a lane are here, waiting ones included."""
        return self._in_use[lane]

    @property
    def first_waiting(self) -> Claimed | None:
        """The job that takes the next free place; None when none waits."""
        return self._ready[0] if self._ready else None

    def put(self, jobs: Iterable[Claimed]) -> None:
        """Take claimed jobs; `fill` starts them."""
        for job in jobs:
            self._ready.append(job)
            self._in_use[job.lane] += 1

    def fill(self) -> None:
        """Start as many of the waiting jobs as there are free places. One that cannot be started waits on; its error is raised."""
        while self._ready and len(self._running) + self._orphans < self._concurrency:
            job = self._ready.popleft()
            try:
                self._start(job)
            except BaseException:
                self._running.pop(job.id, None)
                self._ready.appendleft(job)
                raise

    def drop_waiting(self) -> list[Claimed]:
        """Forget the jobs that were not started, and return them."""
        dropped = list(self._ready)
        for job in dropped:
            self._in_use[job.lane] -= 1
            self._runner.drop_probe(job, self._lanes[job.lane])
        self._ready.clear()
        self._unwanted.clear()
        return dropped

    def cancel(self, jobs: Iterable[JobId]) -> None:
        """Cancel jobs that somebody asked to cancel; a function on a thread is told, and ends when it looks."""
        waiting = {job.id for job in self._ready}
        for job in jobs:
            if job in waiting:
                self._unwanted.add(job)
            dispatch, task = self._running.get(job), self._tasks.get(job)
            if dispatch is None or dispatch.context.is_cancelled:
                continue
            dispatch.context.is_cancelled = True
            # What runs in another process cannot be stopped; it is told, and its outcome is settled when it comes. A task that
            # has not begun looks for itself: cancelled now, it would end without having run a line.
            if task is not None and dispatch.has_begun and not dispatch.is_ending and not dispatch.is_apart:
                task.cancel()

    async def let_go(self) -> list[Dispatch]:
        """Drop everything, and return what was running. What is on a thread runs on and holds its place, but does not count."""
        self.drop_waiting()
        cut_off = list(self._running.values())
        tasks = list(self._tasks.values())
        self._is_letting_go = True
        for task in tasks:
            task.cancel()
        if tasks:
            _, stubborn = await asyncio.wait(tasks, timeout=GRACE_SECONDS)
            if stubborn:
                logger.warning(
                    "%d stages do not end although they were cancelled; they are left behind", len(stubborn)
                )
        self._is_letting_go = False
        for job, task in tuple(self._tasks.items()):
            if task.done():
                # It was cancelled before it had begun.
                del self._tasks[job]
                dispatch = self._running[job]
                self._runner.drop_probe(dispatch.job, dispatch.lane)
                self._free(dispatch)
        for dispatch in self._running.values():
            dispatch.is_settled = True
            dispatch.is_left_behind = dispatch.job.id in self._tasks
            self._orphans += 1
            self._runner.drop_probe(dispatch.job, dispatch.lane)
            _forget_overrun(dispatch)
        self._running.clear()
        self._tasks.clear()
        return [dispatch for dispatch in cut_off if not dispatch.is_ending]

    def _start(self, job: Claimed) -> None:
        lane = self._lanes[job.lane]
        dispatch = self._runner.begin(job, lane)
        if job.id in self._unwanted:
            self._unwanted.discard(job.id)
            dispatch.context.is_cancelled = True
        self._running[job.id] = dispatch
        if dispatch.context.is_cancelled:
            dispatch.is_ending = True
            self._begin(dispatch, self._see_through(dispatch, self._cancelled))
        elif (refusal := self._runner.refusal(dispatch)) is not None:
            dispatch.is_ending = True
            self._begin(dispatch, self._see_through(dispatch, functools.partial(self._settle, ended=refusal)))
        elif (lane.stage.is_process or job.suspects >= SUSPECT_MIN) and self._processes.can_run(lane):
            dispatch.is_apart = True
            self._begin(dispatch, self._see_through(dispatch, self._run_in_process))
        elif lane.stage.is_async:
            self._begin(dispatch, self._run(dispatch))
        else:
            self._threads.start(self._runner.call, dispatch, self._returned)
            if lane.stage.is_abandoned and lane.stage.timeout is not None:
                loop = asyncio.get_running_loop()
                dispatch.overrun = loop.call_later(
                    lane.stage.timeout, self._abandon, dispatch, context=self._context.copy()
                )

    def _begin(self, dispatch: Dispatch, body: Coroutine[object, object, None]) -> None:
        # A callback for its end would be a step of the loop more for each job; the task itself sees to it.
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
            # One that an eager factory makes may be over already, and nobody would take it from here.
            self._tasks[dispatch.job.id] = task

    async def _run(self, dispatch: Dispatch) -> None:
        """Run an async stage, and settle its job whatever happens."""
        dispatch.has_begun = True
        try:
            if dispatch.context.is_cancelled:
                self._settled(dispatch, self._runner.cancelled(dispatch))
            else:
                ended = await self._runner.acall(dispatch)
                at_once = self._runner.settled_at_once(dispatch, ended)
                if at_once is None:
                    await self._settle(dispatch, ended)
                else:
                    self._settled(dispatch, at_once)
        except BaseException as error:  # noqa: BLE001 - told apart there.
            self._broke(dispatch, error)
        if dispatch.is_left_behind:
            self._leave(dispatch)

    async def _see_through(
        self, dispatch: Dispatch, work: Callable[[Dispatch], Coroutine[object, object, None]]
    ) -> None:
        """Do something else for a run than running its stage here, and settle its job whatever happens."""
        dispatch.has_begun = True
        try:
            await work(dispatch)
        except BaseException as error:  # noqa: BLE001 - told apart there.
            self._broke(dispatch, error)
        if dispatch.is_left_behind:
            self._leave(dispatch)

    def _leave(self, dispatch: Dispatch) -> None:
        """Give up the place of a run that had been left behind; what was abandoned has its thread left in the lane."""
        self._orphans -= 1
        if not dispatch.is_abandoned:
            self._in_use[dispatch.job.lane] -= 1
        self._on_room()

    def _broke(self, dispatch: Dispatch, error: BaseException) -> None:
        """Settle a job whose task broke off, or let go of it when everything is.

        Whatever came out of it is a failure of this run: a stage ends no worker, by what it raises or by what that says.
        """
        if isinstance(error, GeneratorExit) and not _is_stepped():
            raise error
        if dispatch.is_settled:
            return
        self._tasks.pop(dispatch.job.id, None)
        if self._is_letting_go and (dispatch.is_ending or not dispatch.context.is_cancelled):
            self._runner.drop_probe(dispatch.job, dispatch.lane)
        else:
            try:
                self._settled(dispatch, self._runner.broken_off(dispatch, error))
            except Exception as worse:  # noqa: BLE001 - the place of the job must be free, whatever came of it.
                told = shown(worse, literals_of(dispatch.job))
                logger.error("job %s could not be settled and stays leased: %s", dispatch.job.id, told)  # noqa: TRY400 - redacted.
        self._free(dispatch)

    def _free(self, dispatch: Dispatch) -> None:
        # The same job may be here again by now, with its next stage.
        if self._running.get(dispatch.job.id) is dispatch:
            del self._running[dispatch.job.id]
            if not dispatch.is_abandoned:
                self._in_use[dispatch.job.lane] -= 1
            self.ended += 1
            self.fill()

    async def _settle(self, dispatch: Dispatch, ended: bytes | Exception | FailedAttempt) -> None:
        dispatch.is_ending = True
        self._settled(dispatch, await self._runner.settled(dispatch, ended))

    async def _cancelled(self, dispatch: Dispatch) -> None:
        self._settled(dispatch, self._runner.cancelled(dispatch))

    def _settled(self, dispatch: Dispatch, settled: Settlement) -> None:
        if dispatch.is_settled:
            return
        dispatch.is_settled = dispatch.is_ending = True
        # Nothing is left to do for its task, so that whoever is woken by the outcome may find this place empty.
        self._tasks.pop(dispatch.job.id, None)
        # First the outcome: the next job that takes this place may be one that cannot be started.
        self._on_settled(settled)
        self._free(dispatch)

    def _returned(self, dispatch: Dispatch, ended: bytes | Exception) -> None:
        """Take in what a thread brought back."""
        _forget_overrun(dispatch)
        if dispatch.is_settled or dispatch.is_abandoned:
            self._orphans -= 1
            self._in_use[dispatch.job.lane] -= 1
            self.fill()
            self._on_room()
            return
        try:
            at_once = self._runner.settled_at_once(dispatch, ended)
        except BaseException as exc:  # noqa: BLE001 - what cannot be told of a stage must not keep the others waiting.
            at_once, ended = None, failure_of(exc)
        if at_once is not None:
            self._settled(dispatch, at_once)
            return
        dispatch.is_ending = True
        self._begin(dispatch, self._see_through(dispatch, functools.partial(self._settle, ended=ended)))

    def _abandon(self, dispatch: Dispatch) -> None:
        """Settle an attempt that overran as a timeout, while its thread runs on and keeps its place."""
        timeout, dispatch.overrun = dispatch.lane.stage.timeout, None
        if dispatch.is_settled or dispatch.is_ending or dispatch.ended_at or timeout is None:
            # It may have ended in time on its thread, and be about to be told.
            return
        dispatch.is_abandoned = True
        self._orphans += 1
        late = AttemptTimeoutError(timeout=timeout)
        self._begin(dispatch, self._see_through(dispatch, functools.partial(self._settle, ended=late)))

    async def _run_in_process(self, dispatch: Dispatch) -> None:
        """Run a stage in another process; one that was asked for a process by the stage may share it, a suspect has it alone."""
        job, lane = dispatch.job, dispatch.lane
        is_alone = job.suspects >= SUSPECT_MIN
        try:
            ended: bytes | Exception | FailedAttempt = await self._processes.run(dispatch, is_alone=is_alone)
        except LostProcessError as died:
            crashes = job.crashes + (1 if is_alone else 0)
            if crashes < lane.pipeline.crash_max:
                self._settled(dispatch, self._runner.crashed(dispatch, is_alone=is_alone))
                return
            ended = WorkerCrashError(stage=lane.stage.name, exit_code=died.exit_code, crashes=crashes)
        except Exception as exc:  # noqa: BLE001 - a process that could not even be started is a failure of the attempt.
            ended = exc
        await self._settle(dispatch, ended)


def _forget_overrun(dispatch: Dispatch) -> None:
    """Cancel what would settle a run that overruns: until its time it would keep the run, with input and payload, alive."""
    if dispatch.overrun is not None:
        dispatch.overrun.cancel()
        dispatch.overrun = None


def _is_stepped() -> bool:
    """Say whether a task of a loop is being run, and not a coroutine closed that nobody will run any more."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False
