# SPDX-License-Identifier: Apache-2.0
"""Statements over many rows at once in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from redrive.store.records import Row
from redrive.store.statements.text import for_rows, statements_of

SQL: Final = statements_of("sqlite")

CHUNKS: Final = (256, 64, 16, 4, 1)
"""How many rows a statement takes at once; few sizes, so that each is compiled once."""


def execute_rows(db: sqlite3.Connection, name: str, rows: Sequence[Row], terms: Row = ()) -> int:
    """Run a statement over rows, many at a time; return how many rows it touched. `terms` are the same for all of them."""
    touched, start = 0, 0
    for size in CHUNKS:
        while len(rows) - start >= size:
            parameters = list(terms)
            for row in rows[start : start + size]:
                parameters += row
            start += size
            touched += db.execute(for_rows(SQL[name], size), parameters).rowcount
    return touched
