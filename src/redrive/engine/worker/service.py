# SPDX-License-Identifier: Apache-2.0
"""A worker with everything around it: threads, processes, resources, heartbeat, hooks, schedules, health port, signals.

It only starts and stops these parts; what a worker does is in `worker`.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import platform
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final, Protocol

from redrive.engine.clock import cancel_all, fresh_name
from redrive.engine.daemon_threads import DaemonThreads
from redrive.engine.delivery.outbox import Delivery
from redrive.engine.delivery.recipients import record_listeners
from redrive.engine.health_probes import HealthProbes
from redrive.engine.observers import Observers, installed
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.resources import open_resources
from redrive.engine.replay.driver import ReplayDriver
from redrive.engine.replay.rules import record_rules
from redrive.engine.retention import RetentionDriver
from redrive.engine.runs.ending import RunStatusDriver
from redrive.engine.runtime import CURRENT
from redrive.engine.schedules import Ticker
from redrive.engine.worker.health import health_port
from redrive.engine.worker.job_logging import jobs_in_log_records
from redrive.engine.worker.leases import Heartbeat, Leases
from redrive.engine.worker.processes import Processes, is_of_program
from redrive.engine.worker.progress import STOP_SECONDS
from redrive.engine.worker.slots import WorkerParts
from redrive.engine.worker.threads import AskStore, BackgroundThread, LoopTracker, StageThreads, StoreThread
from redrive.engine.worker.worker import Ending, Worker
from redrive.engine.worker_log import WorkerLog
from redrive.errors import ConfigurationError
from redrive.store.protocol import Store
from redrive.store.records import RunId, Settlement, WorkerFacts
from redrive.store.statements import upkeep as upkeep_sql

logger = logging.getLogger("redrive.worker")

SWITCH_SECONDS: Final = 0.0001
COLLECT_AFTER: Final = 10_000
"""A worker's process collects cyclic garbage when so many more objects were made than freed."""
WATCH_SECONDS: Final = 0.01
"""How often an idle worker checks whether anybody has changed the store, if the store has no signal for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a worker is to work."""

    concurrency: int = 64
    lease: float = 30.0
    until_idle: bool = False
    hold_max: float = 0.0
    health: tuple[str, int] | None = None
    stop: Callable[[], bool] | None = None
    """Asked ten times a second whether to stop; None without one."""
    takes_signals: bool = True
    """Whether SIGTERM and SIGINT stop it; False on a loop of the caller, who handles signals."""


STOP_LOOK_SECONDS: Final = 0.1


class StopEvent(Protocol):
    """An event of `threading`, `asyncio` or `multiprocessing`."""

    def is_set(self) -> bool:
        """Return whether to stop."""
        ...


