# SPDX-License-Identifier: Apache-2.0
"""Finds a database without opening it, so that reading a missing one does not create it.

Opens the file only through SQLite: closing it otherwise would drop the locks that SQLite holds on it in this process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

from redrive.config import database_url
from redrive.errors import ConfigurationError
from redrive.store.sqlite.store import SqliteStore

DEFAULT_PATH: Final = "redrive.db"


def path_of(url: str | None) -> Path:
    """Return the file of an address; refuse other addresses without printing their password."""
    address = url or database_url() or DEFAULT_PATH
    scheme, separator, rest = address.partition("://")
    if not separator:
        return Path(address)
    if scheme != "sqlite" or not rest.startswith("/") or not rest[1:]:
        raise ConfigurationError(
            field="connect(url)",
            value=f"{scheme}://...",
            rule="must be a path, sqlite:///relative.db or sqlite:////absolute.db",
            fix="SQLite is the only store so far.",
        )
    return Path(rest[1:])


def require(url: str | None) -> None:
    """Refuse an address without a database."""
    if not path_of(url).exists():
        raise ConfigurationError(
            field="--database-url",
            value=str(path_of(url)),
            rule="is no database",
            fix="Check the address, or REDRIVE_DATABASE_URL; submit, run start, worker and migrate create a new one.",
        )


def version_of(path: Path) -> int:
    """Return the schema version of a database file without migrating it; 0 for a missing or empty one."""
    if not path.exists() or not path.stat().st_size:
        return 0
    store = SqliteStore(path, older="keep")
    try:
        return cast("int", store.query("schema_version")[0][0])
    finally:
        store.close()
