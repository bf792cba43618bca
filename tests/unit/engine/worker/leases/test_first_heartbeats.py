# SPDX-License-Identifier: Apache-2.0
"""The first beats of a life: a worker that begins while the clock is wrong for a moment lives on."""

from __future__ import annotations

import threading

import pytest

from redrive import Redrive
from redrive.engine.worker.leases import Heartbeat, Leases
from redrive.engine.worker.worker import Worker
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import STUCK_SECONDS, bounded, leases_of, one_stage, until, worker_on, working

LEASE = 30.0
PLAIN = one_stage(lambda number: number, name="plain")


class Scene:
    """A worker with a heartbeat on demand, and another that reaps."""

    def __init__(self, store: SqliteStore, clock: VirtualClock) -> None:
        self.store, self.clock = store, clock
        self.dead: list[str] = []
        store.start_worker("reaper", clock.wall(), LEASE)
        self.reaper = Leases(store, clock, lease=LEASE, on_dead=self.dead.append)
        for _ in range(5):
            clock.advance(LEASE / 3)
            self.reaper.beat("reaper")
        self.worker: Worker = worker_on(store, PLAIN, lease=LEASE)
        self.heartbeat = Heartbeat(
            leases_of(store, clock, self.worker, lease=LEASE), self.name_of, lease=LEASE
        )
        self.worker.heartbeat = self.heartbeat

    def name_of(self) -> str | None:
        return self.worker.known_as

    def jump(self, seconds: float) -> None:
        self.clock._offset += seconds

    @property
    def known(self) -> set[object]:
        return {name for (name,) in self.store.read("SELECT id FROM workers")}

    def ends_in(self, name: str) -> float:
        ((at,),) = self.store.read(f"SELECT expires_at FROM workers WHERE id = '{name}'")
        return float(str(at)) - self.clock.wall()


def test_a_worker_that_rises_while_the_clock_is_back_for_a_moment_is_not_reaped(
    store: SqliteStore, clock: VirtualClock
) -> None:
    async def scene() -> None:
        world = Scene(store, clock)
        async with working(world.worker):
            await until(lambda: world.worker.known_as)
            world.heartbeat.run_once()
            world.jump(-3_600.0)
            world.worker.declare_dead("w1")
            await until(lambda: world.worker.known_as == "w2")
            world.jump(3_600.0)
            world.reaper.beat("reaper")

            assert "w2" in world.known

    bounded(scene())


def test_a_worker_that_was_built_before_the_clock_went_back_knows_it_at_its_first_introduction(
    store: SqliteStore, clock: VirtualClock
) -> None:
    async def scene() -> None:
        world = Scene(store, clock)
        world.jump(-3_600.0)
        async with working(world.worker):
            await until(lambda: world.worker.known_as)
            world.jump(3_600.0)
            world.reaper.beat("reaper")

            assert "w1" in world.known

    bounded(scene())


def test_a_clock_that_went_back_between_two_lives_and_stays_there_is_believed(
    store: SqliteStore, clock: VirtualClock
) -> None:
    """Nobody beats between two lives, so the last that is known may be old."""

    async def scene() -> None:
        world = Scene(store, clock)
        async with working(world.worker):
            await until(lambda: world.worker.known_as)
            world.jump(-3_600.0)
            clock.advance(2 * LEASE)
            world.worker.declare_dead("w1")
            await until(lambda: world.worker.known_as == "w2")

            assert world.ends_in("w2") == pytest.approx(LEASE)

    bounded(scene())


@pytest.mark.parametrize("lives", [1, 2])
def test_a_worker_asks_for_a_beat_as_soon_as_the_store_knows_its_name(
    store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, lives: int
) -> None:
    asked: list[str | None] = []

    async def scene() -> None:
        world = Scene(store, clock)
        monkeypatch.setattr(world.heartbeat, "wake", lambda: asked.append(world.worker.known_as))
        async with working(world.worker):
            await until(lambda: asked)
            if lives == 2:
                world.worker.declare_dead("w1")
                await until(lambda: asked[1:])

    bounded(scene())
    assert asked == ["w1", "w2"][:lives]


def test_the_heartbeat_of_a_new_process_beats_at_once_and_not_after_a_third_of_its_lease(
    filed: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, renewed = filed.store, threading.Event()
    plain = store.renew

    def renew(*args: object) -> object:
        renewed.set()
        return plain(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "renew", renew)

    def wait(number: int) -> int:
        assert renewed.wait(STUCK_SECONDS)
        return number

    pipeline = one_stage(wait)
    job = filed.submit(pipeline, 1)
    filed.work([pipeline], until_idle=True, lease=600.0)

    assert job.result() == 1


@pytest.mark.usefixtures("clock")
def test_a_worker_that_signed_off_is_known_no_more(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat under its name would hear that it is dead."""
    seen: list[str | None] = []

    async def scene() -> Worker:
        worker: Worker = worker_on(store, PLAIN)
        plain = store.stop_worker

        def stopped(name: str) -> None:
            seen.append(worker.known_as)
            plain(name)

        monkeypatch.setattr(store, "stop_worker", stopped)
        await worker.run(until_idle=True)
        return worker

    assert bounded(scene()).known_as is None
    assert seen == [None]
