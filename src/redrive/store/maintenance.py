# SPDX-License-Identifier: Apache-2.0
"""The maintenance of a database: its file, and a copy of it.

Changes nothing but the file that a copy goes to. Its version and size, and what is damaged, are questions (`statements.upkeep`);
migrating is part of opening (`location`).
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
    """The database of a store as a whole."""

    def __init__(self, reader: Reader, copy: Copy | None = None) -> None:
        self._reader = reader
        self._copy = copy

    @property
    def file(self) -> Path | None:
        """The file it is in; None if a server has it, or it is in memory."""
        found = self._reader.query(upkeep_sql.database_file())[0]
        return Path(found) if found else None

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
