# SPDX-License-Identifier: Apache-2.0
"""The maintenance of a database: its version, size and file, whether it is damaged, and a copy of it.

Changes nothing but the file that a copy goes to. Migrating is part of opening (`location`): a store that is open has its version.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from redrive.errors import ConfigurationError
from redrive.store.reader import Reader
from redrive.store.statements import upkeep as upkeep_sql

OnPages = Callable[[int, int], None]
"""Called with the pages copied so far, and the total."""
Copy = Callable[[Path, OnPages | None], int]


class Maintenance:
    """What can be asked about the database of a store as a whole."""

    def __init__(self, reader: Reader, copy: Copy | None = None) -> None:
        self._reader = reader
        self._copy = copy

    @property
    def version(self) -> int:
        """The version of the schema that the database has."""
        return self._reader.query(upkeep_sql.schema_version())[0]

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return self._reader.query(upkeep_sql.database_size())[0]

    @property
    def file(self) -> Path | None:
        """The file it is in; None if a server has it, or it is in memory."""
        found = self._reader.query(upkeep_sql.database_file())[0]
        return Path(found) if found else None

    def damage(self) -> list[str]:
        """Return what is damaged, as text; reads the whole database."""
        return [found for found in self._reader.query(upkeep_sql.integrity()) if found != "ok"]

    def broken_references(self) -> list[upkeep_sql.BrokenReference]:
        """Return which tables refer to rows that are not there."""
        return self._reader.query(upkeep_sql.broken_references())

    def backup(self, target: Path, on_pages: OnPages | None = None) -> int:
        """Copy the database into a new file and check the copy; return how many jobs it has. An error leaves no partial copy.

        Raises:
            ConfigurationError: the file exists already, or the store has no file.
            StoreUnavailableError: the copy could not be made, or failed its check.
        """
        if self._copy is None:
            raise ConfigurationError(
                field="backup",
                value="no file",
                rule="needs a database in a file",
                fix="Copy a database on PostgreSQL with pg_dump; one in memory cannot be copied.",
            )
        return self._copy(target, on_pages)
