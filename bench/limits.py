# SPDX-License-Identifier: Apache-2.0
"""What limits cost a worker that drains no-op jobs, when they never bite; and how long a small tenant waits beside a large one.

Nanoseconds are processor time per job, of all threads, and every way takes its turn in every round. The small tenant has ten jobs, submitted
after all those of the large one; its dispatches are all that the worker starts until the last of the ten.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bench import ours
from bench.measure import Figure
from bench.processes import race
from redrive import Limit, connect, stage

ROUNDS = 7
JOBS = 20_000
SMALL = 10
LARGE = {"1,000 jobs": 1_000, "1,000,000 jobs": 1_000_000}
NEVER = 1e9
KINDS: Mapping[str, tuple[Limit, ...]] = {
    "without limits": (),
    "a rate": (Limit("api", rate=NEVER, burst=NEVER),),
    "a rate and calls at once": (Limit("api", rate=NEVER, burst=NEVER, concurrency=10_000),),
    "two limits, one adaptive": (
        Limit("api", rate=NEVER, burst=NEVER),
        Limit("tokens", rate=NEVER, burst=NEVER, adaptive=True),
    ),
}


def run() -> list[Figure]:
    """Measure both; takes about three minutes, most of it for a million jobs."""
    drains = {name: [partial(drain, kind=name)] * ROUNDS for name in KINDS}
    figures = race("a limit that never bites, processor time", drains)
    for kind in ("dispatches", "microseconds"):
        waits = {name: [partial(wait, jobs=jobs, kind=kind)] for name, jobs in LARGE.items()}
        figures += race(f"a small tenant, {kind}", waits, kind)
    return figures


def drain(folder: Path, *, kind: str) -> float:
    """Work until idle on a queue that was filled before."""

    async def nothing(value: dict[str, str]) -> int:
        return len(value)

    pipeline = ours.lined("bench", stage(limits=KINDS[kind])(nothing))
    with connect(folder / "ours.db") as rd:
        rd.submit_many(pipeline, itertools.repeat(ours.PAYLOAD, JOBS))
        start = time.process_time_ns()
        rd.work([pipeline], until_idle=True, concurrency=ours.CONCURRENCY)
        return (time.process_time_ns() - start) / JOBS


def wait(folder: Path, *, jobs: int, kind: str) -> float:
    """Return what passes until the ten jobs of a small tenant have started, behind so many of a large one."""
    started: list[str] = []
    ended_at: list[int] = []

    async def note(owner: str) -> int:
        started.append(owner)
        if started.count("small") == SMALL and not ended_at:
            ended_at.append(time.perf_counter_ns())
            os.kill(os.getpid(), signal.SIGINT)
        return 0

    by_owner = Limit("tenant", concurrency=4, key=lambda job: job.owner)
    pipeline = ours.lined("bench", stage(limits=by_owner)(note))
    with connect(folder / "ours.db") as rd:
        for owner, count in (("large", jobs), ("small", SMALL)):
            rd.submit_many(pipeline, itertools.repeat(owner, count), owner=owner)
        began_at = time.perf_counter_ns()
        rd.work([pipeline], concurrency=8)
    last = len(started) - 1 - started[::-1].index("small")
    return float(last + 1) if kind == "dispatches" else (ended_at[0] - began_at) / 1e3
