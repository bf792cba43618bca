# SPDX-License-Identifier: Apache-2.0
"""The versions of the schema: `schema.sql` is the newest one, `migration_N.sql` turns the tables of version N - 1 into those of N.

Indexes, views, functions and triggers hold nothing of their own: after the last migration they are made as `schema.sql` has them.
An empty schema gets `schema.sql` when the database is opened by whoever may create it; an existing one is changed only on request.
"""

from __future__ import annotations

import re
from typing import Final

from psycopg import sql

from redrive.errors import SchemaMismatchError, StoreRefusedError
from redrive.store.postgres.connection import Address, Link
from redrive.store.statements.text import schema_of, text_of
from redrive.store.versions import Older, migrations_after, newest

FIRST_VERSION: Final = 3
"""The version with which PostgreSQL began."""
_MIGRATED: Final = "UPDATE installation SET version = {};\n"
_DERIVED: Final = re.compile(
    r"^CREATE (?P<kind>FUNCTION|VIEW|TRIGGER|INDEX|UNIQUE INDEX) (?P<rest>(?:[^;$]|\$\$.*?\$\$|\$)*;)",
    re.MULTILINE | re.DOTALL,
)
_RIGHTS: Final = re.compile(r"^(?:REVOKE [^;]*;|DO (\$\$).*?\1;)", re.MULTILINE | re.DOTALL)
"""Who may call the functions, and where those look for tables: a function that is replaced forgets the latter."""
_MISSING: Final = "DO $$ BEGIN IF to_regclass('{name}') IS NULL THEN {made} END IF; END $$;\n"
"""Not IF NOT EXISTS: that refuses an index of the schema that partitioned attempts have in another form, although it exists."""
_FACTS: Final = (
    "SELECT to_regclass(format('%I.installation', $1::text)) IS NOT NULL,"
    " EXISTS (SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1)"
)


def script(schema: str, version: int = 0) -> str:
    """Return the SQL that creates the schema, or that brings it from an older version to the newest one."""
    here = f'SET LOCAL search_path TO "{schema}";\n'
    if not version:
        return f'CREATE SCHEMA IF NOT EXISTS "{schema}";\n{here}{schema_of("postgres")}'
    changes = "".join(text_of("postgres", file) for _, file in migrations_after(version))
    return f"{here}{changes}{_derived()}{_MIGRATED.format(newest())}"


def _derived() -> str:
    """Return what makes the indexes, views, functions and triggers of the schema, whichever of them there are."""
    schema = schema_of("postgres")
    made = "".join(
        _MISSING.format(name=rest.split()[0], made=f"CREATE {kind} {rest}")
        if (kind := found["kind"]).endswith("INDEX")
        else f"CREATE OR REPLACE {kind} {rest}\n"
        for found in _DERIVED.finditer(schema)
        if (rest := found["rest"])
    )
    return made + "".join(f"{found[0]}\n" for found in _RIGHTS.finditer(schema))


def version_of(link: Link, address: Address) -> int:
    """Return the version of the schema; 0 for a missing or empty one.

    Raises:
        StoreRefusedError: the schema is another program's.
        SchemaMismatchError: a newer redrive has made or changed it, or it is older than any release.
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
    if version > newest() or 0 < version < FIRST_VERSION:
        raise SchemaMismatchError(database=address.name, found=version, known=newest())
    return version


def open_schema(link: Link, address: Address, older: Older) -> None:
    """Create the schema in a database that has none, and recognise one that is a copy, unless it is to be kept as it is.

    Raises:
        SchemaMismatchError: it has another version, and is not to be migrated.
    """
    version = version_of(link, address)
    if older == "keep":
        return
    if older == "refuse" and 0 < version < newest():
        raise SchemaMismatchError(database=address.name, found=version, known=newest())
    if version != newest():
        with link.transaction():
            # Two who open the same database at once.
            link.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (address.lock,))
            if version_of(link, address) == version:
                link.execute(script(address.schema, version).encode())
    if version:
        link.execute(sql.SQL("SELECT {}.identify()").format(sql.Identifier(address.schema)))


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
