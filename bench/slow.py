# SPDX-License-Identifier: Apache-2.0
"""Slow stages: how close a worker with 2,000 jobs in flight comes to a bare loop, and what memory a job in flight takes."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
from pathlib import Path

from bench.measure import Figure, per_job
from bench.ours import PAYLOAD, lined
from bench.processes import race
from redrive import connect, stage

JOBS = 20_000
CONCURRENCY = 2_000
STAGE_SECONDS = 0.1
ROUNDS = 5
HELD = 10_000


def run() -> list[Figure]:
    """Time 20,000 jobs of 100 ms, and weigh 10,000 that wait."""
    return [
        *race("slow stages", {"bare asyncio loop": [bare] * ROUNDS, "redrive, async": [worker] * ROUNDS}),
        *race(
            "memory of a job in flight",
            {"bare asyncio task": [bare_memory], "redrive, async": [worker_memory]},
            unit="bytes",
        ),
    ]


@stage
async def slow(value: dict[str, str]) -> int:
    """Await an answer that takes its time."""
    await asyncio.sleep(STAGE_SECONDS)
    return len(value)


def worker(folder: Path) -> float:
    """Work until idle, 2,000 at once."""
    pipeline = lined("slow", slow)
    with connect(folder / "slow.db") as rd:
        rd.submit_many(pipeline, itertools.repeat(PAYLOAD, JOBS))
        spent = per_job(JOBS, lambda: rd.work([pipeline], until_idle=True, concurrency=CONCURRENCY))
        assert rd.jobs.counts() == {"complete": JOBS}, rd.jobs.counts()
    return spent


def bare(_folder: Path) -> float:
    """Do the same with 2,000 tasks that take one job after another, and keep nothing."""
    jobs = iter([PAYLOAD] * JOBS)

    async def one() -> None:
        for value in jobs:
            await slow.fn(value)

    async def every() -> None:
        await asyncio.gather(*(one() for _ in range(CONCURRENCY)))

    return per_job(JOBS, lambda: asyncio.run(every()))


class _Scale:
    """Counts the stages that wait, and reads the memory of the process when all of them do."""

    def __init__(self) -> None:
        self.waiting = 0
        self.expected = 1
        self.memory = 0
        self.gate = asyncio.Event()

    def reset(self, expected: int) -> None:
        self.waiting, self.expected, self.gate = 0, expected, asyncio.Event()

    async def step_on(self) -> None:
        self.waiting += 1
        if self.waiting == self.expected:
            gc.collect()
            self.memory = _resident_bytes()
            self.gate.set()
        await self.gate.wait()


SCALE = _Scale()


@stage
async def held(value: dict[str, str]) -> int:
    """Wait until all are there."""
    await SCALE.step_on()
    return len(value)


def worker_memory(folder: Path) -> float:
    """Compare a worker that holds one job with one that holds 10,000."""
    pipeline = lined("held", held)
    weights = []
    with connect(folder / "held.db") as rd:
        for count in (1, HELD):
            rd.submit_many(pipeline, itertools.repeat(PAYLOAD, count))
            SCALE.reset(count)
            rd.work([pipeline], until_idle=True, concurrency=HELD)
            weights.append(SCALE.memory)
    return (weights[1] - weights[0]) / HELD


def bare_memory(_folder: Path) -> float:
    """Compare a loop that holds one waiting task and its value with one that holds 10,000."""

    async def every(count: int) -> None:
        await asyncio.gather(*(held.fn(dict(PAYLOAD)) for _ in range(count)))

    weights = []
    for count in (1, HELD):
        SCALE.reset(count)
        asyncio.run(every(count))
        weights.append(SCALE.memory)
    return (weights[1] - weights[0]) / HELD


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
