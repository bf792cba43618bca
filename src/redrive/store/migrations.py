# SPDX-License-Identifier: Apache-2.0
"""The versions of the schema, as SQL files in order; a database is brought up to date one version at a time.

A version that was released never changes: what comes later is a file of its own. The first one is `schema.sql`.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from redrive.store.queries import text_of

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
