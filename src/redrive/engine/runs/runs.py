# SPDX-License-Identifier: Apache-2.0
"""Runs: batches of jobs from one source, with one failure budget, resumable after a crash.

Items are keyed (run, ordinal), and the ordinal is committed with the job. After a crash the source is read again from its start,
the submitted items are compared with it, and the rest is submitted. Only a window of items is open at a time, so memory does not
grow with the source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from redrive.core.budget import FailureBudget, FailureRule, RunStatus, RunThresholds, Tally
from redrive.core.decoding import prepare
from redrive.core.stop_reason import StopReason, encode_stop_reason, stop_sentence_in
from redrive.errors import RunError
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.records import RunId
from redrive.store.statements import runs as run_sql
from redrive.store.steps import lease_time


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The state of a run: every item counted, `total = succeeded + dead + cancelled + skipped + open`."""

    id: int
    pipeline: str
    status: str
    """running, completed, partial_success, failed, aborted, paused or cancelled."""
    total: int
    succeeded: int
    dead: int
    cancelled: int
    skipped: int
    """Items that a stage skipped: neither successes nor failures."""
    reason: str | None
    """Why the run was stopped, if it was."""
    key: str | None = None
    label: str | None = None
    """The name of the run for people."""
    owner: str | None = None
    children: int = 0
    """Jobs among the total that stages submitted, and that joined the run."""
    is_duplicate: bool = False
    """True when `open` found a run with the same key instead of making one."""

    @property
    def open(self) -> int:
        """How many items are queued or processing."""
        return self.tally.open

    @property
    def items(self) -> int:
        """How many items of its source were submitted."""
        return self.total - self.children

    @property
    def tally(self) -> Tally:
        """The counts alone."""
        return msgspec.convert(self, Tally, from_attributes=True)


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The budget and limits of a run; stored with it, and the same when it is resumed, unless others are given then."""

    budget: FailureBudget | None = None
    thresholds: RunThresholds = RunThresholds()
    rule: FailureRule | None = None
    """How its status is decided instead of by thresholds."""
    hold_max: float = 3_600.0
    target: str | None = None
    """`module:pipeline`, if the command line started the run."""
    source: str | None = None
    """The file with the items, if the command line started the run."""
    resumed_with: Tally | None = None
    """What had ended when it was last resumed: from there its budget counts afresh."""


class Runs:
    """The runs in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, pipeline: str, options: RunOptions, now: float) -> RunId:
        """Add a run."""
        encoded = msgspec.json.encode(options)
        ((run,),) = self._store.apply(run_sql.add_run(pipeline=pipeline, options=encoded, now=now)) or []
        return RunId(run)

    def report(self, run: int) -> RunReport:
        """Return the report of a run; raises RunError when there is none."""
        row = self._row(run)
        facts = {**row._asdict(), "succeeded": row.complete, "dead": row.failed}
        return msgspec.convert({**facts, "reason": stop_sentence_in(row.reason)}, RunReport)

    def options(self, run: int) -> RunOptions:
        """Return the options of a run."""
        return msgspec.json.decode(self._row(run).options, type=RunOptions)

    def is_fed(self, run: int) -> bool:
        """Return whether the source was read to its end."""
        return self._row(run).is_fed

    def latest(self, limit: int = 50) -> list[RunReport]:
        """Return the latest runs, newest first."""
        return [self.report(run) for run in self._store.query(run_sql.runs(limit=limit))]

    def reopen(self, run: RunId, pipeline: str, options: RunOptions) -> None:
        """Continue a run with these options, and make its paused items claimable again.

        Raises RunError when it has ended or belongs to another pipeline.
        """
        self.resumable(run, pipeline)
        restart = run_sql.restart_run(options=msgspec.json.encode(options), run=run)
        self._store.apply(restart, run_sql.unpause_run(run=run))

    def next_ordinal(self, run: RunId, pipeline: str) -> int:
        """Return the ordinal of the next item that `submit_many` may add to a run.

        Raises RunError when it has ended, belongs to another pipeline, or when its source has not yet yielded all items.
        """
        report = self.resumable(run, pipeline)
        if report.items and not self.is_fed(run):
            raise RunError(
                run=run,
                problem=f"its source was read only up to item {report.items}, not to its end",
                fix="Resume it with its source first.",
            )
        return report.items

    def resumable(self, run: RunId, pipeline: str) -> RunReport:
        """Return the report of a run that may continue; raises RunError when it has ended or belongs to another pipeline."""
        report = self.report(run)
        if report.pipeline != pipeline:
            raise RunError(
                run=run,
                problem=f"it belongs to the pipeline {report.pipeline}, not to {pipeline}",
                fix="Resume it with its own pipeline.",
            )
        if report.status not in {RunStatus.RUNNING, RunStatus.PAUSED} and not is_failing(self._store, report):
            raise _ended(report)
        return report

    def end(self, run: RunId, status: RunStatus, reason: StopReason | None, now: float) -> None:
        """Record how a run ended; or that it is paused, with its items. Without a reason it keeps the one that it has."""
        stored = None if reason is None else encode_stop_reason(reason)
        end = run_sql.end_run(status=status.value, reason=stored, ended_at=now, run=run)
        self._store.apply(end, *([run_sql.pause_run(run=run)] if status is RunStatus.PAUSED else []))

    def pause_items(self, run: RunId) -> None:
        """Make the queued items of a paused run unclaimable until it is resumed."""
        self._store.apply(run_sql.pause_run(run=run))

    def cancel_items(self, run: RunId, now: float, limit: int, first: int = 0) -> int:
        """Cancel up to `limit` queued items of a run from an ordinal on; ask items in a stage to stop after it.

        Return the ordinal to continue from. Items before it need no second pass: an item that was asked to stop is never queued
        again.
        """
        steps = (
            run_sql.cancel_run(now=now, run=run, limit=limit, ordinal=first),
            run_sql.ask_to_cancel_run(run=run),
        )
        gone, _ = self._store.apply(*steps) or ([], [])
        return max((ordinal + 1 for ordinal in gone), default=first)

    def mark_source(self, run: RunId, *, is_fed: bool) -> None:
        """Record whether the source was read to its end; before that, the run does not end.

        Raises RunError when it has ended already, and there is nothing to add to.
        """
        marked = run_sql.end_source(run=run) if is_fed else run_sql.open_source(run=run)
        if self._store.apply(marked.touching(1)) is None:
            raise _ended(self.report(run))

    def _row(self, run: int) -> run_sql.StoredRun:
        rows = self._store.query(run_sql.run(run=run))
        if not rows:
            latest = ", ".join(map(str, self._store.query(run_sql.runs(limit=5)))) or "none yet"
            raise RunError(run=run, problem="there is no such run", fix=f"The latest runs: {latest}.")
        return rows[0]


def _ended(report: RunReport) -> RunError:
    return RunError(run=report.id, problem=f"it has ended as {report.status}", fix="Start a new run.")


KEEP_SECONDS: Final = 30.0
"""How long a process that no longer renews it keeps others from deciding the status of a run."""

OnProgress = Callable[[RunReport], None]


def keep_run(store: Store, run: RunId, now: float) -> None:
    """Record that this process decides the status of a run for a while."""
    store.apply(run_sql.keep_run(until=lease_time(store, now) + KEEP_SECONDS, run=run))


def leave_run(store: Store, run: RunId) -> None:
    """Record that this process decides the status of a run no more."""
    store.apply(run_sql.keep_run(until=0.0, run=run))


def is_failing(store: Reader, report: RunReport) -> bool:
    """Return whether a run has failed by its rule before all of its items have ended."""
    return report.status == RunStatus.FAILED and store.query(run_sql.run(run=report.id))[0].ended_at is None


def has_permanent(store: Reader, run: int) -> bool:
    """Return whether an item of a run has ever had a permanent failure."""
    return store.query(run_sql.has_permanent(run=run))[0]


prepare(RunOptions, RunReport)
