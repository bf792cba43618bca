# SPDX-License-Identifier: Apache-2.0
"""The versions of the schema: `schema.sql` is the newest one, `migration_N.sql` turns the tables of version N - 1 into those of N.

Indexes, views and triggers hold nothing of their own: after the last migration they are made as `schema.sql` has them.
A migration that was released never changes: a later version is a file of its own. An empty database gets `schema.sql` when it is
opened; an existing one is changed only on request (ADR 0012).
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from typing import Final

from redrive.errors import SchemaMismatchError
from redrive.store.statements.text import schema_of, text_of
from redrive.store.versions import Older, migrations_after, newest

_DERIVED: Final = re.compile(
    r"^CREATE (?:(?P<index>(?:UNIQUE )?INDEX)|(?P<kind>VIEW|TRIGGER)) (?P<name>\w+)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Migration:
    """SQL that brings a database to a version."""

    version: int
    sql: str

    @property
    def statements(self) -> list[str]:
        """The single statements; a semicolon inside a comment or a trigger does not end one."""
        statements: list[str] = []
        open_text = ""
        for piece in self.sql.split(";"):
            open_text += piece + ";"
            if sqlite3.complete_statement(open_text):
                statements.append(open_text)
                open_text = ""
        return statements


def pending(version: int) -> list[Migration]:
    """Return what a database of this version lacks, in order; version 0 is an empty one."""
    if version == 0:
        return [Migration(newest(), schema_of("sqlite"))]
    last = newest()
    return [
        Migration(number, text_of("sqlite", file) + (_derived() if number == last else ""))
        for number, file in migrations_after(version)
    ]


def _derived() -> str:
    """Return what makes the indexes, views and triggers of the schema, whichever of them there are."""
    made: list[str] = []
    for statement in Migration(newest(), schema_of("sqlite")).statements:
        found = _DERIVED.search(statement)
        if found and found["index"]:
            made.append(_DERIVED.sub(r"CREATE \g<index> IF NOT EXISTS \g<name>", statement))
        elif found:
            made.append(f"\nDROP {found['kind']} IF EXISTS {found['name']};{statement}")
    return "".join(made)


def needs_migration(version: int, database: str, older: Older) -> bool:
    """Return whether a database must be changed before it can be used; raises SchemaMismatchError for one to be refused."""
    known = newest()
    if 0 < version < known and older == "refuse":
        raise SchemaMismatchError(database=database, found=version, known=known)
    return version == 0 or (version < known and older == "migrate")


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Bring a database to the newest version. Runs inside the caller's transaction."""
    for step in pending(version):
        for statement in step.statements:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {step.version}")
