# SPDX-License-Identifier: Apache-2.0
"""The part of the suite that is about attempts, with the attempts in partitions; `make conformance-partitions` runs all of it."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from redrive.store.postgres.store import PostgresStore
from redrive.store.protocol import Store
from redrive.testing.conformance.build import NOW
from redrive.testing.conformance.histories import HistoryTests
from redrive.testing.conformance.named_statements import MomentTests
from redrive.testing.conformance.settlements import SettlementTests
from redrive.testing.conformance.upkeep import UpkeepTests
from tests.databases import Schemas


@pytest.fixture
def store(schemas: Schemas) -> Generator[Store]:
    made = PostgresStore(schemas.named(schemas.emptied("parts", partitioned_at=NOW)), clock="caller")
    yield made
    made.close()


class TestPartitions(SettlementTests, MomentTests, HistoryTests, UpkeepTests):
    """As on one table."""