StopSignal = StopEvent | Callable[[], bool]
"""What stops a worker from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenRun:
    """A run that is driven beside the worker; when that returns, the worker is stopped."""

    id: RunId
    drive: Callable[[Worker, AskStore], Awaitable[None]]
    on_commit: Callable[[list[Settlement]], None]
    leased_max: Callable[[], int | None]
    """Asked before each claim: at most so many jobs are leased or not committed yet; None for no such limit."""


async def serve(
    store: Store, pipelines: Sequence[Pipeline], options: Options, *, run: DrivenRun | None = None
) -> Ending:
    """Run a worker until it is stopped, or there is nothing left to do."""
    _check_process_stages(pipelines)
    clock = CURRENT.get().clock
    async with AsyncExitStack() as stack:
        stack.enter_context(jobs_in_log_records())
        _tune_interpreter(stack)
        tracker = LoopTracker(asyncio.get_running_loop())
        tracker.start()
        stack.callback(tracker.stop)
        given = await open_resources(stack, pipelines)
        record_rules(store, pipelines)
        log = _log(store, options)
        logs = () if log is None else (log,)
        parts = _parts(stack, store, options, installed(*logs))
        about = WorkerFacts(
            host=platform.node(),
            process=os.getpid(),
            pipelines=tuple(each.name for each in pipelines),
            concurrency=options.concurrency,
        )
        worker = Worker(
            store,
            pipelines,
            parts,
            # Under a name used again, a dead worker could renew the lease of a living one.
            names=(fresh_name("worker") for _ in itertools.count()),
            concurrency=options.concurrency,
            lease=options.lease,
            resources=given,
            about=about,
            leased_max=None if run is None else run.leased_max,
        )
        await _keep_alive(stack, store, worker, options, parts.observers)
        delivery = _delivery(store, worker, parts)
        own = None if run is None else run.id
        statuses = RunStatusDriver(store, clock, ask_store=parts.ask_store, on_end=delivery.wake, own_run=own)
        listeners = (delivery.committed, statuses.committed)
        worker.listeners += listeners if run is None else (run.on_commit, *listeners)
        drivers = _drivers(store, pipelines, worker, parts.ask_store)
        side = [asyncio.ensure_future(each.run()) for each in (delivery, statuses, *drivers, *logs)]
        if options.stop is not None:
            side.append(asyncio.ensure_future(_stop_when(options.stop, worker)))
        stack.push_async_callback(cancel_all, *side)
        _stop_on_signals(stack, worker, options)
        stack.push_async_callback(delivery.close)
        stack.push_async_callback(delivery.flush)
        # Before the delivery: what ends here may be a notice.
        stack.push_async_callback(statuses.flush)
        if run is None:
            running = worker.run(until_idle=options.until_idle, hold_max=options.hold_max)
        else:
            running = _run_with(worker, run.drive(worker, parts.ask_store))
        return await _reported(running, worker.name, about, parts.observers)


def _tune_interpreter(stack: AsyncExitStack) -> None:
    """Switch between threads more often, and collect cyclic garbage less often, until the stack is closed."""
    # The store's thread needs the interpreter for a moment between any two statements.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(min(interval, SWITCH_SECONDS))
    stack.callback(sys.setswitchinterval, interval)
    # Thousands of jobs in flight would be examined again and again, and leave none.
    first, *others = gc.get_threshold()
    if first:
        gc.set_threshold(max(first, COLLECT_AFTER), *others)
    stack.callback(gc.set_threshold, first, *others)


def _log(store: Store, options: Options) -> WorkerLog | None:
    """Return the observer that logs about jobs, if its level is enabled."""
    if not logger.isEnabledFor(logging.INFO):
        return None
    (where,) = store.query(upkeep_sql.database_name())
    return WorkerLog(CURRENT.get().clock, store=where, lease=options.lease)


def _parts(stack: AsyncExitStack, store: Store, options: Options, observers: Observers) -> WorkerParts:
    """Make the threads and processes of a worker; they are closed with the stack."""
    threads, asking = StageThreads(options.concurrency), StoreThread()
    processes = Processes(options.concurrency, observers)
    for close in (processes.close, asking.close, threads.close):
        stack.callback(close)
    signal_ = store.change_signal()
    if signal_ is not None:
        stack.callback(signal_.close)
    return WorkerParts(
        ask_store=asking.ask,
        threads=threads,
        processes=processes,
        watch=WATCH_SECONDS,
        signal=signal_,
        observers=observers,
    )


def _delivery(store: Store, worker: Worker, parts: WorkerParts) -> Delivery:
    """Make the delivery of notices, and record its recipients."""
    record_listeners(store, worker.lanes)
    return Delivery(
        store,
        worker.lanes,
        CURRENT.get().clock,
        ask_store=parts.ask_store,
        call=DaemonThreads("redrive-hook").ask,
        breaker_changes=lambda: worker.breakers.changes,
    )


def _drivers(
    store: Store, pipelines: Sequence[Pipeline], worker: Worker, ask_store: AskStore
) -> tuple[Ticker, ReplayDriver, RetentionDriver, HealthProbes]:
    """Make what submits the jobs of schedules, drives replays, prunes, and calls the probes that breakers bring with them."""
    clock = CURRENT.get().clock

    def name() -> str:
        return worker.name

    return (
        Ticker(store, clock, ask_store=ask_store),
        ReplayDriver(store, pipelines, clock, name=name, ask_store=ask_store, on_news=worker.wake),
        RetentionDriver(store, clock, name=name, ask_store=ask_store),
        HealthProbes(
            worker.probes,
            clock,
            name=name,
            ask_store=ask_store,
            call=DaemonThreads("redrive-probe").ask,
            on_close=worker.wake,
        ),
    )


async def _keep_alive(
    stack: AsyncExitStack, store: Store, worker: Worker, options: Options, observers: Observers
) -> None:
    """Start the heartbeat, the thread that writes progress, and the health port."""
    # A thread of its own: no heartbeat waits until progress is redacted and written.
    progress = BackgroundThread("redrive-progress", lambda: worker.progress.write(worker.name))
    progress.start()
    stack.callback(progress.stop, STOP_SECONDS)
    leases = Leases(
        store,
        CURRENT.get().clock,
        lease=options.lease,
        on_dead=worker.declare_dead,
        on_lost_store=worker.lose_store,
        on_cancel=worker.cancel,
        on_reaped=lambda jobs: observers.report(lambda each: each.reaped(jobs)),
        progress=lambda _name: progress.wake(),
    )
    if options.health is not None:
        await stack.enter_async_context(
            health_port(*options.health, lambda: _health_of(worker, leases, options), observers)
        )
    worker.heartbeat = heartbeat = Heartbeat(leases, lambda: worker.known_as, lease=options.lease)
    heartbeat.start()
    stack.callback(heartbeat.stop)


async def _reported(
    running: Awaitable[Ending], name: str, about: WorkerFacts, observers: Observers
) -> Ending:
    """Await a worker's end, and report its start and its end."""
    observers.report(lambda each: each.worker_started(name, about))
    ended_by = "cancelled"
    try:
        ending = ended_by = await running
    except Exception as error:
        ended_by = type(error).__name__
        raise
    finally:
        observers.report(lambda each: each.worker_ended(ended_by))
    return ending


