# SPDX-License-Identifier: Apache-2.0
"""Moves a stopped installation from a file to a PostgreSQL server: every table, row by row, compared before it counts.

Nobody writes to the file meanwhile, and it stays as it is. A transfer that was interrupted, at any
moment and in any way, is repeated: it begins anew, or finds that all is there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError, StoreRefusedError
from redrive.ops.audit import Actor
from redrive.ops.upkeep.location import database_of, name_of, open_store
from redrive.store.sqlite.file_lock import FileLock
from redrive.store.sqlite.store import SqliteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferReport:
    """What was moved."""

    source: str
    target: str
    rows: Mapping[str, int]
    """How many rows each table has, there as here."""


def transfer(
    source: str, target: str, by: Actor, *, on_table: Callable[[str, int], None] | None = None
) -> TransferReport:
    """Copy all rows of a file into an empty database on a server; `on_table` is called with each table and its rows.

    Raises:
        ConfigurationError: the source is no file, or the target not on a server.
        StoreRefusedError: workers are live, or the target is not empty.
        SchemaMismatchError: the file has another schema version.
    """
    path = _file(source)
    if isinstance(database_of(target), Path):
        raise ConfigurationError(
            field="transfer(target)",
            value=target,
            rule="must be on a PostgreSQL server",
            fix="postgresql://user@host/name, for example.",
        )
    # Opened once, so that another program's file or schema is refused, and the target gets its tables.
    SqliteStore(path).close()
    address = f"{path.absolute().as_uri()}?mode=ro"
    open_store(target).close()
    from redrive.store.postgres.takeover import take_over

    with FileLock(str(path)).held(), closing(sqlite3.connect(address, uri=True)) as db:
        db.execute("BEGIN")
        _refuse_live(db, path)
        log = by.log("transfer", str(path))
        rows = take_over(db, target, log, on_table or (lambda _table, _rows: None))
    return TransferReport(source=str(path), target=name_of(target), rows=rows)


def _file(source: str) -> Path:
    path = database_of(source)
    if isinstance(path, Path) and path.exists():
        return path
    raise ConfigurationError(
        field="transfer(source)", value=name_of(path), rule="is no database file", fix="Check the path."
    )


def _refuse_live(db: sqlite3.Connection, path: Path) -> None:
    live = db.execute(
        "SELECT id, host, process FROM workers WHERE expires_at >= ? ORDER BY id",
        (CURRENT.get().clock.wall(),),
    ).fetchall()
    if live:
        named = ", ".join(f"{worker} (process {process} on {host})" for worker, host, process in live[:3])
        raise StoreRefusedError(
            database=str(path),
            cause=f"{len(live)} of its workers are live: {named}",
            hint="Stop all workers first; one that died counts as live until its lease ends.",
        )
