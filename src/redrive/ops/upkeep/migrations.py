# SPDX-License-Identifier: Apache-2.0
"""Migrates a database to the current schema version, and prints the SQL it would apply.

The store defines the versions. Opening a database creates the schema of an empty one and refuses any other version than its own:
only `migrate` migrates an older one, and nothing downgrades a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass

from redrive.errors import SchemaMismatchError
from redrive.ops.audit import Actor, Subject
from redrive.store.location import Database, known_version, lacking, name_of, open_store, version_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """The schema version of a database, and what it lacks."""

    database: str
    found: int
    """Its version; 0 for a missing or empty one."""
    known: int
    """The version of this redrive."""
    sql: str
    """The migrations to apply; empty when it is up to date."""


def schema_state(database: Database) -> SchemaState:
    """Return the schema version of a database and the SQL it lacks; raises SchemaMismatchError for a newer one."""
    found, known = version_of(database), known_version()
    if found > known:
        raise SchemaMismatchError(database=name_of(database), found=found, known=known)
    return SchemaState(database=name_of(database), found=found, known=known, sql=lacking(database, found))


def migrate(database: Database, by: Actor) -> SchemaState:
    """Migrate a database, or create it; return its state before."""
    before = schema_state(database)
    store = open_store(database, "migrate")
    try:
        if before.sql:
            store.apply(by.log("migrate", Subject("schema", f"{before.found} -> {before.known}")))
    finally:
        store.close()
    return before
