# SPDX-License-Identifier: Apache-2.0
"""What the suite builds its scenes from: factories for what goes into a store, and short ways to look at what is in it.

Expectations are functions rather than assert statements, so that they hold under `python -O` and say what they saw without pytest
rewriting an installed package.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import pytest
from msgspec.structs import replace

from redrive.core.decide import DeadLetter, NoDecision, Reason
from redrive.core.decision_text import encode_decision
from redrive.core.lifecycle import JobState
from redrive.ops.jobs.facts import job_attempts, job_facts
from redrive.store import records
from redrive.store.protocol import Store
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import runs as run_sql
from redrive.store.statements.jobs import JobFacts

NOW: Final = 1_000.0
LEASE: Final = 60.0
NOTHING: Final = records.ClaimRequest((), 0)
LETTER: Final = records.Letter(
    code="AUTH_DENIED",
    category="auth",
    is_retryable=False,
    message="denied",
    exception="builtins.PermissionError",
    stack="Traceback ...",
    fingerprint="v1:0123456789abcdef",
    context=b"{}",
    reason="permanent",
)

PERMANENT: Final = encode_decision(
    DeadLetter(reason=Reason.PERMANENT, code="AUTH_DENIED", attempt=1, max_attempts=3, rule="a test")
)
OVERRAN: Final = encode_decision(NoDecision(Reason.OVERRAN))

T = TypeVar("T")
Settle = Callable[[records.ClaimedJob], records.Settlement]
_TOKENS: Final = itertools.count(1_000_000)


def agree(seen: T, wanted: T) -> None:
    """Fail the test unless the two are equal."""
    if seen != wanted:
        message = f"saw    {seen!r}\nwanted {wanted!r}"
        raise AssertionError(message)


def holds(seen: object) -> None:
    """Fail the test unless this is true."""
    if not seen:
        message = f"saw {seen!r}, which should be true"
        raise AssertionError(message)


class Scene:
    """What every part of the suite starts from: two workers, `w1` and `w2`, whose leases end at NOW + LEASE."""

    @pytest.fixture(autouse=True)
    def _two_workers(self, store: Store) -> None:
        for worker in ("w1", "w2"):
            store.start_worker(worker, NOW, LEASE)


def lanes_of(store: Store, *stages: str, pipeline: str = "shop") -> list[records.LaneId]:
    """Return the lanes of a pipeline; without stages, of one that has only `fetch`."""
    return store.lanes(pipeline, stages or ("fetch",))


def new(lane: records.LaneId, payload: bytes = b"{}", /, **changes: object) -> records.NewJob:
    """Return a job that is due now."""
    return replace(records.NewJob(lane=lane, payload=payload, run_at=NOW), **changes)


def child(payload: bytes = b"{}", *, pipeline: str = "shop", **changes: object) -> records.Child:
    """Return a job that a stage submitted to the first stage, `fetch`, of a pipeline."""
    return records.Child(pipeline, ("fetch", "review"), new(records.LaneId(0), payload, **changes))


def exchange(
    store: Store,
    worker: str,
    done: Sequence[records.Settlement],
    want: records.ClaimRequest = NOTHING,
    now: float = NOW,
) -> records.Exchange:
    """Exchange under a token of its own."""
    return store.exchange(records.ExchangeRequest(worker, done, want, now=now, token=next(_TOKENS)))


def claim(
    store: Store, lane: records.LaneId, limit: int = 10, *, worker: str = "w1", now: float = NOW
) -> tuple[records.ClaimedJob, ...]:
    """Claim jobs of one lane."""
    return claimed(store, records.ClaimRequest((lane,), limit), worker, now)


def claimed(
    store: Store, want: records.ClaimRequest, worker: str = "w1", now: float = NOW
) -> tuple[records.ClaimedJob, ...]:
    """Claim what is wanted."""
    return exchange(store, worker, [], want, now).claimed


def taken_many(store: Store, count: int, **changes: object) -> tuple[records.ClaimedJob, ...]:
    """Submit so many jobs to `shop.fetch` and claim them as w1."""
    (lane,) = lanes_of(store)
    store.submit([new(lane, **changes)] * count, NOW)
    return claim(store, lane, count)


def taken(store: Store, **changes: object) -> records.ClaimedJob:
    """Do the same with one job."""
    (one,) = taken_many(store, 1, **changes)
    return one


def settlement(of: records.ClaimedJob, **changes: object) -> records.Settlement:
    """Return the settlement of a completed job; `changes` make it another one."""
    plain = records.Settlement(
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


def advance(of: records.ClaimedJob, lane: records.LaneId, **changes: object) -> records.Settlement:
    """Return the settlement of a stage after which the job continues in another lane."""
    return settlement(of, status=JobState.QUEUED, lane=lane, **changes)


def retry(of: records.ClaimedJob, *, at: float, **changes: object) -> records.Settlement:
    """Return the settlement of an attempt that failed and is tried again."""
    failed = settlement(
        of, status=JobState.QUEUED, run_at=at, value=None, attempt=of.attempt + 1, outcome="retry"
    )
    return replace(failed, code="NETWORK_RESET", message="reset", **changes)


def burial(of: records.ClaimedJob, **changes: object) -> records.Settlement:
    """Return the settlement of a job that is given up."""
    dead = settlement(of, status=JobState.FAILED, value=None, outcome="dead", letter=LETTER)
    return replace(dead, code="AUTH_DENIED", message="denied", decision=PERMANENT, **changes)


def cancellation(of: records.ClaimedJob, **changes: object) -> records.Settlement:
    """Return the settlement of a job that is cancelled."""
    return settlement(of, status=JobState.CANCELLED, value=None, outcome="cancelled", burned=False, **changes)


def skip(of: records.ClaimedJob, **changes: object) -> records.Settlement:
    """Return the settlement of a job that its stage skipped."""
    return settlement(of, status=JobState.SKIPPED, value=None, outcome="skipped", message="empty", **changes)


def new_run(store: Store, pipeline: str = "shop") -> records.RunId:
    """Return the id of a new run."""
    ((run,),) = store.apply(run_sql.add_run(pipeline=pipeline, options=b"{}", now=NOW)) or []
    return records.RunId(run)


def facts(store: Store, job: records.JobId) -> JobFacts:
    """Return what the store says about a job."""
    return job_facts(store, job)


def attempts(store: Store, job: records.JobId, *names: str) -> list[tuple[object, ...]]:
    """Return these columns of a job's attempts, in order."""
    return [tuple(getattr(each, name) for name in names) for each in job_attempts(store, job)]


def statuses(store: Store, *, from_rows: bool = False) -> dict[str, int]:
    """Count all jobs by status, as the store's tally or its rows have it."""
    counted: dict[str, int] = {}
    for row in store.query(job_sql.recount() if from_rows else job_sql.counts()):
        counted[row.status] = counted.get(row.status, 0) + row.jobs
    return counted


def tally(store: Store, run: records.RunId) -> dict[str, int]:
    """Count the jobs of a run that have ended, by status."""
    counted = store.query(run_sql.run(run=run))[0][9:13]
    statuses = ("complete", "failed", "cancelled", "skipped")
    return {status: int(str(jobs)) for status, jobs in zip(statuses, counted, strict=True) if jobs}
