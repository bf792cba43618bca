# SPDX-License-Identifier: Apache-2.0
"""What a run has spent of its failure budget: counted outcome by outcome, in the order in which they were committed.

Outcomes of this process are told by its worker's commits, so that every full interval is looked at, however many of them one
commit brings. What other workers did is learned by looking at the store. Only counts; acting on it is the driver's part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from redrive.core.budget import BudgetExceeded, FailureBudget, Tally
from redrive.core.lifecycle import JobState
from redrive.store.protocol import JobId, Settlement

ENDED: Final[tuple[JobState, ...]] = (JobState.COMPLETE, JobState.FAILED, JobState.CANCELLED)


class Spending:
    """Counts for one run, from the moment it was started or resumed: then it has a fresh budget. Belongs to one loop."""

    def __init__(self, budget: FailureBudget | None, base: Tally) -> None:
        self._budget = budget
        self._base = base
        self._mine: set[JobId] = set()
        """Items that this process has submitted and not seen ended: as many as are open at a time."""
        self._own = dict.fromkeys(ENDED, 0)
        self._others = dict.fromkeys(ENDED, 0)
        self._finished = 0
        self._checked = 0
        self._unknown = 0
        self.exceeded: BudgetExceeded | None = None
        """Why the run has to stop, as soon as it has to."""
        self.news = asyncio.Event()
        """Set when it is time to look at the run."""

    def expect(self, jobs: Iterable[JobId]) -> None:
        """Take in which jobs are items of this run."""
        if self._budget is not None:
            self._mine.update(jobs)

    def committed(self, done: list[Settlement]) -> None:
        """Take in what was committed."""
        if self._budget is None or self.exceeded is not None:
            return
        for settled in done:
            if settled.status not in ENDED:
                continue
            if settled.job.id not in self._mine:
                # An item from before it was resumed, or no item at all: the store knows.
                self._unknown += 1
                continue
            self._mine.discard(settled.job.id)
            self._own[settled.status] += 1
            self._finished += 1
            if self._is_spent(self._budget):
                break
        if self.exceeded is not None or self._unknown >= self._budget.check_every:
            self.news.set()

    def look(self, tally: Tally, *, is_last: bool) -> BudgetExceeded | None:
        """Take in what the store knows; say why the run has to stop. The last look, when all has ended, needs no full interval."""
        if self._budget is None or self.exceeded is not None:
            return self.exceeded
        since = {
            JobState.COMPLETE: tally.succeeded - self._base.succeeded,
            JobState.FAILED: tally.dead - self._base.dead,
            JobState.CANCELLED: tally.cancelled - self._base.cancelled,
        }
        self._others = {state: count - self._own[state] for state, count in since.items()}
        self._finished = sum(since.values())
        self._unknown = 0
        if not self._is_spent(self._budget) and is_last:
            self.exceeded = self._budget.check(self._tally())
        return self.exceeded

    def _is_spent(self, budget: FailureBudget) -> bool:
        """Look at the budget if another interval is full."""
        if budget.is_due(self._checked, self._finished):
            self._checked = self._finished
            self.exceeded = budget.check(self._tally())
        return self.exceeded is not None

    def _tally(self) -> Tally:
        # A replay may have taken an old failure away, so that there are fewer than at the start.
        good, bad, gone = (max(0, self._own[state] + self._others[state]) for state in ENDED)
        return Tally(total=good + bad + gone, succeeded=good, dead=bad, cancelled=gone)
