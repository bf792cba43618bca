# SPDX-License-Identifier: Apache-2.0
"""Reads of one moment of an embedded database, each on a connection of its own: no writer waits for them, and they wait for none.

A connection is kept for the next read. A database in memory has one connection only, so that a moment of it is a copy.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from redrive.store.records import Call
from redrive.store.statements.text import statements_of

KEPT_MAX: Final = 4
"""Connections that are kept for the next reads."""
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


class Snapshots:
    """The connections of a store that only read."""

    def __init__(self, path: str, copy: Callable[[sqlite3.Connection], None] | None) -> None:
        self._path = path
        self._copy = copy
        """Copies a database in memory; None for a file."""
        self._mutex = threading.Lock()
        self._free: list[sqlite3.Connection] = []
        self._is_closed = False

    def take(self) -> sqlite3.Connection:
        """Return a connection in a transaction that sees one moment."""
        with self._mutex:
            db = self._free.pop() if self._free else None
        db = db or self._opened()
        if self._copy is not None:
            self._copy(db)
        db.execute("BEGIN")
        # The moment is that of the first read.
        db.execute("SELECT 1 FROM lanes LIMIT 1").fetchone()
        return db

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, cached_statements=256)
        if self._copy is None:
            db.execute("PRAGMA query_only = ON")
        return db

    def give_back(self, db: sqlite3.Connection) -> None:
        """End the transaction, and keep the connection for the next one."""
        try:
            db.execute("ROLLBACK")
        except sqlite3.Error:
            db.close()
            return
        with self._mutex:
            is_kept = not self._is_closed and len(self._free) < KEPT_MAX
            if is_kept:
                self._free.append(db)
        if not is_kept:
            db.close()

    def close(self) -> None:
        """Close the connections; one that is in use closes when it is given back."""
        with self._mutex:
            self._is_closed = True
            while self._free:
                self._free.pop().close()
