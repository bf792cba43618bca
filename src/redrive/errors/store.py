# SPDX-License-Identifier: Apache-2.0
"""Errors of the database behind the store: out of reach, refusing, damaged, or of another version."""

from __future__ import annotations

from redrive.errors.root import RedriveError


class StoreError(RedriveError):
    """Something about the store; the branch of its errors."""

    code = "store"


class StoreUnavailableError(StoreError):
    """The database did not take the statement; nothing of the batch was stored, and the same batch may be sent again."""

    code = "store-unavailable"

    def __init__(self, *, database: str, cause: str) -> None:
        self.database = database
        self.cause = cause
        super().__init__(
            f"the database {database} failed: {cause}",
            hint="Check that its folder exists, is writable and has space, and that the file is a redrive database.",
        )


class StoreRefusedError(StoreError):
    """The database refused what it was asked, and would again: a constraint, a closed connection, a mistake of ours."""

    code = "store-refused"

    def __init__(
        self,
        *,
        database: str,
        cause: str,
        hint: str = "If nothing was done to the store from outside, this is a bug of redrive: please report it.",
    ) -> None:
        self.database = database
        self.cause = cause
        super().__init__(f"the database {database} refused it: {cause}", hint=hint)


class StoreDamagedError(StoreError):
    """The database file is damaged, or is no database; nothing is written to it any more."""

    code = "store-damaged"

    def __init__(self, *, database: str, cause: str) -> None:
        self.database = database
        self.cause = cause
        super().__init__(
            f"the database {database} is damaged: {cause}",
            hint="Stop all workers, keep a copy of the file and of its -wal, and go back to a backup or recover it with sqlite3.",
        )


class SchemaMismatchError(StoreError):
    """The database was made by another version of redrive; it is left as it is."""

    code = "schema-mismatch"

    def __init__(self, *, database: str, found: int, known: int) -> None:
        self.database = database
        self.found = found
        self.known = known
        super().__init__(
            f"the database {database} has schema version {found}, and this redrive knows version {known}",
            hint="Stop older workers, make a backup, then: redrive migrate (--print shows the SQL)."
            if found < known
            else "Use the redrive that made it, or a newer one.",
        )
