# SPDX-License-Identifier: Apache-2.0
"""Finds a database, and opens the store behind its address: a file, or a schema on a PostgreSQL server.

A file is found without opening it, so that reading a missing one does not create it. It is opened only through SQLite: closing it
otherwise would drop the locks that SQLite holds on it in this process.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Final

from redrive.config import database_url
from redrive.errors import ConfigurationError
from redrive.store.protocol import Store
from redrive.store.sqlite.migrations import Older
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import upkeep as upkeep_sql

DEFAULT_PATH: Final = "redrive.db"
SERVERS: Final = ("postgresql", "postgres")
"""Schemes of addresses on a server."""

Database = Path | str
"""A file, or the address of a database on a server."""


def database_of(url: str | None) -> Database:
    """Return where an address is; refuse other addresses without printing their password."""
    address = url or database_url() or DEFAULT_PATH
    scheme, separator, rest = address.partition("://")
    if not separator:
        return Path(address)
    if scheme in SERVERS:
        return address
    if scheme != "sqlite" or not rest.startswith("/") or not rest[1:]:
        raise ConfigurationError(
            field="connect(url)",
            value=f"{scheme}://...",
            rule="must be a path, sqlite:///relative.db, sqlite:////absolute.db or postgresql://user@host/name",
            fix="SQLite and PostgreSQL are the stores there are.",
        )
    return Path(rest[1:])


def open_store(database: Database, older: Older = "refuse") -> Store:
    """Open a database; an empty one gets the tables, unless it is to be kept as it is."""
    if isinstance(database, Path):
        return SqliteStore(database, older=older)
    store: Store = _postgres().PostgresStore(database, older=older)
    return store


def _postgres() -> ModuleType:
    """Return the module of the store on a server, whose driver is optional."""
    try:
        from redrive.store.postgres import store
    except ImportError:
        raise ConfigurationError(
            field="connect(url)",
            value="postgresql://...",
            rule="needs psycopg, which is not installed",
            fix='Install it with: pip install "redrive[postgres]".',
        ) from None
    return store


def server_script(address: str) -> str:
    """Return the SQL that makes the tables of an empty database on a server."""
    from redrive.store.postgres.connection import address_of
    from redrive.store.postgres.migrations import script

    return f"BEGIN;\n{script(address_of(address).schema)}COMMIT;\n"


def require(url: str | None) -> None:
    """Refuse an address without a database."""
    database = database_of(url)
    if version_of(database) if isinstance(database, str) else database.exists():
        return
    raise ConfigurationError(
        field="--database-url",
        value=name_of(database),
        rule="is no database",
        fix="Check the address, or REDRIVE_DATABASE_URL; submit, run start, worker and migrate create a new one.",
    )


def name_of(database: Database) -> str:
    """Return how a database is called in messages: an address without its password."""
    if isinstance(database, Path):
        return str(database)
    from redrive.store.postgres.connection import address_of

    return address_of(database).name


def version_of(database: Database) -> int:
    """Return the schema version of a database without migrating it; 0 for a missing or empty one."""
    if isinstance(database, str):
        version: int = _postgres().version_at(database)
        return version
    if not database.exists() or not database.stat().st_size:
        return 0
    store = SqliteStore(database, older="keep")
    try:
        return store.query(upkeep_sql.schema_version())[0]
    finally:
        store.close()
