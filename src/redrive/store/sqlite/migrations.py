# SPDX-License-Identifier: Apache-2.0
"""The versions of the schema, as SQL files in order; a database is brought up to date one version at a time.

A version that was released never changes: what comes later is a file of its own. The first one is `schema.sql`. An empty database
gets its schema when it is opened; one that is there is changed only when that was asked for (ADR 0012).
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final, Literal

from redrive.errors import SchemaMismatchError, StoreRefusedError
from redrive.store.statements import text_of

Older = Literal["refuse", "migrate", "keep"]
"""What to do about a database with an older schema: refuse it, bring it up to date, or leave it as it is, to be copied."""

APPLICATION: Final = 0x72647276
"""What a file of ours says it is, in its header: "rdrv"."""

VERSIONS: Final[dict[str, tuple[str, ...]]] = {"sqlite": ("schema",)}
"""The files of each dialect; a file's version is its place, from 1."""


@dataclass(frozen=True, slots=True)
class Migration:
    """What makes a database of the version before into one of this version."""

    version: int
    sql: str

    @property
    def statements(self) -> list[str]:
        """The single statements; a semicolon inside a comment or a trigger does not end one."""
        statements: list[str] = []
        held = ""
        for piece in self.sql.split(";"):
            held += piece + ";"
            if sqlite3.complete_statement(held):
                statements.append(held)
                held = ""
        return statements


def newest(dialect: str) -> int:
    """Return the version that this redrive works with."""
    return len(VERSIONS[dialect])


def pending(dialect: str, version: int) -> list[Migration]:
    """Return what a database of this version lacks, in order; version 0 is an empty one."""
    files = VERSIONS[dialect]
    return [
        Migration(place, text_of(dialect, files[place - 1])) for place in range(version + 1, len(files) + 1)
    ]


def migrate(db: sqlite3.Connection, database: str, version: int, older: Older) -> None:
    """Give an empty database its schema; do with an older one what was asked for. The caller's transaction makes it one step."""
    known = newest("sqlite")
    if 0 < version < known and older != "migrate":
        if older == "refuse":
            raise SchemaMismatchError(database=database, found=version, known=known)
        return
    for step in pending("sqlite", version):
        for statement in step.statements:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {step.version}")


def refuse_foreign(db: sqlite3.Connection, database: str) -> None:
    """Refuse a file with another program's tables, before anything in it is changed."""
    # One statement, and so one moment: somebody else may just be making this database.
    facts = "SELECT application_id, EXISTS (SELECT 1 FROM sqlite_schema) FROM pragma_application_id"
    application, has_tables = db.execute(facts).fetchone()
    if has_tables and application != APPLICATION:
        raise StoreRefusedError(
            database=database,
            cause="it holds tables, and none of redrive's",
            hint="Name another file: redrive has one of its own.",
        )
