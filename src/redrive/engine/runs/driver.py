# SPDX-License-Identifier: Apache-2.0
"""Drive a run: submit its items while earlier ones are processed, and stop, pause or end it by its own rules.

However it ends, every submitted item is in the store; resuming the run submits the rest.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, TypeVar, cast

import msgspec

from redrive.core.budget import RunStatus, decide_status
from redrive.core.stop_reason import Interruption, LongHold, StopReason
from redrive.engine.clock import Clock, cancel_all, wait_for
from redrive.engine.daemon_threads import DaemonThreads
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.runs.budget import BudgetTracker
from redrive.engine.runs.items import first_difference, jobs_of
from redrive.engine.runs.runs import (
    KEEP_SECONDS,
    OnProgress,
    RunOptions,
    RunReport,
    Runs,
    has_permanent,
    is_failing,
    keep_run,
    leave_run,
)
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.service import DrivenRun, Options, serve
from redrive.engine.worker.threads import AskStore
from redrive.engine.worker.worker import Worker
from redrive.errors import (
    FailureBudgetExceededError,
    RunError,
    SerializationError,
    StoreError,
    StoreUnavailableError,
)
from redrive.store.protocol import Store
from redrive.store.records import NewJob, RunId
from redrive.store.statements import runs as run_sql

logger = logging.getLogger("redrive.runs")

T = TypeVar("T")
Source = Iterable[object] | AsyncIterable[object]

BATCH: Final = 1_000
"""Items per transaction."""
BATCH_SECONDS: Final = 0.2
"""How long a started batch waits for a slow source."""
LAST_ITEM_SECONDS: Final = 2.0
"""How long a stopped run waits for the item that its source is computing."""
LOOK_SECONDS: Final = 0.25
RETRY_SECONDS: Final = 1.0
WINDOW_PER_PLACE: Final = 8
WINDOW_MIN: Final = 20 * BATCH
"""How many items may be open at a time: enough for every slot, and for all items that end between two reports."""


async def drive_run(
    store: Store,
    pipeline: Pipeline,
    *,
    items: Source | None,
    options: RunOptions,
    how: Options,
    also: Sequence[Pipeline] = (),
    resume: int | None = None,
    on_progress: OnProgress | None = None,
) -> RunReport:
    """Start or resume a run, work on it until it ends or is stopped, and return its report.

    Meanwhile the worker serves `also`, the pipelines of its children. A resumed run gets these options in place of its own. If its
    source was read to the end, it needs no items; if items are given, they are compared.
    """
    book, clock = Runs(store), CURRENT.get().clock
    if resume is None:
        run = book.add(pipeline.name, options, clock.wall())
    else:
        run = RunId(resume)
        book.resumable(run, pipeline.name)
    driver = Driver(
        store, pipeline, run, options, clock=clock, concurrency=how.concurrency, on_progress=on_progress
    )
    try:
        driven = DrivenRun(
            id=run,
            drive=lambda worker, ask: driver.drive(items, worker, ask),
            on_commit=driver.budget.committed,
            leased_max=driver.budget.leased_max,
        )
        await serve(store, [pipeline, *also], how, run=driven)
        driver.end_if_over()
    except Exception as error:
        # If the store is unavailable, that is the error itself; the run stays `running`, as after a crash.
        with suppress(StoreError):
            driver.pause_after(error)
        raise
    finally:
        report = book.report(run)
        with suppress(StoreError):
            leave_run(store, run)
        if report.status == RunStatus.PAUSED:
            # Items that were in a stage when the run was paused are queued again by now.
            book.pause_items(run)
    if report.status == RunStatus.ABORTED:
        spent = driver.budget.exceeded
        rate = 0.0 if spent is None else spent.rate
        raise FailureBudgetExceededError(run=run, sentence=report.reason or "", rate=rate, report=report)
    return report


class Driver:
    """Drives one run beside a worker in this process."""

    def __init__(
        self,
        store: Store,
        pipeline: Pipeline,
        run: RunId,
        options: RunOptions,
        *,
        clock: Clock,
        concurrency: int,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._store = store
        self._book = Runs(store)
        self._run = run
        self._clock = clock
        self._window = max(WINDOW_MIN, WINDOW_PER_PLACE * concurrency)
        self._on_progress = on_progress
        self._pipeline = pipeline
        self._lane = store.lanes(pipeline.name, [stage.name for stage in pipeline.stages])[0]
        self._submitted = 0
        self._finished = 0
        self._last: RunReport | None = None
        """The last report that was given to the listener."""
        self._is_closed = False
        self._is_running = False
        """Whether it was seen running: one that is resumed is paused until its source was compared."""
        self._keep()
        before = self._book.report(run)
        # A run that is resumed after its budget was exceeded starts with a fresh budget.
        self._options = msgspec.structs.replace(options, resumed_with=before.tally)
        known = msgspec.structs.replace(self._book.options(run), resumed_with=before.tally)
        self._is_reopened = before.status == RunStatus.PAUSED or self._options != known
        """Whether the run has to be changed in the store before it continues."""
        self.budget = BudgetTracker(options.budget, before.tally)
        self._reported = asyncio.Event()
        self._is_full = False
        """True while the source waits for earlier items to end."""

    async def drive(self, source: Source | None, worker: Worker, ask_store: AskStore) -> None:
        """Submit the items and check the run until it has ended or is stopped."""
        self._ask_store = ask_store
        submitting = asyncio.ensure_future(self._submit_items(source))
        try:
            while True:
                # In this order: a report from before the run was resumed must not decide about one that is fed since.
                is_fed = submitting.done()
                report = await self._report()
                if is_fed:
                    submitting.result()
                was_due = self.budget.leased_max() == 0
                stop = await self._reason_to_stop(report, worker, is_fed=is_fed)
                if stop is not None:
                    await cancel_all(submitting)
                    await stop()
                    return
                if was_due:
                    # It claimed nothing while this check was due.
                    worker.wake()
                await self._wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Whatever stopped it, even an error of the source: the run can be resumed.
            await self._ask(functools.partial(self.pause_after, error))
            # Report progress once more; an error of the listener matters less than this one.
            with suppress(Exception):
                await self._report()
            raise
        finally:
            await cancel_all(submitting)

    def pause_after(self, error: BaseException) -> None:
        """Pause the run after an error, so that it can be resumed. Does nothing if it has ended or the run itself was refused."""
        if self._is_closed or isinstance(error, RunError):
            return
        item = error.index if isinstance(error, SerializationError) else None
        reason = Interruption(error=type(error).__name__, item=item)
        self._book.end(self._run, RunStatus.PAUSED, reason, self._clock.wall())
        error.add_note(
            f"run {self._run} is paused: rd.run(..., resume={self._run}) continues it,"
            f" or redrive run resume {self._run}"
        )
        self._is_closed = True

    def _keep(self) -> None:
        now = self._clock.wall()
        self._kept_until = now + KEEP_SECONDS
        keep_run(self._store, self._run, now)

    async def _wait(self) -> None:
        """Wait until the next report, or until the budget is due for a check."""
        await wait_for(self.budget.due, self._clock, LOOK_SECONDS)
        self.budget.due.clear()

    async def _report(self) -> RunReport:
        self.budget.asking()
        report = await self._ask(lambda: self._book.report(self._run))
        self._is_running = self._is_running or report.status == RunStatus.RUNNING
        if self._clock.wall() > self._kept_until - KEEP_SECONDS / 2:
            await self._ask(self._keep)
        if self._on_progress is not None:
            self._on_progress(report)
        self._last = report
        self._finished = report.tally.finished
        self._reported.set()
        return report

    async def _reason_to_stop(
        self, report: RunReport, worker: Worker, *, is_fed: bool
    ) -> Callable[[], Awaitable[None]] | None:
        """Return how to stop a run that is finished, has spent its budget or was held too long; None to continue."""
        # Somebody else stopped it: feed no more, and end politely.
        if self._is_running and report.status == RunStatus.PAUSED:
            return self._leave_paused
        if self._is_running and report.status == RunStatus.CANCELLED:
            return functools.partial(self._abort, RunStatus.CANCELLED, None)
        is_over = is_fed and not report.open and report.items >= self._submitted
        is_hopeless = is_over and await self._ask(lambda: has_permanent(self._store, self._run))
        ending = self._ending(report, is_over=is_over, is_hopeless=is_hopeless)
        if ending is not None:
            return functools.partial(self._abort if ending[0] is RunStatus.ABORTED else self._end, *ending)
        if not (is_fed or self._is_full) or await worker.held_for() < max(self._options.hold_max, 1e-9):
            return None
        return functools.partial(self._end, RunStatus.PAUSED, LongHold(seconds=self._options.hold_max))

    def _ending(
        self, report: RunReport, *, is_over: bool, is_hopeless: bool
    ) -> tuple[RunStatus, StopReason | None] | None:
        """Return the status with which the run has to stop, and why; None if it may continue."""
        exceeded, budget = self.budget.check(report.tally, is_last=is_over), self._options.budget
        if exceeded is not None and budget is not None:
            is_pause = budget.on_exceeded == "pause"
            return RunStatus.PAUSED if is_pause else RunStatus.ABORTED, exceeded
        if not is_over:
            return None
        rule, before = self._options.rule or self._options.thresholds, RunStatus(report.status)
        return decide_status(rule, before, report.tally, has_permanent=is_hopeless), None

    def end_if_over(self) -> None:
        """End a run whose last items ended while its worker was being stopped, and report it."""
        report = self._book.report(self._run)
        is_live = report.status == RunStatus.RUNNING or is_failing(self._store, report)
        if is_live and not report.open and self._book.is_fed(self._run):
            is_hopeless = has_permanent(self._store, self._run)
            ending = self._ending(report, is_over=True, is_hopeless=is_hopeless)
            if ending is not None:
                self._book.end(self._run, *ending, self._clock.wall())
                report = self._book.report(self._run)
        self._is_closed = report.status != RunStatus.RUNNING
        if self._is_closed and report != self._last and self._on_progress is not None:
            self._on_progress(report)

    async def _abort(self, status: RunStatus, reason: StopReason | None) -> None:
        """Cancel the items that have not started; running ones finish their stage first, finished ones stay."""
        cancel, first = self._book.cancel_items, 0
        while (report := await self._report()).open:
            first = await self._ask(functools.partial(cancel, self._run, self._clock.wall(), BATCH, first))
            if report.open == (await self._report()).open:
                await self._wait()
        await self._end(status, reason)

    async def _leave_paused(self) -> None:
        """Pause what was submitted after somebody paused the run."""
        await self._ask(lambda: self._book.pause_items(self._run))
        self._is_closed = True

    async def _end(self, status: RunStatus, reason: StopReason | None) -> None:
        await self._ask(lambda: self._book.end(self._run, status, reason, self._clock.wall()))
        self._is_closed = True
        await self._report()

    async def _submit_items(self, source: Source | None) -> None:
        known = (await self._ask(lambda: self._book.report(self._run))).items
        is_fed = await self._ask(lambda: self._book.is_fed(self._run))
        if source is None:
            # Nothing is left to read, so a source that can be read only once is not needed again.
            self._submitted = known
            self._require(is_fed, f"its source was not read to the end, only {known} items")
            await self._resume()
            return
        async for items in _batches(source, self._clock):
            first, now = self._submitted, self._clock.wall()
            jobs, bad = jobs_of(items, self._pipeline, self._lane, self._run, first=first, now=now)
            old = max(0, min(known - self._submitted, len(jobs)))
            if old:
                await self._compare(jobs[:old])
            is_more = is_fed and old < len(jobs)
            self._require(not is_more, f"its source yields more than the {known} items it had before")
            if not is_fed and self._submitted + len(jobs) >= known:
                await self._resume()
            if jobs[old:]:
                await self._wait_for_room()
                await self._submit(jobs[old:])
            self._submitted += len(jobs)
            if bad is not None:
                raise bad
        self._require(
            self._submitted >= known,
            f"its source ended after {self._submitted} items, but {known} were submitted before",
        )
        await self._resume()
        await self._ask(lambda: self._book.mark_source(self._run, is_fed=True))

    async def _resume(self) -> None:
        """Continue a run that is resumed; only after its source was compared, so that a refusal changes nothing."""
        if self._is_reopened:
            await self._ask(lambda: self._book.reopen(self._run, self._pipeline.name, self._options))
            self._is_reopened = False

    async def _wait_for_room(self) -> None:
        """Wait until enough earlier items have ended."""
        while self._submitted - self._finished >= self._window:
            self._is_full = True
            self._reported.clear()
            await self._reported.wait()
        self._is_full = False

    def _require(self, is_met: bool, problem: str) -> None:  # noqa: FBT001 - the condition comes first, as in assert.
        if not is_met:
            raise RunError(
                run=self._run,
                problem=problem,
                fix="Resume it with its original source, or start a new run.",
            )

    async def _compare(self, jobs: Sequence[NewJob]) -> None:
        """Refuse a source that yields other items than before."""
        first = cast("int", jobs[0].ordinal)
        rows = await self._ask(
            lambda: self._store.query(run_sql.run_payloads(run=self._run, first=first, end=first + len(jobs)))
        )
        place = first_difference(jobs, rows)
        self._require(place is None, f"its source no longer yields the same item at position {place}")

    async def _submit(self, jobs: Sequence[NewJob]) -> None:
        """Submit items; after a lost answer, first check which of them are stored."""
        while True:
            try:
                made = await self._ask_store(functools.partial(self._store.submit, jobs, self._clock.wall()))
            except StoreUnavailableError as error:
                logger.warning("run %s waits: %s", self._run, error)
                await self._clock.asleep(RETRY_SECONDS)
            else:
                self.budget.add_jobs(each.id for each in made)
                return
            there = (await self._ask(lambda: self._book.report(self._run))).items
            jobs = [job for job in jobs if cast("int", job.ordinal) >= there]
            if not jobs:
                return

    async def _ask(self, question: Callable[[], T]) -> T:
        while True:
            try:
                return await self._ask_store(question)
            except StoreUnavailableError as error:
                logger.warning("run %s waits: %s", self._run, error)
                await self._clock.asleep(RETRY_SECONDS)


async def _batches(source: Source, clock: Clock) -> AsyncIterator[list[object]]:
    """Yield the items of a source in batches; a slow source yields smaller ones."""
    if isinstance(source, AsyncIterable):
        async for batch in _async_batches(source):
            yield batch
        return
    items, threads = iter(source), DaemonThreads("redrive-source")
    is_over = threading.Event()

    def take() -> list[object]:
        taken: list[object] = []
        started = clock.monotonic()
        for item in islice(items, BATCH):
            taken.append(item)
            if is_over.is_set() or clock.monotonic() - started > BATCH_SECONDS:
                break
        return taken

    taking = threads.ask(take)
    try:
        while batch := await asyncio.shield(taking):
            yield batch
            taking = threads.ask(take)
    finally:
        # The caller may close the source next: wait for the item that it is computing, but not forever.
        is_over.set()
        await asyncio.wait({taking}, timeout=LAST_ITEM_SECONDS)


async def _async_batches(source: AsyncIterable[object]) -> AsyncIterator[list[object]]:
    batch: list[object] = []
    items = aiter(source)
    coming: asyncio.Future[object] | None = None
    try:
        while True:
            coming = asyncio.ensure_future(cast("asyncio.Future[object]", anext(items)))
            done, _ = await asyncio.wait({coming}, timeout=BATCH_SECONDS if batch else None)
            if not done:
                yield batch
                batch = []
            try:
                batch.append(await coming)
            except StopAsyncIteration:
                break
            if len(batch) >= BATCH:
                yield batch
                batch = []
    finally:
        if coming is not None:
            coming.cancel()
    if batch:
        yield batch
