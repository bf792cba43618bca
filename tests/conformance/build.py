# SPDX-License-Identifier: Apache-2.0
"""Factories for what goes into a store."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from msgspec.structs import replace

from redrive.core.lifecycle import JobState
from redrive.store.protocol import Claimed, Exchange, LaneId, Letter, NewJob, Settlement, Store, Want

NOW = 1_000.0

LETTER = Letter(
    code="AUTH_DENIED",
    category="auth",
    message="denied",
    error_class="builtins.PermissionError",
    stack="Traceback ...",
    fingerprint="v1:0123456789abcdef",
    context=b"{}",
    reason="permanent",
)


def lanes_of(store: Store, *stages: str, pipeline: str = "shop") -> list[LaneId]:
    return store.lanes(pipeline, stages or ("fetch",))


def job(lane: LaneId, payload: bytes = b"{}", **changes: object) -> NewJob:
    return replace(NewJob(lane=lane, payload=payload, run_at=NOW), **changes)


_TOKENS = itertools.count(1)
NOTHING = Want((), 0)


def exchange(
    store: Store, worker: str, done: Sequence[Settlement], want: Want = NOTHING, now: float = NOW
) -> Exchange:
    """Exchange under a token of its own."""
    return store.exchange(worker, done, want, now=now, token=next(_TOKENS))


def claim(
    store: Store, lane: LaneId, limit: int = 10, *, worker: str = "w1", now: float = NOW
) -> tuple[Claimed, ...]:
    return exchange(store, worker, [], Want((lane,), limit), now).claimed


def settlement(of: Claimed, **changes: object) -> Settlement:
    """Build the settlement of a completed job; `changes` make it another one."""
    plain = Settlement(
        job=of,
        status=JobState.COMPLETE,
        lane=of.lane,
        run_at=NOW,
        value=b'"done"',
        attempt=of.attempt,
        snoozes=of.snoozes,
        codes=None,
        outcome="ok",
        burned=True,
        started_at=NOW,
        ended_at=NOW + 1,
    )
    return replace(plain, **changes)


def retry(of: Claimed, *, at: float, **changes: object) -> Settlement:
    return settlement(
        of,
        status=JobState.QUEUED,
        run_at=at,
        value=None,
        attempt=of.attempt + 1,
        outcome="retry",
        code="NETWORK_RESET",
        **changes,
    )


def burial(of: Claimed, **changes: object) -> Settlement:
    return settlement(
        of,
        status=JobState.FAILED,
        value=None,
        outcome="dead",
        code="AUTH_DENIED",
        message="denied",
        reason="permanent",
        letter=LETTER,
        **changes,
    )


def statuses(store: Store) -> dict[str, int]:
    counted: dict[str, int] = {}
    for _, _, status, jobs in store.query("counts"):
        counted[str(status)] = counted.get(str(status), 0) + int(str(jobs))
    return counted
