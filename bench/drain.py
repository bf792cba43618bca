# SPDX-License-Identifier: Apache-2.0
"""How many jobs a second a worker completes durably, next to bare sqlite3 writing the same rows in the same batches."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure
from redrive import Pipeline, connect, stage
from redrive.store.queries import statements_of, text_of

JOBS = 20_000
BATCH = 256
PAYLOAD = {"text": "x" * 190}


@stage
def nothing(value: dict[str, str]) -> int:
    """Do nothing, on a thread."""
    return len(value)


@stage
async def anothing(value: dict[str, str]) -> int:
    """Do nothing, on the loop."""
    return len(value)


def run() -> list[Figure]:
    """Drain a queue of no-op jobs; nanoseconds are per job, completion durable."""
    with tempfile.TemporaryDirectory() as folder:
        limit = _limit(Path(folder) / "limit.db")
        asynchronous = _drain(Path(folder) / "async.db", Pipeline("bench", [anothing]))
        synchronous = _drain(Path(folder) / "sync.db", Pipeline("bench", [nothing]))
        submitting = _submit(Path(folder) / "submit.db")
    named = {
        "bare sqlite3: claim 256, complete, audit row": limit,
        "redrive, async stage": asynchronous,
        "redrive, sync stage": synchronous,
        "redrive submit_many": submitting,
    }
    return [
        Figure("one no-op stage, synchronous=FULL", name, spent, spent / limit)
        for name, spent in named.items()
    ]


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) / JOBS


def _drain(path: Path, pipeline: Pipeline) -> float:
    with connect(path) as rd:
        rd.submit_many(pipeline, itertools.repeat(PAYLOAD, JOBS))
        return _timed(lambda: rd.work([pipeline], until_idle=True, concurrency=BATCH))


def _submit(path: Path) -> float:
    pipeline = Pipeline("bench", [nothing])
    with connect(path) as rd:
        return _timed(lambda: rd.submit_many(pipeline, itertools.repeat(PAYLOAD, JOBS)))


def _limit(path: Path) -> float:
    """Write what a worker writes for one stage, with nothing around it."""
    sql = statements_of("sqlite")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.executescript(text_of("sqlite", "schema"))
    lane = db.execute(sql["add_lane"], ("bench", "s", 0)).fetchone()[0]
    db.execute("BEGIN IMMEDIATE")
    row = ("bench", lane, 5, 0.0, None, None, b"x" * 200, 0.0)
    db.executemany(sql["insert_job"], itertools.repeat(row, JOBS))
    db.execute("COMMIT")

    def drain() -> None:
        taken: list[tuple[int, int]] = []
        while True:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(sql["complete"], [(b"1", 1.0, job, 7, dispatch) for job, dispatch in taken])
            attempts = [
                (job, dispatch, lane, 1, 1, "w", 0.0, 1.0, "ok", 1, *[None] * 5) for job, dispatch in taken
            ]
            db.executemany(sql["insert_attempt"], attempts)
            rows = db.execute(sql["claim"], (7, "w", 1.0, 1.0, lane, 5, 1.0, BATCH)).fetchall()
            db.execute("COMMIT")
            taken = [(row[0], row[1]) for row in rows]
            if not taken:
                return

    spent = _timed(drain)
    db.close()
    return spent
