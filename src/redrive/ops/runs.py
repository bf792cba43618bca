# SPDX-License-Identifier: Apache-2.0
"""What operators do about a run, from any process: pause, resume, cancel and label it; and read its results in item order.

A process that drives the run sees within a moment that it was stopped, submits no more, and ends. Every change is in the operator
log, in the transaction of the change itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from redrive.core.stop_reason import OperatorStop, encode_stop_reason
from redrive.engine.pipeline.codec import Codec, codec_for, storable
from redrive.engine.runs.items import check_label
from redrive.engine.runs.runs import RunReport, Runs
from redrive.engine.runtime import CURRENT
from redrive.errors import RunError
from redrive.ops.audit import Actor, Subject
from redrive.ops.jobs.cancel import ENDED
from redrive.store.protocol import Store
from redrive.store.records import RunId, Step
from redrive.store.statements import runs as run_sql

STEP: Final = 1_000
"""Items that are cancelled in one transaction."""
PAGE: Final = 200
"""Results that are read at once."""
LOOK_SECONDS: Final = 0.1
_CHILDREN: Final = 1 << 40
"""The ordinal of the first job that joined a run: after every item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """One item of a run that has ended."""

    item: int
    """Its place in the source; a job that joined the run comes after all items."""
    job: int
    status: str
    """complete, failed, cancelled or skipped."""
    value: object
    """What its last stage returned; None unless complete, or when it was erased."""


def pause(store: Store, run: int, by: Actor) -> RunReport:
    """Start no more items of a run until it is resumed; items in a stage finish it."""
    known, now = Runs(store).report(run), CURRENT.get().clock.wall()
    reason = encode_stop_reason(OperatorStop(act="paused", actor=storable(by.text)))
    stop = run_sql.stop_run(status="paused", reason=reason, ended_at=now, run=run).touching(1)
    log = _log(by, "pause", known, "paused")
    if store.apply(stop, run_sql.pause_run(run=run), log) is None:
        raise _not_now(Runs(store).report(run), "paused", "Only a running one can be.")
    return Runs(store).report(run)


def resume(store: Store, run: int, by: Actor) -> RunReport:
    """Let workers continue a paused run; one whose source was not read to its end has to be resumed with its source."""
    known = Runs(store).report(run)
    if not Runs(store).is_fed(run):
        raise _not_now(known, "resumed like this", "Its source is not read to its end: give its items.")
    options = msgspec.structs.replace(Runs(store).options(run), resumed_with=known.tally)
    restart = run_sql.continue_run(options=msgspec.json.encode(options), run=run).touching(1)
    if store.apply(restart, run_sql.unpause_run(run=run), _log(by, "resume", known, "running")) is None:
        raise _not_now(Runs(store).report(run), "resumed", "Only a paused one can be.")
    return Runs(store).report(run)


def cancel(store: Store, run: int, by: Actor) -> RunReport:
    """End a run: items that have not started are cancelled, those in a stage are asked to end, finished ones stay."""
    known = Runs(store).report(run)
    reason = encode_stop_reason(OperatorStop(act="cancelled", actor=storable(by.text)))
    stop = run_sql.stop_run(status="cancelled", reason=reason, ended_at=None, run=run).touching(1)
    if store.apply(stop, _log(by, "cancel", known, "cancelled")) is None:
        raise _not_now(Runs(store).report(run), "cancelled", "It has ended already.")
    book, first = Runs(store), 0
    while (after := book.cancel_items(RunId(run), CURRENT.get().clock.wall(), STEP, first)) > first:
        first = after
    return book.report(run)


def label(store: Store, run: int, text: str, by: Actor) -> RunReport:
    """Change the label of a run."""
    known = Runs(store).report(run)
    change = {"before": {"label": known.label}, "after": {"label": check_label(text)}}
    store.apply(run_sql.label_run(label=text, run=run), by.log("label", Subject("run", run), change=change))
    return Runs(store).report(run)


def results(
    store: Store, run: int, *, first: int = 0, output: Codec | None = None, is_waiting: bool = False
) -> Iterator[ItemResult]:
    """Yield the items of a run in order, as far as they have ended; with `is_waiting`, wait for the first that has not.

    Memory is bounded: a page of results is read at a time.
    """
    book, clock, place = Runs(store), CURRENT.get().clock, first
    book.report(run)
    decoder = output or codec_for("result", None)
    while True:
        ended = False
        for ordinal, job, status, value in store.query(run_sql.run_results(run=run, first=place, limit=PAGE)):
            if status not in ENDED or (ordinal != place and not _may_jump(book, run, place)):
                break
            ended, place = True, ordinal + 1
            decoded = None if value is None else decoder.check(value)
            yield ItemResult(item=ordinal, job=job, status=status, value=decoded)
        if ended:
            continue
        report = book.report(run)
        # One that is paused, or whose feeding process is gone, may stay as it is for long: the caller decides by its status.
        is_over = not report.open and (book.is_fed(run) or report.status != "running")
        if not is_waiting or is_over or report.status == "paused":
            return
        clock.sleep(LOOK_SECONDS)


def _may_jump(book: Runs, run: int, place: int) -> bool:
    """Return whether the item at a place will never come: it was pruned, or the items are over."""
    report = book.report(run)
    return place < report.items or book.is_fed(run) or place >= _CHILDREN


def _log(by: Actor, verb: str, known: RunReport, after: str) -> Step:
    change = {"before": {"status": known.status}, "after": {"status": after}}
    return by.log(verb, Subject("run", known.id), change=change)


def _not_now(known: RunReport, what: str, fix: str) -> RunError:
    return RunError(run=known.id, problem=f"it is {known.status} and cannot be {what}", fix=fix)
