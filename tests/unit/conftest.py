# SPDX-License-Identifier: Apache-2.0
"""What most tests of the engine start with: virtual time, a store in memory, a connection to it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from redrive import Redrive, connect
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock, virtual_time


@pytest.fixture
def clock() -> Generator[VirtualClock]:
    with virtual_time() as virtual:
        yield virtual


@pytest.fixture
def store() -> Generator[SqliteStore]:
    made = SqliteStore(":memory:")
    yield made
    made.close()


@pytest.fixture
def rd(store: SqliteStore) -> Redrive:
    """A connection to the store in memory; closing it is the store's part."""
    return Redrive(store)


@pytest.fixture
def filed(tmp_path: Path) -> Generator[Redrive]:
    """A connection to a store in a file."""
    with connect(tmp_path / "jobs.db") as opened:
        yield opened
