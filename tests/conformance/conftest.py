# SPDX-License-Identifier: Apache-2.0
"""Every store that has to behave alike, and a note of which statements each test has run on it."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from redrive.store.postgres.store import PostgresStore
from redrive.store.protocol import Store
from redrive.store.records import Row
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements.statement import Statement
from redrive.testing.conformance import StoreConformance
from redrive.testing.conformance.build import NOW
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
