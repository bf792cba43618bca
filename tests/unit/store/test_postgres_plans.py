# SPDX-License-Identifier: Apache-2.0
"""Statements that run again and again go along an index on PostgreSQL, too, however many rows there are.

`make plans` runs these tests with a million rows.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import Any, cast

import pytest

from redrive.engine.replay.filter import LetterFilter
from redrive.store.postgres.arrays import column
from redrive.store.postgres.connection import Link, Server, address_of
from redrive.store.postgres.session import columns_of
from redrive.store.statements import letters as letter_sql
from redrive.store.statements.text import statements_of
from tests.databases import Schemas

MANY = int(os.environ.get("REDRIVE_PLAN_ROWS", "30000"))
FILL = f"""
INSERT INTO lanes (pipeline, stage, position) VALUES ('shop', 'pay', 0), ('mall', 'pay', 0);
INSERT INTO letter_groups (fingerprint, lane_id, code, category, exception, first_at, last_at)
SELECT 'v1:' || n, 1 + n % 2, 'CODE_' || n % 5, 'network', 'E', 0, 9 FROM generate_series(1, 50) AS n;
SET session_replication_role = replica;
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, payload, created_at, finished_at, error_code, parent_id)
SELECT 'shop', 1, CASE n % 100 WHEN 0 THEN 'queued' ELSE 'failed' END, 5, n, 'key ' || n, 'owner ' || n % 1000, '1', n,
    CASE n % 100 WHEN 0 THEN NULL ELSE n END, CASE n % 100 WHEN 0 THEN NULL ELSE 'CODE' END, n - 1
