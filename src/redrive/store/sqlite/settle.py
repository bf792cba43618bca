# SPDX-License-Identifier: Apache-2.0
"""Settling a batch in SQLite: all rows at once, and only if one does not fit, row by row in a transaction of its own.

The fence stands in the WHERE clause of each update. A row whose update matches nothing is lost to another lease, unless its
attempt is on record already: then the answer to an earlier commit was lost, and it counts as done. A row that breaks a constraint
is taken out; the rest commits. What goes with a settlement (its attempt, letter, large value, children, notice) is written in the
same transaction, and only for rows that were still fenced.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from redrive.core.lifecycle import JobState
from redrive.store.plan import Onward
from redrive.store.protocol import Child, JobId, Letter, Row, Settlement
from redrive.store.sqlite.rows import SQL, execute_rows, inline, is_large
from redrive.store.sqlite.uniform import crowds_of, settle_crowd

BROKEN: Final = (sqlite3.IntegrityError, sqlite3.DataError, UnicodeError, OverflowError)
"""What is wrong with one row, and not with the database."""

Insert = Callable[[sqlite3.Connection, Child, float, JobId], object]


class NotAtOnceError(Exception):
    """A batch holds a row that was lost or does not fit; what was written of it has to be rolled back."""


def settle_at_once(
    db: sqlite3.Connection, worker: str, done: Sequence[Settlement], insert: Insert, onward: Onward
) -> None:
    """Settle a whole batch inside the caller's transaction; raises NotAtOnceError unless every row was still fenced and fits."""
    crowds, others = crowds_of(done)
    try:
        _close_recovered(db, done)
        for likeness, crowd in crowds.items():
            left, is_fenced = settle_crowd(db, worker, likeness, crowd, onward)
            if not is_fenced:
                raise NotAtOnceError
            others += left
        updates: dict[str, list[Row]] = {}
        for one in others:
            statement, row = _update_of(one, onward)
            updates.setdefault(statement, []).append(row)
        for statement, rows in updates.items():
            if execute_rows(db, statement, rows, _terms(statement, onward)) != len(rows):
                raise NotAtOnceError
        _record(db, worker, others)
        for one in others:
            _write_beside(db, one, insert)
    except BROKEN as error:
        raise NotAtOnceError from error


def settle_one_by_one(
    db: sqlite3.Connection, worker: str, done: Sequence[Settlement], insert: Insert, onward: Onward
) -> tuple[tuple[JobId, ...], tuple[JobId, ...]]:
    """Settle what can be settled of a batch; return the ids that were lost, and those whose row does not fit."""
    lost: list[JobId] = []
    broken: list[JobId] = []
    for one in done:
        statement, row = _update_of(one, onward)
        is_taken = False
        db.execute("SAVEPOINT one")
        try:
            if execute_rows(db, statement, [row], _terms(statement, onward)) == 1:
                _record(db, worker, [one])
                _write_beside(db, one, insert)
                is_taken = True
            elif db.execute(SQL["was_settled"], (one.job.id, one.job.dispatch)).fetchone() is None:
                lost.append(one.job.id)
        except BROKEN:
            db.execute("ROLLBACK TO one")
            broken.append(one.job.id)
        db.execute("RELEASE one")
        if statement == "continue_in_place" and not is_taken:
            onward.drop(one.job.id)
    return tuple(lost), tuple(broken)


def _close_recovered(db: sqlite3.Connection, done: Sequence[Settlement]) -> None:
    """Close the letters of replays that are complete, before the trigger does it one by one; nothing else ends by the thousand."""
    ended = [one for one in done if one.job.round > 1 and one.status is JobState.COMPLETE]
    if ended:
        jobs = [(one.job.id,) for one in ended]
        execute_rows(db, "count_recovered", jobs)
        execute_rows(db, "close_recovered", jobs, (max(one.ended_at for one in ended),))


def _terms(statement: str, onward: Onward) -> Row:
    return onward.terms if statement == "continue_in_place" else ()


def _record(db: sqlite3.Connection, worker: str, done: Sequence[Settlement]) -> None:
    """Write the attempts; those that went well without a word take less than half of what the others do."""
    good: list[Row] = []
    told: list[Row] = []
    for one in done:
        if one.outcome == "ok" and one.burned and one.decision is None and one.notes is None:
            good.append(_good_attempt_of(one))
        else:
            told.append(_attempt_of(one))
    execute_rows(db, "insert_good_attempt", good, (worker,))
    execute_rows(db, "insert_attempt", told, (worker,))


def _write_beside(db: sqlite3.Connection, one: Settlement, insert: Insert) -> None:
    job = one.job
    if is_large(one):
        db.execute(SQL["insert_value"], (job.id, job.dispatch, one.value))
    if one.letter is not None:
        group = (one.letter.code, one.letter.category, one.letter.error_class, one.ended_at)
        db.execute(SQL["touch_group"], (one.letter.fingerprint, job.lane, *group))
        made = db.execute(SQL["insert_letter"], _letter_of(one, one.letter)).lastrowid
        db.execute(SQL["insert_facts"], (made, *_facts_of(one.letter)))
    for recipient in one.recipients:
        db.execute(SQL["insert_notice"], (job.lane, job.id, job.dispatch, one.ended_at, recipient))
    for child in one.children:
        insert(db, child, one.ended_at, job.id)


def _update_of(one: Settlement, onward: Onward) -> tuple[str, Row]:
    """Return the name of the update for this settlement, and its row."""
    job, status = one.job, one.status
    fence = (job.id, job.token, job.dispatch)
    if status is JobState.QUEUED and one.outcome == "ok":
        row = (*fence, one.lane, inline(one))
        return ("continue_in_place", row) if onward.takes(one) else ("advance", (*row, one.run_at))
    match status:
        case JobState.COMPLETE if is_large(one):
            return "complete_large", (*fence, one.ended_at)
        case JobState.COMPLETE:
            return "complete", (*fence, one.ended_at, inline(one))
        case JobState.FAILED:
            return "bury", (*fence, one.code, one.message, one.ended_at, _codes_of(one))
        case JobState.CANCELLED:
            return "cancel", (*fence, one.ended_at)
        case _:
            counts = (one.attempt, one.snoozes, _codes_of(one), one.outcome, one.suspects, one.crashes)
            return "requeue", (*fence, one.run_at, *counts, one.ended_at)


def _codes_of(one: Settlement) -> bytearray | None:
    return None if one.codes is None else bytearray(one.codes)


def _good_attempt_of(one: Settlement) -> Row:
    job = one.job
    return (job.id, job.dispatch, job.lane, job.round, job.attempt, one.config, one.started_at, one.ended_at)


def _attempt_of(one: Settlement) -> Row:
    status, notes = one.http_status or 0, one.notes or ""
    told = (one.code, one.error_class, one.message, status, one.decision, notes)
    return (*_good_attempt_of(one), one.outcome, int(one.burned), *told)


def _letter_of(one: Settlement, letter: Letter) -> Row:
    job = one.job
    return (
        job.id,
        job.lane,
        job.round,
        letter.fingerprint,
        one.ended_at,
        int(letter.is_retryable),
        letter.code,
    )


def _facts_of(letter: Letter) -> Row:
    return (
        letter.code,
        letter.category,
        int(letter.is_retryable),
        letter.error_class,
        letter.reason,
        letter.message,
        letter.context,
        letter.stack,
    )
