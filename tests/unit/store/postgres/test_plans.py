# SPDX-License-Identifier: Apache-2.0
"""Every statement goes along an index on PostgreSQL, too, however many rows there are; those that do not are listed with the reason.

`make plans` runs these tests with a million rows. The plans are the generic ones, which any parameters get sooner or later; those of
statements that run again and again are also looked at with parameters. A plan does not show what functions and triggers do: they are
run, and the server says how many rows they have read. `copy_jobs` has no plan, and `tend_attempts` reads no rows of these tables.
"""

from __future__ import annotations

import os
import re
from collections import Counter
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
INSERT INTO lanes (pipeline, stage, position) SELECT 'pipeline ' || n / 2, 'stage ' || n % 2, n % 2 FROM generate_series(0, 39) AS n;
INSERT INTO listeners (topic, pipeline, recipient) VALUES ('letters', 'pipeline 0', 'hook');
INSERT INTO letter_groups (fingerprint, lane_id, code, category, exception, first_at, last_at)
SELECT 'v1:' || n, 1 + n % 40, 'CODE_' || n % 5, 'network', 'E', 0, 9 FROM generate_series(0, 199) AS n;
SET session_replication_role = replica;
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, payload, created_at, finished_at, error_code, parent_id,
    run_id, ordinal)
SELECT lanes.pipeline, lanes.id, CASE n % 7 WHEN 0 THEN 'queued' ELSE 'failed' END, 5, n, 'key ' || n, 'owner ' || n % 1000, '1', n,
    CASE n % 7 WHEN 0 THEN NULL ELSE n END, CASE n % 7 WHEN 0 THEN NULL ELSE 'CODE' END, n - 1, 1 + n / 4, n % 4
FROM generate_series(1, {MANY}) AS n JOIN lanes ON lanes.id = 1 + n % 40;
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, payload, created_at, lease_token, worker_id, dispatch, round, cancel_asked)
SELECT 'pipeline 0', 1, 'processing', 5, n, '1', n, n % 10, 'w' || n % 3, 1, 2, (n % 100 = 0)::integer FROM generate_series(1, 1000) AS n;
INSERT INTO job_values (job_id, dispatch, value) SELECT n, 0, '1' FROM generate_series(1, {MANY}) AS n;
INSERT INTO job_traces (job_id, traceparent) SELECT n, 'trace' FROM generate_series(1, {MANY}) AS n;
INSERT INTO workers (id, host, process, pipelines, concurrency, started_at, expires_at)
SELECT 'w' || n, 'here', n, '[]', 1, n, n FROM generate_series(1, 2000) AS n;
INSERT INTO runs (pipeline, status, options, items, created_at, ended_at)
SELECT 'pipeline 0', 'completed', '{{}}', 4, n, n FROM generate_series(1, {MANY}) AS n;
INSERT INTO tallies (run_id, lane_id, status, jobs, part) SELECT n, 1 + n % 40, 'failed', 4, 0 FROM generate_series(0, {MANY}) AS n;
INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, owner, key, first_failure_at, last_failure_at, replay_id, run_id)
SELECT n, 1 + n % 40, 1 + n % 200, 1, 'open', 'owner ' || n % 1000, 'key ' || n, n, n, CASE n % 1000 WHEN 0 THEN 1 END, 1 + n / 4
FROM generate_series(1, {MANY}) AS n;
INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, outcome, first_failure_at, last_failure_at, closed_at, replay_id, follows)
SELECT n, 1 + n % 40, 1 + n % 200, 2, CASE n % 2 WHEN 0 THEN 'resolved' ELSE 'returned' END, CASE n % 2 WHEN 0 THEN 'completed' ELSE 'same' END,
    n, n, n, 2 + n % 100, n FROM generate_series(1, {MANY} / 2) AS n;
