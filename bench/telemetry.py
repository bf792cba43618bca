# SPDX-License-Identifier: Apache-2.0
"""What telemetry costs a worker that drains no-op jobs: processor time per job, of all its threads, scrapes included.

The first line is a worker that nobody observes. The best of several rounds in turns counts; a round takes about a second.
"""

from __future__ import annotations

import io
import itertools
import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import ours
from bench.measure import Figure
from bench.processes import race
from redrive import connect

ROUNDS = 5
JOBS = 20_000
SCRAPE_SECONDS = 1.0


def run() -> list[Figure]:
    """Measure every way of observing."""
    ways = {
        "observed by nobody": partial(drain, kind=""),
        "metrics, scraped every second": partial(drain, kind="metrics"),
        "the worker's log at INFO": partial(drain, kind="log"),
        "traces, without an SDK": partial(drain, kind="traces"),
    }
    return race("telemetry, processor time", {name: [way] * ROUNDS for name, way in ways.items()})


def drain(folder: Path, *, kind: str) -> float:
    """Return the nanoseconds of processor time for each job."""
    pipeline = ours.pipeline_of()
    path = folder / "ours.db"
    with connect(path) as rd:
        rd.submit_many(pipeline, itertools.repeat(ours.PAYLOAD, JOBS))
        with _observed(kind, path) as count_the_rest:
            start = time.process_time_ns()
            rd.work([pipeline], until_idle=True, concurrency=ours.CONCURRENCY)
            count_the_rest()
            spent = time.process_time_ns() - start
    return spent / JOBS


@contextmanager
def _observed(kind: str, path: Path) -> Generator[Callable[[], object]]:
    from redrive import telemetry

    if kind == "metrics":
        with _scraped(telemetry.Metrics(path).text) as text:
            yield text
        return
    if kind == "log":
        logging.basicConfig(level=logging.INFO, stream=io.StringIO(), force=True)
    if kind == "traces":
        telemetry.trace()
    yield lambda: None


@contextmanager
def _scraped(text: Callable[[], bytes]) -> Generator[Callable[[], bytes]]:
    """Scrape as long as the worker works; yield what scrapes once more at its end: every job has been counted then."""
    is_over = threading.Event()

    def scrape() -> None:
        while not is_over.wait(SCRAPE_SECONDS):
            text()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield text
    finally:
        is_over.set()
        thread.join()
