# SPDX-License-Identifier: Apache-2.0
"""Reads that are asked again and again go along an index on PostgreSQL, too, however many rows there are."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, cast

import pytest

from redrive.engine.replay.filter import LetterFilter
from redrive.store.postgres.connection import Link, Server, address_of
from redrive.store.statements import statements_of
from tests.databases import Schemas

MANY = 30_000
FILL = f"""
INSERT INTO lanes (pipeline, stage, position) VALUES ('shop', 'pay', 0), ('mall', 'pay', 0);
INSERT INTO letter_groups (fingerprint, lane_id, code, category, exception, first_at, last_at)
SELECT 'v1:' || n, 1 + n % 2, 'CODE_' || n % 5, 'network', 'E', 0, 9 FROM generate_series(1, 50) AS n;
SET session_replication_role = replica;
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, payload, created_at, finished_at, error_code, parent_id)
SELECT 'shop', 1, CASE n % 100 WHEN 0 THEN 'queued' ELSE 'failed' END, 5, n, 'key ' || n, 'owner ' || n % 1000, '1', n,
    CASE n % 100 WHEN 0 THEN NULL ELSE n END, CASE n % 100 WHEN 0 THEN NULL ELSE 'CODE' END, n - 1
FROM generate_series(1, {MANY}) AS n;
INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, owner, key, first_failure_at, last_failure_at, replay_id, run_id)
SELECT n, 1, 1 + n % 50, 1, 'open', 'owner ' || n % 1000, 'key ' || n, n, n, CASE n % 1000 WHEN 0 THEN 1 END, nullif(n % 500, 1)
FROM generate_series(1, {MANY}) AS n;
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned)
SELECT n, 1, 1, 1, 1, 'w', n, n, 'dead', 1 FROM generate_series(1, {MANY}) AS n;
INSERT INTO outbox (lane_id, job_id, dispatch, recipient, at, due_at)
SELECT 1 + n % 300, n, 1, 'hook', n, n FROM generate_series(1, {MANY}) AS n;
INSERT INTO operations (at, actor, verb, subject) SELECT n, 'ann', 'note', 'letter ' || n FROM generate_series(1, {MANY}) AS n;
SET session_replication_role = origin;
ANALYZE;
"""
LARGE = {"jobs", "dead_letters", "attempts", "outbox", "operations"}


def page(**filter_: Any) -> tuple[object, ...]:
    """Parameters of a page of the letters of a filter."""
    return (*LetterFilter(**filter_).row(), 1e300, 1 << 60, -1e300, 0, 50)


def window(**filter_: Any) -> tuple[object, ...]:
    """Parameters of a window of the letters of a filter."""
    return (*LetterFilter(**filter_).row(), 0, 1 << 60)


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
    "operations_on": ("letter 1",),
    "due_of_lane": (1, 10.0),
    "existing_letters": ("[1, 2]",),
    "prune_window": (0, 1000),
}


@pytest.fixture(scope="module")
def many(schemas: Schemas) -> Generator[Link]:
    with Server(address_of(schemas.address("plans"))).connect() as link:
        link.execute(FILL)
        yield link


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


@pytest.mark.parametrize("name", sorted(HOT))
def test_no_hot_read_walks_a_large_table(many: Link, name: str) -> None:
    row = many.execute(f"EXPLAIN (FORMAT JSON) {statements_of('postgres')[name]}", HOT[name]).fetchone()
    assert row is not None
    plan = cast("dict[str, Any]", row[0][0]["Plan"])

    assert not [
        node["Relation Name"]
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node.get("Relation Name") in LARGE
    ]
