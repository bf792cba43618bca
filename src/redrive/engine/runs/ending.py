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
from typing import Final

import msgspec

from redrive.core.budget import FailureBudget, RunStatus, Tally, decide_status
from redrive.core.stop_reason import BudgetExceeded, encode_stop_reason, stop_sentence
from redrive.engine.clock import Clock, wait_for
from redrive.engine.outage import Outage
from redrive.engine.runs.budget import ENDED
from redrive.engine.runs.runs import KEEP_SECONDS, RunOptions, Runs, has_permanent, keep_run, leave_run
from redrive.engine.worker.threads import AskStore
from redrive.errors import StoreError
from redrive.store.protocol import Store
from redrive.store.records import RunId, Settlement
from redrive.store.statements import runs as run_sql
from redrive.store.steps import lease_time

logger = logging.getLogger("redrive.runs")

LOOK_SECONDS: Final = 1.0
STEP: Final = 1_000
"""Items that are cancelled in one transaction."""


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
        """The run that this process drives, and decides itself: also after it was suspended for longer than `KEEP_SECONDS`."""
        self._wake = asyncio.Event()
        self._has_live = False
        """Whether there was a run to decide at the last look: without one, commits are no reason to look again."""
        self._unreadable: set[int] = set()
        """Runs whose options cannot be read, and that are logged."""
        self._checked: dict[tuple[int, Tally | None], int] = {}
        """How many items had ended when the budget of a run was last checked, by the run and what had ended when it was resumed."""
        self._aborting: dict[int, int] = {}
        """Runs whose items are being cancelled, and from which ordinal on."""
        self._at_work: dict[int, int] = {}
        """Items of paused runs that were in a stage at the last look, with their run."""

    def committed(self, done: list[Settlement]) -> None:
        """Look at once if a job ended while there are runs."""
        if self._has_live and any(one.status in ENDED for one in done):
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
            await wait_for(self._wake, self._clock, LOOK_SECONDS)

    async def flush(self) -> None:
        """Decide once more before the worker ends: its last commit may have ended a run."""
        with suppress(StoreError):
            await self._ask_store(self.decide)
            while self._aborting:
                await self._ask_store(self.decide)

    def decide(self) -> int:
        """Decide the status of every run that is due; return how many changed."""
        self._pause_again()
        (self._has_live,) = self._store.query(run_sql.has_live_runs())
        if not self._has_live:
            return 0
        now = self._clock.wall()
        for run, first in tuple(self._aborting.items()):
            self._cancel_some(run, first, now)
        live_now = run_sql.live_runs(now=lease_time(self._store, now))
        rows = [row for row in self._store.query(live_now) if row.id != self._own_run]
        live = {row.id for row in rows}
        self._checked = {key: count for key, count in self._checked.items() if key[0] in live}
        return sum(self._decide_readable(row, now) for row in rows)

    def _decide_readable(self, row: run_sql.LiveRun, now: float) -> bool:
        """Decide a run unless its options cannot be read, which must not delay the others."""
        try:
            found = msgspec.json.decode(row.options, type=RunOptions)
        except msgspec.MsgspecError as error:
            if row.id not in self._unreadable:
                self._unreadable.add(row.id)
                logger.error(  # noqa: TRY400 - the trace says nothing about the row.
                    "run %s is not decided: its options cannot be read: %s", row.id, type(error).__name__
                )
            return False
        return self._decide_one(row, found, now)

    def _decide_one(self, row: run_sql.LiveRun, found: RunOptions, now: float) -> bool:
        tally = Tally(
            total=row.total,
            succeeded=row.complete,
            dead=row.failed,
            cancelled=row.cancelled,
            skipped=row.skipped,
        )
        before, reason = RunStatus(row.status), None
        if before is RunStatus.ABORTED and tally.open:
            # Who aborted it is gone.
            self._aborting.setdefault(row.id, 0)
            return False
        exceeded = (
            self._exceeded(row.id, found, tally) if row.is_free and before is RunStatus.RUNNING else None
        )
        if exceeded is not None and found.budget is not None and tally.open:
            return self._stop(row.id, found.budget, exceeded, now)
        is_hopeless = found.rule is not None and has_permanent(self._store, row.id)
        after = decide_status(found.rule or found.thresholds, before, tally, has_permanent=is_hopeless)
        if exceeded is not None:
            # There is nothing left to stop.
            after, reason = RunStatus.ABORTED, encode_stop_reason(exceeded)
        if after is before and tally.open:
            return False
        ended_at = None if tally.open else now
        decided = run_sql.decide_run(
            status=after.value,
            reason=reason,
            ended_at=ended_at,
            run=row.id,
            before=before.value,
            total=row.total,
            ended=tally.finished,
            complete=row.complete,
        )
        return self._store.apply(run_sql.lock_run(run=row.id), decided.touching(1)) is not None

    def _exceeded(self, run: int, found: RunOptions, tally: Tally) -> BudgetExceeded | None:
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
            after, ended_at, then = RunStatus.PAUSED, now, run_sql.pause_run(run=run)
        else:
            # Others leave it alone while its items are cancelled, and continue when this worker is gone.
            after, ended_at, then = (
                RunStatus.ABORTED,
                None,
                run_sql.keep_run(until=lease_time(self._store, now) + KEEP_SECONDS, run=run),
            )
        reason = encode_stop_reason(exceeded)
        stop = run_sql.stop_run(status=after.value, reason=reason, ended_at=ended_at, run=run).touching(1)
        if self._store.apply(stop, then) is None:
            return False
        logger.warning("run %s is %s: %s", run, after.value, stop_sentence(exceeded))
        if after is RunStatus.ABORTED:
            self._aborting[run] = 0
        return True

    def _cancel_some(self, run: int, first: int, now: float) -> None:
        """Cancel some of the items of an aborted run that have not started."""
        after = self._book.cancel_items(RunId(run), now, STEP, first)
        if after > first:
            self._aborting[run] = after
            keep_run(self._store, RunId(run), now)
        else:
            del self._aborting[run]
            leave_run(self._store, RunId(run))

    def _pause_again(self) -> None:
        """Pause items of paused runs that were in a stage before: they are queued again after it, or after a later one."""
        at_work = dict(self._store.query(run_sql.paused_at_work()))
        # All items of a run when it is first seen; then only those that were in a stage, however many there are.
        for run in sorted(set(at_work.values()) - set(self._at_work.values())):
            self._book.pause_items(RunId(run))
        if self._at_work:
            self._store.apply(run_sql.pause_jobs(ids=list(self._at_work)))
        self._at_work = at_work
