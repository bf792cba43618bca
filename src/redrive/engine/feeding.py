# SPDX-License-Identifier: Apache-2.0
"""Driving a run: its items go in while earlier ones are worked on, and the run is stopped, paused or ended by its own rules.

However it ends, every item that was submitted is in the store; what was not can be submitted by resuming the run.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Final, TypeVar, cast

from redrive.core.budget import RunStatus, Tally
from redrive.engine.clock import Clock
from redrive.engine.pipeline import Pipeline
from redrive.engine.runner import Elsewhere
from redrive.engine.runs import OnProgress, RunBook, RunOptions, RunReport, judge, overspent
from redrive.engine.runtime import CURRENT
from redrive.engine.service import Options, serve
from redrive.engine.submission import PAYLOAD_MAX
from redrive.engine.worker import Worker
from redrive.errors import FailureBudgetExceededError, RunError, SerializationError, StoreUnavailableError
from redrive.store.protocol import LaneId, NewJob, RunId, Store

logger = logging.getLogger("redrive.runs")

T = TypeVar("T")
Source = Iterable[object] | AsyncIterable[object]

BATCH: Final = 1_000
"""Items per transaction."""
BATCH_SECONDS: Final = 0.2
"""How long a slow source may let a started batch wait."""
LOOK_SECONDS: Final = 0.25
RETRY_SECONDS: Final = 1.0
WINDOW_PER_PLACE: Final = 8
WINDOW_MIN: Final = 20 * BATCH
"""So many items may be open at a time: enough for every place, and for all that ends between two looks."""


async def drive_run(
    store: Store,
    pipeline: Pipeline,
    *,
    items: Source,
    options: RunOptions,
    how: Options,
    resume: int | None = None,
    on_progress: OnProgress | None = None,
) -> RunReport:
    """Start a run, or resume one, work on it until it ends or is stopped, and return the account of it."""
    book, clock = RunBook(store), CURRENT.get().clock
    if resume is None:
        run = book.add(pipeline.name, options, clock.wall())
    else:
        run = RunId(resume)
        book.reopen(run, pipeline.name)
        options = book.options(run)
    driver = Driver(
        store, pipeline, run, options, clock=clock, concurrency=how.concurrency, on_progress=on_progress
    )
    try:
        await serve(store, [pipeline], how, beside=lambda worker, ask: driver.drive(items, worker, ask))
    finally:
        report = book.report(run)
        if report.status == RunStatus.PAUSED:
            # What was in a stage when the run was paused has come back since.
            book.pause_items(run)
    if report.status == RunStatus.ABORTED:
        rate = report.dead / max(1, report.succeeded + report.dead)
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
        self._pipeline = pipeline
        self._run = run
        self._options = options
        self._clock = clock
        self._window = max(WINDOW_MIN, WINDOW_PER_PLACE * concurrency)
        self._on_progress = on_progress
        self._lane: LaneId = store.lanes(pipeline.name, [stage.name for stage in pipeline.stages])[0]
        self._submitted = 0
        self._seen: Tally | None = None
        self._finished = 0
        self._looked = asyncio.Event()
        self._is_full = False
        """True while the source waits for earlier items to end."""

    async def drive(self, source: Source, worker: Worker, ask_store: Elsewhere) -> None:
        """Feed the run and watch over it until it has ended or was stopped."""
        self._ask_store = ask_store
        # A run that is resumed after it failed too often starts with a fresh budget.
        self._base = (await self._look()).tally
        feeding = asyncio.ensure_future(self._feed(source))
        try:
            while True:
                report = await self._look()
                if feeding.done():
                    feeding.result()
                    if not report.open and report.total == self._submitted:
                        await self._end(judge(self._options, report), None)
                        return
                stop = await self._reason_to_stop(report, worker, is_fed=feeding.done())
                if stop is not None:
                    await _cancelled(feeding)
                    await stop()
                    return
                await self._nap()
        except BaseException as error:
            # Whatever stopped it, the source included: the run can be resumed.
            if not isinstance(error, asyncio.CancelledError | RunError):
                await self._pause(f"it was interrupted by {type(error).__name__}")
            raise
        finally:
            await _cancelled(feeding)

    async def _nap(self) -> None:
        await self._clock.asleep(LOOK_SECONDS)

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
        """Return what to do with a run whose budget is spent, or that has been held too long; None to go on."""
        since = _since(self._base, report.tally)
        exceeded = overspent(self._options, self._seen, since)
        self._seen = since
        if exceeded is not None:
            budget = self._options.budget
            is_pause = budget is not None and budget.on_exceeded == "pause"
            return functools.partial(self._pause if is_pause else self._abort, exceeded.sentence)
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
        await self._look()

    async def _feed(self, source: Source) -> None:
        known = (await self._ask(lambda: self._book.report(self._run))).total
        if await self._ask(lambda: self._book.is_fed(self._run)):
            # Nothing is left to read, so that a source that can be read only once is not needed again.
            self._submitted = known
            return
        async for items in _batches(source, self._clock):
            jobs = [self._job(self._submitted + place, item) for place, item in enumerate(items)]
            old = max(0, min(known - self._submitted, len(jobs)))
            if old:
                await self._compare(jobs[:old])
            if jobs[old:]:
                while self._submitted - self._finished >= self._window:
                    self._is_full = True
                    self._looked.clear()
                    await self._looked.wait()
                self._is_full = False
                await self._submit(jobs[old:])
            self._submitted += len(jobs)
        if self._submitted < known:
            raise RunError(
                run=self._run,
                problem=f"its source ended after {self._submitted} items, and {known} were submitted before",
                fix="Resume it with the source it was started with.",
            )
        await self._ask(lambda: self._book.fed(self._run))

    def _job(self, ordinal: int, item: object) -> NewJob:
        """An item of the wrong type goes in all the same and fails by itself; one that is no JSON cannot."""
        payload = self._pipeline.stages[0].input.encode(item)
        if len(payload) > PAYLOAD_MAX:
            raise SerializationError(
                where=f"{self._pipeline.name} (item {ordinal})",
                kind=f"{len(payload)} bytes",
                problem=f"the limit is {PAYLOAD_MAX} bytes",
            )
        return NewJob(
            lane=self._lane, payload=payload, run_at=self._clock.wall(), run=self._run, ordinal=ordinal
        )

    async def _compare(self, jobs: Sequence[NewJob]) -> None:
        """Refuse a source that yields something else than it did; what was pruned or erased cannot be compared any more."""
        first = cast("int", jobs[0].ordinal)
        rows = await self._ask(lambda: self._store.query("run_payloads", self._run, first, first + len(jobs)))
        stored = {cast("int", ordinal): payload for ordinal, payload in rows if payload is not None}
        for job in jobs:
            ordinal = cast("int", job.ordinal)
            if stored.get(ordinal, job.payload) != job.payload:
                raise RunError(
                    run=self._run,
                    problem=f"its source no longer yields the same item at place {ordinal}",
                    fix="Resume it with the source it was started with, or start a new run.",
                )

    async def _submit(self, jobs: Sequence[NewJob]) -> None:
        """Submit items; after a lost answer, look first which of them are there."""
        while True:
            try:
                await self._ask_store(functools.partial(self._store.submit, jobs, self._clock.wall()))
            except StoreUnavailableError as error:
                logger.warning("run %s waits: %s", self._run, error)
                await self._clock.asleep(RETRY_SECONDS)
            else:
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


async def _cancelled(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _since(base: Tally, tally: Tally) -> Tally:
    """Return what happened since a run was started or resumed."""
    return Tally(
        total=tally.total,
        succeeded=tally.succeeded - base.succeeded,
        dead=max(0, tally.dead - base.dead),
        cancelled=tally.cancelled - base.cancelled,
    )


async def _batches(source: Source, clock: Clock) -> AsyncIterator[list[object]]:
    """Yield the items of a source, many at a time; a slow source yields what it has."""
    if isinstance(source, AsyncIterable):
        async for batch in _async_batches(source):
            yield batch
        return
    items = iter(source)

    def take() -> list[object]:
        taken: list[object] = []
        started = clock.monotonic()
        for item in islice(items, BATCH):
            taken.append(item)
            if clock.monotonic() - started > BATCH_SECONDS:
                break
        return taken

    while batch := await asyncio.to_thread(take):
        yield batch


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
