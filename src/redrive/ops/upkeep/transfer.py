# SPDX-License-Identifier: Apache-2.0
"""Moves a stopped installation from a file to a PostgreSQL server: every table, row by row, compared before it counts.

Nobody writes to the file meanwhile, and it stays as it is. A transfer that was interrupted, at any
moment and in any way, is repeated: it begins anew, or finds that all is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError
from redrive.ops.audit import Actor, Subject
from redrive.ops.upkeep.location import database_of
from redrive.store.location import name_of, open_store, take_over


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
    path = database_of(source)
    if not isinstance(path, Path) or not path.exists():
        raise ConfigurationError(
            field="transfer(source)", value=name_of(path), rule="is no database file", fix="Check the path."
        )
    if isinstance(database_of(target), Path):
        raise ConfigurationError(
            field="transfer(target)",
            value=target,
            rule="must be on a PostgreSQL server",
            fix="postgresql://user@host/name, for example.",
        )
    # Opened once, so that another program's file or schema is refused, and the target gets its tables.
    for each in (path, target):
        open_store(each).close()
    log, now = by.log("transfer", Subject("file", str(path))), CURRENT.get().clock.wall()
    rows = take_over(path, target, log, on_table or (lambda _table, _rows: None), now=now)
    return TransferReport(source=str(path), target=name_of(target), rows=rows)
