# SPDX-License-Identifier: Apache-2.0
"""Copies a database file while workers keep writing.

SQLite's own backup, over a connection that holds one snapshot from the first page to the last: the copy is the database at one
instant, and does not restart when a worker writes. It is an installation of its own, is checked before it gets its name, only its
owner can read it, and it never replaces a file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from redrive.errors import ConfigurationError, StoreUnavailableError
from redrive.store.sqlite.opening import NEW_INSTALLATION

PAGES: Final = 1_024
"""Pages per step; between two steps the copy can be interrupted."""

_NEW_IDS: Final = {
    "installations": NEW_INSTALLATION,
    "installation": "UPDATE installation SET id = lower(hex(randomblob(8)))",
}
"""What gives a copy an id of its own, by the table that its version of the schema has."""

OnPages = Callable[[int, int], None]


def copy_file(source: Path, target: Path, on_pages: OnPages | None) -> int:
    """Copy a database into a new file and check the copy; return how many jobs it has. See `Maintenance.backup`."""
    partial = target.with_name(f"{target.name}.partial")
    try:
        if target.exists():
            raise _exists(target)
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise _exists(partial) from None
    except OSError as error:
        raise StoreUnavailableError(database=str(target), cause=str(error)) from error
    try:
        _copy(source, partial, on_pages)
        jobs = _checked(partial)
        _name(partial, target)
    except (sqlite3.DatabaseError, OSError) as error:
        raise StoreUnavailableError(database=str(target), cause=str(error)) from error
    finally:
        for rest in ("", "-journal", "-wal", "-shm"):
            partial.with_name(partial.name + rest).unlink(missing_ok=True)
    return jobs


def _copy(source: Path, partial: Path, on_pages: OnPages | None) -> None:
    def progress(_status: int, remaining: int, total: int) -> None:
        if on_pages is not None:
            on_pages(total - remaining, total)

    address = f"{source.absolute().as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(address, uri=True, isolation_level=None)) as reading,
        closing(sqlite3.connect(partial, isolation_level=None)) as copy,
    ):
        # The snapshot: without it, every commit of a worker would restart the copy, and a busy database would never be copied.
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
        reading.backup(copy, pages=PAGES, progress=progress)
        reading.execute("COMMIT")
        _rename(copy)
        # One file without a write-ahead log; opening it as a store switches back.
        copy.execute("PRAGMA journal_mode = DELETE")


def _rename(copy: sqlite3.Connection) -> None:
    """Make the copy an installation of its own: both databases give their next jobs and letters the same ids."""
    for table, change in _NEW_IDS.items():
        if copy.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchone():
            copy.execute(change)


def _checked(partial: Path) -> int:
    with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
        (found,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise StoreUnavailableError(database=str(partial), cause=f"the copy is damaged: {found}")
        return int(copy.execute("SELECT count(*) FROM jobs").fetchone()[0])


def _name(partial: Path, target: Path) -> None:
    """Give the copy its name, durably; a file that was created there meanwhile is not replaced."""
    _sync(partial)
    try:
        os.link(partial, target)
    except FileExistsError:
        raise _exists(target) from None
    _sync(target.absolute().parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exists(path: Path) -> ConfigurationError:
    return ConfigurationError(
        field="backup", value=str(path), rule="never overwrites a file", fix="Choose a new name."
    )
