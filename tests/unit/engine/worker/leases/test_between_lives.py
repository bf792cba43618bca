# SPDX-License-Identifier: Apache-2.0
"""Between two lives, and before the first: nobody beats under a name that the store has not heard."""

from __future__ import annotations

import asyncio

import pytest

from redrive import Redrive
from redrive.engine.worker.leases import Heartbeat
from redrive.engine.worker.worker import Worker
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import attempts, bounded, leases_of, one_stage, turns, until, worker_on, working


class Scene:
    """A worker whose heartbeat comes once just before it registers each new name."""

    def __init__(self, store: SqliteStore, clock: VirtualClock, patch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.go_on = asyncio.Event()
        self.pipeline = one_stage(self.wait, name="wait")
        self.worker = worker_on(store, self.pipeline)
        self.heartbeat = Heartbeat(leases_of(store, clock, self.worker), self.name_of, lease=30.0)
        plain = store.start_worker

        def beaten(*args: object) -> None:
            self.heartbeat.run_once()
            plain(*args)  # type: ignore[arg-type]

        patch.setattr(store, "start_worker", beaten)

    def name_of(self) -> str | None:
        return self.worker.known_as

    async def wait(self, number: int) -> int:
        self.begun.append(self.worker.name)
        await self.go_on.wait()
        return number


def test_a_heartbeat_before_the_first_life_does_not_end_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        world = Scene(store, clock, monkeypatch)
        rd.submit(world.pipeline, 1)
        assert world.worker.known_as is None
        async with working(world.worker):
            await until(lambda: world.begun)
            await turns(50)
            assert world.worker.known_as == world.worker.name == "w1"
            world.go_on.set()
            await until(lambda: rd.jobs.counts().get("complete"))

    bounded(scene())
    assert attempts(store) == [("ok",)]


def test_a_heartbeat_between_two_lives_does_not_end_the_second(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> list[str]:
        world = Scene(store, clock, monkeypatch)
        rd.submit(world.pipeline, 1)
        async with working(world.worker):
            await until(lambda: world.begun)
            store.reap(clock.wall() + 1_000)
            world.heartbeat.run_once()
            await until(lambda: len(world.begun) == 2)
            await turns(50)
            assert world.worker.known_as == world.worker.name
            world.go_on.set()
            await until(lambda: rd.jobs.counts().get("complete"))
        return world.begun

    assert bounded(scene()) == ["w1", "w2"]
    assert attempts(store) == [("crashed",), ("ok",)]


def test_a_worker_at_rest_between_two_lives_is_not_known(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing may be renewed under the old name either: the store has forgotten it, and would say so again."""
    seen: list[str | None] = []
    plain = store.start_worker

    async def scene() -> None:
        worker: Worker = worker_on(store, one_stage(lambda number: number, name="plain"))

        def looked(*args: object) -> None:
            seen.append(worker.known_as)
            plain(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "start_worker", looked)
        async with working(worker):
            await until(lambda: worker.known_as)
            worker.declare_dead("w1")
            await until(lambda: worker.known_as == "w2")

    bounded(scene())
    assert seen == [None, None]