INSERT INTO letter_facts (letter_id, code, category, is_retryable, exception, reason, message, context, stack)
SELECT n, 'CODE', 'network', 1, 'E', 'reason', 'message', '{{}}', 'stack' FROM generate_series(1, {MANY}) AS n;
INSERT INTO letter_tallies (replay_id, group_id, standing, letters, part)
SELECT n / 200, 1 + n % 200, 'open', 1, 0 FROM generate_series(1, {MANY}) AS n;
INSERT INTO letter_trend (group_id, hour, letters, part) SELECT 1 + n % 200, n / 200, 1, 0 FROM generate_series(1, {MANY}) AS n;
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned)
SELECT n, 1, 1, 1, 1, 'w', n, n, 'dead', 1 FROM generate_series(1, {MANY}) AS n;
INSERT INTO outbox (lane_id, job_id, dispatch, recipient, at, due_at)
SELECT 1 + n % 300, n, 1, 'hook', n, n FROM generate_series(1, {MANY}) AS n;
INSERT INTO receipts (letter_id, sink, receipt, at) SELECT n, 'stream', '7', n FROM generate_series(1, {MANY}) AS n;
INSERT INTO edits (letter_id, job_id, part, before, after, at, actor)
SELECT n, n, 'input', '1', '2', n, 'ann' FROM generate_series(1, {MANY}) AS n;
INSERT INTO imports (origin, letter, job_id, at, actor, job, attempts)
SELECT 'there', n, n, n, 'ann', n, '[]' FROM generate_series(1, {MANY}) AS n;
INSERT INTO replays (pipeline, status, filter, options, cutoff, moves, marked_to, expected, pardoned, next_at, driven_until, actor,
    created_at, ended_at)
SELECT 'pipeline 0', 'done', '{{}}', '{{}}', n, 0, n, 1, '{{}}', 0, 0, 'ann', n, n FROM generate_series(1, 200) AS n;
INSERT INTO replay_skips (replay_id, letter_id, kind, at) SELECT 1 + n % 100, n, 'discarded', n FROM generate_series(1, {MANY}) AS n;
INSERT INTO operations (at, actor, verb, subject_kind, subject_id) SELECT n, 'ann', 'note', 'letter', n FROM generate_series(1, {MANY}) AS n;
SET session_replication_role = origin;
DO $$
DECLARE name text;
BEGIN
    -- Not the tables of other tests, which may lock them the other way round.
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LOOP
        EXECUTE format('ANALYZE %I', name);
    END LOOP;
