# SPDX-License-Identifier: Apache-2.0
"""Errors of the database behind the store: unavailable, refusing, damaged, or of another version."""

from __future__ import annotations

from typing import Literal

from redrive.errors.root import RedriveError


class StoreError(RedriveError):
    """The base class of the store's errors."""

    code = "store"


class StoreUnavailableError(StoreError):
    """The database is unavailable; nothing of the batch was stored, and the same batch may be sent again.

    `server` is `starting` while its server starts, recovers or stops, `absent` while none listens at its address, otherwise None.
    """

    code = "store-unavailable"

    def __init__(
        self,
        *,
        database: str,
        cause: str,
        hint: str = "Check that its directory exists, is writable and has space.",
        server: Literal["starting", "absent"] | None = None,
    ) -> None:
        self.database = database
        self.cause = cause
        self.server = server
        super().__init__(f"the database {database} failed: {cause}", hint=hint)


class StoreRefusedError(StoreError):
    """The database was refused or refuses, and would again: another program's file, a closed connection, a constraint."""

    code = "store-refused"

    def __init__(
        self,
        *,
        database: str,
        cause: str,
        hint: str = "If no other program changed the database, this is a bug in redrive: please report it.",
        is_forbidden: bool = False,
    ) -> None:
        self.database = database
        self.cause = cause
        self.is_forbidden = is_forbidden
        super().__init__(f"{database}: {cause}", hint=hint)


class StoreDamagedError(StoreError):
    """The file is damaged, or is not a database; redrive writes nothing to it any more."""

    code = "store-damaged"

    def __init__(
        self,
        *,
        database: str,
        cause: str,
        hint: str = "Stop all workers, copy the file and its -wal, then restore a backup or recover the file with sqlite3.",
    ) -> None:
        self.database = database
        self.cause = cause
        super().__init__(f"the database {database} is damaged: {cause}", hint=hint)


class SchemaMismatchError(StoreError):
    """The database has the schema of another version of redrive; it was not changed."""

    code = "schema-mismatch"

    def __init__(self, *, database: str, found: int, known: int) -> None:
        self.database = database
        self.found = found
        self.known = known
        super().__init__(
            f"the database {database} has schema version {found}; this redrive needs version {known}",
            hint="Stop older workers, make a backup, then: redrive migrate (--print shows the SQL)."
            if found < known
            else "Use the version of redrive that created it, or a newer one.",
        )
