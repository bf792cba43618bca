# SPDX-License-Identifier: Apache-2.0
"""Driving a run: its items go in while earlier ones are worked on, and the run is stopped, paused or ended by its own rules.

However it ends, every item that was submitted is in the store; what was not can be submitted by resuming the run.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, TypeVar, cast

from redrive.core.budget import RunStatus
from redrive.engine.clock import Clock
from redrive.engine.daemon_threads import DaemonThreads
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.submission import PAYLOAD_MAX
from redrive.engine.runs.budget import Spending
from redrive.engine.runs.items import Itemiser, first_difference
from redrive.engine.runs.runs import OnProgress, RunBook, RunOptions, RunReport, judge
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.service import Options, serve
from redrive.engine.worker.threads import AskStore
from redrive.engine.worker.worker import Worker
from redrive.errors import (
    FailureBudgetExceededError,
    RunError,
    SerializationError,
    StoreError,
    StoreUnavailableError,
)
from redrive.store.protocol import NewJob, RunId, Store, Submitted

logger = logging.getLogger("redrive.runs")

T = TypeVar("T")
Source = Iterable[object] | AsyncIterable[object]

BATCH: Final = 1_000
"""Items per transaction."""
BATCH_SECONDS: Final = 0.2
"""How long a slow source may let a started batch wait."""
LAST_ITEM_SECONDS: Final = 2.0
"""How long a run that is stopped waits for the item that its source is about to yield."""
LOOK_SECONDS: Final = 0.25
RETRY_SECONDS: Final = 1.0
WINDOW_PER_PLACE: Final = 8
WINDOW_MIN: Final = 20 * BATCH
"""So many items may be open at a time: enough for every place, and for all that ends between two looks."""


async def drive_run(
    store: Store,
    pipeline: Pipeline,
    *,
    items: Source | None,
    options: RunOptions,
    how: Options,
    resume: int | None = None,
    on_progress: OnProgress | None = None,
) -> RunReport:
    """Start a run, or resume one, work on it until it ends or is stopped, and return the account of it.

    A run that is resumed after it read its source to the end needs no items; those that are given are compared.
    """
    book, clock = RunBook(store), CURRENT.get().clock
    if resume is None:
        run = book.add(pipeline.name, options, clock.wall())
    else:
        run = RunId(resume)
        book.unended(run, pipeline.name)
        options = book.options(run)
    driver = Driver(
        store, pipeline, run, options, clock=clock, concurrency=how.concurrency, on_progress=on_progress
    )
    try:
        await serve(
            store,
            [pipeline],
            how,
            on_commit=driver.spending.committed,
            beside=lambda worker, ask: driver.drive(items, worker, ask),
        )
    except Exception as error:
        # A store that is gone is the reason itself; the run is found running then, as after a crash.
        with suppress(StoreError):
            driver.leave(error)
        raise
    finally:
        report = book.report(run)
        if report.status == RunStatus.PAUSED:
            # What was in a stage when the run was paused has come back since.
            book.pause_items(run)
    if report.status == RunStatus.ABORTED:
        spent = driver.spending.exceeded
        rate = 0.0 if spent is None else spent.rate
        raise FailureBudgetExceededError(run=run, sentence=report.reason or "", rate=rate, report=report)
    return report


class Driver:
    """What drives one run beside a worker in this process."""

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
        self._book = RunBook(store)
        self._run = run
        self._options = options
        self._clock = clock
        self._window = max(WINDOW_MIN, WINDOW_PER_PLACE * concurrency)
        self._on_progress = on_progress
        lane = store.lanes(pipeline.name, [stage.name for stage in pipeline.stages])[0]
        self._items = Itemiser(pipeline, lane, run)
        self._submitted = 0
        self._finished = 0
        self._is_left = False
        before = self._book.report(run)
        self._is_paused = before.status == RunStatus.PAUSED
        # A run that is resumed after it failed too often starts with a fresh budget.
        self.spending = Spending(options.budget, before.tally)
        self._looked = asyncio.Event()
        self._is_full = False
        """True while the source waits for earlier items to end."""

    async def drive(self, source: Source | None, worker: Worker, ask_store: AskStore) -> None:
        """Feed the run and watch over it until it has ended or was stopped."""
        self._ask_store = ask_store
        feeding = asyncio.ensure_future(self._feed(source))
        try:
            while True:
                report = await self._look()
                is_fed = feeding.done()
                if is_fed:
                    feeding.result()
                stop = await self._reason_to_stop(report, worker, is_fed=is_fed)
                if stop is not None:
                    await _cancelled(feeding)
                    await stop()
                    return
                await self._nap()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Whatever stopped it, the source included: the run can be resumed.
            await self._ask(functools.partial(self.leave, error))
            # Who listens is told; what that raises, if it was not the reason itself, matters less than the reason.
            with suppress(Exception):
                await self._look()
            raise
        finally:
            await _cancelled(feeding)

    def leave(self, error: BaseException) -> None:
        """Leave the run paused, so that it can be resumed, if it has not ended; one that was refused is as it was."""
        if self._is_left or isinstance(error, RunError):
            return
        reason = f"it was interrupted by {type(error).__name__}{_place_of(error)}"
        self._book.pause_items(self._run)
        self._book.end(self._run, RunStatus.PAUSED, reason, self._clock.wall())
        error.add_note(
            f"run {self._run} is paused: rd.run(..., resume={self._run}) goes on with it,"
            f" or redrive run resume {self._run}"
        )
        self._is_left = True

    async def _nap(self) -> None:
        """Wait for the next look, or until an interval of the budget asks for one."""
        nap = asyncio.ensure_future(self._clock.asleep(LOOK_SECONDS))
        news = asyncio.ensure_future(self.spending.news.wait())
        try:
            await asyncio.wait((nap, news), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancelled(nap)
            await _cancelled(news)
        self.spending.news.clear()

    async def _look(self) -> RunReport:
        report = await self._ask(lambda: self._book.report(self._run))
        if self._on_progress is not None:
            self._on_progress(report)
        self._finished = report.tally.finished
        self._looked.set()
        return report

    async def _reason_to_stop(
        self, report: RunReport, worker: Worker, *, is_fed: bool
    ) -> Callable[[], Awaitable[None]] | None:
        """Return what to do with a run whose budget is spent, that is over, or has been held too long; None to go on."""
        is_over = is_fed and not report.open and report.total >= self._submitted
        exceeded = self.spending.look(report.tally, is_last=is_over)
        if exceeded is not None:
            budget = self._options.budget
            is_pause = budget is not None and budget.on_exceeded == "pause"
            return functools.partial(self._pause if is_pause else self._abort, exceeded.sentence)
        if is_over:
            return functools.partial(self._end, judge(self._options, report), None)
        if not (is_fed or self._is_full) or await worker.held_for() < max(self._options.hold_max, 1e-9):
            return None
        sentence = f"all that is left has been held for {self._options.hold_max:g} s"
        return functools.partial(self._end, RunStatus.PAUSED, sentence)

    async def _abort(self, sentence: str) -> None:
        """Cancel what has not started; what runs ends its stage first, and what is done stays done."""
        cancel, first = self._book.cancel_items, 0
        while (report := await self._look()).open:
            first = await self._ask(functools.partial(cancel, self._run, self._clock.wall(), BATCH, first))
            if report.open == (await self._look()).open:
                await self._nap()
        await self._end(RunStatus.ABORTED, sentence)

    async def _pause(self, sentence: str) -> None:
        await self._ask(lambda: self._book.pause_items(self._run))
        await self._end(RunStatus.PAUSED, sentence)

    async def _end(self, status: RunStatus, reason: str | None) -> None:
        await self._ask(lambda: self._book.end(self._run, status, reason, self._clock.wall()))
        self._is_left = True
        await self._look()

    async def _feed(self, source: Source | None) -> None:
        known = (await self._ask(lambda: self._book.report(self._run))).total
        is_fed = await self._ask(lambda: self._book.is_fed(self._run))
        if source is None:
            # Nothing is left to read, so that a source that can be read only once is not needed again.
            self._submitted = known
            self._refuse_unless(is_fed, f"its source was not read to its end, {known} items were")
            await self._go_on()
            return
        async for items in _batches(source, self._clock):
            jobs, bad = self._items.jobs(
                items, first=self._submitted, now=self._clock.wall(), limit=PAYLOAD_MAX
            )
            old = max(0, min(known - self._submitted, len(jobs)))
            if old:
                await self._compare(jobs[:old])
            is_more = is_fed and old < len(jobs)
            self._refuse_unless(
                not is_more, f"its source yields more than the {known} items it ended with before"
            )
            if not is_fed and self._submitted + len(jobs) >= known:
                await self._go_on()
            if jobs[old:]:
                await self._room()
                await self._submit(jobs[old:])
            self._submitted += len(jobs)
            if bad is not None:
                raise bad
        self._refuse_unless(
            self._submitted >= known,
            f"its source ended after {self._submitted} items, and {known} were submitted before",
        )
        await self._go_on()
        await self._ask(lambda: self._book.fed(self._run))

    async def _go_on(self) -> None:
        """Let the items of a paused run be claimed again, once its source was found to be the same: a refusal changes nothing."""
        if self._is_paused:
            await self._ask(lambda: self._book.reopen(self._run, self._items.pipeline.name))
            self._is_paused = False

    async def _room(self) -> None:
        """Wait until so many of the earlier items have ended that more may come."""
        while self._submitted - self._finished >= self._window:
            self._is_full = True
            self._looked.clear()
            await self._looked.wait()
        self._is_full = False

    def _refuse_unless(self, is_right: bool, problem: str) -> None:  # noqa: FBT001 - what is asked comes first.
        if not is_right:
            raise RunError(
                run=self._run,
                problem=problem,
                fix="Resume it with the source it was started with, or start a new run.",
            )

    async def _compare(self, jobs: Sequence[NewJob]) -> None:
        """Refuse a source that yields something else than it did."""
        first = cast("int", jobs[0].ordinal)
        rows = await self._ask(lambda: self._store.query("run_payloads", self._run, first, first + len(jobs)))
        place = first_difference(jobs, rows)
        self._refuse_unless(place is None, f"its source no longer yields the same item at place {place}")

    async def _submit(self, jobs: Sequence[NewJob]) -> None:
        """Submit items; after a lost answer, look first which of them are there."""
        while True:
            try:
                made = await self._ask_store(functools.partial(self._store.submit, jobs, self._clock.wall()))
            except StoreUnavailableError as error:
                logger.warning("run %s waits: %s", self._run, error)
                await self._clock.asleep(RETRY_SECONDS)
            else:
                self.spending.expect(each.id for each in cast("list[Submitted]", made))
                return
            there = (await self._ask(lambda: self._book.report(self._run))).total
            jobs = [job for job in jobs if cast("int", job.ordinal) >= there]
            if not jobs:
                return

    async def _ask(self, question: Callable[[], T]) -> T:
        while True:
            try:
                return cast("T", await self._ask_store(question))
            except StoreUnavailableError as error:
                logger.warning("run %s waits: %s", self._run, error)
                await self._clock.asleep(RETRY_SECONDS)


async def _cancelled(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _place_of(error: BaseException) -> str:
    """Say which item an error is about, if it is about one."""
    index = error.index if isinstance(error, SerializationError) else None
    return "" if index is None else f" at item {index}"


async def _batches(source: Source, clock: Clock) -> AsyncIterator[list[object]]:
    """Yield the items of a source, many at a time; a slow source yields what it has."""
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
        while batch := cast("list[object]", await asyncio.shield(taking)):
            yield batch
            taking = threads.ask(take)
    finally:
        # It belongs to whoever passed it, who may close it next: the item that is on its way is waited for, but not for ever.
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
