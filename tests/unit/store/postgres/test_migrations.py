# SPDX-License-Identifier: Apache-2.0
"""Versions of the schema on PostgreSQL: an older one is refused, printed and brought up to date on request."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive import Pipeline, connect, stage
from redrive.errors import SchemaMismatchError
from redrive.ops.audit import Actor
from redrive.ops.replay.replays import get_replay
from redrive.ops.upkeep.migrations import migrate, schema_state
from redrive.store import versions
from redrive.store.postgres import migrations
from redrive.store.statements import operations as operation_sql
from redrive.store.statements.text import text_of
from tests.databases import Schemas

KNOWN = versions.newest()


VERSION_3 = Path(__file__).parent / "version_3"
SCHEMA = """
SELECT 'column' AS kind, attrelid::regclass::text AS place, attname::text AS name, concat_ws(' ', attnum, attnotnull,
    format_type(atttypid, atttypmod), attcollation::regcollation, pg_get_expr(adbin, adrelid)) AS definition
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attnum > 0 AND attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'redrive'::regnamespace)
UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'redrive'::regnamespace
UNION ALL SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'redrive'
UNION ALL SELECT 'view', '', viewname, definition FROM pg_views WHERE schemaname = 'redrive'
UNION ALL SELECT 'function', '', proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'redrive'::regnamespace
UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
ORDER BY 1, 2, 3, 4
"""


@stage
def double(number: int) -> int:
    return 2 * number


FLOW = Pipeline("doubles", [double])


@pytest.fixture
def database(schemas: Schemas) -> Generator[str]:
    with schemas.database() as address:
        with connect(address) as rd:
            rd.submit(FLOW, 4)
        yield address


@pytest.fixture
def older(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with a job and without a view, made before the present version was."""
    with psycopg.connect(database) as db:
        db.execute("DROP VIEW redrive.letters_by_group CASCADE")
    monkeypatch.setattr(versions, "MIGRATIONS", [*versions.MIGRATIONS, "next"])
    monkeypatch.setattr(
        migrations,
        "text_of",
        lambda dialect, file: (
            "ALTER TABLE jobs ADD COLUMN mood text;\n" if file == "next" else text_of(dialect, file)
        ),
    )
    return database


def test_an_older_schema_is_refused_until_it_is_migrated(older: str) -> None:
    with pytest.raises(SchemaMismatchError) as refused:
        connect(older)
    assert (refused.value.found, refused.value.known) == (KNOWN, KNOWN + 1)
    assert "redrive migrate" in refused.value.hint

    before = migrate(older, Actor("ann"))

    assert (before.found, before.known) == (KNOWN, KNOWN + 1)
    assert schema_state(older).sql == ""
    with connect(older) as rd:
        rd.work([FLOW], until_idle=True)
        assert rd.job(1).result() == 8
        assert rd.letters.groups() == []
        assert [act.verb for act in rd.store.query(operation_sql.operations(limit=5))] == ["migrate"]


def test_functions_with_rights_of_their_own_look_for_tables_where_they_did(older: str) -> None:
    asked = "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'redrive'::regnamespace AND prosecdef ORDER BY 1"
    with psycopg.connect(older, autocommit=True) as db:
        before = db.execute(asked).fetchall()

        migrate(older, Actor("ann"))

        assert db.execute(asked).fetchall() == before
    assert ("submit_jobs", ["search_path=redrive, pg_temp"]) in before


def test_what_is_printed_brings_an_older_schema_up_to_date(older: str) -> None:
    printed = schema_state(older).sql

    assert "ALTER TABLE jobs ADD COLUMN mood text;" in printed
    with psycopg.connect(older, autocommit=True) as db:
        db.execute(printed.encode())
    with connect(older) as rd:
        rd.work([FLOW], until_idle=True)
        assert rd.job(1).result() == 8


@pytest.fixture
def first(schemas: Schemas) -> Generator[str]:
    """A database of version 3, with which PostgreSQL began, with replays and runs that were stopped."""
    with schemas.database() as address:
        with psycopg.connect(address) as db:
            db.execute("CREATE SCHEMA redrive")
            db.execute("SET LOCAL search_path TO redrive")
            db.execute((VERSION_3 / "postgres.sql").read_bytes())
            db.execute((VERSION_3 / "postgres_rows.sql").read_bytes())
        yield address


def schema_of(address: str) -> list[tuple[Any, ...]]:
    """Return the definition of everything in a schema."""
    with psycopg.connect(address) as db:
        return db.execute(SCHEMA).fetchall()


def indexes_of(address: str) -> list[tuple[str, str]]:
    """Return the name of each index of a schema, with how it is made but for a column that was renamed."""
    return [
        (name, made.replace("verdict", "outcome"))
        for kind, _, name, made in schema_of(address)
        if kind == "index"
    ]


def test_the_schema_is_version_3_with_all_migrations(first: str, database: str) -> None:
    with psycopg.connect(first) as db:
        # As if it were new since then.
        db.execute("DROP INDEX redrive.attempts_of_job")

    migrate(first, Actor("ann"))

    found = schema_of(first)
    assert {kind for kind, *_ in found} == {"column", "constraint", "index", "view", "function", "trigger"}
    assert found == schema_of(database)


def test_a_migration_keeps_why_a_replay_or_a_run_was_stopped_as_text(first: str) -> None:
    migrate(first, Actor("ann"))

    with connect(first) as rd:
        assert [get_replay(rd.store, replay).reason for replay in (1, 2)] == [None, 'paused by "ann"']
        assert [rd.runs.report(run).reason for run in (1, 2)] == ["1 of 2 failed", None]
        assert 'cancel it: paused by "ann"' in str(rd.replays.status(2).waits_for)


def test_a_schema_with_partitioned_attempts_is_migrated_and_keeps_them(first: str) -> None:
    with psycopg.connect(first) as db:
        db.execute("SET LOCAL search_path TO redrive")
        db.execute("SELECT partition_attempts()")
    before = indexes_of(first)

    migrate(first, Actor("ann"))

    assert indexes_of(first) == before
    with connect(first) as rd:
        rd.submit(FLOW, 4)
        rd.work([FLOW], until_idle=True)
        assert rd.job(1).result() == 8


def test_a_schema_that_no_release_has_made_is_refused(database: str) -> None:
    with psycopg.connect(database) as db:
        db.execute("UPDATE redrive.installation SET version = 1")

    with pytest.raises(SchemaMismatchError):
        migrate(database, Actor("ann"))
