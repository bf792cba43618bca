# SPDX-License-Identifier: Apache-2.0
"""Settling a batch in SQLite: all rows at once, and only if one does not fit, row by row in a transaction of its own.

The fence is in the WHERE clause of each update. A row whose update matches nothing is lost to another lease, unless its attempt is
on record already: then the answer to an earlier commit was lost, and it counts as done. A row that breaks a constraint is taken
out; the rest commits. What goes with a settlement (its attempt, letter, large value, children, notices) is written in the same
transaction, and only for rows that were still fenced.

A uniform batch holds successes that differ in nothing but their job, its value and when it ran: stages that succeeded without a
note, of jobs that were claimed together. They are most of what a busy worker settles. What they share is passed once, because a
parameter of a row costs as much as writing a column of it; counters that such a job never moved need no reset.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from redrive.core.lifecycle import JobState
from redrive.errors import ConfigurationError
from redrive.store import settlement_rows
from redrive.store.plan import Continuation
from redrive.store.records import INLINE_MAX, Child, JobId, LaneId, Row, Settlement
from redrive.store.settlement_rows import NotAtOnceError
from redrive.store.statements.text import for_rows, statements_of

CHUNKS: Final = (256, 64, 16, 4, 1)
"""How many rows a statement takes at once; few sizes, so that each is compiled once."""
BROKEN: Final = (sqlite3.IntegrityError, sqlite3.DataError, UnicodeError, OverflowError, ConfigurationError)
"""Errors of one row, and not of the database."""
UNIFORM_MIN = 16
"""For fewer rows a statement of their own does not pay."""

Insert = Callable[[sqlite3.Connection, Child, float, JobId], object]
Shared = tuple[int, int, LaneId, int, LaneId, JobState, str | None]
"""What a uniform batch shares: token, dispatch, lane and round of its jobs, and lane, status and config of their settlements."""

_SQL: Final = statements_of("sqlite")
# Looked up once: access to a member by its name goes through a hook of the enumeration.
_COMPLETE: Final = JobState.COMPLETE
_QUEUED: Final = JobState.QUEUED


def settle_at_once(
    db: sqlite3.Connection, worker: str, done: Sequence[Settlement], insert: Insert, in_place: Continuation
) -> None:
    """Settle a whole batch inside the caller's transaction; raises NotAtOnceError unless every row was still fenced and fits."""
    batches, others = uniform_batches(done)
    try:
        _close_recovered(db, done)
        for shared, batch in batches.items():
            left, is_fenced = _settle_uniform(db, worker, shared, batch, in_place)
            if not is_fenced:
                raise NotAtOnceError
            others += left
        updates: dict[str, list[Row]] = {}
        for one in others:
            statement, row = settlement_rows.update_of(one, in_place)
            updates.setdefault(statement, []).append(row)
        for statement, rows in updates.items():
            if _execute_rows(db, statement, rows, settlement_rows.terms_of(statement, in_place)) != len(rows):
                raise NotAtOnceError
        _record(db, worker, others)
        for one in others:
            _write_beside(db, one, insert)
    except BROKEN as error:
        raise NotAtOnceError from error


def settle_one_by_one(
    db: sqlite3.Connection, worker: str, done: Sequence[Settlement], insert: Insert, in_place: Continuation
) -> tuple[tuple[JobId, ...], tuple[JobId, ...]]:
    """Settle what can be settled of a batch; return the ids that were lost, and those whose row does not fit."""
    lost: list[JobId] = []
    broken: list[JobId] = []
    for one in done:
        statement, row = settlement_rows.update_of(one, in_place)
        is_taken = False
        db.execute("SAVEPOINT one")
        try:
            if _execute_rows(db, statement, [row], settlement_rows.terms_of(statement, in_place)) == 1:
                _record(db, worker, [one])
                _write_beside(db, one, insert)
                is_taken = True
            elif db.execute(_SQL["was_settled"], (one.job.id, one.job.dispatch)).fetchone() is None:
                lost.append(one.job.id)
        except BROKEN:
            db.execute("ROLLBACK TO one")
            broken.append(one.job.id)
        db.execute("RELEASE one")
        if statement in settlement_rows.IN_PLACE and not is_taken:
            in_place.drop(one.job.id)
    return tuple(lost), tuple(broken)


def uniform_batches(done: Iterable[Settlement]) -> tuple[dict[Shared, list[Settlement]], list[Settlement]]:
    """Divide settlements into uniform batches and the others."""
    batches: dict[Shared, list[Settlement]] = {}
    others: list[Settlement] = []
    for one in done:
        if not _is_plain(one):
            others.append(one)
            continue
        job = one.job
        shared = (job.token, job.dispatch, job.lane, job.round, one.lane, one.status, one.config)
        if shared in batches:
            batches[shared].append(one)
        else:
            batches[shared] = [one]
    for shared in [each for each, batch in batches.items() if len(batch) < UNIFORM_MIN]:
        others += batches.pop(shared)
    return batches, others


