# SPDX-License-Identifier: Apache-2.0
"""Jumps of the wall clock that are over before a reaper looks: the worker that renewed in between lives on."""

from __future__ import annotations

import pytest

from redrive.engine.worker.leases import Leases
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock

LEASE = 30.0
BEAT = LEASE / 3


class Scene:
    """Two workers on one machine; they beat at different moments."""

    def __init__(self, store: SqliteStore, clock: VirtualClock) -> None:
        self.store, self.clock = store, clock
        self.dead: list[str] = []
        self.leases: dict[str, Leases] = {}
        for name in ("reaper", "other"):
            store.start_worker(name, clock.wall(), LEASE)
            self.leases[name] = Leases(store, clock, lease=LEASE, on_dead=self.dead.append)

    def beat(self, *names: str, after: float = 0.0) -> None:
        self.clock.advance(after)
        for name in names:
            self.leases[name].beat(name)

    def jump(self, seconds: float) -> None:
        self.clock._offset += seconds

    def ends_in(self, name: str) -> float:
        ((at,),) = self.store.read(f"SELECT expires_at FROM workers WHERE id = '{name}'")
        return float(str(at)) - self.clock.wall()


@pytest.fixture
def scene(store: SqliteStore, clock: VirtualClock) -> Scene:
    made = Scene(store, clock)
    for _ in range(5):
        made.beat("reaper", after=BEAT / 2)
        made.beat("other", after=BEAT / 2)
    return made


@pytest.mark.parametrize("jump", [-3_600.0, -LEASE, LEASE, 3_600.0])
@pytest.mark.parametrize("beats", [1, 2])
def test_a_worker_that_renewed_between_two_jumps_that_undo_each_other_is_not_reaped(
    scene: Scene, jump: float, beats: int
) -> None:
    """Neither of the two sees anything at its own beats, however far the clock was off."""
    scene.beat("reaper")
    scene.jump(jump)
    for _ in range(beats):
        scene.beat("other", after=BEAT * 0.7)
    scene.jump(-jump)
    scene.beat("reaper")
    scene.beat("other", after=BEAT)

    assert scene.dead == []


def test_a_jump_back_that_stays_is_believed_after_a_lease(scene: Scene) -> None:
    scene.jump(-3_600.0)
    scene.beat("other", after=BEAT)
    assert scene.ends_in("other") == pytest.approx(3_600.0 + LEASE)
    for _ in range(4):
        scene.beat("other", after=BEAT)

    assert scene.ends_in("other") == pytest.approx(LEASE)


def test_clocks_that_drift_apart_slowly_leave_leases_as_long_as_they_are(scene: Scene) -> None:
    for _ in range(20):
        scene.jump(-0.01)
        scene.beat("other", after=BEAT)

        assert scene.ends_in("other") == pytest.approx(LEASE)
