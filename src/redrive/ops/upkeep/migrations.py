# SPDX-License-Identifier: Apache-2.0
"""Migrates a database to the current schema version, and prints the SQL it would apply.

The store defines the versions. Opening a database creates the schema of an empty one and refuses any other version than its own:
only `migrate` migrates an older one, and nothing downgrades a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass

from redrive.errors import SchemaMismatchError
from redrive.ops.audit import Actor, Subject
from redrive.store.location import (
    Database,
    lacking,
    name_of,
    open_store,
    partitioning,
    version_of,
)
from redrive.store.location import partition_attempts as partition_attempts_of
from redrive.store.versions import newest


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


def schema_state(database: Database, *, partition_attempts: bool = False) -> SchemaState:
    """Return the schema version of a database and the SQL it lacks; raises SchemaMismatchError for a newer one."""
    found, known = version_of(database), newest()
    asked = partitioning(database) if partition_attempts else ""
    if found > known:
        raise SchemaMismatchError(database=name_of(database), found=found, known=known)
    return SchemaState(
        database=name_of(database), found=found, known=known, sql=lacking(database, found) + asked
    )


def migrate(database: Database, by: Actor, *, partition_attempts: bool = False) -> SchemaState:
    """Migrate a database, or create it, and partition its attempts by time if that is asked for; return its state before.

    Raises:
        ConfigurationError: a file has no partitions.
        StoreRefusedError: it has attempts already.
    """
    before = schema_state(database, partition_attempts=partition_attempts)
    store = open_store(database, "migrate")
    try:
        if partition_attempts:
            partition_attempts_of(str(database))
        if before.sql:
            store.apply(by.log("migrate", Subject("schema", f"{before.found} -> {before.known}")))
    finally:
        store.close()
    return before
