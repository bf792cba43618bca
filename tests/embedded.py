# SPDX-License-Identifier: Apache-2.0
"""The tables behind a connection, for tests that read or change them past the store's own methods."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from typing import Any, Protocol

from redrive import Redrive
from redrive.store.postgres.connection import Link, Server
from redrive.store.postgres.store import PostgresStore
from redrive.store.protocol import Store
from redrive.store.sqlite.store import SqliteStore

Parameters = tuple[object, ...]


class Rows(Protocol):
    """What a statement found."""

    def __iter__(self) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Tables(Protocol):
    """A transaction that may do anything; parameters are written as `?`."""

    def execute(self, sql: str, parameters: Parameters = (), /) -> Rows: ...


def embedded(rd: Redrive) -> SqliteStore:
    """Return the store of a connection, which must be the embedded one."""
    assert isinstance(rd.store, SqliteStore)
    return rd.store


class Numbered:
    """A connection to PostgreSQL that takes parameters as `?` or `?1`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def execute(self, sql: str, parameters: Parameters = (), /) -> Rows:
        places = count(1)
        return self._link.execute(
            re.sub(r"\?(\d*)", lambda place: f"${place[1] or next(places)}", sql), parameters
        )


@contextmanager
def changing(tables: Redrive | Store) -> Generator[Tables]:
    """Open a transaction that changes tables past the store's own methods."""
    store = tables.store if isinstance(tables, Redrive) else tables
    if isinstance(store, SqliteStore):
        with store._writing() as db:
            yield db
        return
    assert isinstance(store, PostgresStore)
    with Server(store.address).connect() as link, link.transaction():
        yield Numbered(link)
        # Letters may have been given ids of their own.
        link.execute(
            "SELECT setval('dead_letters_id_seq', max(id)) FROM dead_letters HAVING max(id) > letters_last()"
        )


def read_rows(tables: Redrive | Store, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
    """Return what a query of the tables finds."""
    store = tables.store if isinstance(tables, Redrive) else tables
    if isinstance(store, SqliteStore):
        return store.read(sql, parameters)
    with changing(store) as db:
        return db.execute(sql, parameters).fetchall()


def table_rows(tables: Redrive | Store, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """Return what a table holds, for tests of that itself: that something is nowhere, or the same in another database."""
    return read_rows(tables, f"SELECT {columns} FROM {table} ORDER BY {'1' if columns == '*' else columns}")


def change_rows(tables: Redrive | Store, sql: str, parameters: Parameters = ()) -> None:
    """Change tables by one statement, in a transaction of its own."""
    with changing(tables) as db:
        db.execute(sql, parameters)
