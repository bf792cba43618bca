# SPDX-License-Identifier: Apache-2.0
"""Reads of one moment of an embedded database, on connections of their own.

A database in memory has one connection only, so that a moment of it is a copy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from redrive.store.records import Call
from redrive.store.snapshots import Snapshots
from redrive.store.statements.text import statements_of

_SQL: Final = statements_of("sqlite")
R = TypeVar("R")


class Snapshot:
    """One moment of a database."""

    def __init__(self, db: sqlite3.Connection, mapped: Callable[[], AbstractContextManager[None]]) -> None:
        self._db = db
        self._mapped = mapped

    def query(self, asked: Call[R], /) -> list[R]:
        """See `Reader.query`."""
        with self._mapped():
            return asked.decode(self._db.execute(_SQL[asked.name], asked.parameters).fetchall())


class FileSnapshots(Snapshots[sqlite3.Connection]):
    """The connections of an embedded store that only read."""

    errors = sqlite3.Error

    def __init__(self, path: str, copy: Callable[[sqlite3.Connection], None] | None) -> None:
        super().__init__()
        self._path = path
        self._copy = copy
        """Copies a database in memory; None for a file."""

    def opened(self) -> sqlite3.Connection:
        """See `Snapshots.opened`."""
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, cached_statements=256)
        if self._copy is None:
            db.execute("PRAGMA query_only = ON")
        return db

    def begin(self, connection: sqlite3.Connection) -> None:
        """See `Snapshots.begin`."""
        if self._copy is not None:
            self._copy(connection)
        connection.execute("BEGIN")
        # The moment is that of the first read.
        connection.execute("SELECT 1 FROM lanes LIMIT 1").fetchone()
