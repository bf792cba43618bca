# SPDX-License-Identifier: Apache-2.0
"""Opens the store behind its address: a file, or a schema on a PostgreSQL server.

A file is found without opening it, so that reading a missing one does not create it. It is opened only through SQLite: closing it
otherwise would drop the locks that SQLite holds on it in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

from redrive.errors import ConfigurationError
from redrive.store.protocol import Store
from redrive.store.records import Step
from redrive.store.sqlite.migrations import pending
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import upkeep as upkeep_sql
from redrive.store.versions import Older, newest

SERVERS: Final = ("postgresql", "postgres")
"""Schemes of addresses on a server."""

Database = Path | str
"""A file, or the address of a database on a server."""


def database_at(address: str) -> Database:
    """Return where an address is; refuse other addresses without printing their password."""
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
            fix="SQLite and PostgreSQL are supported.",
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


def lacking(database: Database, found: int) -> str:
    """Return the SQL that a database with this version of the schema lacks; empty when it is up to date."""
    if isinstance(database, Path):
        steps = [
            f"-- to version {step.version}\nBEGIN IMMEDIATE;\n{step.sql.strip()}\nPRAGMA user_version = {step.version};\nCOMMIT;\n"
            for step in pending(found)
        ]
        return "\n".join(steps)
    if found == newest():
        return ""
    from redrive.store.postgres.connection import address_of
    from redrive.store.postgres.migrations import script

    return f"BEGIN;\n{script(address_of(database).schema, found)}COMMIT;\n"


def partitioning(database: Database) -> str:
    """Return the SQL that partitions the attempts of a database by time; raises ConfigurationError for a file."""
    if isinstance(database, Path):
        raise ConfigurationError(
            field="partition_attempts",
            value=str(database),
            rule="is for PostgreSQL: a file has no partitions",
            fix="Leave it out, or name a server: --database-url postgresql://user@host/name.",
        )
    from redrive.store.postgres.connection import address_of
    from redrive.store.postgres.migrations import partition_script

    return f"BEGIN;\n{partition_script(address_of(database).schema)}COMMIT;\n"


def partition_attempts(database: str) -> None:
    """Partition the attempts of a database on a server by time; raises StoreRefusedError if there are some already."""
    _postgres().partition_attempts_at(database)


def take_over(
    file: Path, server: str, log: Step, on_table: Callable[[str, int], None], *, now: float
) -> dict[str, int]:
    """Copy all rows of a file, of which no worker is live, into an empty database on a server; return how many of each table."""
    from redrive.store.postgres import takeover

    return takeover.take_over(file, server, log, on_table, now=now)


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
