# SPDX-License-Identifier: Apache-2.0
"""Where a database is, without opening it: so that looking at one that is not there does not make it.

Never opens the database file by itself: closing it again would drop the locks that SQLite holds on it in this process.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from redrive.config import database_url
from redrive.errors import ConfigurationError, StoreUnavailableError

DEFAULT_PATH: Final = "redrive.db"


def path_of(url: str | None) -> Path:
    """Return the file that an address means; what is no file is refused without telling its password."""
    address = url or database_url() or DEFAULT_PATH
    scheme, separator, rest = address.partition("://")
    if not separator:
        return Path(address)
    if scheme != "sqlite" or not rest.startswith("/") or not rest[1:]:
        raise ConfigurationError(
            field="connect(url)",
            value=f"{scheme}://...",
            rule="must be a path, sqlite:///relative.db or sqlite:////absolute.db",
            fix="The embedded store is the only one there is yet.",
        )
    return Path(rest[1:])


def require(url: str | None) -> None:
    """Refuse an address under which there is no database."""
    if not path_of(url).exists():
        raise ConfigurationError(
            field="--database-url",
            value=str(path_of(url)),
            rule="names no database that is there",
            fix="Give its address, or set REDRIVE_DATABASE_URL; submit, run start, worker and migrate make a new one.",
        )


def version_of(path: Path) -> int:
    """Return the schema version of a database file without bringing it up to date; 0 for one that is not there or empty."""
    if not path.exists():
        return 0
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return int(db.execute("PRAGMA user_version").fetchone()[0])
        finally:
            db.close()
    except sqlite3.DatabaseError as error:
        raise StoreUnavailableError(database=str(path), cause=str(error)) from error
