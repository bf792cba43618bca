# SPDX-License-Identifier: Apache-2.0
"""The tables behind a connection, for tests that read or change them past the store's own methods."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Protocol

from redrive import Redrive
from redrive.store.protocol import Store
from redrive.store.sqlite.store import SqliteStore

Parameters = tuple[object, ...]


class Rows(Protocol):
    """What a statement found."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Tables(Protocol):
    """A transaction that may do anything; parameters are written as `?`."""

    def execute(self, sql: str, parameters: Parameters = (), /) -> Rows: ...


def embedded(rd: Redrive) -> SqliteStore:
    """Return the store of a connection, which must be the embedded one."""
    assert isinstance(rd.store, SqliteStore)
    return rd.store


@contextmanager
def changing(tables: Redrive | Store) -> Generator[Tables]:
    """Open a transaction that changes tables past the store's own methods."""
    store = tables.store if isinstance(tables, Redrive) else tables
    assert isinstance(store, SqliteStore)
    with store._writing() as db:
        yield db


def read_rows(tables: Redrive | Store, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
    """Return what a query of the tables finds."""
    store = tables.store if isinstance(tables, Redrive) else tables
    if isinstance(store, SqliteStore):
        return store.read(sql, parameters)
    with changing(store) as db:
        return db.execute(sql, parameters).fetchall()


def change_rows(tables: Redrive | Store, sql: str, parameters: Parameters = ()) -> None:
    """Change tables by one statement, in a transaction of its own."""
    with changing(tables) as db:
        db.execute(sql, parameters)
