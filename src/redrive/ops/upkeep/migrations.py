# SPDX-License-Identifier: Apache-2.0
"""What a database lacks to be of the present version, as SQL one can read first, and bringing it there.

Which versions there are is the store's matter. Opening a database makes the schema of an empty one and refuses any other version
than its own: only `migrate` brings an older one up to date, and nothing does with a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from redrive.errors import SchemaMismatchError
from redrive.ops.audit import Actor
from redrive.ops.upkeep.location import version_of
from redrive.store.sqlite import migrations
from redrive.store.sqlite.store import SqliteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """How far a database is."""

    database: str
    found: int
    """Its version; 0 when there is none yet."""
    known: int
    """The version this redrive works with."""
    sql: str
    """What is still to be applied; empty when it is up to date."""


def schema_state(path: Path) -> SchemaState:
    """Return how far a database is, and the SQL it lacks; raises SchemaMismatchError for one from the future."""
    found, known = version_of(path), migrations.newest()
    if found > known:
        raise SchemaMismatchError(database=str(path), found=found, known=known)
    steps = [
        f"-- to version {step.version}\nBEGIN IMMEDIATE;\n{step.sql.strip()}\nPRAGMA user_version = {step.version};\nCOMMIT;\n"
        for step in migrations.pending(found)
    ]
    return SchemaState(database=str(path), found=found, known=known, sql="\n".join(steps))


def migrate(path: Path, by: Actor) -> SchemaState:
    """Bring a database up to date, or make it; return how far it was before."""
    before = schema_state(path)
    store = SqliteStore(path, older="migrate")
    try:
        if before.sql:
            store.apply(by.log("migrate", f"schema {before.found} -> {before.known}"))
    finally:
        store.close()
    return before
