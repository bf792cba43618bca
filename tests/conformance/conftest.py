# SPDX-License-Identifier: Apache-2.0
"""Every store that has to behave alike, and a note of which statements each test has run on it."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.store.postgres.store import PostgresStore
from redrive.store.protocol import Store
from redrive.store.records import Row
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements.statement import Statement
from redrive.testing.conformance import StoreConformance
from redrive.testing.conformance.build import LEASE, NOW
from tests.databases import Schemas
from tests.statement_record import PROPERTY

IS_PARTITIONED = "REDRIVE_TEST_PARTITIONS" in os.environ
"""Whether the attempts are partitioned on the server: `make conformance-partitions`."""


@pytest.fixture(params=["sqlite file", pytest.param("sqlite memory", marks=pytest.mark.untraced), "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    made: SqliteStore | PostgresStore
    if request.param == "postgres":
        schemas: Schemas = request.getfixturevalue("schemas")
        schema = schemas.emptied("parts", partitioned_at=NOW) if IS_PARTITIONED else schemas.emptied("jobs")
        made = PostgresStore(schemas.named(schema), clock="caller")
    else:
        made = SqliteStore(tmp_path / "jobs.db" if request.param == "sqlite file" else ":memory:")
    yield made
    made.close()


@pytest.fixture
def url(schemas: Schemas) -> str:
    """The address of an empty database on a server."""
    return schemas.address("own")


@pytest.fixture
def server_store(url: str) -> Generator[PostgresStore]:
    """A store on a server, with two workers."""
    with closing(PostgresStore(url, clock="caller")) as made:
        made.start_worker("w1", NOW, LEASE)
        made.start_worker("w2", NOW, LEASE)
        yield made


@pytest.fixture
def db(schemas: Schemas, server_store: PostgresStore) -> Generator[psycopg.Connection[tuple[object, ...]]]:
    """Another connection to the same schema."""
    with psycopg.connect(schemas.server, autocommit=True) as link:
        link.execute(f"SET search_path TO {server_store.address.schema}")
        yield link


@pytest.fixture(autouse=True)
def _noted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Note which statements a test of the suite runs: every store decodes the rows of what it has run, also of what has none."""
    if not issubclass(request.cls or object, StoreConformance):
        yield
        return
    ran: set[str] = set()
    decode = Statement.decode

    def noting(self: Statement[..., Any], rows: list[Row]) -> list[Any]:
        ran.add(self.name)
        return decode(self, rows)

    monkeypatch.setattr(Statement, "decode", noting)
    yield
    request.node.user_properties.append((PROPERTY, [request.node.callspec.params["store"], *sorted(ran)]))