END $$;
"""
LARGE = frozenset(
    "attempts dead_letters edits imports job_traces job_values jobs letter_facts letter_tallies letter_trend operations outbox receipts"
    " replay_skips runs tallies".split()
)
"""The tables that become larger with every job, letter or run."""
COUNTERS = frozenset({"letter_tallies", "letter_trend", "tallies"})
"""Those of which a row counts many."""
AT_HAND = frozenset({"dead_letters_taken", "jobs_leased", "jobs_unwanted", "runs_live"})
"""Indexes of what is being done: they do not become larger with what waits or has ended."""
STREAMED = frozenset({"Gather Merge", "Hash Join", "Nested Loop"})
"""Steps that pass on what they read first, row by row."""
WHOLE: dict[str, str] = {
    **dict.fromkeys(
        ("attempts_of_stages", "error_ranking", "retry_histogram", "stage_reliability"),
        "A report over all attempts of a pipeline, which somebody asks for.",
    ),
    **dict.fromkeys(
        ("jobs_without_letter", "pipeline_total", "recount", "wrong_letter_tallies", "wrong_replay_tallies"),
        "A recount, which shows whether the counters are right.",
    ),
    **dict.fromkeys(
        (
            "letter_pairs",
            "list_ended",
            "pipeline_account",
            "released_letters",
            "taken_by_group",
            "taken_letters",
        ),
        "Adds up counters. One counts many jobs or letters.",
    ),
    **dict.fromkeys(
        ("fold_letter_tallies", "fold_letter_trend", "fold_tallies"), "Folds counters, every hour."
    ),
    **dict.fromkeys(("open_letters", "undelivered"), "A question of `redrive doctor`."),
    "counts": "Adds up counters, and counts the jobs that are queued.",
    "list_of_key": "PostgreSQL 18 skips from pipeline to pipeline in the index; older ones search it once for each.",
    "prunable_runs": "Deletes what has ended long ago, every run and job of which is read.",
    "release_held": "A breaker was closed: any queued job may have waited for it.",
}
"""Statements that read a large table, or all that is queued, as a whole, and why they may."""
READ_MAX = 2_000
"""How many rows of a table an act may read that is about ten of them; one looks at the last thousand."""


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
    "letter_messages": ("[1, 2, 3]",),
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
    "duplicates": tuple(columns_of("duplicates", [("pipeline 0", "key 1"), ("pipeline 1", "key 2")])),
    "cancel_asked": ("w1",),
    "is_claimable": ("w1", 1, 2, column("bigint", [1, 2]), 1e9, column("bigint", [])),
    "upcoming": ("[1, 2]",),
    "claimed": ("w1", 1, 2),
    "return_jobs": ("w1",),
    "insert_crashed_attempts": (1.0, "w1"),
    "return_crashed_jobs": ("w1",),
}
ACTS: dict[str, tuple[str, tuple[object, ...]]] = {
    "follow the attempts": ("events", (MANY - 10, None, None, 10)),
    "follow the attempts from the first one": ("events", (0, None, None, 10)),
    "follow the attempts of a pipeline": ("events", (0, None, "pipeline 0", 10)),
    "read the log of a run": ("run_log", (7, 0, 10)),
    "find the last attempt": ("newest_attempt", ()),
    "freeze the letters of a code": ("freeze_by_group", (None, None, "CODE_1", None, None, '["open"]')),
}
"""Statements that call functions, with their parameters."""
TEN = "id BETWEEN 11 AND 20"
CHANGES = {
    "jobs end, some after a replay": "UPDATE jobs SET status = 'cancelled', finished_at = 1, lease_token = NULL, worker_id = NULL"
    f" WHERE status = 'processing' AND id BETWEEN {MANY + 11} AND {MANY + 20}",
    "jobs are queued again": f"UPDATE jobs SET status = 'queued', finished_at = NULL, error_code = NULL, key = NULL WHERE {TEN}",
    "jobs are deleted": f"DELETE FROM jobs WHERE {TEN}",
    "letters come, some after a replay": "INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, first_failure_at, last_failure_at)"
    f" SELECT id, lane_id, 1, 2, 'open', 1, 1 FROM jobs WHERE id BETWEEN {MANY + 11} AND {MANY + 20}",
    "letters are triaged": f"UPDATE dead_letters SET state = 'triaged' WHERE {TEN}",
    "letters are discarded": f"UPDATE dead_letters SET state = 'discarded', replay_id = NULL WHERE {TEN}",
    "letters are released": f"UPDATE dead_letters SET state = 'replaying' WHERE {TEN}",
    "letters are deleted": f"DELETE FROM dead_letters WHERE {TEN}",
    "a run ends": "UPDATE runs SET ended_at = 9 WHERE id = 7",
    "jobs are submitted": """SELECT submit_jobs((SELECT id FROM installations ORDER BY number DESC LIMIT 1),
        '[{"lane": 1, "priority": 5, "run_at": 0, "key": "key 280", "payload": "1", "created_at": 0}]')""",
}
"""Changes that run triggers or a function."""
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


@pytest.fixture(scope="module")
def leads(many: Link) -> dict[str, str]:
    """The indexes of the large tables, and the first column of each."""
    rows = many.execute(
        "SELECT indexrelid::regclass::text, indrelid::regclass::text, pg_get_indexdef(indexrelid, 1, true) FROM pg_index"
        " JOIN pg_class ON pg_class.oid = indexrelid WHERE relnamespace = current_schema()::regnamespace"
    )
    return {index: column for index, table, column in rows if table in LARGE}


def plan_of(link: Link, name: str, parameters: tuple[object, ...]) -> dict[str, Any]:
    row = link.execute(f"EXPLAIN (FORMAT JSON) {statements_of('postgres')[name]}", parameters).fetchone()
    assert row is not None
    return cast("dict[str, Any]", row[0][0]["Plan"])


def generic_plan_of(link: Link, name: str) -> dict[str, Any]:
    """Return the plan that a statement gets whatever its parameters are."""
    text = statements_of("postgres")[name]
    count = max(map(int, re.findall(r"\$(\d+)", text)), default=0)
    given = f" ({', '.join(['NULL'] * count)})" if count else ""
    link.execute(f"PREPARE asked AS {text}".encode())
    try:
        row = link.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked{given}".encode()).fetchone()
    finally:
        link.execute("DEALLOCATE asked")
    assert row is not None
    return cast("dict[str, Any]", row[0][0]["Plan"])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


def leading(plan: dict[str, Any]) -> dict[str, Any]:
    """Return what is read first, row by row, with the rest looked up for each row."""
    return leading(plan["Plans"][0]) if plan["Node Type"] in STREAMED else plan


def walked(plan: dict[str, Any], leads: dict[str, str]) -> set[str]:
    """Return the large tables that are read as a whole, and their indexes that are not searched by the first column.

    Not those of which a limit takes the first rows.
    """
    first = [leading(node["Plans"][0]) for node in nodes(plan) if node["Node Type"] == "Limit"]
    found: set[str] = set()
    for node in nodes(plan):
        index = node.get("Index Name", "")
        if node["Node Type"] == "Seq Scan":
            found |= {node["Relation Name"]} & LARGE
        elif index in leads and index not in AT_HAND and ("Filter" in node or node not in first):
            is_searched = re.search(rf"\((ROW\()?{leads[index]}\b", node.get("Index Cond", ""))
            found |= set() if is_searched else {index}
    return found


def test_no_statement_walks_a_large_table_unless_it_is_listed(many: Link, leads: dict[str, str]) -> None:
    with many.transaction():
        many.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        found = {
            name: walked(generic_plan_of(many, name), leads)
            for name in sorted(set(statements_of("postgres")) - {"copy_jobs"})
        }

    assert {name: tables for name, tables in found.items() if tables and name not in WHOLE} == {}
    assert [name for name in WHOLE if not found[name]] == []


@pytest.mark.untraced
@pytest.mark.parametrize("name", sorted(HOT))
def test_no_hot_read_walks_a_large_table(many: Link, leads: dict[str, str], name: str) -> None:
    assert not walked(plan_of(many, name, HOT[name]), leads)


@pytest.mark.parametrize("name", sorted(COMMITS))
def test_a_commit_finds_all_it_changes_by_the_intended_index(
    many: Link, leads: dict[str, str], name: str
) -> None:
    parameters, indexes = COMMITS[name]
    with many.transaction():
        many.execute(statements_of("postgres")["plan_by_index"].encode())
        plan = plan_of(many, name, parameters)

    assert not walked(plan, leads)
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


def rows_read(link: Link) -> Counter[str]:
    """Return how many rows of each large table but the counters this connection has read lately."""
    rows = link.execute(
        "SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE schemaname = current_schema()"
    )
    return Counter({table: int(count) for table, count in rows if table in LARGE - COUNTERS})


def read_by(link: Link, text: str, parameters: tuple[object, ...] = ()) -> dict[str, int]:
    """Return of which large tables a statement, with all the functions and triggers it runs, reads too many rows."""
    with link.transaction(force_rollback=True):
        # As in a session that has run it before: the plans of functions are kept.
        link.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        before = rows_read(link)
        link.execute(text.encode(), parameters)
        found = rows_read(link)
    return {table: count for table, count in (found - before).items() if count > READ_MAX}


@pytest.mark.parametrize("act", sorted(ACTS))
def test_a_function_reads_few_rows_of_a_large_table(many: Link, act: str) -> None:
    name, parameters = ACTS[act]

    assert read_by(many, statements_of("postgres")[name], parameters) == {}


@pytest.mark.parametrize("act", sorted(CHANGES))
def test_a_trigger_reads_few_rows_of_a_large_table(many: Link, act: str) -> None:
    assert read_by(many, CHANGES[act]) == {}
