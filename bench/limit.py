# SPDX-License-Identifier: Apache-2.0
"""The limit: bare sqlite3 doing to the same tables and indexes what a worker does, with nothing around it.

One commit carries the outcomes of the last 256 jobs and claims the next 256. No stage is called, nothing is decoded, classified,
fenced one by one, or handed between threads. The statements are plain ones of this file, on the schema the engine ships; when that
changes, this file is where the change is repeated.
"""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path

from bench.measure import per_job
from bench.ours import PAYLOAD, pipeline_of
from redrive import connect

JOBS = 10_000
BATCH = 256
SUBMIT_BATCH = 1_000
ENCODED = b'{"text":"' + PAYLOAD["text"].encode() + b'"}'

INSERT = """
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, payload, created_at) VALUES ('bench', ?, 'queued', 5, ?, ?, ?)
"""
CLAIM = """
UPDATE jobs SET status = 'processing', lease_token = ?, worker_id = 'w', dispatch = dispatch + 1, waiting = NULL,
    started_at = coalesce(started_at, ?), last_attempt_at = ?
WHERE id IN (
    SELECT id FROM jobs WHERE lane_id = ? AND status = 'queued' AND priority = 5 AND run_at <= ? ORDER BY run_at, id LIMIT ?
)
RETURNING id, dispatch, lane_id, attempt, coalesce(input, payload)
"""
FENCE = "FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3"
COMPLETE = f"""
UPDATE jobs SET status = 'complete', result = v.column4, finished_at = v.column5, lease_token = NULL, worker_id = NULL {FENCE}
"""
ADVANCE = f"""
UPDATE jobs SET status = 'queued', lane_id = lane_id + 1, input = v.column4, run_at = v.column5, lease_token = NULL, worker_id = NULL
{FENCE}
"""
RETRY = f"""
UPDATE jobs SET status = 'queued', attempt = 2, waiting = v.column4, run_at = v.column5, lease_token = NULL, worker_id = NULL {FENCE}
"""
GOOD = """
INSERT INTO attempts (job_id, dispatch, lane_id, attempt, started_at, ended_at, worker_id, round, outcome, burned)
SELECT *, 'w', 1, 'ok', 1 FROM (VALUES {rows})
"""
AUDIT = """
INSERT INTO attempts (job_id, dispatch, lane_id, attempt, started_at, ended_at, code, message, decision, worker_id, round,
    outcome, burned)
SELECT *, 'w', 1, 'retry', 1 FROM (VALUES {rows})
"""
FAILED = (
    "NETWORK_ERROR",
    "refused",
    '{"kind":"retry","delay":1.0,"reason":"retryable","attempt":1,"max_attempts":2}',
)

Row = tuple[int, int, int, int, bytes]


def drain(
    folder: Path, *, synchronous: str = "FULL", stages: int = 1, fails_once: bool = False, jobs: int = JOBS
) -> float:
    """Take every job through its stages; with `fails_once`, through a failed attempt first."""
    path = folder / "limit.db"
    with connect(path) as rd:
        rd.submit_many(pipeline_of(stages=stages), itertools.repeat(PAYLOAD, jobs))
    db = _opened(path, synchronous)
    lanes = [row[0] for row in db.execute("SELECT id FROM lanes ORDER BY id DESC")]

    def work() -> None:
        taken: list[Row] = []
        for token in itertools.count(1):
            db.execute("BEGIN IMMEDIATE")
            _settle(db, taken, token - 1, last_lane=lanes[0], fails_once=fails_once)
            taken = []
            for lane in lanes:
                asked = (token, 2e9, 2e9, lane, 2e9, BATCH - len(taken))
                taken += db.execute(CLAIM, asked).fetchall()
            db.execute("COMMIT")
            if not taken:
                return

    spent = per_job(jobs, work)
    completed = db.execute("SELECT count(*) FROM jobs WHERE status = 'complete'").fetchone()[0]
    assert completed == jobs, completed
    return spent


def submit(folder: Path, *, jobs: int = 100_000) -> float:
    """Insert the rows of `submit_many`, a thousand per transaction."""
    path = folder / "limit.db"
    with connect(path) as rd:
        rd.submit_many(pipeline_of(), [PAYLOAD])
    db = _opened(path, "FULL")
    lane = db.execute("SELECT id FROM lanes").fetchone()[0]
    row = (lane, 1.5e9, ENCODED, 1.5e9)

    def work() -> None:
        for _ in range(jobs // SUBMIT_BATCH):
            db.execute("BEGIN IMMEDIATE")
            db.executemany(INSERT, itertools.repeat(row, SUBMIT_BATCH))
            db.execute("COMMIT")

    return per_job(jobs, work)


def one_insert(folder: Path, *, jobs: int = 500) -> float:
    """Insert small rows, each in a commit of its own: what is stored before it starts cannot start sooner."""
    db = _opened(folder / "limit.db", "FULL")
    db.execute("CREATE TABLE rows (payload BLOB)")

    def work() -> None:
        for _ in range(jobs):
            db.execute("INSERT INTO rows VALUES (?)", (ENCODED,))

    return per_job(jobs, work)


def _settle(
    db: sqlite3.Connection, taken: list[Row], token: int, *, last_lane: int, fails_once: bool
) -> None:
    failed = [row for row in taken if fails_once and row[3] == 1]
    done = [row for row in taken if not (fails_once and row[3] == 1)]
    at = 1.9e9
    _execute(db, RETRY, [(row[0], token, row[1], "retry", at) for row in failed])
    _execute(db, COMPLETE, [(row[0], token, row[1], b"1", at) for row in done if row[2] == last_lane])
    _execute(db, ADVANCE, [(row[0], token, row[1], row[4], at) for row in done if row[2] != last_lane])
    _execute(db, AUDIT, [(*row[:4], at, at, *FAILED) for row in failed])
    _execute(db, GOOD, [(*row[:4], at, at) for row in done])


def _execute(db: sqlite3.Connection, statement: str, rows: list[tuple[object, ...]]) -> None:
    """Run a statement once for all rows: one by one they cost more."""
    if rows:
        row = "(" + ", ".join("?" * len(rows[0])) + ")"
        db.execute(
            statement.replace("{rows}", ", ".join([row] * len(rows))),
            list(itertools.chain.from_iterable(rows)),
        )


def _opened(path: Path, synchronous: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = WAL", f"synchronous = {synchronous}", "cache_size = -65536"):
        db.execute(f"PRAGMA {pragma}")
    return db
