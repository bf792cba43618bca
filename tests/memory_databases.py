# SPDX-License-Identifier: Apache-2.0
"""Databases in memory for tests: the tables of the first one are copied into all later ones.

Making them takes longer than most tests that use them. What makes them is tested over files, and by the first one.
"""

from __future__ import annotations

import sqlite3
from functools import cache

from redrive.store.sqlite import store
from redrive.store.sqlite.migrations import migrate

NEW_INSTALLATION = "UPDATE installations SET id = lower(hex(randomblob(8))), secret = randomblob(32)"
"""No two databases are the same installation."""


def register() -> None:
    """Copy databases in memory from now on."""
    store.migrate = copied_or_migrated  # type: ignore[attr-defined] # Imported there by its name.


def copied_or_migrated(db: sqlite3.Connection, version: int) -> None:
    """See `migrate`."""
    if version or db.execute("PRAGMA database_list").fetchone()[2]:
        migrate(db, version)
        return
    # Outside a transaction, because the database as a whole is replaced.
    db.execute("ROLLBACK")
    _empty().backup(db)
    db.execute("BEGIN IMMEDIATE")
    db.execute(NEW_INSTALLATION)


@cache
def _empty() -> sqlite3.Connection:
    """Return a database that has the tables, and nothing in them."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    migrate(db, 0)
    return db
