# SPDX-License-Identifier: Apache-2.0
"""One contest of a peer: fill its queue, let some worker processes drain it, and look when all is done.

The clock starts when every worker process has opened its connections and waits for the start, and ends when the database, or the broker,
shows that all jobs are done; it is looked at every 5 ms.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import psycopg

PAYLOAD = {"text": "x" * 190}
SAMPLES_MAX = 200
SECONDS_MAX = 15.0
PAUSE_SECONDS = (0.002, 0.05)

Gate = Callable[[], None]
"""Report that a worker is ready, and wait for the start."""
Seen = Callable[[dict[str, Any]], object]
"""What a stage does with its payload."""


@dataclass(frozen=True, slots=True)
class Contest:
    """What is asked of a peer."""

    url: str
    jobs: int
    workers: int = 1
    stages: int = 1
    fails_once: bool = False
    batch: int = 100
    """How many jobs a worker takes at a time, or runs at once, where a peer has a choice."""


def drain(module: str, contest: Contest) -> float:
    """Return the nanoseconds per job."""
    peer = import_module(module)
    peer.prepare(contest)
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    here, there = context.Pipe(duplex=False)
    workers = [
        context.Process(target=_drain, args=(module, contest, there, start), daemon=True)
        for _ in range(contest.workers)
    ]
    for worker in workers:
        worker.start()
    for _ in workers:
        here.recv()
    with psycopg.connect(contest.url, autocommit=True) as db:
        db.execute("CHECKPOINT")
        begun = time.perf_counter_ns()
        start.set()
        while not _is_done(db, peer, contest):
            if time.perf_counter_ns() - begun > 120e9:
                raise TimeoutError(f"{module}: not done after 120 s")
            time.sleep(0.005)
        spent = time.perf_counter_ns() - begun
    for worker in workers:
        worker.kill()
        worker.join()
    return spent / contest.jobs


def _is_done(db: psycopg.Connection, peer: Any, contest: Contest) -> bool:
    if hasattr(peer, "is_done"):
        # Its queue is in a broker.
        return bool(peer.is_done(contest))
    row = db.execute(peer.DONE.encode(), {"jobs": contest.jobs}).fetchone()
    return row is not None and bool(row[0])


def _drain(module: str, contest: Contest, ready: Connection, start: Any) -> None:
    def gate() -> None:
        ready.send("ready")
        start.wait()

    import_module(module).work(contest, gate, len)


def pickup(module: str, contest: Contest) -> list[float]:
    """Return the median and the 99th percentile, in nanoseconds, from the call that submits a job to its start by an idle worker."""
    peer = import_module(module)
    peer.prepare(contest)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    worker = context.Process(target=_hear, args=(module, contest, there), daemon=True)
    worker.start()
    here.recv()
    submit = peer.submitter(contest)
    latencies = sampled(lambda: submit({"at": time.monotonic_ns()}), here)
    worker.kill()
    worker.join()
    return latencies


def sampled(submit: Callable[[], object], heard: Connection) -> list[float]:
    """Submit again and again, a random while after the last one started."""
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


def _hear(module: str, contest: Contest, there: Connection) -> None:
    def gate() -> None:
        there.send("ready")

    import_module(module).work(contest, gate, lambda payload: there.send(time.monotonic_ns() - payload["at"]))
