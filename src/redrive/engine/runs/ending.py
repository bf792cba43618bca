# SPDX-License-Identifier: Apache-2.0
"""Decide the status of runs, in any worker: when all their items have ended, or one failed for good and their rule is about that.

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

from redrive.core.budget import RunStatus, Tally, decide_status
from redrive.core.lifecycle import JobState
from redrive.engine.clock import Clock
from redrive.engine.outage import Outage
from redrive.engine.runs.runs import RunOptions, Runs
from redrive.engine.worker.threads import AskStore
from redrive.errors import StoreError
from redrive.store.protocol import Store
from redrive.store.records import Row, RunId, Settlement, Step

logger = logging.getLogger("redrive.runs")

LOOK_SECONDS: Final = 1.0
_OPEN: Final = (JobState.QUEUED, JobState.PROCESSING)


class RunStatusDriver:
    """Decides the status of the runs in a store, beside a worker."""

    def __init__(
        self, store: Store, clock: Clock, *, ask_store: AskStore, on_end: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._book = Runs(store)
        self._clock = clock
        self._ask_store = ask_store
        self._on_end = on_end
        self._wake = asyncio.Event()
        self._has_live = False
        """Whether there was a run to decide at the last look: without one, commits are no reason to look again."""
        self._at_work: set[int] = set()
        """Paused runs that had items in a stage at the last look."""

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

    def decide(self) -> int:
        """Decide the status of every run that is due; return how many changed."""
        self._pause_again()
        self._has_live = bool(self._store.query("has_live_runs")[0][0])
        if not self._has_live:
            return 0
        now = self._clock.wall()
        return sum(self._decide_one(row, now) for row in self._store.query("live_runs", now))

    def _decide_one(self, row: Row, now: float) -> bool:
        run, status, options, total, complete, failed, cancelled, skipped, has_permanent = row
        found = msgspec.json.decode(cast("bytes", options), type=RunOptions)
        tally = Tally(
            total=cast("int", total),
            succeeded=cast("int", complete),
            dead=cast("int", failed),
            cancelled=cast("int", cancelled),
            skipped=cast("int", skipped),
        )
        before, reason = RunStatus(str(status)), None
        after = decide_status(
            found.rule or found.thresholds, before, tally, has_permanent=bool(has_permanent)
        )
        if before is RunStatus.RUNNING and not tally.open and found.budget is not None:
            exceeded = found.budget.check(tally)
            if exceeded is not None:
                # Its driver died before it could stop it, and now there is nothing left to stop.
                after, reason = RunStatus.ABORTED, exceeded.sentence
        if after is before and tally.open:
            return False
        ended_at = None if tally.open else now
        counts = (total, tally.finished, complete)
        step = Step("decide_run", (after.value, reason, ended_at, run, before.value, *counts), rows=1)
        return self._store.apply(step) is not None

    def _pause_again(self) -> None:
        """Pause items of paused runs that were in a stage before: they are queued again after it."""
        at_work = {cast("int", run) for (run,) in self._store.query("paused_runs_at_work")}
        for run in sorted(at_work | self._at_work):
            self._book.pause_items(RunId(run))
        self._at_work = at_work
