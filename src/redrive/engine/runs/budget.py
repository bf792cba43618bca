# SPDX-License-Identifier: Apache-2.0
"""Track the failure budget of a run: count outcomes one by one, in the order of their commits.

Outcomes of this process come from its worker's commits, so that every full interval is checked, even if one commit contains
several. Outcomes of other workers come from the store. This module only counts; the driver acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from redrive.core.budget import FailureBudget, Tally
from redrive.core.lifecycle import JobState
from redrive.core.stop_reason import BudgetExceeded
from redrive.store.records import JobId, Settlement

ENDED: Final = {
    JobState.COMPLETE: "succeeded",
    JobState.FAILED: "dead",
    JobState.CANCELLED: "cancelled",
    JobState.SKIPPED: "skipped",
}
"""The states in which a job has ended, and where a tally counts them."""


class BudgetTracker:
    """The counts of one run since it was started or resumed: a resumed run has a fresh budget. Belongs to one event loop."""

    def __init__(self, budget: FailureBudget | None, base: Tally) -> None:
        self._budget = budget
        self._base = base
        self._mine: set[JobId] = set()
        """Items that this process submitted and that have not ended, as far as it knows."""
        self._own = dict.fromkeys(ENDED, 0)
        self._others = dict.fromkeys(ENDED, 0)
        self._finished = 0
        self._checked = 0
        self._unknown = 0
        self._asked = 0
        """How many of the unknown ones had ended when the store was last asked."""
        self._own_asked = self._own
        """The own ones when the store was last asked."""
        self.exceeded: BudgetExceeded | None = None
        """Why the run must stop; None while it may continue."""
        self.due = asyncio.Event()
        """Set when the driver should check the run."""

    def add_jobs(self, jobs: Iterable[JobId]) -> None:
        """Add jobs that are items of this run."""
        if self._budget is not None:
            self._mine.update(jobs)

    def leased_max(self) -> int | None:
        """Return how many jobs this process may have leased or not committed yet: so many may fail before the next check.

        None without a limit; 0 while the run has to stop, or the store has to be asked first.
        """
        if self._budget is None:
            return None
        is_due = self.exceeded is not None or self._unknown >= self._budget.check_every
        return 0 if is_due else self._budget.check_every

    def committed(self, done: list[Settlement]) -> None:
        """Count committed settlements."""
        if self._budget is None or self.exceeded is not None:
            return
        for settled in done:
            if settled.status not in ENDED:
                continue
            if settled.job.id not in self._mine:
                # Submitted before the run was resumed, or not an item of this run: the store knows.
                self._unknown += 1
                continue
            self._mine.discard(settled.job.id)
            self._own[settled.status] += 1
            # Skipped jobs count in no rate: an interval is full when so many of the others have ended.
            self._finished += settled.status != JobState.SKIPPED
            if self._is_spent(self._budget):
                break
        if self.exceeded is not None or self._unknown >= self._budget.check_every:
            self.due.set()

    def asking(self) -> None:
        """Note that the store is asked now: what is committed from here on may be missing in its answer."""
        self._asked = self._unknown
        self._own_asked = self._own.copy()

    def check(self, tally: Tally, *, is_last: bool) -> BudgetExceeded | None:
        """Count what the store knows, and return why the run must stop. The last check, after all items, needs no full interval."""
        if self._budget is None or self.exceeded is not None:
            return self.exceeded
        since = {state: getattr(tally, name) - getattr(self._base, name) for state, name in ENDED.items()}
        # What was committed since it was asked may be missing in its answer: others have not undone that.
        self._others = {
            state: max(count - self._own[state], min(count - self._own_asked[state], 0))
            for state, count in since.items()
        }
        finished = sum(self._own.values()) + sum(self._others.values())
        self._finished = finished - self._own[JobState.SKIPPED] - self._others[JobState.SKIPPED]
        self._unknown, self._asked = self._unknown - self._asked, 0
        if not self._is_spent(self._budget) and is_last:
            self.exceeded = self._budget.check(self._tally())
        return self.exceeded

    def _is_spent(self, budget: FailureBudget) -> bool:
        """Check the budget if another interval is full."""
        if budget.is_due(self._checked, self._finished):
            self._checked = self._finished
            self.exceeded = budget.check(self._tally())
        return self.exceeded is not None

    def _tally(self) -> Tally:
        # A replay may have removed an old failure, so that there are fewer than at the start.
        counts = {name: max(0, self._own[state] + self._others[state]) for state, name in ENDED.items()}
        return Tally(total=sum(counts.values()), **counts)
