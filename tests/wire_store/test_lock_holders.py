# SPDX-License-Identifier: Apache-2.0
"""Locks on tables of redrive that somebody else keeps: who that is stands in the error, in one line."""

from __future__ import annotations

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


def test_without_a_holder_the_error_is_as_it_was(schemas: Schemas) -> None:
    with (
        connect(schemas.address("locked")) as rd,
        pytest.raises(StoreUnavailableError, match=r"statement timeout$"),
    ):
        rd.store.read("SELECT set_config('statement_timeout', '50ms', false)")  # type: ignore[attr-defined] # Of this store.
        rd.store.read("SELECT pg_sleep(60)")  # type: ignore[attr-defined] # As above.
