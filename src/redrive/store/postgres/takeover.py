# SPDX-License-Identifier: Apache-2.0
"""Takes over all rows of an embedded database, in one transaction: what was not copied whole is not there at all.

A takeover that had been committed when its process died is found complete when it is repeated, and nothing is copied again.
Rows are copied as they are, with their ids and counters, past the triggers that would count them again. Text cannot hold NUL in
PostgreSQL: the sign for it stands in its place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, cast

import psycopg

from redrive.errors import StoreRefusedError
from redrive.store.postgres.connection import Address, Link, Server, address_of, error_of
from redrive.store.postgres.session import SQL
from redrive.store.records import Row, Step
from redrive.store.sqlite.file_lock import FileLock

OWN: Final = frozenset({"installation"})
"""Tables that only a server's database has."""
SEEDED: Final = frozenset({"installations", "letter_moves"})
"""Tables that are not empty in a new database."""
FIRST: Final = ("lanes",)
"""Tables that others refer to."""
_TABLES: Final = """SELECT relname FROM pg_class
WHERE relnamespace = to_regnamespace($1::text) AND relkind IN ('r', 'p') AND NOT relispartition"""
COUNT: Final = "SELECT count(*) FROM {table}"

OnTable = Callable[[str, int], None]
"""Called with a table and the rows that were copied."""


def take_over(path: Path, url: str, log: Step, on_table: OnTable, *, now: float) -> dict[str, int]:
    """Copy every table of a file, to which nobody writes meanwhile, into the database at an address; return how many rows each has.

    `log` is run with it.

    Raises:
        StoreRefusedError: a worker of the file is live, or the database is not empty, or has not got all rows.
    """
    address = address_of(url)
    read_only = f"{path.absolute().as_uri()}?mode=ro"
    with FileLock(str(path)).held(), closing(sqlite3.connect(read_only, uri=True)) as source:
        source.execute("BEGIN")
        _refuse_live(source, path, now)
        try:
            with Server(address).connect() as link:
                return _copied(source, link, address, log, on_table)
        except (psycopg.Error, OSError) as error:
            raise error_of(error, address) from error


def _refuse_live(db: sqlite3.Connection, path: Path, now: float) -> None:
    live = db.execute(
        "SELECT id, host, process FROM workers WHERE expires_at >= ? ORDER BY id",
        (now,),
    ).fetchall()
    if live:
        named = ", ".join(f"{worker} (process {process} on {host})" for worker, host, process in live[:3])
        raise StoreRefusedError(
            database=str(path),
            cause=f"{len(live)} of its workers are live: {named}",
            hint="Stop all workers first; one that died counts as live until its lease ends.",
        )


def _copied(
    source: sqlite3.Connection, link: Link, address: Address, log: Step, on_table: OnTable
) -> dict[str, int]:
    tables = _tables(link, address)
    if (complete := _complete(source, link, tables)) is not None:
        return complete
    counted: dict[str, int] = {}
    with link.transaction():
        for table in tables:
            _run(link, f"ALTER TABLE {table} DISABLE TRIGGER USER")
            _refuse_rows(link, address, table)
        for table in tables:
            counted[table] = _copy(source, link, table)
            on_table(table, counted[table])
        for table in tables:
            _run(link, f"ALTER TABLE {table} ENABLE TRIGGER USER")
            _refuse_difference(source, link, address, table)
        _continue_ids(source, link, tables)
        # It has moved, and is no copy.
        _run(
            link,
            "UPDATE installations SET file = place() WHERE number = (SELECT max(number) FROM installations)",
        )
        link.execute(SQL[log.name], log.parameters)
    return counted


def _complete(source: sqlite3.Connection, link: Link, tables: list[str]) -> dict[str, int] | None:
    """Return how many rows each table has if all were taken over before, and nothing was done there since."""
    identity = "SELECT id FROM installations ORDER BY id"
    if source.execute(identity).fetchall() != _run(link, identity):
        return None
    there = {table: _count(source, table) for table in tables}
    here = {table: cast("int", _run(link, _about(table, COUNT))[0][0]) for table in tables}
    # The log has the takeover itself.
    return there if here == there | {"operations": there["operations"] + 1} else None


def _count(source: sqlite3.Connection, table: str) -> int:
    return cast("int", source.execute(_about(table, COUNT)).fetchone()[0])


def _tables(link: Link, address: Address) -> list[str]:
    rows = _run(link, _TABLES, address.schema)
    found = {str(row[0]) for row in rows} - OWN
    return [*FIRST, *sorted(found - set(FIRST))]


def _refuse_rows(link: Link, address: Address, table: str) -> None:
    if table in SEEDED:
        _run(link, _about(table, "DELETE FROM {table}"))
    elif _run(link, _about(table, "SELECT 1 FROM {table} LIMIT 1")):
        raise StoreRefusedError(
            database=address.name,
            cause=f"it is not empty: {table} has rows",
            hint="Name a new schema: postgresql://...?schema=NAME.",
        )


def _copy(source: sqlite3.Connection, link: Link, table: str) -> int:
    columns = ", ".join(str(row[1]) for row in source.execute(f"PRAGMA table_info({table})"))
    copied = 0
    with link.cursor().copy(f"COPY {table} ({columns}) FROM STDIN".encode()) as copy:
        for row in source.execute(_about(table, "SELECT {columns} FROM {table}", columns)):
            copy.write_row(_storable(row))
            copied += 1
    return copied


def _storable(row: Row) -> Row:
    if any(isinstance(value, str) and "\x00" in value for value in row):
        return tuple(
            value.replace("\x00", "\N{SYMBOL FOR NULL}") if isinstance(value, str) else value for value in row
        )
    return row


def _refuse_difference(source: sqlite3.Connection, link: Link, address: Address, table: str) -> None:
    there, here = _count(source, table), _run(link, _about(table, COUNT))[0][0]
    if there != here:
        raise StoreRefusedError(
            database=address.name, cause=f"{table} has {here} rows, and its source {there}"
        )


def _continue_ids(source: sqlite3.Connection, link: Link, tables: list[str]) -> None:
    """Give no id twice, not even one whose row was deleted."""
    used = dict(source.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    numbered = "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attidentity <> '' AND NOT attisdropped"
    last = (
        "SELECT setval(pg_get_serial_sequence($1, $2), greatest(max({columns}), $3)) FROM {table}"
        " HAVING greatest(max({columns}), $3) > 0"
    )
    for table in tables:
        for (column,) in _run(link, numbered, table):
            _run(link, _about(table, last, str(column)), table, column, used.get(table, 0))


def _run(link: Link, statement: str, *parameters: object) -> list[Row]:
    """Run a statement and return its rows, if it has any."""
    # As bytes: as a text its type would have to be that of a literal.
    ran = link.execute(statement.encode(), parameters or None)
    return ran.fetchall() if ran.description is not None else []


def _about(table: str, text: str, columns: str = "") -> str:
    """Return a statement about a table; the names are the schema's own."""
    return text.replace("{table}", table).replace("{columns}", columns)
