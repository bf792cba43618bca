# SPDX-License-Identifier: Apache-2.0
"""A virtual clock, a store in memory, and a connection to it."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from redrive import Redrive
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock, virtual_time


@pytest.fixture
def clock() -> Generator[VirtualClock]:
    with virtual_time(seed=1) as virtual:
        yield virtual


@pytest.fixture
def store(clock: VirtualClock) -> Generator[SqliteStore]:
    made = SqliteStore(":memory:")
    yield made
    made.close()


@pytest.fixture
def rd(store: SqliteStore) -> Redrive:
    return Redrive(store)
