# SPDX-License-Identifier: Apache-2.0
"""Workers that die: kill -9 in the middle of a stage, in storms, by their own job; and SIGTERM, polite and not."""

from __future__ import annotations

import random
import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from redrive import connect

from .flows import Order, apart, single, steps
from .herd import PATIENCE, Herd, Scene, deliver, until, with_pid

KILLS = 20
QUEUED_MIN = 600


def mixed(jobs: int) -> list[Order]:
    """Orders of every kind: most go through, some fail once, some for good, some cancel themselves."""
    acts = {1: "flaky", 2: "bug", 3: "cancel"}
    return [Order(number, acts.get(number % 20, ""), 0.001) for number in range(jobs)]


def test_after_kill_9_another_worker_takes_over_and_nothing_is_lost(scene: Scene) -> None:
    scene.submit([Order(0, "gate"), *(Order(number) for number in range(1, 20))])

    with Herd(scene, "--until-idle") as herd:
        until((scene.here / "ready-0").exists)
        with_pid(herd.workers()[0], signal.SIGKILL)
        until(lambda: len(herd.ends()) == 1)
        (scene.here / "gate").touch()
        assert herd.wait() == 0

    assert scene.breaches() == []
    assert scene.count("status = 'complete'") == 20
    assert herd.ends() == [-signal.SIGKILL, 0]
    assert scene.outcomes("crashed") >= 1


def test_a_process_of_a_worker_that_was_killed_ends_with_it(scene: Scene) -> None:
    scene.submit([Order(0, "gate")], apart)

    with Herd(scene, "--until-idle", pipelines="apart") as herd:
        until((scene.here / "ready-0").exists)
        child = Path(f"/proc/{scene.pids()[-1]}")
        assert child.exists()
        with_pid(herd.workers()[0], signal.SIGKILL)
        until(lambda: not child.exists(), what="the end of the process")
        (scene.here / "gate").touch()
        assert herd.wait() == 0

    assert scene.breaches() == []
    assert scene.count("status = 'complete'") == 1


def test_a_storm_of_kills_loses_nothing_and_buries_nobody_for_a_crash(scene: Scene) -> None:
    jobs = len(scene.submit(mixed(QUEUED_MIN)))
    chance = random.Random(50)

    with Herd(scene, workers=3, concurrency=16) as herd:
        until(lambda: herd.has_started(3))
        for _ in range(KILLS):
            # However fast the workers are, the load does not end before the storm.
            if scene.count("status = 'queued'") < QUEUED_MIN:
                jobs += len(scene.submit(mixed(QUEUED_MIN)))
            threading.Event().wait(chance.random() * 0.15)
            victim = chance.choice(herd.workers())
            with_pid(victim, signal.SIGKILL)

            def is_over(victim: int = victim) -> bool:
                return victim not in herd.workers()

            # Killed a second time before it is replaced, it would count as one.
            until(is_over)
        until(lambda: not scene.count("status IN ('queued', 'processing')"), seconds=3 * PATIENCE)
        herd.terminate()
        assert herd.wait() == 0

    assert herd.ends().count(-signal.SIGKILL) == KILLS
    assert scene.breaches() == []
    assert scene.read("SELECT DISTINCT error_code FROM jobs WHERE status = 'failed'") == [("BUG_CODE",)]
    assert scene.count("status = 'failed'") == scene.count("status = 'cancelled'") == jobs // 20
    assert scene.count("status = 'complete'") == jobs - 2 * (jobs // 20)


def test_one_job_that_ends_its_process_among_two_thousand_is_the_only_one_buried(scene: Scene) -> None:
    jobs, poison = 2_000, 1_000
    orders = [Order(number, "exit" if number == poison else "") for number in range(jobs)]
    ids = scene.submit(orders, single)

    with Herd(scene, "--until-idle", pipelines="single", concurrency=256) as herd:
        assert herd.wait() == 0

    assert scene.breaches() == []
    assert scene.count("status = 'complete'") == jobs - 1
    assert scene.read("SELECT job_id, code FROM letters") == [(ids[poison], "WORKER_CRASH")]
    assert herd.ends() == [7, 7, 0]


def test_sigterm_settles_what_runs_and_ends(scene: Scene) -> None:
    scene.submit([Order(0, "gate")])

    with Herd(scene, lease=30) as herd:
        until((scene.here / "ready-0").exists)
        # The gate must not open before the worker itself has been told.
        deliver(herd.workers()[0], signal.SIGTERM)
        (scene.here / "gate").touch()
        assert herd.wait() == 0

    assert (herd.ends(), herd.log()) == ([0], "")
    assert scene.effects() == [(1, "first")]
    assert scene.read("SELECT outcome FROM attempts") == [("ok",)]
    assert scene.count("status = 'queued'") == 1
    assert herd.known() == []
    assert scene.breaches() == []


def test_workers_that_come_and_go_by_sigterm_repeat_nothing(scene: Scene) -> None:
    scene.submit(Order(number, seconds=0.02) for number in range(60))

    for _ in range(2):
        before = len(scene.effects())
        with Herd(scene, lease=30) as herd:

            def is_on(before: int = before) -> bool:
                return len(scene.effects()) > before

            until(is_on)
            herd.terminate()
            assert herd.wait() == 0
        assert scene.outcomes("crashed") == 0
    with Herd(scene, "--until-idle") as herd:
        assert herd.wait() == 0

    assert scene.breaches() == []
    assert sorted(scene.effects()) == sorted(
        (job, name) for job in scene.submitted for name in ("first", "second", "third")
    )


def test_sigterm_ends_a_worker_that_rests_until_the_next_job_is_due(scene: Scene) -> None:
    scene.submit([Order(0)])
    with connect(scene.database) as rd:
        scene.submitted.add(rd.submit(steps, Order(1), run_at=datetime.now(UTC) + timedelta(hours=1)).id)

    with Herd(scene, "--until-idle") as herd:
        until(lambda: scene.count("status = 'complete'") == 1)
        # The next thing it does is to look at what is left, and to wait for that.
        threading.Event().wait(0.3)
        herd.terminate()
        assert herd.wait(5) == 0

    assert scene.breaches() == []


def test_what_a_second_sigterm_cuts_off_is_on_record(scene: Scene) -> None:
    """The effect of the stage has happened; when it happens again, the attempts must say why."""
    scene.submit([Order(0, "gate")])

    with Herd(scene, lease=30) as herd:
        until((scene.here / "ready-0").exists)
        for _ in range(2):
            deliver(herd.workers()[0], signal.SIGTERM)
        herd.wait(10)
    (scene.here / "gate").touch()
    with Herd(scene, "--until-idle") as herd:
        assert herd.wait() == 0

    assert scene.effects().count((1, "first")) == 2
    assert scene.breaches() == []
