# SPDX-License-Identifier: Apache-2.0
"""The same world with its store on a PostgreSQL server: two workers whose clocks differ, and faults from a seed.

Few seeds, because each statement is a round trip; `make sim-postgres` runs more.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from itertools import count
from typing import cast

import pytest

from redrive.store.postgres.session import Session
from redrive.store.postgres.store import PostgresStore
from redrive.store.records import Row
from redrive.store.sqlite.store import SqliteStore
from redrive.testing.clock import VirtualClock
from tests.databases import Schemas

from .world import World, breaches

SEEDS = range(50 if os.environ.get("REDRIVE_TEST_STORES") == "all" else 2)


class ReadableStore(PostgresStore):
    """A store that is asked as the embedded one is."""

    def read(self, sql: str, parameters: Row = ()) -> list[Row]:
        places = count(1)
        # What is stored as bytes is compared as text.
        sql = sql.replace("context LIKE", "text_of(context) LIKE")
        return super().read(re.sub(r"\?(\d*)", lambda place: f"${place[1] or next(places)}", sql), parameters)


class ServerTimeStore(ReadableStore):
    """A store whose server has the right time, whatever the workers take for it."""

    server: VirtualClock

    def _now(self, db: Session, now: float) -> float:
        return super()._now(db, self.server.wall())

    def reap(self, now: float) -> int:
        return super().reap(self.server.wall())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fleet_whose_clocks_are_ten_leases_apart_keeps_every_promise(seed: int, schemas: Schemas) -> None:
    """By more, jobs would still be due by another clock when the story ends: the worker that looks decides about that."""
    with closing(ServerTimeStore(schemas.address("world"), clock="caller")) as store:
        world = World(seed, jobs=15, store=cast("SqliteStore", store), skews=(-300.0, 0.0, 300.0))
        store.server = world.clock
        world.run(workers=3)

        assert breaches(world) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_goes_wrong_between_workers_and_a_server_every_promise_is_kept(
    seed: int, schemas: Schemas
) -> None:
    with closing(ReadableStore(schemas.address("world"), clock="caller")) as store:
        world = World(seed, jobs=15, store=cast("SqliteStore", store))
        world.run(workers=2)

        assert breaches(world) == []
