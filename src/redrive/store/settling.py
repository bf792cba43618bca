# SPDX-License-Identifier: Apache-2.0
"""Settling a batch in SQLite: first all rows at once, and only if one does not fit, row by row.

The fence stands in the WHERE clause of each update. A row whose update matches nothing is lost to another lease, unless its
attempt is on record already: then the answer to an earlier commit was lost, and it counts as done. A row that breaks a constraint
is taken out; the rest commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from redrive.core.lifecycle import JobState
from redrive.store.protocol import JobId, Letter, Settlement
from redrive.store.queries import statements_of

_SQL: Final = statements_of("sqlite")

Row = tuple[object, ...]


def settle(
    db: sqlite3.Connection, worker: str, done: Sequence[Settlement]
) -> tuple[tuple[JobId, ...], tuple[JobId, ...]]:
    """Settle a batch inside the caller's transaction; return the ids that were lost, and those whose row does not fit."""
    if not done:
        return (), ()
    db.execute("SAVEPOINT batch")
    try:
        if _settle_at_once(db, worker, done):
            db.execute("RELEASE batch")
            return (), ()
    except sqlite3.IntegrityError:
        pass
    db.execute("ROLLBACK TO batch")
    db.execute("RELEASE batch")
    return _settle_one_by_one(db, worker, done)


def _settle_at_once(db: sqlite3.Connection, worker: str, done: Sequence[Settlement]) -> bool:
    """Say whether every row was still fenced."""
    updates: dict[str, list[Row]] = {}
    for one in done:
        statement, row = _update_of(one)
        updates.setdefault(statement, []).append(row)
    for statement, rows in updates.items():
        if db.executemany(_SQL[statement], rows).rowcount != len(rows):
            return False
    db.executemany(_SQL["insert_attempt"], [_attempt_of(one, worker) for one in done])
    db.executemany(
        _SQL["insert_letter"], [_letter_of(one, one.letter) for one in done if one.letter is not None]
    )
    return True


def _settle_one_by_one(
    db: sqlite3.Connection, worker: str, done: Sequence[Settlement]
) -> tuple[tuple[JobId, ...], tuple[JobId, ...]]:
    lost: list[JobId] = []
    broken: list[JobId] = []
    for one in done:
        db.execute("SAVEPOINT one")
        try:
            statement, row = _update_of(one)
            if db.execute(_SQL[statement], row).rowcount == 1:
                db.execute(_SQL["insert_attempt"], _attempt_of(one, worker))
                if one.letter is not None:
                    db.execute(_SQL["insert_letter"], _letter_of(one, one.letter))
            elif db.execute(_SQL["was_settled"], (one.job.id, one.job.dispatch)).fetchone() is None:
                lost.append(one.job.id)
        except sqlite3.IntegrityError:
            db.execute("ROLLBACK TO one")
            broken.append(one.job.id)
        db.execute("RELEASE one")
    return tuple(lost), tuple(broken)


def _update_of(one: Settlement) -> tuple[str, Row]:
    """Return the name of the update for this settlement, and its parameters."""
    fence = (one.job.id, one.job.token, one.job.dispatch)
    match one.status:
        case JobState.COMPLETE:
            return "complete", (one.value, one.ended_at, *fence)
        case JobState.FAILED:
            return "bury", (one.code, one.message, one.ended_at, one.codes, *fence)
        case JobState.CANCELLED:
            return "cancel", (one.ended_at, *fence)
        case _:
            if one.outcome == "ok":
                return "advance", (one.lane, one.value, one.run_at, *fence)
            return "requeue", (one.run_at, one.attempt, one.snoozes, one.codes, one.outcome, *fence)


def _attempt_of(one: Settlement, worker: str) -> Row:
    job = one.job
    return (
        job.id,
        job.dispatch,
        job.lane,
        job.round,
        job.attempt,
        worker,
        one.started_at,
        one.ended_at,
        one.outcome,
        int(one.burned),
        one.code,
        one.message,
        one.http_status,
        one.reason,
        one.sentence,
    )


def _letter_of(one: Settlement, letter: Letter) -> Row:
    job = one.job
    return (
        job.id,
        job.lane,
        job.round,
        letter.code,
        letter.category,
        letter.message,
        letter.error_class,
        letter.stack,
        letter.fingerprint,
        letter.context,
        letter.reason,
        job.id,
        job.lane,
        job.round,
        one.ended_at,
    )
