# SPDX-License-Identifier: Apache-2.0
"""Locks on tables of redrive that somebody else keeps: who that is stands in the error, in one line."""

from __future__ import annotations

import threading

import psycopg
import pytest

from redrive import Pipeline, connect, stage
from redrive.errors import StoreUnavailableError
from redrive.store.postgres import connection
from tests.databases import Schemas


@stage
def greet(name: str) -> str:
    return f"hello {name}"


FLOW = Pipeline("greetings", [greet])


@pytest.mark.parametrize(
    ("statement", "held"),
    [
        ("LOCK TABLE {}.jobs IN ACCESS EXCLUSIVE MODE", "AccessExclusiveLock"),
        ("SELECT 1 FROM {}.jobs FOR UPDATE", "RowShareLock"),
    ],
)
def test_who_holds_a_lock_that_was_waited_for_is_named(
    schemas: Schemas, monkeypatch: pytest.MonkeyPatch, statement: str, held: str
) -> None:
    monkeypatch.setattr(connection, "LOCK_SECONDS", 1)
    schema = schemas.emptied("locked")
    with (
        connect(schemas.named(schema)) as rd,
        psycopg.connect(schemas.server, application_name="a migration") as holder,
    ):
        job = rd.submit(FLOW, "ann")
        holder.execute(statement.format(schema))

        with pytest.raises(StoreUnavailableError) as refused:
            job.cancel()

        message = str(refused.value)
        assert f"pid {holder.info.backend_pid} (a migration, query started 2" in message
        assert message.endswith(f"holds {held} on jobs")
        assert "\n" not in message
        assert "pg_terminate_backend" in refused.value.hint


def test_who_has_just_begun_is_not_taken_for_the_holder(
    schemas: Schemas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is the stronger one, but nobody has waited for it."""
    monkeypatch.setattr(connection, "LOCK_SECONDS", 1)
    schema = schemas.emptied("locked")
    begun = threading.Event()

    def write_something(other: psycopg.Connection) -> None:
        threading.Event().wait(0.5)
        other.execute(f"UPDATE {schema}.lanes SET position = position")
        begun.set()

    with (
        connect(schemas.named(schema)) as rd,
        psycopg.connect(schemas.server, application_name="a backup") as holder,
        psycopg.connect(schemas.server, application_name="a worker") as worker,
    ):
        job = rd.submit(FLOW, "ann")
        holder.execute(f"SELECT 1 FROM {schema}.jobs FOR UPDATE")
        writing = threading.Thread(target=write_something, args=(worker,))
        writing.start()

        with pytest.raises(StoreUnavailableError, match=f"pid {holder.info.backend_pid} .a backup"):
            job.cancel()

        writing.join()
        assert begun.is_set()


@pytest.mark.parametrize(
    ("key", "held"),
    [
        ("hashtextextended('redrive {}', 0)", "ExclusiveLock on the whole schema"),
        ("{}.frontier_key(3) | '{}.operations'::regclass::bigint", "ExclusiveLock on the whole schema"),
        ("hashtextextended('redrive other', 0)", "RowShareLock on jobs"),
        ("{}.frontier_key(3) | 'pg_class'::regclass::bigint", "RowShareLock on jobs"),
        ("1", "RowShareLock on jobs"),
        ("0, '{}.operations'::regclass::int", "RowShareLock on jobs"),
    ],
)
def test_of_locks_on_numbers_only_those_of_the_schema_count(
    schemas: Schemas, monkeypatch: pytest.MonkeyPatch, key: str, held: str
) -> None:
    """Other schemas, and other programs, take such locks in the same database."""
    monkeypatch.setattr(connection, "LOCK_SECONDS", 1)
    schema = schemas.emptied("locked")
    with (
        connect(schemas.named(schema)) as rd,
        psycopg.connect(schemas.server) as stranger,
        psycopg.connect(schemas.server) as holder,
    ):
        job = rd.submit(FLOW, "ann")
        stranger.execute(f"SELECT pg_advisory_xact_lock({key.replace('{}', schema)})")
        holder.execute(f"SELECT 1 FROM {schema}.jobs FOR UPDATE")

        with pytest.raises(StoreUnavailableError, match=f"holds {held}$"):
            job.cancel()


def test_a_statement_of_a_commit_takes_a_minute_at_most(schemas: Schemas) -> None:
    schema = schemas.emptied("limited")
    with connect(schemas.named(schema)) as rd:
        with psycopg.connect(schemas.server) as db:
            db.execute(f"CREATE TABLE {schema}.seen (setting text)")
            db.execute(
                f"CREATE FUNCTION {schema}.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO {schema}.seen"
                " VALUES (current_setting('statement_timeout')); RETURN NULL; END $$"
            )
            db.execute(
                f"CREATE TRIGGER look AFTER INSERT ON {schema}.attempts EXECUTE FUNCTION {schema}.look()"
            )
        rd.submit_many(FLOW, ["ann", "ben", "cat"])
        rd.work([FLOW], until_idle=True, concurrency=1)

        with psycopg.connect(schemas.server) as db:
            assert ("1min",) in db.execute(f"SELECT setting FROM {schema}.seen").fetchall()


def test_without_a_holder_the_error_is_as_it_was(schemas: Schemas) -> None:
    with (
        connect(schemas.address("locked")) as rd,
        pytest.raises(StoreUnavailableError, match=r"statement timeout$"),
    ):
        rd.store.read("SELECT set_config('statement_timeout', '50ms', false)")  # type: ignore[attr-defined] # Of this store.
        rd.store.read("SELECT pg_sleep(60)")  # type: ignore[attr-defined] # As above.
