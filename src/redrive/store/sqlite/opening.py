# SPDX-License-Identifier: Apache-2.0
"""What happens to a file before it is used: another program's is refused and left as it was, a missing one created, a copy noticed.

A file is read only through SQLite: closing it otherwise would drop the locks of every connection this process has to it.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from redrive.errors import StoreRefusedError

logger = logging.getLogger("redrive.store")

APPLICATION: Final = 0x72647276
"""The application id in the header of a file of ours: "rdrv"."""
_FACTS: Final = "SELECT application_id, EXISTS (SELECT 1 FROM sqlite_schema) FROM pragma_application_id"
"""One statement sees one state: another process may just be creating this database."""
NEW_INSTALLATION: Final = """
    INSERT INTO installations (id, first_job, first_letter, secret)
    SELECT lower(hex(randomblob(8))), coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0) + 1,
        coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'dead_letters'), 0) + 1, secret
    FROM installations ORDER BY number DESC LIMIT 1"""
_RECORDED: Final = """
    SELECT file, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0)
    FROM installations ORDER BY number DESC LIMIT 1"""
_RECORD: Final = "UPDATE installations SET file = ? WHERE number = (SELECT max(number) FROM installations)"


def find_or_create(path: str) -> None:
    """Create an empty file for a new database; refuse one that is another program's, or that may not be written.

    Raises:
        StoreRefusedError: the file is no database of redrive's.
    """
    file = Path(path)
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    # The file must never be readable by others, not even between its creation and a later chmod.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return
    _require(os.R_OK, file)
    _look(file)
    _require(os.W_OK, file)
    _close_to_others(path)
    if not Path(f"{path}-shm").exists():
        _require(os.W_OK, file.parent)


def refuse_foreign(db: sqlite3.Connection, database: str) -> None:
    """Refuse a database with another program's tables, before anything in it is changed."""
    application, has_tables = db.execute(_FACTS).fetchone()
    if has_tables and application != APPLICATION:
        raise not_ours(database)


def not_ours(database: str) -> StoreRefusedError:
    """Return the error for a file that redrive did not create."""
    return StoreRefusedError(
        database=database,
        cause="not a redrive database",
        hint="Name another file. If redrive created this one, its beginning was overwritten: restore a backup.",
    )


def file_numbers(path: str) -> tuple[int | None, ...]:
    """Return numbers that identify a database and its -wal, whatever gets their names later; None for a missing one."""
    return tuple(_inode(f"{path}{rest}") for rest in ("", "-wal"))


def identify(db: sqlite3.Connection, path: str, highest: int) -> int:
    """Record, before the first write, which file this is; `highest` is the last job id that anybody noted for it.

    A copy of a file, and one that was put back to an earlier state, are installations of their own: two that continue from the
    same state would give the same ids, and so the same idempotency keys, to different jobs. A copy is another file than its
    installation was recorded for; a file that was put back has given out fewer ids than its lock file says. What was there before
    keeps its keys. Returns the last id that it has really given out.
    """
    file = os.stat(path).st_ino  # noqa: PTH116 - a path is a text here.
    recorded, last = db.execute(_RECORDED).fetchone()
    is_copy, is_put_back = recorded not in {None, file}, last < highest
    if is_copy or is_put_back:
        db.execute(NEW_INSTALLATION)
        state = "a copy of another database" if is_copy else "in an earlier state than before"
        logger.warning("%s is %s: its new jobs get keys of their own", path, state)
    if recorded != file or is_put_back:
        db.execute(_RECORD, (file,))
    return int(last)


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - on every heartbeat.
    except FileNotFoundError:
        return None


def _look(file: Path) -> None:
    """Refuse a file that is not ours without taking a lock, and without leaving a -wal or -shm beside it."""
    # What stands in a -wal is not seen this way; the connection that is opened next does.
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?immutable=1", uri=True)) as db:
            refuse_foreign(db, str(file))
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_NOTADB:
            raise not_ours(str(file)) from error
        # Whatever else it is shows when the file is opened; somebody may be writing back the -wal at this moment.


def _close_to_others(path: str) -> None:
    """Remove the rights of other users from a file that existed before, and from what is beside it.

    Those of its group stay, because somebody gave them. Only the owner may do this: others leave it to `redrive doctor`.
    """
    for rest in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError, PermissionError):
            mode = os.stat(path + rest).st_mode  # noqa: PTH116 - for every connection.
            if mode & 0o007:
                os.chmod(path + rest, stat.S_IMODE(mode) & ~0o007)  # noqa: PTH101 - as above.


def _require(right: int, path: Path) -> None:
    if not os.access(path, right):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
