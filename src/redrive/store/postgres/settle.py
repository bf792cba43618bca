# SPDX-License-Identifier: Apache-2.0
"""Settling a batch in PostgreSQL: one statement for each kind of outcome, and only if one row does not fit, row by row.

At once means without looking at an answer: the server itself ends the transaction if a row was not fenced any more.

The fence is in the WHERE clause of each update. A row whose update matches nothing is lost to another lease, unless its attempt is
on record already: then the answer to an earlier commit was lost, and it counts as done. A row that breaks a constraint is taken
out; the rest commits. What goes with a settlement is written in the same transaction, and only for rows that were still fenced.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final

import psycopg

from redrive.errors import ConfigurationError
from redrive.store.plan import Continuation
from redrive.store.postgres.session import EXPECTED, EXPECTED_FACTS, Session
from redrive.store.records import Child, JobId, Letter, Row, Settlement
from redrive.store.settlement_rows import (
    NotAtOnceError,
    facts_row,
    full_attempt,
    is_large,
    is_plain_success,
    letter_row,
    log_escalation,
    plain_attempt,
    terms_of,
    update_of,
)

BROKEN: Final = (
    psycopg.IntegrityError,
    psycopg.DataError,
    UnicodeError,
    OverflowError,
    struct.error,
    ConfigurationError,
)
"""Errors of one row, and not of the database; an index entry that is too long is another."""
TOO_LONG: Final = "54000"

Insert = Callable[[Session, Child, float, JobId], object]


class NotAsRememberedError(Exception):
    """A worker is not known any more, has claimed under this token before, or other lanes are paused than it remembers."""


def is_broken(error: Exception) -> bool:
    """Return whether an error is one of a row."""
    return isinstance(error, BROKEN) or getattr(error, "sqlstate", None) == TOO_LONG


@contextmanager
def at_once() -> Generator[None]:
    """Turn what ends a transaction that looks at no answer before it commits into an error of its own.

    Raises:
        NotAtOnceError: a row was not fenced any more, or does not fit.
        NotAsRememberedError: what the transaction relied on is not so any more.
    """
    try:
        yield
    except (psycopg.Error, *BROKEN) as error:
        state = getattr(error, "sqlstate", None)
        if state == EXPECTED_FACTS:
            raise NotAsRememberedError from error
        if state == EXPECTED or is_broken(error):
            raise NotAtOnceError from error
        raise


def settle_at_once(
    db: Session, worker: str, done: Sequence[Settlement], insert: Insert, in_place: Continuation
) -> None:
    """Settle a whole batch inside the caller's transaction, and inside `at_once`."""
    if not done:
        return
    # In one order, so that two who change the same jobs wait for each other rather than in a circle.
    ordered = sorted(done, key=lambda one: one.job.id)
    for name, rows in _updates(ordered, in_place).items():
        db.change_rows(name, rows, terms_of(name, in_place))
    _record(db, worker, ordered)
    _write_beside(db, ordered, insert)


def settle_one_by_one(
    db: Session, worker: str, done: Sequence[Settlement], insert: Insert, in_place: Continuation
) -> tuple[tuple[JobId, ...], tuple[JobId, ...]]:
    """Settle what can be settled of a batch; return the ids that were lost, and those whose row does not fit."""
    lost: list[JobId] = []
    broken: list[JobId] = []
    for one in done:
        # A settlement of an earlier dispatch, which the fence refuses, must not take the place of a later one.
        is_in_place = one.job.id in in_place.taken
        is_taken = False
        db.run("SAVEPOINT one")
        try:
            if _change(db, [one], in_place):
                _record(db, worker, [one])
                _write_beside(db, [one], insert)
                is_taken = True
            elif db.execute("was_settled", (one.job.id, one.job.dispatch)).fetchone() is None:
                lost.append(one.job.id)
        except (*BROKEN, psycopg.OperationalError) as error:
            if not is_broken(error):
                raise
            db.run("ROLLBACK TO one")
            broken.append(one.job.id)
        db.run("RELEASE one")
        if not is_taken and not is_in_place:
            in_place.drop(one.job.id)
    return tuple(lost), tuple(broken)


def _change(db: Session, done: Sequence[Settlement], in_place: Continuation) -> bool:
    """Change the jobs; return whether all were still fenced."""
    return all(
        db.execute_rows(name, rows, terms_of(name, in_place)).rowcount == len(rows)
        for name, rows in _updates(done, in_place).items()
    )


def _updates(done: Sequence[Settlement], in_place: Continuation) -> dict[str, list[Row]]:
    updates: dict[str, list[Row]] = {}
    for one in done:
        statement, row = update_of(one, in_place)
        updates.setdefault(statement, []).append(row)
    return updates


def _record(db: Session, worker: str, done: Sequence[Settlement]) -> None:
    """Write the attempts."""
    plain = [plain_attempt(one) for one in done if is_plain_success(one)]
    full = [full_attempt(one) for one in done if not is_plain_success(one)]
    for name, rows in (("insert_good_attempt", plain), ("insert_attempt", full)):
        if rows:
            db.execute_rows(name, rows, (worker,))


def _write_beside(db: Session, done: Sequence[Settlement], insert: Insert) -> None:
    large = [(one.job.id, one.job.dispatch, one.value) for one in done if is_large(one)]
    if large:
        db.execute_rows("insert_values", large)
    letters = _write_letters(db, [(one, one.letter) for one in done if one.letter is not None])
    notices = [
        (one.job.lane, one.job.id, one.job.dispatch, letters.get(one.job.id), recipient, one.ended_at)
        for one in done
        for recipient in one.recipients
    ]
    if notices:
        db.execute_rows("insert_notices", notices)
    for one in done:
        for child in one.children:
            insert(db, child, one.ended_at, one.job.id)


def _write_letters(db: Session, dead: Sequence[tuple[Settlement, Letter]]) -> dict[JobId, int]:
    """Write the letters of a batch; return their ids by job."""
    if not dead:
        return {}
    groups = [
        (letter.fingerprint, one.job.lane, letter.code, letter.category, letter.exception, one.ended_at)
        for one, letter in dead
    ]
    db.execute_rows("touch_groups", groups)
    rows = db.execute_rows("insert_letters", [letter_row(one, letter) for one, letter in dead]).fetchall()
    made: dict[JobId, int] = {row[1]: row[0] for row in rows}
    db.execute_rows("insert_facts", [(made[one.job.id], *facts_row(letter)) for one, letter in dead])
    escalated = {job for _, job, is_escalated in rows if is_escalated}
    for one, letter in dead:
        if one.job.id in escalated:
            log_escalation(one, letter, made[one.job.id])
    return made
