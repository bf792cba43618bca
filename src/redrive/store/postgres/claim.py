# SPDX-License-Identifier: Apache-2.0
"""Claiming in PostgreSQL: one statement over all lanes a worker serves, which skips what others are about to take.

A claim that is repeated with its token finds what it had claimed before.
"""

from __future__ import annotations

from collections.abc import Container
from typing import cast

import msgspec

from redrive.store.postgres.session import Session, columns_of
from redrive.store.records import ClaimedJob, ClaimRequest, JobId, LaneId, Row

_Columns = tuple[
    int, float, JobId, int, int, LaneId, int, int, int, int, int, int, int, float | None, bytes | None, bytes | None, bytes | None,
    int, int, str | None, str | None, int | None, str | None,
]  # fmt: skip
"""What the part `claimed_columns` gives."""


def claim(
    db: Session, worker: str, want: ClaimRequest, paused: Container[LaneId], *, now: float, token: int
) -> tuple[ClaimedJob, ...]:
    """Claim what is wanted inside the caller's transaction; from the first lanes first, and nothing from paused ones."""
    lanes = [lane for lane in want.lanes if lane not in paused]
    slots = want.limit if want.slots is None else want.slots
    terms = (token, worker, now)
    if not want.batched and not want.keys and want.job is None:
        most = min(want.limit, slots)
        return jobs_of(
            db, _claim_lanes(db, terms, [(lane, want.limits.get(lane, most)) for lane in lanes], most)
        )
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
    return jobs_of(db, rows)


def claimed(db: Session, worker: str, token: int, other: int) -> tuple[ClaimedJob, ...]:
    """Return what a worker leases under either of two tokens: by priority, then by due time."""
    return jobs_of(db, db.execute("claimed", (worker, token, other)).fetchall())


def jobs_of(db: Session, rows: list[Row]) -> tuple[ClaimedJob, ...]:
    """Return the jobs of claimed rows: by priority, then by due time."""
    return tuple([_job_of(db, row) for row in sorted(rows, key=_turn)])


def _claim_lane(db: Session, terms: Row, lane: LaneId, keys: dict[str, int] | None, room: int) -> list[Row]:
    if keys is None:
        return _claim_lanes(db, terms, [(lane, room)], room)
    rows: list[Row] = []
    for key, most in keys.items():
        if min(room - len(rows), most) > 0:
            named = (*terms, lane, min(room - len(rows), most), key)
            rows += db.execute("claim_of_key", named).fetchall()
    return rows


def _claim_lanes(db: Session, terms: Row, rooms: list[tuple[LaneId, int]], most: int) -> list[Row]:
    wanted = [(lane, min(room, most)) for lane, room in rooms if min(room, most) > 0]
    if not wanted:
        return []
    lanes, limits = columns_of("claim", wanted)
    return db.execute("claim", (*terms, lanes, limits, most)).fetchall()


def _turn(row: Row) -> Row:
    return row[:3]


def _job_of(db: Session, row: Row) -> ClaimedJob:
    columns = cast("_Columns", row)
    job, value, payload, source, is_beside = columns[2], *columns[15:19]
    if value is None:
        value = _large(db, job, source)
    if is_beside:
        payload = _large(db, job, 0)
    names = columns[19:]
    about = None if names == (None,) * 4 else msgspec.json.encode(names)
    return ClaimedJob(*columns[2:15], value, payload, about)


def _large(db: Session, job: JobId, dispatch: object) -> bytes:
    found = db.execute("large_value", (job, dispatch)).fetchone()
    return b"" if found is None else cast("bytes", found[0])