def _is_plain(one: Settlement) -> bool:
    """Return whether a stage succeeded without a note, and its job had no failure before."""
    if one.outcome != "ok" or one.value is None or len(one.value) > INLINE_MAX:
        return False
    if one.status is not _COMPLETE and one.status is not _QUEUED:
        return False
    if one.decision is not None or one.notes is not None or one.children or one.recipients or not one.burned:
        return False
    job = one.job
    return job.attempt == 1 and not (job.snoozes or job.suspects or job.crashes) and job.codes is None


def _settle_uniform(
    db: sqlite3.Connection,
    worker: str,
    shared: Shared,
    batch: Sequence[Settlement],
    in_place: Continuation,
) -> tuple[list[Settlement], bool]:
    """Settle a uniform batch; return those that have to queue, and whether all the others were still fenced."""
    token, dispatch, lane, round_, following, status, config = shared
    settled: list[Settlement] = []
    left: list[Settlement] = []
    if status is _COMPLETE:
        settled += batch
        ended = [(one.job.id, one.ended_at, bytearray(one.value or b"")) for one in settled]
        touched = _execute_rows(db, "complete_uniform", ended, (token, dispatch))
    else:
        for one in batch:
            (settled if in_place.take(one) else left).append(one)
        inputs = [(one.job.id, bytearray(one.value or b"")) for one in settled]
        touched = _execute_rows(db, "continue_uniform", inputs, (*in_place.terms, following, token, dispatch))
    attempts = [(one.job.id, one.started_at, one.ended_at) for one in settled]
    _execute_rows(db, "insert_uniform_attempts", attempts, (worker, dispatch, lane, round_, config))
    return left, touched == len(settled)


def _close_recovered(db: sqlite3.Connection, done: Sequence[Settlement]) -> None:
    """Close the letters of replayed jobs that are complete, before the trigger does it one by one: they come by the thousand."""
    ended = [one for one in done if one.job.round > 1 and one.status is JobState.COMPLETE]
    if ended:
        jobs = [(one.job.id,) for one in ended]
        _execute_rows(db, "count_recovered", jobs)
        _execute_rows(db, "close_recovered", jobs, (max(one.ended_at for one in ended),))


def _record(db: sqlite3.Connection, worker: str, done: Sequence[Settlement]) -> None:
    """Write the attempts; plain successes cost less than half of the others."""
    plain: list[Row] = []
    full: list[Row] = []
    for one in done:
        if settlement_rows.is_plain_success(one):
            plain.append(settlement_rows.plain_attempt(one))
        else:
            full.append(settlement_rows.full_attempt(one))
    _execute_rows(db, "insert_good_attempt", plain, (worker,))
    _execute_rows(db, "insert_attempt", full, (worker,))


def _write_beside(db: sqlite3.Connection, one: Settlement, insert: Insert) -> None:
    job = one.job
    made: int | None = None
    if settlement_rows.is_large(one):
        db.execute(_SQL["insert_value"], (job.id, job.dispatch, one.value))
    if one.letter is not None:
        group = (one.letter.code, one.letter.category, one.letter.exception, one.ended_at)
        db.execute(_SQL["touch_group"], (one.letter.fingerprint, job.lane, *group))
        made = db.execute(_SQL["insert_letter"], settlement_rows.letter_row(one, one.letter)).lastrowid
        db.execute(_SQL["insert_facts"], (made, *settlement_rows.facts_row(one.letter)))
        if job.round > 1 and db.execute(_SQL["is_escalated"], (made,)).fetchone()[0]:
            settlement_rows.log_escalation(one, one.letter, made)
    for recipient in one.recipients:
        db.execute(_SQL["insert_notice"], (job.lane, job.id, job.dispatch, made, recipient, one.ended_at))
    for child in one.children:
        insert(db, child, one.ended_at, job.id)


def _execute_rows(db: sqlite3.Connection, name: str, rows: Sequence[Row], terms: Row = ()) -> int:
    """Run a statement over rows, many at a time; return how many rows it touched. `terms` are the same for all of them."""
    touched, start = 0, 0
    for size in CHUNKS:
        while len(rows) - start >= size:
            parameters = list(terms)
            for row in rows[start : start + size]:
                parameters += row
            start += size
            touched += db.execute(for_rows(_SQL[name], size), parameters).rowcount
    return touched
