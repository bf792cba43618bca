# SPDX-License-Identifier: Apache-2.0
"""The named statements of both dialects: the same names, and for each the same parameters and columns, of types that Python has."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Generator
from functools import cache

import psycopg
import pytest

from redrive.store.postgres.connection import Server, address_of
from redrive.store.statements import for_rows, statements_of, text_of
from tests.databases import Schemas

WITHIN = frozenset(
    """
    add_breaker add_lane advance before_exchange bury cancel_asked claim claim_job claim_of_key claimed claimed_rows close_recovered complete
    complete_large complete_uniform continue_in_place continue_uniform count_items count_recovered dead_workers delete_worker duplicate
    end insert_attempt insert_crashed_attempts insert_facts insert_good_attempt insert_job insert_letter insert_notice insert_trace
    insert_uniform_attempts is_escalated is_known join_run next_due_at renew requeue return_crashed_jobs return_jobs start_worker
    stop_child swap_breaker touch_group upcoming was_settled
    """.split()
)
"""What a store asks of itself and nobody names above it: each store has its own."""
ABOVE = sorted(set(statements_of("sqlite")) - WITHIN)
TYPES = frozenset({"int4", "int8", "float8", "text", "bytea", "bool", "numeric", "json", "jsonb"})
"""What comes back as int, float, str or bytes."""


@cache
def embedded() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(text_of("sqlite", "schema"))
    return db


def described(name: str) -> tuple[int, list[str]]:
    """Return how many parameters the statement has in SQLite, and its columns."""
    sql = statements_of("sqlite")[name]
    sql = for_rows(sql, 2) if "{rows}" in sql else sql
    try:
        embedded().execute(f"EXPLAIN {sql}")
        parameters = 0
    except sqlite3.ProgrammingError as error:
        parameters = int(re.findall(r"uses (\d+)", str(error))[0])
        embedded().execute(f"EXPLAIN {sql}", (None,) * parameters)
    head, _, returned = sql.rpartition("RETURNING")
    if head:
        # What it would return is only known to SQLite once there is a row.
        return parameters, [column.strip() for column in returned.split(", ")]
    if not re.search(r"^(SELECT|WITH)", sql, re.MULTILINE) or re.search(
        r"^(INSERT|UPDATE|DELETE)", sql, re.MULTILINE
    ):
        return parameters, []
    asked = embedded().execute(sql, (1,) * parameters)
    return parameters, [column[0] for column in asked.description]


@pytest.fixture(scope="module")
def server(schemas: Schemas) -> Generator[psycopg.Connection]:
    with Server(address_of(schemas.address("jobs"))).connect() as link:
        yield link


def test_every_statement_is_there_in_both_dialects() -> None:
    assert set(ABOVE) - set(statements_of("postgres")) == set()


@pytest.mark.parametrize("name", sorted(WITHIN & set(statements_of("sqlite"))))
def test_what_the_embedded_store_asks_of_itself_can_be_prepared(name: str) -> None:
    assert described(name)[0] > 0


@pytest.mark.parametrize("name", sorted(statements_of("postgres")))
def test_a_statement_is_the_same_in_both_dialects(server: psycopg.Connection, name: str) -> None:
    made = server.pgconn.prepare(b"", statements_of("postgres")[name].encode())
    assert made.status == psycopg.pq.ExecStatus.COMMAND_OK, made.error_message.decode()
    found = server.pgconn.describe_prepared(b"")
    columns = [(found.fname(place) or b"").decode() for place in range(found.nfields)]
    if name not in ABOVE:
        return
    types = {server.adapters.types[found.ftype(place)].name for place in range(found.nfields)}
    parameters, known = described(name)

    assert types <= TYPES
    assert found.nparams == parameters
    assert len(columns) == len(known)
    # An expression without a name has one that each database makes up.
    assert [mine for mine, theirs in zip(columns, known, strict=True) if theirs.isidentifier()] == [
        theirs for theirs in known if theirs.isidentifier()
    ]
