# SPDX-License-Identifier: Apache-2.0
"""Claiming in PostgreSQL: one statement over all lanes a worker serves, which skips what others are about to take.

A claim starts where the last one ended: the index still has entries of jobs that were claimed before, and they stay there while
anybody's transaction stays open. From time to time, and when it does not find as many as it wants, the next claim starts from the
beginning. A claim that is repeated with its token finds what it had claimed before.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple, cast

import msgspec
from msgspec import Struct

from redrive.store.postgres.session import Session, columns_of
from redrive.store.records import ClaimedJob, ClaimRequest, JobId, LaneId, Row

MARK_MIN: Final = 16
"""A lane gets a mark from a claim of so many jobs; smaller claims do not need one."""
PATIENCE_SECONDS: Final = (1.0, 60.0)
"""For how long claims continue from a mark; twice as long each time that nothing is found before it."""


class LeasedJob(NamedTuple):
    """What the part `claimed_columns` gives. For speed no row is made into it; a test compares it with what the server gives."""

    priority: int
    run_at: float
    id: JobId
    lease_token: int
    dispatch: int
    lane_id: LaneId
    attempt: int
    round: int
    snoozes: int
    suspect_count: int
    crash_count: int
    restarts: int
    cancel_asked: int
    expires_at: float | None
    codes: bytes | None
    input: bytes
    payload: bytes | None
    key: str | None
    owner: str | None
    run_id: int | None
    origin: str | None


_NOBODY: Final = (None,) * 4


class Mark(Struct):
    """Where the last claim from a lane ended."""

    turn: Row
    """The priority, due time and id of the last job."""
    since: float
    """When a claim has last started from the beginning."""
    patience: float


Marks = dict[LaneId, Mark]
_FIRST: Final = (-1, 0.0, 0)


def send_claim(
    db: Session, terms: Row, want: ClaimRequest, paused: Container[LaneId], marks: Marks
) -> Callable[[], list[Row]]:
    """Claim what is wanted inside the caller's transaction; from the first lanes first, and nothing from paused ones.

    Return a function that waits for the rows. `terms` are the token, the worker, and the time.
    """
    lanes = [lane for lane in want.lanes if lane not in paused]
    slots = want.limit if want.slots is None else want.slots
    if not want.batched and not want.keys and want.job is None:
        most = min(want.limit, slots)
        return _send_lanes(db, terms, [(lane, want.limits.get(lane, most)) for lane in lanes], most, marks)
    rows: list[Row] = []
    left = want.limit
    for lane in lanes:
        is_batched = lane in want.batched
        room = min(left, want.limits.get(lane, left), left if is_batched else slots)
        if want.job is None:
            found = _claim_lane(db, terms, lane, want.keys.get(lane), room)
        else:
            found = db.execute("claim_job", (*terms, lane, want.job)).fetchall() if room > 0 else []
        rows += found
        left -= len(found)
        slots -= 0 if is_batched else len(found)
    return lambda: rows


def jobs_of(rows: list[Row]) -> tuple[ClaimedJob, ...]:
    """Return the jobs of claimed rows: by priority, then by due time."""
    return tuple([_job_of(row) for row in sorted(rows, key=_turn)])


def _claim_lane(db: Session, terms: Row, lane: LaneId, keys: dict[str, int] | None, room: int) -> list[Row]:
    if keys is None:
        return _send_lanes(db, terms, [(lane, room)], room, {})()
    rows: list[Row] = []
    for key, most in keys.items():
        if min(room - len(rows), most) > 0:
            named = (*terms, lane, min(room - len(rows), most), key)
            rows += db.execute("claim_of_key", named).fetchall()
    return rows


def _send_lanes(
    db: Session, terms: Row, rooms: list[tuple[LaneId, int]], most: int, marks: Marks
) -> Callable[[], list[Row]]:
    now = cast("float", terms[2])
    wanted = {lane: min(room, most) for lane, room in rooms if min(room, most) > 0}
    if not wanted:
        return list
    from_mark = {
        lane for lane in wanted if lane in marks and 0 <= now - marks[lane].since < marks[lane].patience
    }
    starts = [
        (lane, room, *(marks[lane].turn if lane in from_mark else _FIRST)) for lane, room in wanted.items()
    ]
    cursor = db.execute("claim", (*terms, *columns_of("claim", starts), most))

    def rows() -> list[Row]:
        found = cursor.fetchall()
        if len(found) < min(most, sum(wanted.values())):
            # Perhaps there is more before the marks.
            marks.clear()
        elif marks or len(found) >= MARK_MIN:
            _set_marks(marks, from_mark, found, now)
        return found

    return rows


def _set_marks(marks: Marks, from_mark: Container[LaneId], found: Sequence[Row], now: float) -> None:
    turns: dict[LaneId, list[Row]] = {}
    for row in found:
        turns.setdefault(cast("LeasedJob", row)[5], []).append(_turn(row))
    for lane, taken in turns.items():
        before = marks.get(lane)
        if lane in from_mark and before is not None:
            before.turn = max(taken)
        elif before is not None or len(found) >= MARK_MIN:
            first, longest = PATIENCE_SECONDS
            is_quiet = before is not None and min(taken) > before.turn
            patience = min(2 * before.patience, longest) if before is not None and is_quiet else first
            marks[lane] = Mark(max(taken), now, patience)


def _turn(row: Row) -> Row:
    return row[:3]


def _job_of(row: Row) -> ClaimedJob:
    columns = cast("LeasedJob", row)
    names = columns[17:]
    about = None if names == _NOBODY else msgspec.json.encode(names)
    return ClaimedJob(*columns[2:17], about)
