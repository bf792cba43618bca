# SPDX-License-Identifier: Apache-2.0
"""Every store that has to behave alike."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from redrive.store.protocol import Store
from redrive.store.sqlite.store import SqliteStore


@pytest.fixture(params=["sqlite file", "sqlite memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    made = SqliteStore(tmp_path / "jobs.db" if request.param == "sqlite file" else ":memory:")
    yield made
    made.close()
