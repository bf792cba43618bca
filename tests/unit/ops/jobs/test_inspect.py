# SPDX-License-Identifier: Apache-2.0
"""Lists of jobs: what they show, page by page, and how many jobs are looked at for a page."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from redrive import Cancel, Pipeline, Redrive, RetryPolicy, stage
from redrive.ops.jobs.inspect import JobFilter, list_jobs
from redrive.store.protocol import Store
from redrive.store.records import ClaimRequest, ExchangeRequest
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import jobs as job_sql
from redrive.store.statements.text import statements_of
from tests.embedded import read_rows

OTHERS = 3_000


@stage(retry=RetryPolicy(1))
def sort(number: int) -> int:
    if number == 1:
        raise PermissionError(13, "denied")
    if number == 2:
        raise Cancel("nobody wants it")
    return number


SHOP = Pipeline("shop", [sort])
MALL = Pipeline("mall", [sort])


def fill(rd: Redrive) -> dict[str, list[int]]:
    """Make jobs in every state, in both pipelines and in a run, and return their ids by state, newest first."""
    rd.submit_many(SHOP, [0, 1, 2] * 2, owner="ann")
    rd.submit_many(MALL, [0, 1, 2], owner="bob")
    rd.run(SHOP, [0, 1, 2, 0], failure_budget=None)
    rd.work([SHOP, MALL], until_idle=True)
    rd.submit_many(SHOP, [0] * 5, owner="ann", priority=9)
    rd.submit_many(MALL, [0] * 3, priority=1)
    lane = rd.store.lanes("shop", ["sort"])[0]
    rd.store.start_worker("w1", 0, 1e12)
    rd.store.exchange(ExchangeRequest("w1", [], ClaimRequest((lane,), 2), now=1e12, token=7))
    found: dict[str, list[int]] = {}
    every = job_sql.JobTerms(1 << 40, None, None, None, None, None, 100)
    for row in rd.store.query(job_sql.list_jobs(which=every)):
        found.setdefault(row.status, []).append(row.id)
    return found


@pytest.mark.untraced
@pytest.mark.parametrize("status", ["queued", "processing", "complete", "failed", "cancelled"])
def test_a_list_by_state_shows_all_of_them_newest_first_in_pages_that_join(rd: Redrive, status: str) -> None:
    wanted = fill(rd)[status]
    seen: list[int] = []
    before = None
    while page := list_jobs(rd.store, JobFilter(status=status), before=before, limit=2):
        assert {line.status for line in page} == {status}
        seen += [line.id for line in page]
        before = page[-1].id

    assert seen == wanted
    assert len(seen) >= 2


STATUSES = (None, "queued", "processing", "complete", "failed", "cancelled")
OTHER_TERMS: list[dict[str, Any]] = [
    {"pipeline": "mall"},
    {"stage": "sort", "owner": "ann"},
    {"stage": "none"},
    {"run": 1},
    {"run": 1, "owner": "ann"},
]


@pytest.mark.untraced
def test_filters_mean_the_same_whatever_index_is_used(rd: Redrive) -> None:
    fill(rd)

    for status, rest in product(STATUSES, OTHER_TERMS):
        values: list[Any] = [rest.get(name) for name in ("pipeline", "stage", "run", "owner")]
        which = job_sql.JobTerms._make([1 << 40, status, *values, 100])
        plain = [row.id for row in rd.store.query(job_sql.list_jobs(which=which))]
        pages: list[int] = []
        before = None
        while page := list_jobs(rd.store, JobFilter(status=status, **rest), before=before, limit=2):
            pages += [line.id for line in page]
            before = page[-1].id

        assert pages == plain, (status, rest)


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("list_queued", "jobs_ready"),
        ("list_processing", "jobs_leased"),
        ("list_failed", "jobs_failed"),
        ("list_of_run", "jobs_of_run"),
    ],
)
def test_each_list_goes_along_its_index(store: Store, statement: str, index: str) -> None:
    plan = read_rows(
        store, f"EXPLAIN QUERY PLAN {statements_of('sqlite')[statement]}", (9, None, None, None, 1, None, 5)
    )
    steps = [str(row[3]) for row in plan]

    assert any(f"INDEX {index}" in step for step in steps), steps
    assert not any(step == "SCAN jobs" for step in steps), steps


def effort(store: SqliteStore, which: JobFilter) -> int:
    """Return how much the database had to do for a page, in hundreds of its steps."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    store._db.set_progress_handler(count, 100)
    try:
        list_jobs(store, which, limit=10)
    finally:
        store._db.set_progress_handler(None, 100)
    return steps


@pytest.mark.untraced
@pytest.mark.sqlite
@pytest.mark.parametrize(
    "which",
    [
        JobFilter(status="queued"),
        JobFilter(status="processing"),
        JobFilter(status="failed"),
        JobFilter(status="cancelled"),
        JobFilter(status="cancelled", pipeline="shop"),
        JobFilter(run=1),
        JobFilter(run=1, status="complete"),
    ],
)
def test_few_among_very_many_are_found_without_looking_at_all_of_them(
    rd: Redrive, store: SqliteStore, which: JobFilter
) -> None:
    rd.run(SHOP, [0, 0, 1], failure_budget=None)
    few = effort(store, which)
    store._db.execute(
        "INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, result, created_at, finished_at)"
        " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        " SELECT 'shop', 1, 'complete', 5, 0, x'30', 0, 1 FROM n",
        (OTHERS,),
    )

    assert effort(store, JobFilter(status=None, owner="nobody")) > 100
    assert effort(store, which) <= few + 3
