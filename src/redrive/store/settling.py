# SPDX-License-Identifier: Apache-2.0
"""Settling a batch in SQLite: first all rows at once, and only if one does not fit, row by row.

The fence stands in the WHERE clause of each update. A row whose update matches nothing is lost to another lease, unless its
attempt is on record already: then the answer to an earlier commit was lost, and it counts as done. A row that breaks a constraint
is taken out; the rest commits. What goes with a settlement (its attempt, letter, large value, children, notice) is written in the
same transaction, and only for rows that were still fenced.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

import msgspec

from redrive.core.lifecycle import JobState
from redrive.store.protocol import INLINE_MAX, Child, Claimed, JobId, LaneId, Letter, Row, Settlement, Want
from redrive.store.queries import for_rows, statements_of

_SQL: Final = statements_of("sqlite")

CHUNKS: Final = (256, 64, 16, 4, 1)
"""For so many rows at once statements are made; few sizes, so that each is compiled once."""

BROKEN: Final = (sqlite3.IntegrityError, sqlite3.DataError, UnicodeError, OverflowError)
"""What is wrong with one row, and not with the database."""

Insert = Callable[[sqlite3.Connection, Child, float, JobId], object]


class Onward:
    """Which jobs may go straight on to their next stage, in the hands of the worker that has just done the last one.

    It spares them the way through the queue: one row is written instead of two. They take the places that were wanted, so that
    limits hold as for any other claim.
    """

    def __init__(self, want: Want, paused: Container[LaneId], *, token: int, now: float) -> None:
        self._want = want
        self._paused = paused
        self._lanes = frozenset(want.lanes)
        self._token = token
        self._now = now
        self.taken: dict[JobId, Claimed] = {}
        self._in_lane: Counter[LaneId] = Counter()

    def take(self, one: Settlement) -> Row | None:
        """Return the row that keeps this job going; None when it has to queue."""
        lane, want = one.lane, self._want
        if lane not in self._lanes or lane in self._paused or len(self.taken) >= want.limit:
            return None
        if self._in_lane[lane] >= want.limits.get(lane, want.limit) or one.value is None:
            return None
        self._in_lane[lane] += 1
        job = one.job
        self.taken[job.id] = Claimed(
            id=job.id,
            token=self._token,
            dispatch=job.dispatch + 1,
            lane=lane,
            attempt=1,
            round=job.round,
            snoozes=0,
            suspects=0,
            crashes=0,
            restarts=job.restarts,
            cancel_asked=0,
            expires_at=job.expires_at,
            codes=None,
            input=one.value,
            payload=job.input if job.payload is None else job.payload,
        )
        return (job.id, job.token, job.dispatch, lane, *_inline(one, nowhere=0), self._now, self._token)

    def unwanted(self, jobs: Iterable[JobId]) -> None:
        """Take in that somebody asked to cancel these while their stage ran."""
        for job in jobs:
            if job in self.taken:
                self.taken[job] = msgspec.structs.replace(self.taken[job], cancel_asked=1)

    def drop(self, job: JobId) -> None:
        """Take back a job whose row was not taken after all."""
        if (claimed := self.taken.pop(job, None)) is not None:
            self._in_lane[claimed.lane] -= 1

    def rest(self) -> Want:
        """Return what is still wanted."""
        want = self._want
        limits = {lane: limit - self._in_lane[lane] for lane, limit in want.limits.items()}
        return Want(want.lanes, want.limit - len(self.taken), limits)


def settle(
    db: sqlite3.Connection, worker: str, done: Sequence[Settlement], insert: Insert, onward: Onward
) -> tuple[tuple[JobId, ...], tuple[JobId, ...]]:
    """Settle a batch inside the caller's transaction; return the ids that were lost, and those whose row does not fit."""
    if not done:
        return (), ()
    db.execute("SAVEPOINT batch")
    try:
        if _settle_at_once(db, worker, done, insert, onward):
            db.execute("RELEASE batch")
            return (), ()
    except BROKEN:
        pass
    db.execute("ROLLBACK TO batch")
    db.execute("RELEASE batch")
    for one in done:
        onward.drop(one.job.id)
    return _settle_one_by_one(db, worker, done, insert, onward)


def _settle_at_once(
    db: sqlite3.Connection, worker: str, done: Sequence[Settlement], insert: Insert, onward: Onward
) -> bool:
    """Say whether every row was still fenced."""
    updates: dict[str, list[Row]] = {}
    for one in done:
        statement, row = _update_of(one, onward)
        updates.setdefault(statement, []).append(row)
    for statement, rows in updates.items():
        if execute_rows(db, statement, rows) != len(rows):
            return False
    execute_rows(db, "insert_attempt", [_attempt_of(one, worker) for one in done])
    for one in done:
        _write_beside(db, one, insert)
    return True


