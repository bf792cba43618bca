# SPDX-License-Identifier: Apache-2.0
"""How long an idle worker needs from the call of `submit` to the start of the stage: in the same process, and in another one.

The next job is submitted a random while after the last one started, of 50 ms at most: a worker that only looks for jobs from time
to time shows its whole interval. The yardstick is one durable insert of bare
sqlite3, because a job is stored before it can start. The clock is the machine's monotonic one, the same in every process.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from bench import limit
from bench.measure import Figure, figures_of
from bench.ours import lined
from bench.processes import alone, measured
from redrive import connect, stage

SAMPLES_MAX = 300
SECONDS_MAX = 20.0
PAUSE_SECONDS = (0.002, 0.05)


def run() -> list[Figure]:
    """Report the median and the 99th percentile."""
    insert = alone(limit.one_insert)
    near = measured(same_process)
    far = measured(other_process)
    return figures_of(
        "submit to start, idle worker",
        {
            "bare sqlite3: one durable insert": insert,
            "same process, p50": near[0],
            "same process, p99": near[1],
            "another process, p50": far[0],
            "another process, p99": far[1],
        },
    )


class _Reporter:
    """Takes how long the job of a stage was on the way; in a worker's process it is the end of a pipe."""

    def __init__(self) -> None:
        self.report: Callable[[int], None] = lambda _: None


REPORTER = _Reporter()


@stage
async def started(sent_at: int) -> int:
    """Report how long ago the job was sent."""
    REPORTER.report(time.monotonic_ns() - sent_at)
    return sent_at


PIPELINE = lined("pickup", started)


def same_process(folder: Path) -> list[float]:
    """Submit from the main thread, to a worker on another thread of this process."""
    here, there = multiprocessing.Pipe(duplex=False)
    REPORTER.report = there.send
    rd = connect(folder / "pickup.db")
    threading.Thread(target=lambda: rd.work([PIPELINE]), daemon=True).start()
    return _sample(lambda: rd.submit(PIPELINE, time.monotonic_ns()), here)


def other_process(folder: Path) -> list[float]:
    """Submit to a worker in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    worker = context.Process(target=_work, args=(folder / "pickup.db", there), daemon=True)
    worker.start()
    with connect(folder / "pickup.db") as rd:
        figures = _sample(lambda: rd.submit(PIPELINE, time.monotonic_ns()), here)
    worker.kill()
    worker.join()
    return figures


def _work(path: Path, there: Connection) -> None:
    REPORTER.report = there.send
    with connect(path) as rd:
        rd.work([PIPELINE])


def _sample(submit: Callable[[], object], heard: Connection) -> list[float]:
    chance = random.Random(1)
    latencies: list[int] = []
    submit()
    heard.recv()  # The worker is up; how long that took does not count.
    deadline = time.monotonic() + SECONDS_MAX
    while len(latencies) < SAMPLES_MAX and time.monotonic() < deadline:
        time.sleep(chance.uniform(*PAUSE_SECONDS))
        submit()
        latencies.append(heard.recv())
    latencies.sort()
    return [latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]]
