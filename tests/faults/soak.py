# SPDX-License-Identifier: Apache-2.0
"""A soak: `python -m tests.faults.soak --seconds 600` keeps four processes under load and kills one with -9 now and then.

The log behind the database is folded back about every ten commits. At the end the ledger is judged, the file is checked, and nobody may
have been starved: a worker that lives settles something all the time, and no lease is lost but by a kill. Then the power is cut, often.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tests.faults.flows import Order
from tests.faults.herd import Herd, Scene, until, with_pid
from tests.faults.powercut import losses, recorded

LEASE = 2.0
BATCH = 200
QUEUE_MAX = 600
"""So many jobs wait at most; enough for everybody, and the ledger stays small enough to be judged."""
TICK = 0.1
STARVED_SECONDS = 5.0
CUTS_PER_RECORDING = 500


@dataclass(frozen=True)
class Finding:
    """What a soak found."""

    jobs: int
    kills: int
    lost_leases: int
    longest_silence: float
    breaches: list[str]

    @property
    def problems(self) -> list[str]:
        found = list(self.breaches[:20])
        if self.lost_leases > self.kills:
            found.append(f"{self.lost_leases} workers lost their lease, but only {self.kills} were killed")
        if self.longest_silence > STARVED_SECONDS:
            found.append(f"a living worker settled nothing for {self.longest_silence:.1f} s")
        return found


def soak(here: Path, *, seconds: float, processes: int, kill_every: float, seed: int) -> Finding:
    """Work, feed and kill for so long, then let everything end, and judge."""
    scene, chance, kills, fed = Scene(here), random.Random(seed), 0, 0
    scene.submit([])
    with Herd(scene, workers=processes, lease=LEASE, concurrency=16, checkpoint=10) as herd:
        until(lambda: herd.has_started(processes))
        end_at = time.monotonic() + seconds
        kill_at = time.monotonic() + kill_every
        while time.monotonic() < end_at:
            if scene.count("status = 'queued'") < QUEUE_MAX:
                scene.submit(Order(fed + place, "flaky" if place % 50 == 0 else "") for place in range(BATCH))
                fed += BATCH
            if time.monotonic() >= kill_at and herd.workers():
                with_pid(chance.choice(herd.workers()), signal.SIGKILL)
                kills += 1
                kill_at += kill_every * (0.5 + chance.random())
            threading.Event().wait(TICK)
        until(lambda: not scene.count("status IN ('queued', 'processing')"), seconds=120)
        herd.terminate()
        ended = herd.wait()
    found = scene.breaches()
    if ended:
        found.append(f"the workers ended with {ended}: {herd.log()[-500:]}")
    if scene.count("status <> 'complete'"):
        found.append("not every job is complete")
    ((lost,),) = scene.read("SELECT count(DISTINCT worker_id) FROM attempts WHERE outcome = 'crashed'")
    return Finding(
        fed, kills, int(str(lost)), _longest_silence(scene, end_at - time.monotonic() + time.time()), found
    )


def _longest_silence(scene: Scene, until_at: float) -> float:
    """Return for how long a worker that settled something later had settled nothing, while there was work to do."""
    rows = scene.read(
        "SELECT max(gap) FROM (SELECT ended_at - lag(ended_at) OVER (PARTITION BY worker_id ORDER BY ended_at) AS gap"
        " FROM attempts WHERE outcome = 'ok' AND ended_at < ?)",
        until_at,
    )
    return float(str(rows[0][0] or 0))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--kill-every", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuts", type=int, default=5_000, help="then cut the power so many times")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        finding = soak(
            Path(folder),
            seconds=options.seconds,
            processes=options.processes,
            kill_every=options.kill_every,
            seed=options.seed,
        )
    sys.stdout.write(
        f"{finding.jobs} jobs, {finding.kills} kills, {finding.lost_leases} leases lost, "
        f"longest silence {finding.longest_silence:.2f} s\n"
    )
    problems = [*finding.problems, *power_cuts(options.seed, options.cuts)]
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    return 1 if problems else 0


def power_cuts(seed: int, cuts: int) -> list[str]:
    """Cut the power so many times, a few hundred times per recording; return what was lost."""
    found: list[str] = []
    for place in range(0, cuts, CUTS_PER_RECORDING):
        with tempfile.TemporaryDirectory() as folder:
            events = recorded(Path(folder))
            many = min(CUTS_PER_RECORDING, cuts - place)
            found += islice(losses(Path(folder), events, seed=seed + place, cuts=many), 20)
    sys.stdout.write(f"{cuts} power cuts\n")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