def _settle_one_by_one(
    db: sqlite3.Connection, worker: str, done: Sequence[Settlement], insert: Insert, onward: Onward
) -> tuple[tuple[JobId, ...], tuple[JobId, ...]]:
    lost: list[JobId] = []
    broken: list[JobId] = []
    for one in done:
        db.execute("SAVEPOINT one")
        try:
            statement, row = _update_of(one, onward)
            if execute_rows(db, statement, [row]) == 1:
                execute_rows(db, "insert_attempt", [_attempt_of(one, worker)])
                _write_beside(db, one, insert)
            else:
                onward.drop(one.job.id)
                if db.execute(_SQL["was_settled"], (one.job.id, one.job.dispatch)).fetchone() is None:
                    lost.append(one.job.id)
        except BROKEN:
            db.execute("ROLLBACK TO one")
            onward.drop(one.job.id)
            broken.append(one.job.id)
        db.execute("RELEASE one")
    return tuple(lost), tuple(broken)


def execute_rows(db: sqlite3.Connection, name: str, rows: Sequence[Row]) -> int:
    """Run a statement over rows, many at a time; return how many rows it touched."""
    touched, start = 0, 0
    for size in CHUNKS:
        while len(rows) - start >= size:
            chunk = rows[start : start + size]
            start += size
            parameters = [value for row in chunk for value in row] if size > 1 else chunk[0]
            touched += db.execute(for_rows(_SQL[name], size), parameters).rowcount
    return touched


def _write_beside(db: sqlite3.Connection, one: Settlement, insert: Insert) -> None:
    job = one.job
    if one.value is not None and len(one.value) > INLINE_MAX:
        db.execute(_SQL["insert_value"], (job.id, job.dispatch, one.value))
    if one.letter is not None:
        group = (one.letter.code, one.letter.category, one.letter.error_class, one.ended_at)
        db.execute(_SQL["touch_group"], (one.letter.fingerprint, job.lane, *group))
        made = db.execute(_SQL["insert_letter"], _letter_of(one, one.letter)).lastrowid
        db.execute(_SQL["insert_stack"], (made, one.letter.stack))
    for recipient in one.recipients:
        db.execute(_SQL["insert_notice"], (job.lane, job.id, job.dispatch, one.ended_at, recipient))
    for child in one.children:
        insert(db, child, one.ended_at, job.id)


def _update_of(one: Settlement, onward: Onward) -> tuple[str, Row]:
    """Return the name of the update for this settlement, and its row."""
    job = one.job
    fence = (job.id, job.token, job.dispatch)
    match one.status:
        case JobState.COMPLETE:
            return "complete", (*fence, *_inline(one, nowhere=None), one.ended_at)
        case JobState.FAILED:
            return "bury", (*fence, one.code, one.message, one.ended_at, one.codes)
        case JobState.CANCELLED:
            return "cancel", (*fence, one.ended_at)
        case _:
            if one.outcome == "ok":
                if (row := onward.take(one)) is not None:
                    return "go_on", row
                return "advance", (*fence, one.lane, *_inline(one, nowhere=0), one.run_at)
            counts = (one.attempt, one.snoozes, one.codes, one.outcome, one.suspects, one.crashes)
            return "requeue", (*fence, one.run_at, *counts, one.ended_at)


def _inline(one: Settlement, *, nowhere: int | None) -> tuple[bytes | None, int | None]:
    """Return the value if it is small, and otherwise the dispatch under which it is found."""
    if one.value is None or len(one.value) <= INLINE_MAX:
        return one.value, nowhere
    return None, one.job.dispatch


def _attempt_of(one: Settlement, worker: str) -> Row:
    job = one.job
    return (
        job.id,
        job.dispatch,
        job.lane,
        job.round,
        job.attempt,
        worker,
        one.config,
        one.started_at,
        one.ended_at,
        one.outcome,
        int(one.burned),
        one.code,
        one.message,
        one.http_status,
        one.reason,
        one.sentence,
        one.notes,
    )


def _letter_of(one: Settlement, letter: Letter) -> Row:
    job = one.job
    return (
        job.id,
        job.lane,
        job.round,
        letter.code,
        letter.category,
        int(letter.is_retryable),
        letter.message,
        letter.error_class,
        letter.fingerprint,
        letter.context,
        letter.reason,
        one.ended_at,
    )
