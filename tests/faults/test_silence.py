# SPDX-License-Identifier: Apache-2.0
"""Workers that fall silent and are not dead: stopped processes, a blocked loop, a store out of reach, clocks that jump or differ.

While nobody dies no lease may change hands, and nothing may run twice. Where a worker that was taken for dead comes back, what it
still has to say does not count.
"""

from __future__ import annotations

import fcntl
import signal
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .flows import Order, blocked
from .herd import Herd, Scene, until, with_pid

LEASE = 1.0
HOUR = 3_600.0


def everything_once(scene: Scene) -> None:
    """Nothing was lost, nothing ran twice, and no lease changed hands."""
    assert scene.breaches() == []
    assert scene.outcomes("crashed") == 0
    assert scene.count("status = 'complete'") == len(scene.submitted)
    effects = scene.effects()
    assert len(effects) == len(set(effects))


def pass_leases(number: float) -> None:
    """Let so many leases pass while something is wrong: how long it lasts is what is tested."""
    threading.Event().wait(number * LEASE)


@contextmanager
def lock_file_taken(scene: Scene) -> Generator[None]:
    """Somebody holds the lock beside the database: a process that was stopped in the middle of a commit, for example."""
    with (scene.here / "jobs.db.lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def database_locked(scene: Scene) -> Generator[None]:
    """Somebody who knows nothing of our lock file holds the database's own lock."""
    with scene.reading() as db:
        db.execute("BEGIN EXCLUSIVE")
        yield
        db.execute("ROLLBACK")


def is_free(scene: Scene) -> bool:
    """Say whether nobody is in the middle of a commit."""
    with (scene.here / "jobs.db.lock").open("r+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def stop_between_commits(scene: Scene, worker: int) -> None:
    """Stop a process, but not while the others would have to wait for it."""

    def is_stopped() -> bool:
        with_pid(worker, signal.SIGSTOP)
        until(lambda: "T (stopped)" in Path(f"/proc/{worker}/status").read_text(encoding="ascii"))
        if is_free(scene):
            return True
        with_pid(worker, signal.SIGCONT)
        return False

    until(is_stopped)


def test_a_worker_stopped_beyond_its_lease_comes_back_and_changes_nothing(scene: Scene) -> None:
    scene.submit(Order(number, seconds=0.02) for number in range(150))

    with Herd(scene, "--until-idle", workers=2, lease=LEASE) as herd:
        until(lambda: herd.has_started(2) and scene.outcomes("ok") > 10)
        frozen = herd.workers()[0]
        stop_between_commits(scene, frozen)
        until(lambda: scene.count("status = 'complete'") == 150)
        with_pid(frozen, signal.SIGCONT)
        assert herd.wait() == 0

    assert scene.breaches() == []
    assert scene.outcomes("crashed") > 0
    assert herd.ends() == [0, 0]


@contextmanager
def held_by_three(scene: Scene, **options: Any) -> Generator[Herd]:
    """Three workers that each hold running stages and may reap the dead; at the end the stages may go on, and everything ends."""
    scene.submit([*(Order(number, "gate") for number in range(12)), *(Order(12) for _ in range(100))])
    with Herd(scene, "--until-idle", workers=3, concurrency=4, lease=LEASE, **options) as herd:
        until(lambda: len(list(scene.here.glob("ready-*"))) == 12)
        # Reaping begins after one lease of contact.
        pass_leases(1.5)
        yield herd
        # Who is wrong about the others shows it at once, or after one more lease of contact.
        pass_leases(1.5)
        (scene.here / "gate").touch()
        assert herd.wait() == 0


def until_renewed(scene: Scene, process: int) -> None:
    """Wait until a worker has renewed its lease once more."""

    def lease() -> list[tuple[object, ...]]:
        return scene.read("SELECT expires_at FROM workers WHERE process = ?", process)

    before = lease()
    until(lambda: lease() != before, what="a renewed lease")


def test_when_all_workers_were_stopped_nobody_takes_the_others_for_dead(scene: Scene) -> None:
    """A machine that slept: every lease has ended, and everybody is alive."""
    with held_by_three(scene) as herd:
        for worker in herd.workers():
            stop_between_commits(scene, worker)
        pass_leases(3)
        first, *others = herd.workers()
        with_pid(first, signal.SIGCONT)
        # The first to wake has looked around twice before the others are there.
        for _ in range(2):
            until_renewed(scene, first)
        for worker in others:
            with_pid(worker, signal.SIGCONT)

    everything_once(scene)


def test_a_loop_that_is_blocked_for_three_leases_loses_nothing(scene: Scene) -> None:
    scene.submit((Order(number, "block" if number == 5 else "") for number in range(40)), blocked)

    with Herd(scene, "--until-idle", workers=2, lease=LEASE, pipelines="blocked") as herd:
        until((scene.here / "ready-5").exists)
        pass_leases(3)
        (scene.here / "gate").touch()
        assert herd.wait() == 0

    everything_once(scene)


def test_a_store_out_of_reach_for_three_leases_costs_nothing_but_time(scene: Scene) -> None:
    with held_by_three(scene):
        with lock_file_taken(scene):
            pass_leases(3)
        # The second time finds them as the first one did: in contact, and with the right to reap.
        pass_leases(1.5)
        with database_locked(scene):
            pass_leases(3)

    everything_once(scene)


def clocks(scene: Scene, *wrong_by: float) -> Path:
    file = scene.here / "clocks"
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(struct.pack(f"{len(wrong_by)}d", *wrong_by))
    return file


def test_a_wall_clock_that_jumps_takes_no_lease_away(scene: Scene) -> None:
    """An hour back, right again, and an hour forward; what is put back while it is late would be due in an hour."""
    with held_by_three(scene, clocks=clocks(scene, 0, 0, 0)):
        for wrong_by in (-HOUR, 0.0, HOUR):
            clocks(scene, *[wrong_by] * 3)
            pass_leases(2.5)

    everything_once(scene)


def test_workers_whose_clocks_differ_by_an_hour_lose_nothing(scene: Scene) -> None:
    """One of them takes the other for dead again and again: every effect that happened twice is on record as a crash."""
    scene.submit(Order(number, seconds=0.05) for number in range(200))

    with Herd(
        scene, "--until-idle", workers=2, concurrency=4, lease=LEASE, clocks=clocks(scene, 0, HOUR)
    ) as herd:
        assert herd.wait() == 0

    assert scene.breaches() == []
    assert scene.count("status = 'complete'") == 200
