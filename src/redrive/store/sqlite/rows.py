# SPDX-License-Identifier: Apache-2.0
"""Statements over many rows at once in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from redrive.store.records import INLINE_MAX, Row, Settlement
from redrive.store.statements import for_rows, statements_of

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


def is_large(one: Settlement) -> bool:
    """Return whether its value is kept in job_values, under the dispatch whose output it is."""
    return one.value is not None and len(one.value) > INLINE_MAX


def inline(one: Settlement) -> bytearray | None:
    """Return the value for its job's own row; not as bytes, for which `sqlite3` looks for an adapter each time."""
    return None if one.value is None or is_large(one) else bytearray(one.value)
