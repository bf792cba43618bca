# SPDX-License-Identifier: Apache-2.0
"""Leases: renewed while the worker lives, reaped only by those who know enough to judge."""

from __future__ import annotations

import threading

import pytest

from redrive.engine.clock import SYSTEM_CLOCK
from redrive.engine.worker.leases import Heartbeat, Leases
from redrive.errors import StoreUnavailableError
from redrive.store.records import ClaimRequest, ExchangeRequest, LaneId, NewJob, Renewal
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import jobs as job_sql
from redrive.testing import VirtualClock

LEASE = 30.0


class Scene:
    """A dead worker that holds a job, and a living one that watches."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = SqliteStore(":memory:")
        self.deaths: list[str] = []
        (lane,) = self.store.lanes("shop", ["fetch"])
        self.store.submit([NewJob(lane=lane, payload=b"1", run_at=0.0)], 0.0)
        for name in ("dead", "alive"):
            self.store.start_worker(name, self.clock.wall(), LEASE)
        self.store.exchange(
            ExchangeRequest("dead", [], ClaimRequest((lane,), 1), now=self.clock.wall(), token=1)
        )
        self.leases = Leases(self.store, self.clock, lease=LEASE, on_dead=self.die)

    def die(self, name: str) -> None:
        self.deaths.append(name)

    def beat(self, times: int, *, seconds: float = 10.0) -> None:
        for _ in range(times):
            self.clock.advance(seconds)
            self.leases.beat("alive")

    @property
    def is_given_back(self) -> bool:
        return self.store.query(job_sql.counts())[0][2] == "queued"


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_dead_workers_job_is_given_back_after_a_full_lease_of_contact(scene: Scene) -> None:
    scene.beat(3)
    assert not scene.is_given_back
    scene.beat(2)

    assert scene.is_given_back


def test_contact_begins_with_the_first_answer_and_not_with_the_question(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew = scene.store.renew

    def slow(worker: str, now: float, lease: float) -> Renewal:
        scene.clock.advance(LEASE / 3 - 1)
        return renew(worker, now, lease)

    with monkeypatch.context() as busy:
        busy.setattr(scene.store, "renew", slow)
        scene.beat(1, seconds=11.0)
    scene.beat(2, seconds=11.0)
    assert not scene.is_given_back
    scene.beat(1, seconds=11.0)

    assert scene.is_given_back


def test_who_has_reaped_goes_on_with_every_beat(scene: Scene) -> None:
    scene.beat(5)
    scene.store.start_worker("another", scene.clock.wall(), 5.0)
    scene.store.exchange(
        ExchangeRequest("another", [], ClaimRequest((LaneId(1),), 1), now=scene.clock.wall(), token=1)
    )
    assert not scene.is_given_back

    scene.beat(1)

    assert scene.is_given_back


@pytest.mark.parametrize("interruption", ["silence", "an error", "a death"])
def test_after_an_interruption_nobody_is_reaped_before_another_lease_of_contact(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, interruption: str
) -> None:
    """Whether the thread did not get to beat, the store did not answer for a moment, or it was declared dead itself."""
    scene.beat(3)
    if interruption == "silence":
        scene.beat(1, seconds=0.6 * LEASE)
    elif interruption == "an error":
        with monkeypatch.context() as gone:
            gone.setattr(scene.store, "renew", _unreachable)
            scene.beat(1, seconds=1.0)
        scene.beat(1, seconds=1.0)
    else:
        scene.store.stop_worker("alive")
        scene.beat(1, seconds=1.0)
        scene.store.start_worker("alive", scene.clock.wall(), LEASE)
        scene.beat(1, seconds=1.0)
    scene.beat(2)
    assert not scene.is_given_back
    scene.beat(1)

    assert scene.is_given_back


def test_after_an_outage_nobody_is_reaped_before_everybody_could_come_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.beat(2)
    with monkeypatch.context() as down:
        down.setattr(scene.store, "renew", _unreachable)
        scene.beat(6)
    scene.store.renew("dead", scene.clock.wall(), LEASE)
    scene.beat(3)

    assert not scene.is_given_back


def test_a_renewal_that_took_long_is_made_again_with_the_time_of_its_answer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew, delays = scene.store.renew, iter([LEASE / 3 + 1, 0.0])

    def slow(worker: str, now: float, lease: float) -> Renewal:
        scene.clock.advance(next(delays))
        return renew(worker, now, lease)

    monkeypatch.setattr(scene.store, "renew", slow)
    scene.leases.beat("alive")

    ends = scene.store.read("SELECT expires_at FROM workers WHERE id = 'alive'")
    assert ends == [(scene.clock.wall() + LEASE,)]


def test_a_wall_clock_that_jumps_reaps_nobody(scene: Scene) -> None:
    scene.beat(5, seconds=5.0)
    scene.clock._offset += 3_600
    scene.beat(1)

    assert not scene.is_given_back


def test_a_worker_that_was_reaped_finds_out(scene: Scene) -> None:
    scene.store.reap(scene.clock.wall() + 1_000)
    scene.beat(1)

    assert scene.deaths == ["alive"]


def test_the_heartbeat_runs_on_a_thread_of_its_own_until_it_is_stopped() -> None:
    beats: list[str] = []
    enough = threading.Event()

    class Counting(Leases):
        def beat(self, worker: str) -> None:
            beats.append(worker)
            if len(beats) == 3:
                enough.set()

    store = SqliteStore(":memory:")
    heartbeat = Heartbeat(
        Counting(store, SYSTEM_CLOCK, lease=0.03, on_dead=lambda _name: None), lambda: "w1", lease=0.03
    )
    heartbeat.start()
    assert enough.wait(20)
    heartbeat.stop()

    assert set(beats) == {"w1"}
    store.close()


def _unreachable(*_args: object) -> bool:
    raise StoreUnavailableError(database=":memory:", cause="gone")


def test_a_heartbeat_that_had_to_wait_is_repeated_with_the_time_it_is_now(
    store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.start_worker("w1", clock.wall(), 30)
    renew = store.renew
    asked: list[float] = []

    def slow(worker: str, now: float, *rest: object) -> object:
        asked.append(now)
        if len(asked) == 1:
            clock.advance(20)
        return renew(worker, now, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "renew", slow)
    leases = Leases(store, clock, lease=30, on_dead=lambda _name: None)
    leases.beat("w1")

    assert asked[1] - asked[0] == pytest.approx(20)
    ((ends_at,),) = store.read("SELECT expires_at FROM workers")
    assert ends_at == pytest.approx(clock.wall() + 30)
