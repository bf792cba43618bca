# SPDX-License-Identifier: Apache-2.0
"""The versions of the schema: `schema.sql` is the newest one. No release has had an older one.

An empty schema gets `schema.sql` when the database is opened by whoever may create it; an existing one is changed only on request.
"""

from __future__ import annotations

from typing import Final

from psycopg import sql

from redrive.errors import SchemaMismatchError, StoreRefusedError
from redrive.store.postgres.connection import Address, Link
from redrive.store.sqlite.migrations import Older, newest
from redrive.store.statements.text import schema_of

SCHEMA_VERSION: Final = newest()
"""The stores have the same tables, and so the same version."""
_FACTS: Final = (
    "SELECT to_regclass(format('%I.installation', $1::text)) IS NOT NULL,"
    " EXISTS (SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1)"
)


def script(schema: str) -> str:
    """Return the SQL that creates the schema."""
    return f'CREATE SCHEMA IF NOT EXISTS "{schema}";\nSET LOCAL search_path TO "{schema}";\n{schema_of("postgres")}'


def version_of(link: Link, address: Address) -> int:
    """Return the version of the schema; 0 for a missing or empty one.

    Raises:
        StoreRefusedError: the schema is another program's.
        SchemaMismatchError: a newer redrive has made or changed it.
    """
    is_ours, has_tables = link.execute(_FACTS, (address.schema,)).fetchone() or (0, 0)
    if not is_ours:
        if has_tables:
            raise StoreRefusedError(
                database=address.name,
                cause=f"the schema {address.schema} has tables, and none of redrive's",
                hint="Name another schema: postgresql://...?schema=NAME.",
            )
        return 0
    asked = sql.SQL("SELECT version FROM {}.installation").format(sql.Identifier(address.schema))
    row = link.execute(asked).fetchone()
    version = 0 if row is None else int(str(row[0]))
    if version > SCHEMA_VERSION:
        raise SchemaMismatchError(database=address.name, found=version, known=SCHEMA_VERSION)
    return version


def open_schema(link: Link, address: Address, older: Older) -> None:
    """Create the schema in a database that has none, and recognise one that is a copy, unless it is to be kept as it is.

    Raises:
        SchemaMismatchError: it has another version.
    """
    version = version_of(link, address)
    if older == "keep":
        return
    if version == SCHEMA_VERSION:
        link.execute(sql.SQL("SELECT {}.identify()").format(sql.Identifier(address.schema)))
        return
    if version:
        raise SchemaMismatchError(database=address.name, found=version, known=SCHEMA_VERSION)
    with link.transaction():
        # Two who open the same database at once.
        link.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"redrive {address.schema}",))
        if version_of(link, address) == 0:
            link.execute(script(address.schema).encode())


def partition_script(schema: str) -> str:
    """Return the SQL that partitions the attempts of a schema."""
    return f"SET LOCAL search_path TO \"{schema}\";\nSELECT expect(partition_attempts(), '55000');\n"


def partition_attempts(link: Link, address: Address) -> None:
    """Partition the attempts by time.

    Raises:
        StoreRefusedError: there are some already.
    """
    asked = sql.SQL("SELECT {}.partition_attempts()").format(sql.Identifier(address.schema))
    if link.execute(asked).fetchone() != (True,):
        raise StoreRefusedError(
            database=address.name,
            cause="attempts cannot be partitioned any more, because there are some",
            hint="Name a new schema: postgresql://...?schema=NAME.",
        )