async def _stop_when(asked: Callable[[], bool], worker: Worker) -> None:
    """Stop a worker as soon as it is asked to; a function that raises stops it as well, and is logged."""
    try:
        while not asked():
            await CURRENT.get().clock.asleep(STOP_LOOK_SECONDS)
    except Exception:
        logger.exception("the function given as stop= failed; the worker stops")
    worker.stop("stop")


async def _run_with(worker: Worker, beside: Awaitable[None]) -> Ending:
    """Run a worker until what runs beside it has ended; raise what that raised."""
    driver = asyncio.ensure_future(beside)
    driver.add_done_callback(lambda _: worker.stop("run"))
    try:
        ending = await worker.run()
    finally:
        await cancel_all(driver)
    if not driver.cancelled():
        driver.result()
    return ending


def _health_of(worker: Worker, leases: Leases, options: Options) -> dict[str, object]:
    silent = leases.silent_for()
    return {
        "status": "ok" if silent <= options.lease else "unwell",
        "worker": worker.name,
        "running": worker.slots.running,
        "concurrency": options.concurrency,
        "seconds_since_contact": round(silent, 3),
    }


def _check_process_stages(pipelines: Sequence[Pipeline]) -> None:
    """Refuse stages that ask for a process and are of the program that was started: running that again would repeat it."""
    for stage in (each for pipeline in pipelines for each in pipeline.stages):
        if stage.is_process and is_of_program(stage.fn):
            raise ConfigurationError(
                field=f"stage({stage.name}).process",
                value=True,
                rule="needs a stage that another process can import, and this one is of the program that was started",
                fix="Move the stage into a module of its own, and import it.",
            )


def _stop_on_signals(stack: AsyncExitStack, worker: Worker, options: Options) -> None:
    """Stop on SIGTERM and SIGINT, unless the caller handles them: what runs is settled, nothing more is claimed."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT) if options.takes_signals else ():
        before = signal.getsignal(number)
        # Only the main thread may do this, and not every platform can; elsewhere the caller stops the worker.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, worker.stop)
            stack.callback(signal.signal, number, before)
            stack.callback(loop.remove_signal_handler, number)
