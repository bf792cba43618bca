# SPDX-License-Identifier: Apache-2.0
"""The embedded store behind a connection, for tests that read or change its tables."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from typing import Any

from redrive import Redrive
from redrive.store.sqlite.store import SqliteStore


def embedded(rd: Redrive) -> SqliteStore:
    """Return the store of a connection, which must be the embedded one."""
    assert isinstance(rd.store, SqliteStore)
    return rd.store


def read_rows(rd: Redrive, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """Return what a query of the tables finds."""
    return embedded(rd).read(sql, parameters)


def changing(rd: Redrive) -> AbstractContextManager[sqlite3.Connection]:
    """Open a transaction that changes tables past the store's own methods."""
    return embedded(rd)._writing()
