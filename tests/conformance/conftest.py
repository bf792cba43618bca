# SPDX-License-Identifier: Apache-2.0
"""Every store that has to behave alike, and a note of which statements each test has run on it."""

from __future__ import annotations

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
from tests.statement_record import PROPERTY


@pytest.fixture(params=["sqlite file", pytest.param("sqlite memory", marks=pytest.mark.untraced), "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    made: SqliteStore | PostgresStore
    if request.param == "postgres":
        schemas = request.getfixturevalue("schemas")
        made = PostgresStore(schemas.address("jobs"), clock="caller")
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
