# SPDX-License-Identifier: Apache-2.0
"""A run: a batch of jobs from one source, with one failure budget, resumable after a crash.

Items are keyed (run, ordinal), and an item's ordinal is committed with its job, so that after a crash the source is read again from
its start, what was submitted is compared with what the source yields now, and the rest follows. Only a window of items is open at
a time: memory stays flat however long the source is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import msgspec

from redrive.core.budget import FailureBudget, RunStatus, RunThresholds, Tally
from redrive.errors import RunError
from redrive.store.protocol import Row, RunId, Step, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """How a run stands: every item accounted for, `total = succeeded + dead + cancelled + open`."""

    id: int
    pipeline: str
    status: str
    """running, completed, partial_success, failed, aborted or paused."""
    total: int
    succeeded: int
    dead: int
    cancelled: int
    reason: str | None
    """Why it was stopped, if it was."""

    @property
    def open(self) -> int:
        """How many items are queued or processing."""
        return self.total - self.succeeded - self.dead - self.cancelled

    @property
    def tally(self) -> Tally:
        """The counts alone."""
        return Tally(total=self.total, succeeded=self.succeeded, dead=self.dead, cancelled=self.cancelled)


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is judged; kept with it, so that resuming it judges it alike."""

    budget: FailureBudget | None = None
    thresholds: RunThresholds = RunThresholds()
    hold_max: float = 3_600.0
    target: str | None = None
    """`module:pipeline`, when the command line started it."""
    source: str | None = None
    """The file its items come from, when the command line started it."""


class RunBook:
    """What the store knows about runs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, pipeline: str, options: RunOptions, now: float) -> RunId:
        """Make a new run."""
        made = self._store.apply(Step("add_run", (pipeline, msgspec.json.encode(options), now)))
        return RunId(cast("int", cast("list[list[Row]]", made)[0][0][0]))

    def report(self, run: int) -> RunReport:
        """Return how a run stands; raises RunError when there is none."""
        row = self._row(run)
        return RunReport(
            id=run,
            pipeline=str(row[1]),
            status=str(row[2]),
            total=cast("int", row[8]),
            succeeded=cast("int", row[9]),
            dead=cast("int", row[10]),
            cancelled=cast("int", row[11]),
            reason=cast("str | None", row[4]),
        )

    def options(self, run: int) -> RunOptions:
        """Return how a run is judged."""
        return msgspec.json.decode(cast("bytes", self._row(run)[3]), type=RunOptions)

    def is_fed(self, run: int) -> bool:
        """Say whether the source has given its last item."""
        return bool(self._row(run)[5])

    def latest(self, limit: int = 50) -> list[RunReport]:
        """Return the latest runs, newest first."""
        return [self.report(cast("int", row[0])) for row in self._store.query("runs", limit)]

    def reopen(self, run: RunId, pipeline: str) -> None:
        """Let a run go on; raises RunError when it has ended or is another pipeline's."""
        self.unended(run, pipeline)
        self._store.apply(Step("restart_run", (run,)), Step("unpause_run", (run,)))

    def next_place(self, run: RunId, pipeline: str) -> int:
        """Return the ordinal of the next item that may be added to a run by hand.

        Raises RunError when it has ended, is another pipeline's, or when its source is yet to give items for the same places.
        """
        report = self.unended(run, pipeline)
        if report.total and not self.is_fed(run):
            raise RunError(
                run=run,
                problem=f"its source was not read to its end after {report.total} items",
                fix="Resume it with its source first.",
            )
        return report.total

    def unended(self, run: RunId, pipeline: str) -> RunReport:
        """Return how a run stands that may go on; raises RunError when it has ended or is another pipeline's."""
        report = self.report(run)
        if report.pipeline != pipeline:
            raise RunError(
                run=run,
                problem=f"belongs to the pipeline {report.pipeline}, not to {pipeline}",
                fix="Resume it with its own pipeline.",
            )
        if report.status not in {RunStatus.RUNNING, RunStatus.PAUSED}:
            raise RunError(run=run, problem=f"has ended as {report.status}", fix="Start a new run.")
        return report

    def end(self, run: RunId, status: RunStatus, reason: str | None, now: float) -> None:
        """Write down how a run ended; a paused one keeps its items from being claimed."""
        self._store.apply(Step("end_run", (status.value, reason, now, run)))

    def pause_items(self, run: RunId) -> None:
        """Keep the queued items of a run from being claimed until it is resumed."""
        self._store.apply(Step("pause_run", (run,)))

    def cancel_items(self, run: RunId, now: float, limit: int, first: int = 0) -> int:
        """Cancel queued items of a run from an ordinal on, so many at a time; those in a stage are told, and go no further.

        Return the ordinal to go on from. What lies before it needs no second look: an item that was told is never queued again.
        """
        steps = (Step("cancel_run", (now, run, limit, first)), Step("ask_to_cancel_run", (run,)))
        gone = cast("list[list[Row]]", self._store.apply(*steps))[0]
        return max((cast("int", row[0]) + 1 for row in gone), default=first)

    def fed(self, run: RunId) -> None:
        """Write down that the source has given its last item."""
        self._store.apply(Step("end_source", (run,)))

    def _row(self, run: int) -> Row:
        rows = self._store.query("run", run)
        if not rows:
            latest = ", ".join(str(row[0]) for row in self._store.query("runs", 5)) or "none yet"
            raise RunError(run=run, problem="is not known here", fix=f"The latest runs: {latest}.")
        return rows[0]


OnProgress = Callable[[RunReport], None]


def judge(options: RunOptions, report: RunReport) -> RunStatus:
    """Return the status of a run whose items have all ended."""
    return options.thresholds.status_of(report.tally)
