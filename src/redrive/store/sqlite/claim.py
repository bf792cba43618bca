# SPDX-License-Identifier: Apache-2.0
"""Claiming in SQLite: a few index probes over the lanes a worker serves, never a filter over a global order.

What a token has claimed is read back as one text and decoded at once. A claim that is repeated with its token finds what it had
claimed before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container
from operator import attrgetter
from typing import Final, cast

import msgspec
from msgspec import Raw, Struct

from redrive.store.records import ClaimedJob, ClaimRequest, JobId, LaneId
from redrive.store.statements.text import statements_of

_SQL: Final = statements_of("sqlite")


class _Row(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The row of a claimed job."""

    priority: int
    run_at: int
    """In microseconds; only the order counts."""
    id: JobId
    dispatch: int
    lane: LaneId
    attempt: int
    round: int
    snoozes: int
    suspects: int
    crashes: int
    restarts: int
    cancel_asked: int
    input_from: int
    """The dispatch under whose output a large input is found; below zero when it is here."""
    expires_at: float | None
    codes: Raw
    about: Raw
    payload: Raw
    input: Raw
    token: int
    """After the values, as a check: it is newer than any value, so none can contain it."""


ELSEWHERE: Final = b"false"
"""Stands for a large payload, which is in job_values; a payload that is `false` itself is not found there, and stays as it is."""
_TURN: Final = attrgetter("priority", "run_at", "id")
_DECODE: Final = msgspec.json.Decoder(list[_Row]).decode


def claim(
    db: sqlite3.Connection,
    worker: str,
    want: ClaimRequest,
    paused: Container[LaneId],
    *,
    now: float,
    token: int,
) -> tuple[ClaimedJob, ...]:
    """Claim what is wanted inside the caller's transaction; from the first lanes first, and nothing from paused ones."""
    left = want.limit
    slots = left if want.slots is None else want.slots
    for lane in want.lanes:
        if lane in paused:
            continue
        is_batched = lane in want.batched
        room = min(left, want.limits.get(lane, left), left if is_batched else slots)
        count = 0
        if room > 0 and want.job is not None:
            count = db.execute(_SQL["claim_job"], (token, worker, now, lane, want.job)).rowcount
        elif room > 0 and lane not in want.keys:
            count = db.execute(_SQL["claim"], (token, worker, now, lane, room)).rowcount
        for key, most in want.keys.get(lane, {}).items():
            if min(room - count, most) > 0:
                named = (token, worker, now, lane, min(room - count, most), key)
                count += db.execute(_SQL["claim_of_key"], named).rowcount
        left -= count
        slots -= 0 if is_batched else count
    return () if left == want.limit else claimed(db, worker, token)


def claimed(
    db: sqlite3.Connection, worker: str, token: int, other: int | None = None
) -> tuple[ClaimedJob, ...]:
    """Return what a worker leases under a token, or under either of two: by priority, then by due time."""
    count, text = db.execute(_SQL["claimed"], (worker, token, other)).fetchone()
    if not count:
        return ()
    try:
        rows = _DECODE(b"[%b]" % text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        rows = []
    if len(rows) == count and {row.token for row in rows} <= {token, other}:
        return tuple([_claimed_of(db, row) for row in sorted(rows, key=_TURN)])
    # One value is no JSON, or nested too deep: its job has to fail by itself, and must not block the others.
    return tuple([ClaimedJob(*row) for row in db.execute(_SQL["claimed_rows"], (worker, token, other))])


def _claimed_of(db: sqlite3.Connection, row: _Row) -> ClaimedJob:
    value, payload = bytes(row.input), _some(row.payload)
    if row.input_from >= 0:
        value = _large(db, row.id, row.input_from)
    if payload == ELSEWHERE:
        payload = _large(db, row.id, 0) or payload
    return ClaimedJob(
        row.id,
        row.token,
        row.dispatch,
        row.lane,
        row.attempt,
        row.round,
        row.snoozes,
        row.suspects,
        row.crashes,
        row.restarts,
        row.cancel_asked,
        row.expires_at,
        _some(row.codes),
        value,
        payload,
        _some(row.about),
    )


def _some(raw: Raw) -> bytes | None:
    return None if (value := bytes(raw)) == b"null" else value


def _large(db: sqlite3.Connection, job: JobId, dispatch: int) -> bytes:
    found = db.execute(_SQL["large_value"], (job, dispatch)).fetchone()
    return b"" if found is None else cast("bytes", found[0])
