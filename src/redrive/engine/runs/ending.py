# SPDX-License-Identifier: Apache-2.0
"""Decide the status of runs, in any worker: at their end, when their budget is spent, or by their rule at a permanent failure.

A run that has no more items to come, and is not driven by a process just now, is decided by whichever worker sees it first; the
store takes a decision only while the run still is as it was when it was decided, so there is one. An item that is replayed makes
its run live again, and its status is decided anew at its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

import msgspec

from redrive.core.budget import BudgetExceeded, FailureBudget, RunStatus, Tally, decide_status
from redrive.core.lifecycle import JobState
from redrive.engine.clock import Clock
from redrive.engine.outage import Outage
from redrive.engine.runs.runs import KEEP_SECONDS, RunOptions, Runs, has_permanent, keep_run
from redrive.engine.worker.threads import AskStore
from redrive.errors import StoreError
from redrive.store.protocol import Store
from redrive.store.records import Row, RunId, Settlement, Step, json_list

logger = logging.getLogger("redrive.runs")

LOOK_SECONDS: Final = 1.0
STEP: Final = 1_000
"""Items that are cancelled in one transaction."""
_OPEN: Final = (JobState.QUEUED, JobState.PROCESSING)


class RunStatusDriver:
    """Decides the status of the runs in a store, beside a worker."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        ask_store: AskStore,
        on_end: Callable[[], None] = lambda: None,
        own_run: RunId | None = None,
    ) -> None:
        self._store = store
        self._book = Runs(store)
        self._clock = clock
        self._ask_store = ask_store
        self._on_end = on_end
        self._own_run = own_run
        """The run that this process drives, and decides itself: also after it stood still for longer than it keeps others away."""
        self._wake = asyncio.Event()
        self._has_live = False
        """Whether there was a run to decide at the last look: without one, commits are no reason to look again."""
        self._unreadable: set[object] = set()
        """Runs whose options cannot be read, and that are logged."""
        self._checked: dict[tuple[object, Tally | None], int] = {}
        """How many items had ended when the budget of a run was last checked, by the run and what had ended when it was resumed."""
        self._aborting: dict[int, int] = {}
        """Runs whose items are being cancelled, and from which ordinal on."""
        self._at_work: dict[int, int] = {}
        """Items of paused runs that were in a stage at the last look, with their run."""

    def committed(self, done: list[Settlement]) -> None:
        """Look at once if a job ended while there are runs."""
        if self._has_live and any(one.status not in _OPEN for one in done):
            self._wake.set()

    async def run(self) -> None:
        """Decide until cancelled."""
        outage = Outage(logger)
        while True:
            self._wake.clear()
            try:
                if await self._ask_store(self.decide):
                    self._on_end()
                outage.answered()
            except StoreError as error:
                outage.failed("the status of runs is not decided for now: %s", error)
            else:
                if self._aborting:
                    continue
            pause = asyncio.ensure_future(self._clock.asleep(LOOK_SECONDS))
            woken = asyncio.ensure_future(self._wake.wait())
            try:
                await asyncio.wait((pause, woken), return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
                woken.cancel()
                await asyncio.gather(pause, woken, return_exceptions=True)

    async def flush(self) -> None:
        """Decide once more before the worker ends: its last commit may have ended a run."""
        with suppress(StoreError):
            await self._ask_store(self.decide)
            while self._aborting:
                await self._ask_store(self.decide)

    def decide(self) -> int:
        """Decide the status of every run that is due; return how many changed."""
        self._pause_again()
        self._has_live = bool(self._store.query("has_live_runs")[0][0])
        if not self._has_live:
            return 0
        now = self._clock.wall()
        for run, first in tuple(self._aborting.items()):
            self._cancel_some(run, first, now)
        rows = [row for row in self._store.query("live_runs", now) if row[0] != self._own_run]
        live = {row[0] for row in rows}
        self._checked = {key: count for key, count in self._checked.items() if key[0] in live}
        return sum(self._decide_readable(row, now) for row in rows)

    def _decide_readable(self, row: Row, now: float) -> bool:
        """Decide a run unless its options cannot be read: that must not keep the others waiting."""
        try:
            found = msgspec.json.decode(cast("bytes", row[2]), type=RunOptions)
        except msgspec.MsgspecError as error:
            if row[0] not in self._unreadable:
                self._unreadable.add(row[0])
                logger.error(  # noqa: TRY400 - the trace says nothing about the row.
                    "run %s is not decided: its options cannot be read: %s", row[0], type(error).__name__
                )
            return False
        return self._decide_one(row, found, now)

    def _decide_one(self, row: Row, found: RunOptions, now: float) -> bool:
        run, status, _, total, complete, failed, cancelled, skipped, is_free = row
        tally = Tally(
            total=cast("int", total),
            succeeded=cast("int", complete),
            dead=cast("int", failed),
            cancelled=cast("int", cancelled),
            skipped=cast("int", skipped),
        )
        before, reason = RunStatus(str(status)), None
        if before is RunStatus.ABORTED and tally.open:
            # Who aborted it is gone.
            self._aborting.setdefault(cast("int", run), 0)
            return False
        exceeded = self._exceeded(run, found, tally) if is_free and before is RunStatus.RUNNING else None
        if exceeded is not None and found.budget is not None and tally.open:
            return self._stop(cast("int", run), found.budget, exceeded, now)
        is_hopeless = found.rule is not None and has_permanent(self._store, cast("int", run))
        after = decide_status(found.rule or found.thresholds, before, tally, has_permanent=is_hopeless)
        if exceeded is not None:
            # There is nothing left to stop.
            after, reason = RunStatus.ABORTED, exceeded.sentence
        if after is before and tally.open:
            return False
        ended_at = None if tally.open else now
        counts = (total, tally.finished, complete)
        step = Step("decide_run", (after.value, reason, ended_at, run, before.value, *counts), rows=1)
        return self._store.apply(Step("lock_run", (run,)), step) is not None

    def _exceeded(self, run: object, found: RunOptions, tally: Tally) -> BudgetExceeded | None:
        """Return why a run that no process drives must stop; looked at for each full interval, and at its end."""
        if found.budget is None:
            return None
        since, key = tally.since(found.resumed_with), (run, found.resumed_with)
        if since.open and not found.budget.is_due(self._checked.get(key, 0), since.rated):
            return None
        self._checked[key] = since.rated
        return found.budget.check(since)

    def _stop(self, run: int, budget: FailureBudget, exceeded: BudgetExceeded, now: float) -> bool:
        """Pause or abort a run that has spent its budget; return whether nobody else did."""
        if budget.on_exceeded == "pause":
            after, ended_at, then = RunStatus.PAUSED, now, Step("pause_run", (run,))
        else:
            # Others leave it alone while its items are cancelled, and continue when this worker is gone.
            after, ended_at, then = RunStatus.ABORTED, None, Step("keep_run", (now + KEEP_SECONDS, run))
        stop = Step("stop_run", (after.value, exceeded.sentence, ended_at, run), rows=1)
        if self._store.apply(stop, then) is None:
            return False
        logger.warning("run %s is %s: %s", run, after.value, exceeded.sentence)
        if after is RunStatus.ABORTED:
            self._aborting[run] = 0
        return True

    def _cancel_some(self, run: int, first: int, now: float) -> None:
        """Cancel some of the items of an aborted run that have not started."""
        after = self._book.cancel_items(RunId(run), now, STEP, first)
        if after > first:
            self._aborting[run] = after
        else:
            del self._aborting[run]
        keep_run(self._store, RunId(run), now + KEEP_SECONDS if after > first else 0.0)

    def _pause_again(self) -> None:
        """Pause items of paused runs that were in a stage before: they are queued again after it."""
        found = self._store.query("paused_at_work")
        at_work = {cast("int", job): cast("int", run) for job, run in found}
        # All items of a run when it is first seen; then only those that were in a stage, however many there are.
        for run in sorted(set(at_work.values()) - set(self._at_work.values())):
            self._book.pause_items(RunId(run))
        if self._at_work:
            self._store.apply(Step("pause_jobs", (json_list(list(self._at_work)),)))
        self._at_work = at_work
