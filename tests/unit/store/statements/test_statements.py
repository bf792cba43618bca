# SPDX-License-Identifier: Apache-2.0
"""The named statements of both dialects: what is declared is what each of them takes and returns, under the same names."""

from __future__ import annotations

import re
import sqlite3
import typing
from collections.abc import Generator, Mapping
from datetime import datetime
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Any

import psycopg
import pytest

from redrive.store.postgres.connection import Server, address_of
from redrive.store.statements.statement import Statement
from redrive.store.statements.text import (
    FILES,
    FOR_SQLITE,
    blocks_of,
    for_rows,
    schema_of,
    statements_of,
    text_of,
)
from tests.databases import Schemas
from tests.statement_record import declared

MODULES = {file: import_module(f"redrive.store.statements.{file}") for file in FILES}
DECLARED = declared()
WITHIN = sorted(set(statements_of("sqlite")) - set(DECLARED))
"""What a store asks of itself and nobody names above it: each store has its own."""
QUOTED = re.compile(r"'[^'\n]*'")
TYPES: dict[type, frozenset[str]] = {
    int: frozenset({"int4", "int8", "numeric"}),
    bool: frozenset({"int4", "int8", "bool"}),
    float: frozenset({"float8", "numeric"}),
    datetime: frozenset({"float8"}),
    str: frozenset({"text", "json", "jsonb"}),
    bytes: frozenset({"bytea"}),
    list: frozenset({"text", "json", "jsonb"}),
    Mapping: frozenset({"text", "bytea"}),
    object: frozenset({"bytea"}),
}
"""What PostgreSQL calls the types that parameters and columns are declared with."""


def plain(declared: Any) -> type:
    """Return a declared type without None, and without what a list has."""
    if isinstance(declared, UnionType):
        (declared,) = [each for each in typing.get_args(declared) if each is not NoneType]
    if typing.get_origin(declared) is typing.Literal:
        return type(typing.get_args(declared)[0])
    found: type = typing.get_origin(declared) or declared
    return found


def parameters_of(one: Statement[..., Any]) -> list[type] | None:
    """Return the types of its parameters in the order of the text; None if one stands for any number."""
    found: list[type] = []
    hints = typing.get_type_hints(one.declared)
    asked = [hints[name] for name in one.parameters]
    while asked:
        declared = asked.pop(0)
        if hasattr(declared, "_fields"):
            asked[:0] = typing.get_type_hints(declared).values()
        elif typing.get_origin(declared) is tuple:
            if ... in (several := typing.get_args(declared)):
                return None
            found += several
        else:
            found.append(plain(declared))
    return found


def columns_of(one: Statement[..., Any]) -> list[tuple[str, type]]:
    """Return the names and types of its columns; a single column has no name."""
    if one.row is NoneType:
        return []
    if one.is_scalar:
        return [("", plain(one.row))]
    return [(name, plain(declared)) for name, declared in typing.get_type_hints(one.row).items()]


@cache
def embedded() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(schema_of("sqlite"))
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


def test_a_statement_is_declared_in_the_module_of_its_file() -> None:
    for file, module in MODULES.items():
        named = {name for kind, name, _ in blocks_of("sqlite", file) if kind == "name"}

        assert {name for name, each in vars(module).items() if isinstance(each, Statement)} <= named


@pytest.mark.parametrize("file", FILES)
def test_a_translation_leaves_all_text_in_quotes_as_it_is(file: str) -> None:
    shared = text_of("statements", file)
    translated = shared
    for pattern, becomes in FOR_SQLITE:
        translated = pattern.sub(becomes, translated)

    # The name of a sequence goes with the function that asks for it.
    kept = re.sub(r"pg_get_serial_sequence\([^()]*\)", "", shared)
    assert QUOTED.findall(translated) == QUOTED.findall(kept)


@pytest.mark.untraced
@pytest.mark.parametrize("name", WITHIN)
def test_what_the_embedded_store_asks_of_itself_can_be_prepared(name: str) -> None:
    assert described(name) != (0, [])


@pytest.mark.untraced
@pytest.mark.parametrize("name", sorted(set(statements_of("postgres")) - set(DECLARED)))
def test_what_the_server_store_asks_of_itself_can_be_prepared(server: psycopg.Connection, name: str) -> None:
    made = server.pgconn.prepare(b"", statements_of("postgres")[name].encode())

    assert made.status == psycopg.pq.ExecStatus.COMMAND_OK, made.error_message.decode()


@pytest.mark.untraced
def test_a_declaration_is_what_the_embedded_database_takes_and_returns() -> None:
    for name in DECLARED:
        takes, names = parameters_of(DECLARED[name]), columns_of(DECLARED[name])

        count, columns = described(name)

        assert takes is None or len(takes) == count, name
        assert len(columns) == len(names), name
        if len(names) > 1:
            assert columns == [column for column, _ in names], name


@pytest.mark.untraced
def test_a_declaration_is_what_the_server_takes_and_returns(server: psycopg.Connection) -> None:
    for name in DECLARED:
        check_on_server(server, name)


def check_on_server(server: psycopg.Connection, name: str) -> None:
    takes, names = parameters_of(DECLARED[name]), columns_of(DECLARED[name])

    made = server.pgconn.prepare(b"", statements_of("postgres")[name].encode())
    assert made.status == psycopg.pq.ExecStatus.COMMAND_OK, made.error_message.decode()
    found = server.pgconn.describe_prepared(b"")

    types = server.adapters.types
    given = [types[found.param_type(place)].name for place in range(found.nparams)]
    columns = [
        ((found.fname(place) or b"").decode(), types[found.ftype(place)].name)
        for place in range(found.nfields)
    ]
    if takes is not None:
        assert len(given) == len(takes), name
        assert [
            theirs for theirs, mine in zip(given, takes, strict=True) if theirs not in TYPES[mine]
        ] == [], name
    assert len(columns) == len(names), name
    assert [
        theirs for theirs, mine in zip(columns, names, strict=True) if theirs[1] not in TYPES[mine[1]]
    ] == [], name
    if len(names) > 1:
        assert [column for column, _ in columns] == [column for column, _ in names], name
