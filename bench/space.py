# SPDX-License-Identifier: Apache-2.0
"""How large the tables get on PostgreSQL, and what a transaction that somebody leaves open costs.

A million jobs are completed and weighed. Then one worker is kept busy, and what ended half a minute ago is pruned: for one minute, for
five in which a foreign transaction stays open, and for two after it has ended. Windows of ten seconds are printed as they end.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psycopg

from bench import ours_postgres as ours
from bench.measure import Figure, figures_of
from bench.ours import CONCURRENCY, PAYLOAD, pipeline_of
from bench.peers.postgres.server import served
from bench.processes import measured
from redrive import connect

JOBS = 1_000_000
WINDOW_SECONDS = 10.0
BEFORE, OPEN, AFTER = 6, 30, 12
"""Windows."""
QUEUE_MAX = 20_000
KEPT_SECONDS = 30.0
PRUNE_SECONDS = 30.0
TABLES = ("jobs", "attempts")
SIZE = "SELECT pg_total_relation_size(('redrive.' || %s)::regclass)"
ENDED = "SELECT coalesce(sum(jobs), 0) FROM redrive.tallies"


class Window(NamedTuple):
    """What one window saw."""

    pace: float
    """Jobs per second."""
    size: float
    """Bytes of both tables with their indexes, at its end."""


def run() -> list[Figure]:
    """Weigh, then keep busy; takes about eleven minutes."""
    with served() as databases:
        weighed = measured(partial(_weighed, url=databases.new()))
        windows = _busy(databases.new())
    before, rest = windows[:BEFORE], windows[BEFORE:]
    phases = {"before": before[1:], "while it is open": rest[:OPEN], "two minutes after": rest[-4:]}
    paces = {name: 1e9 / statistics.median(each.pace for each in phase) for name, phase in phases.items()}
    sizes = {name: max(each.size for each in phase) for name, phase in phases.items()}
    return [
        *figures_of("1,000,000 completed jobs", dict(zip(TABLES, weighed, strict=True)), "bytes each"),
        *figures_of("a foreign transaction for five minutes", paces),
        *figures_of("the tables meanwhile, at most", sizes, "bytes"),
    ]


def _weighed(folder: Path, *, url: str) -> list[float]:
    ours.drain(folder, url=url, jobs=JOBS, concurrency=1_024)
    with psycopg.connect(url, autocommit=True) as db:
        return [_size(db, table) / JOBS for table in TABLES]


def _size(db: psycopg.Connection, table: str) -> int:
    row = db.execute(SIZE, (table,)).fetchone()
    return 0 if row is None else int(row[0])


def _busy(url: str) -> list[Window]:
    with psycopg.connect(url, autocommit=True) as db, _kept_busy(url):
        windows = [_window(db, "before") for _ in range(BEFORE)]
        with psycopg.connect(url) as foreign:
            foreign.execute("SELECT pg_current_xact_id(), count(*) FROM redrive.lanes")
            windows += [_window(db, "open") for _ in range(OPEN)]
        return windows + [_window(db, "after") for _ in range(AFTER)]


@contextmanager
def _kept_busy(url: str) -> Generator[None]:
    context = multiprocessing.get_context("spawn")
    is_over = threading.Event()
    with connect(url) as rd:
        rd.submit_many(pipeline_of(), itertools.repeat(PAYLOAD, QUEUE_MAX))
    worker = context.Process(target=_work, args=(url,), daemon=True)
    worker.start()
    helpers = [threading.Thread(target=each, args=(url, is_over)) for each in (_feed, _prune)]
    for helper in helpers:
        helper.start()
    try:
        yield
    finally:
        is_over.set()
        for helper in helpers:
            helper.join()
        worker.kill()
        worker.join()


def _work(url: str) -> None:
    with connect(url) as rd:
        rd.work([pipeline_of()], concurrency=CONCURRENCY)


def _feed(url: str, is_over: threading.Event) -> None:
    fed = QUEUE_MAX
    with connect(url) as rd, psycopg.connect(url, autocommit=True) as db:
        while not is_over.wait(0.02):
            row = db.execute(ENDED).fetchone()
            room = QUEUE_MAX - (fed - int(row[0] if row else 0))
            if room > QUEUE_MAX // 4:
                rd.submit_many(pipeline_of(), itertools.repeat(PAYLOAD, room))
                fed += room


def _prune(url: str, is_over: threading.Event) -> None:
    with connect(url) as rd:
        while not is_over.wait(PRUNE_SECONDS):
            rd.prune(complete=KEPT_SECONDS)


def _window(db: psycopg.Connection, phase: str) -> Window:
    begun_at, before = time.monotonic(), db.execute(ENDED).fetchone()
    time.sleep(WINDOW_SECONDS)
    after, taken = db.execute(ENDED).fetchone(), time.monotonic() - begun_at
    pace = (int(after[0] if after else 0) - int(before[0] if before else 0)) / taken
    window = Window(pace, sum(_size(db, table) for table in TABLES))
    sys.stdout.write(f"  {phase:8}{window.pace:10,.0f} jobs/s{window.size / 1e6:10,.0f} MB\n")
    sys.stdout.flush()
    return window
