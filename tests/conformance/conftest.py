# SPDX-License-Identifier: Apache-2.0
"""Every store that has to behave alike."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from redrive.store.postgres.store import PostgresStore
from redrive.store.protocol import Store
from redrive.store.sqlite.store import SqliteStore


@pytest.fixture(params=["sqlite file", "sqlite memory", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    made: SqliteStore | PostgresStore
    if request.param == "postgres":
        schemas = request.getfixturevalue("schemas")
        made = PostgresStore(schemas.address("jobs"), clock="caller")
    else:
        made = SqliteStore(tmp_path / "jobs.db" if request.param == "sqlite file" else ":memory:")
    yield made
    made.close()