FROM generate_series(1, {MANY}) AS n;
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, payload, created_at, lease_token, worker_id, dispatch, cancel_asked)
SELECT 'shop', 1, 'processing', 5, n, '1', n, n % 10, 'w' || n % 3, 1, (n % 100 = 0)::integer FROM generate_series(1, 1000) AS n;
INSERT INTO workers (id, host, process, pipelines, concurrency, started_at, expires_at)
SELECT 'w' || n, 'here', n, '[]', 1, n, n FROM generate_series(1, 2000) AS n;
INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, owner, key, first_failure_at, last_failure_at, replay_id, run_id)
SELECT n, 1, 1 + n % 50, 1, 'open', 'owner ' || n % 1000, 'key ' || n, n, n, CASE n % 1000 WHEN 0 THEN 1 END, nullif(n % 500, 1)
FROM generate_series(1, {MANY}) AS n;
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned)
SELECT n, 1, 1, 1, 1, 'w', n, n, 'dead', 1 FROM generate_series(1, {MANY}) AS n;
INSERT INTO outbox (lane_id, job_id, dispatch, recipient, at, due_at)
SELECT 1 + n % 300, n, 1, 'hook', n, n FROM generate_series(1, {MANY}) AS n;
INSERT INTO operations (at, actor, verb, subject_kind, subject_id) SELECT n, 'ann', 'note', 'letter', n FROM generate_series(1, {MANY}) AS n;
SET session_replication_role = origin;
ANALYZE;
"""
LARGE = {"jobs", "dead_letters", "attempts", "outbox", "operations"}


def page(**filter_: Any) -> tuple[object, ...]:
    """Parameters of a page of the letters of a filter."""
    span = letter_sql.LetterSpan(1e300, 1 << 60, -1e300, 0, 50)
    return letter_sql.letters_by_id(which=LetterFilter(**filter_).terms(), span=span).parameters


def window(**filter_: Any) -> tuple[object, ...]:
    """Parameters of a window of the letters of a filter."""
    return letter_sql.ids_by_id(which=LetterFilter(**filter_).terms(), after=0, last=1 << 60).parameters


HOT: dict[str, tuple[object, ...]] = {
    "letters_by_time": (1e300, 1 << 60, -1e300, 50),
    "letters_by_groups": ('[[1, "open"], [2, "open"]]', 1e300, 1 << 60, -1e300, 50),
    "letters_by_owner": page(owner="owner 1"),
    "letters_by_key": page(key="key 1"),
    "letters_by_run": page(run=7),
    "letters_by_id": page(ids=(1, 2, 3)),
    "owner_floor": ("owner 1", 1e300, 1 << 60, -1e300, 10),
    "count_by_owner": window(owner="owner 1"),
    "ids_by_key": window(key="key 1"),
    "taken_by_letter": window(),
    "letter_heads": ('[[1, "open"], [2, "open"]]', -1e300, 1e300),
    "letter_lines": ("[1, 2, 3]",),
    "letter": (1,),
    "letters_of_job": (1,),
    "last_letter": (),
    "replay_batch": (1, 0, 50),
    "last_configs": ("[1, 2]",),
    "notices_for": (1, "hook", 1e9, 50),
    "attempts_for_sink": (1, 9, 10),
    "job": (1,),
    "attempts": (1,),
    "children": (1,),
    "list_failed": (1 << 60, "failed", None, None, None, None, 50),
    "latest_events": (None, 50),
    "newest_attempt": (),
    "operations": (50,),
    "operations_on": ("letter", "1"),
    "due_of_lane": (1, 10.0),
    "existing_letters": ("[1, 2]",),
    "prune_window": (0, 1000),
    "was_settled": (1, 1),
    "duplicates": tuple(columns_of("duplicates", [("shop", "key 1"), ("shop", "key 2")])),
    "cancel_asked": ("w1",),
    "is_claimable": ("w1", 1, 2, column("bigint", [1, 2]), 1e9, column("bigint", [])),
    "upcoming": ("[1, 2]",),
    "claimed": ("w1", 1, 2),
    "return_jobs": ("w1",),
    "insert_crashed_attempts": (1.0, "w1"),
    "return_crashed_jobs": ("w1",),
}
FENCE = (1, 1, 1)
COMMITS: dict[str, tuple[tuple[object, ...], set[str]]] = {
    "begin_exchange": (("w1", 1, 2, "[]"), {"jobs_leased", "jobs_unwanted", "workers_pkey"}),
    "before_exchange": (("w1", 1, 2), {"jobs_leased", "jobs_unwanted", "workers_pkey"}),
    "claim": (
        (1, "w1", 1e9, *columns_of("claim", [(1, 10, 5, 1.0, 7), (2, 10, -1, 0.0, 0)]), 10),
        {"jobs_ready", "jobs_pkey"},
    ),
    "claim_of_key": ((1, "w1", 1e9, 1, 10, "a"), {"jobs_ready", "jobs_pkey"}),
    "claim_job": ((1, "w1", 1e9, 1, 7), {"jobs_pkey"}),
    "complete": (tuple(columns_of("complete", [(*FENCE, 1.0, b"1")] * 500)), {"jobs_pkey"}),
    "complete_large": (tuple(columns_of("complete_large", [(*FENCE, 1.0)] * 500)), {"jobs_pkey"}),
    "advance": (tuple(columns_of("advance", [(*FENCE, 2, b"1", 1.0)] * 500)), {"jobs_pkey"}),
    "continue_in_place": (
        (9, 1.0, *columns_of("continue_in_place", [(*FENCE, 2, b"1")] * 500)),
        {"jobs_pkey"},
    ),
    "retry_in_place": (
        (9, 1.0, *columns_of("retry_in_place", [(*FENCE, 2, 0, b"{}")] * 500)),
        {"jobs_pkey"},
    ),
    "requeue": (
        tuple(columns_of("requeue", [(*FENCE, 1.0, 2, 0, b"{}", "retry", 0, 0, 1.0)] * 500)),
        {"jobs_pkey"},
    ),
    "bury": (tuple(columns_of("bury", [(*FENCE, "CODE", "no", 1.0, b"{}")] * 500)), {"jobs_pkey"}),
    "end": (tuple(columns_of("end", [(*FENCE, 1.0, "cancelled")] * 500)), {"jobs_pkey"}),
    "insert_letters": (
        tuple(columns_of("insert_letters", [(1, 1, 1, "v1:1", 1.0, 0, "CODE")] * 500)),
        {"jobs_pkey", "attempts_of_job", "dead_letters_of_job"},
    ),
    "return_job": (FENCE, {"jobs_pkey"}),
    "renew": ((1.0, "w1"), {"workers_pkey"}),
}
"""The statements of a commit, which are planned by `plan_by_index`, and the indexes they go along."""


@pytest.fixture(scope="module")
def many(schemas: Schemas) -> Generator[Link]:
    with Server(address_of(schemas.address("plans"))).connect() as link:
        link.execute(FILL)
        yield link


def plan_of(link: Link, name: str, parameters: tuple[object, ...]) -> dict[str, Any]:
    row = link.execute(f"EXPLAIN (FORMAT JSON) {statements_of('postgres')[name]}", parameters).fetchone()
    assert row is not None
    return cast("dict[str, Any]", row[0][0]["Plan"])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


@pytest.mark.parametrize("name", sorted(HOT))
def test_no_hot_read_walks_a_large_table(many: Link, name: str) -> None:
    assert not walked(plan_of(many, name, HOT[name]))


def walked(plan: dict[str, Any]) -> list[str]:
    """Return the large tables that are read as a whole."""
    return [
        node["Relation Name"]
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node.get("Relation Name") in LARGE
    ]


@pytest.mark.parametrize("name", sorted(COMMITS))
def test_a_commit_finds_all_it_changes_by_the_intended_index(many: Link, name: str) -> None:
    parameters, indexes = COMMITS[name]
    with many.transaction():
        many.execute(statements_of("postgres")["plan_by_index"].encode())
        plan = plan_of(many, name, parameters)

    assert not walked(plan)
    assert {node["Index Name"] for node in nodes(plan) if "Index Name" in node} >= indexes
    assert not [node for node in nodes(plan) if node["Node Type"] in {"Hash Join", "Merge Join"}]


def test_a_claim_reads_only_what_comes_after_its_mark(many: Link) -> None:
    with many.transaction():
        many.execute(statements_of("postgres")["plan_by_index"].encode())
        plan = plan_of(many, "claim", COMMITS["claim"][0])
    (ready,) = [node for node in nodes(plan) if node.get("Index Name") == "jobs_ready"]

    for part in (
        "(lane_id = ",
        "(lane_key IS NULL)",
        "(priority = ",
        "(run_at <= ",
        "(ROW(run_at, id) > ROW(",
    ):
        assert part in ready["Index Cond"]
    assert not [node for node in nodes(plan) if node["Node Type"] == "Sort"]
