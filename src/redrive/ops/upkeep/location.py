# SPDX-License-Identifier: Apache-2.0
"""Finds the database to use: by its address, the environment, or the default file. Opens none: that is `store.location`."""

from __future__ import annotations

from typing import Final

from redrive.config import database_url
from redrive.errors import ConfigurationError
from redrive.store.location import Database, database_at, name_of, version_of

DEFAULT_PATH: Final = "redrive.db"


def database_of(url: str | None) -> Database:
    """Return where an address is, or else the one that the environment names; raises as `database_at`."""
    return database_at(url or database_url() or DEFAULT_PATH)


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
