# SPDX-License-Identifier: Apache-2.0
"""Versions of the schema on PostgreSQL: an older one is refused, printed and brought up to date on request."""

from __future__ import annotations

from collections.abc import Generator

import psycopg
import pytest

from redrive import Pipeline, connect, stage
from redrive.errors import SchemaMismatchError
from redrive.ops.audit import Actor
from redrive.ops.upkeep.migrations import migrate, schema_state
from redrive.store import versions
from redrive.store.postgres import migrations
from redrive.store.statements import operations as operation_sql
from redrive.store.statements.text import text_of
from tests.databases import Schemas

KNOWN = versions.newest()


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


def test_a_schema_that_no_release_has_made_is_refused(database: str) -> None:
    with psycopg.connect(database) as db:
        db.execute("UPDATE redrive.installation SET version = 1")

    with pytest.raises(SchemaMismatchError):
        migrate(database, Actor("ann"))
