# SPDX-License-Identifier: Apache-2.0
"""Attempts in partitions: made ahead, dropped when they are empty, never in anybody's way, and read along their indexes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

import psycopg
import pytest

from redrive.store.postgres.connection import Link, Server, address_of
from redrive.store.postgres.store import PostgresStore
from redrive.store.statements import upkeep as upkeep_sql
from redrive.store.statements.text import statements_of
from tests.databases import Schemas

WEEK = 604_800.0
INSERT = """INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned)
SELECT n, 1, 1, 1, 1, 'w', $1, $1::double precision + n % 100, 'ok', 1 FROM generate_series(1, $2::integer) AS n"""
HOT: dict[str, tuple[object, ...]] = {
    "attempts": (1,),
    "attempts_for_sink": (1, 9, 10),
    "latest_events": (None, 50),
    "newest_attempt": (),
    "was_settled": (1, 1),
    "last_configs": ("[1, 2]",),
}


@pytest.fixture
def url(schemas: Schemas) -> Generator[str]:
    schema = schemas.emptied("weeks", partitioned_at=0.0)
    yield schemas.named(schema)
    # The next test starts with the first weeks again.
    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute(f"DROP SCHEMA {schema} CASCADE")
    schemas.forget(schema)


@pytest.fixture
def link(url: str) -> Generator[Link]:
    with Server(address_of(url)).connect() as opened:
        yield opened


def partitions(link: Link) -> list[str]:
    rows = link.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'attempts'::regclass"
    )
    return sorted(str(name) for (name,) in rows.fetchall() if not str(name).startswith("attempts_20"))


def where(link: Link) -> dict[str, int]:
    rows = link.execute("SELECT tableoid::regclass::text, count(*) FROM attempts GROUP BY 1").fetchall()
    return {str(name): int(count) for name, count in rows}


def tend(url: str, now: float) -> int:
    store = PostgresStore(url)
    try:
        ((dropped,),) = store.apply(upkeep_sql.tend_attempts(now=now)) or [[-1]]
    finally:
        store.close()
    return dropped


def test_the_next_weeks_are_made_ahead_and_what_none_takes_is_kept_among_the_rest(
    url: str, link: Link
) -> None:
    assert partitions(link) == [
        "attempts_19700101",
        "attempts_19700108",
        "attempts_19700115",
        "attempts_rest",
    ]
    for at in (0.0, 2 * WEEK, 100 * WEEK):
        link.execute(INSERT, (at, 1))

    assert tend(url, WEEK) == 0

    assert partitions(link)[3:] == ["attempts_19700122", "attempts_rest"]
    assert where(link) == {"attempts_19700101": 1, "attempts_19700115": 1, "attempts_rest": 1}
    # Nobody has made the partition of that week in time: it never comes, and nothing is refused.
    assert tend(url, 99 * WEEK) == 2
    assert tend(url, 100 * WEEK) == 1
    link.execute(INSERT, (100 * WEEK, 1))
    assert where(link)["attempts_rest"] == 2


def test_a_past_week_is_dropped_when_it_is_empty_and_nobody_is_in_the_way(url: str, link: Link) -> None:
    for at in (0.0, WEEK):
        link.execute(INSERT, (at, 3))
    link.execute("DELETE FROM attempts WHERE ended_at < $1", (WEEK,))
    with Server(address_of(url)).connect() as other, other.transaction():
        other.execute("SELECT 1 FROM attempts")
        assert tend(url, 2 * WEEK) == 0

    assert tend(url, 2 * WEEK) == 1

    assert partitions(link)[:2] == ["attempts_19700108", "attempts_19700115"]
    assert where(link) == {"attempts_19700108": 3}


def test_an_attempt_that_is_committed_late_is_waited_for(url: str, link: Link) -> None:
    seen = "SELECT attempts_frontier()"
    with Server(address_of(url)).connect() as late, late.transaction():
        late.execute(INSERT, (0.0, 1))
        link.execute(INSERT, (0.0, 1))
        assert link.execute(seen).fetchone() == (0,)

    assert link.execute(seen).fetchone() == (2,)


def test_rights_the_events_and_the_numbers_of_attempts_stay(schemas: Schemas) -> None:
    schema = schemas.emptied("granted")
    role = f"{schema}_reader"
    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute(f"SET search_path TO {schema}; DROP ROLE IF EXISTS {role}; CREATE ROLE {role}")
        db.execute(
            f"GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON attempts, events, attempts_seq_seq TO {role}"
        )
        db.execute("SELECT setval('attempts_seq_seq', 41)")

        assert db.execute("SELECT partition_attempts(), partition_attempts()").fetchone() == (True, True)

        db.execute(f"SET ROLE {role}")
        assert db.execute("SELECT * FROM events, attempts").fetchall() == []
        assert db.execute("SELECT last_value FROM attempts_seq_seq").fetchone() == (41,)
        db.execute("RESET ROLE")
        db.execute(f"DROP SCHEMA {schema} CASCADE; DROP ROLE {role}")
    schemas.forget(schema)


def test_before_the_first_attempt_there_is_none(schemas: Schemas) -> None:
    schema = schemas.emptied("unused")
    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute(f"SET search_path TO {schema}")

        assert db.execute("SELECT partition_attempts(), attempts_frontier()").fetchone() == (True, 0)

        db.execute(f"DROP SCHEMA {schema} CASCADE")
    schemas.forget(schema)


def test_a_role_that_only_submits_cannot_tend(link: Link) -> None:
    row = link.execute(
        "SELECT has_function_privilege('public', 'tend_attempts(double precision)', 'execute')"
    )

    assert row.fetchone() == (False,)


def test_no_hot_read_walks_a_partition(link: Link) -> None:
    link.execute("INSERT INTO lanes (pipeline, stage, position) VALUES ('shop', 'pay', 0)")
    for week in range(3):
        link.execute(INSERT, (week * WEEK, 10_000))
    link.execute("ANALYZE")

    for name, parameters in HOT.items():
        row = link.execute(f"EXPLAIN (FORMAT JSON) {statements_of('postgres')[name]}", parameters).fetchone()
        assert row is not None
        plans = [cast("dict[str, Any]", row[0][0]["Plan"])]
        for plan in plans:
            plans += plan.get("Plans", ())
            is_walked = plan["Node Type"] == "Seq Scan" and str(plan["Relation Name"]).startswith(
                "attempts_19"
            )
            assert not is_walked, (name, plan)
