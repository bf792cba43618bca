# SPDX-License-Identifier: Apache-2.0
"""Settling a batch in SQLite: all rows at once, and only if one does not fit, row by row in a transaction of its own.

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

# Looked up once: every use of a member by its name goes through a hook of the enumeration.
_COMPLETE: Final = JobState.COMPLETE
_QUEUED: Final = JobState.QUEUED

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
        self.terms: Row = (token, now)
        """The lease under which they go on, and since when."""
        self.taken: dict[JobId, Claimed] = {}
        self._in_lane: Counter[LaneId] = Counter()

    def take(self, one: Settlement) -> Row | None:
        """Return the row that keeps this job going; None when it has to queue."""
        lane, want = one.lane, self._want
        if one.job.id in self.taken:
            # An outcome of one of its earlier runs, which the fence will refuse.
            return None
        if lane not in self._lanes or lane in self._paused or len(self.taken) >= want.limit:
            return None
        if self._in_lane[lane] >= want.limits.get(lane, want.limit) or one.value is None:
            return None
        self._in_lane[lane] += 1
        job = one.job
        begun = (job.id, self._token, job.dispatch + 1, lane, 1, job.round)
        payload = job.input if job.payload is None else job.payload
        self.taken[job.id] = Claimed(
            *begun, 0, 0, 0, job.restarts, 0, job.expires_at, None, one.value, payload
        )
        return (job.id, job.token, job.dispatch, lane, _inline(one))

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


class NotAtOnceError(Exception):
    """A batch holds a row that was lost or does not fit; what was written of it has to be rolled back."""


def settle_at_once(
    db: sqlite3.Connection, worker: str, done: Sequence[Settlement], insert: Insert, onward: Onward
) -> None:
    """Settle a whole batch inside the caller's transaction; raises NotAtOnceError unless every row was still fenced and fits."""
    updates: dict[str, list[Row]] = {}
    for one in done:
        statement, row = _update_of(one, onward)
        if statement in updates:
            updates[statement].append(row)
        else:
            updates[statement] = [row]
    try:
        _close_recovered(db, done)
        for statement, rows in updates.items():
            if _execute_rows(db, statement, rows, _terms(statement, onward)) != len(rows):
                raise NotAtOnceError
        _record(db, worker, done)
        for one in done:
            if one.letter is not None or one.recipients or one.children or _is_large(one):
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
            if _execute_rows(db, statement, [row], _terms(statement, onward)) == 1:
                _record(db, worker, [one])
                _write_beside(db, one, insert)
                is_taken = True
            elif db.execute(_SQL["was_settled"], (one.job.id, one.job.dispatch)).fetchone() is None:
                lost.append(one.job.id)
        except BROKEN:
            db.execute("ROLLBACK TO one")
            broken.append(one.job.id)
        db.execute("RELEASE one")
        if statement == "go_on" and not is_taken:
            onward.drop(one.job.id)
    return tuple(lost), tuple(broken)


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


def _close_recovered(db: sqlite3.Connection, done: Sequence[Settlement]) -> None:
    """Close the letters of replays that are complete, before the trigger does it one by one; nothing else ends by the thousand."""
    ended = [one for one in done if one.job.round > 1 and one.status is JobState.COMPLETE]
    if ended:
        _execute_rows(db, "count_recovered", [(one.job.id,) for one in ended])
        _execute_rows(db, "close_recovered", [(one.job.id, one.ended_at) for one in ended])


def _terms(statement: str, onward: Onward) -> Row:
    return onward.terms if statement == "go_on" else ()


def _record(db: sqlite3.Connection, worker: str, done: Sequence[Settlement]) -> None:
    """Write the attempts; those that went well without a word take less than half of what the others do."""
    good: list[Row] = []
    told: list[Row] = []
    for one in done:
        if one.outcome == "ok" and one.burned and one.reason is None and one.notes is None:
            good.append(_good_attempt_of(one))
        else:
            told.append(_attempt_of(one))
    _execute_rows(db, "insert_good_attempt", good, (worker,))
    _execute_rows(db, "insert_attempt", told, (worker,))


def _write_beside(db: sqlite3.Connection, one: Settlement, insert: Insert) -> None:
    job = one.job
    if _is_large(one):
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
    job, status = one.job, one.status
    if status is _QUEUED and one.outcome == "ok":
        row = onward.take(one)
        if row is not None:
            return "go_on", row
    fence = (job.id, job.token, job.dispatch)
    match status:
        case _ if status is _COMPLETE:
            is_large = _is_large(one)
            row = (*fence, one.ended_at) if is_large else (*fence, one.ended_at, _inline(one))
            return "complete_large" if is_large else "complete", row
        case JobState.FAILED:
            return "bury", (*fence, one.code, one.message, one.ended_at, one.codes)
        case JobState.CANCELLED:
            return "cancel", (*fence, one.ended_at)
        case _ if one.outcome != "ok":
            counts = (one.attempt, one.snoozes, one.codes, one.outcome, one.suspects, one.crashes)
            return "requeue", (*fence, one.run_at, *counts, one.ended_at)
        case _:
            return "advance", (*fence, one.lane, _inline(one), one.run_at)


def _is_large(one: Settlement) -> bool:
    """Say whether its value has to stand beside the job, under the dispatch whose output it is."""
    return one.value is not None and len(one.value) > INLINE_MAX


def _inline(one: Settlement) -> bytearray | None:
    """Return the value that stands in its job's own row; not as bytes, for which `sqlite3` looks for an adapter each time."""
    return None if one.value is None or _is_large(one) else bytearray(one.value)


def _good_attempt_of(one: Settlement) -> Row:
    job = one.job
    return (job.id, job.dispatch, job.lane, job.round, job.attempt, one.config, one.started_at, one.ended_at)


def _attempt_of(one: Settlement) -> Row:
    told = (one.code, one.error_class, one.message, one.http_status, one.reason, one.sentence, one.notes)
    return (*_good_attempt_of(one), one.outcome, int(one.burned), *told)


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
