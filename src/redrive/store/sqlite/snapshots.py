# SPDX-License-Identifier: Apache-2.0
"""Reads of one moment of an embedded database, on connections of their own.

A database in memory has one connection only, so that a moment of it is a copy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from redrive.store.connections import Snapshots
from redrive.store.records import Row
from redrive.store.statements.text import statements_of

_SQL: Final = statements_of("sqlite")


class FileSnapshots(Snapshots[sqlite3.Connection]):
    """The connections of an embedded store that only read."""

    errors = sqlite3.Error

    def __init__(self, path: str, copy: Callable[[sqlite3.Connection], None] | None) -> None:
        super().__init__()
        self._path = path
        self._copy = copy
        """Copies a database in memory; None for a file."""

    def opened(self) -> sqlite3.Connection:
        """See `Pool.opened`."""
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, cached_statements=256)
        if self._copy is None:
            db.execute("PRAGMA query_only = ON")
        return db

    def begin(self, connection: sqlite3.Connection) -> None:
        """See `Pool.begin`."""
        if self._copy is not None:
            self._copy(connection)
        connection.execute("BEGIN")
        # The moment is that of the first read.
        connection.execute("SELECT 1 FROM lanes LIMIT 1").fetchone()

    def rows(self, connection: sqlite3.Connection, name: str, parameters: Row) -> list[Row]:
        """See `Snapshots.rows`."""
        return connection.execute(_SQL[name], parameters).fetchall()
