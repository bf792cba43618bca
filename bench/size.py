# SPDX-License-Identifier: Apache-2.0
"""What a job costs in a file that holds 10,000 or 1,000,000 old ones, by how many bytes the file grows for each job, and how much
memory a run takes over 200,000 or 1,000,000 items.

Of the old jobs half are complete and half failed with an open dead letter; they are written by plain SQL, with the engine's own
tables and indexes.
"""

from __future__ import annotations

import itertools
import os
import resource
import sqlite3
from functools import partial
from pathlib import Path

from bench import ours
from bench.measure import Figure, per_job
from bench.ours import PAYLOAD, pipeline_of
from bench.processes import race
from redrive import connect

ROUNDS = 3

OLD_JOBS = """
WITH RECURSIVE old (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM old WHERE n < ?)
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, payload, result, error_code, error_message, dispatch, created_at,
    started_at, last_attempt_at, finished_at)
SELECT 'bench', (SELECT min(id) FROM lanes), CASE WHEN n % 2 THEN 'complete' ELSE 'failed' END, 5, 1.5e9 + n, zeroblob(200),
    CASE WHEN n % 2 THEN x'31' END, CASE WHEN n % 2 = 0 THEN 'NETWORK_ERROR' END, CASE WHEN n % 2 = 0 THEN 'refused' END, 1,
    1.5e9 + n, 1.5e9 + n, 1.5e9 + n, 1.5e9 + n
FROM old
"""
OLD_ATTEMPTS = """
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned, code, message)
SELECT id, 1, lane_id, 1, 1, 'w', run_at, run_at, CASE status WHEN 'failed' THEN 'dead' ELSE 'ok' END, 1, error_code, error_message FROM jobs
"""
OLD_GROUPS = """
WITH RECURSIVE old (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM old WHERE n < 999)
INSERT INTO letter_groups (fingerprint, lane_id, code, category, error_class, first_at, last_at)
SELECT printf('%016x', n), (SELECT min(id) FROM lanes), 'NETWORK_ERROR', 'network', 'builtins.ConnectionError', 1.5e9, 1.6e9 FROM old
"""
OLD_LETTERS = """
INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, first_failure_at, last_failure_at)
SELECT jobs.id, jobs.lane_id, letter_groups.id, 1, 'open', run_at, run_at
FROM jobs JOIN letter_groups ON letter_groups.id = 1 + jobs.id % 1000 WHERE status = 'failed'
"""
OLD_FACTS = """
INSERT INTO letter_facts (letter_id, code, category, is_retryable, error_class, reason, message, context, stack)
SELECT dead_letters.id, code, category, 1, error_class, 'exhausted', 'refused', zeroblob(50), printf('%.*c', 500, 's')
FROM dead_letters JOIN letter_groups ON letter_groups.id = group_id
"""
PLAIN = "INSERT INTO plain (payload, result) VALUES (?, ?)"


def run() -> list[Figure]:
    """Drain 20,000 new jobs beside the old ones, weigh the file, and stream a long run; takes about four minutes."""
    return [
        *race(
            "a file that holds many jobs",
            {
                "10,000 jobs": [partial(drain_beside, old=10_000)],
                "1,000,000 jobs": [partial(drain_beside, old=1_000_000)],
            },
        ),
        *race(
            "growth of the file by a completed job",
            {
                "plain table of payload and result": [plain_growth],
                "redrive, one stage": [partial(growth, stages=1)],
                "redrive, three stages": [partial(growth, stages=3)],
                "redrive, fails once": [partial(growth, fails_once=True)],
            },
            unit="bytes",
        ),
        *race(
            "memory of a run",
            {
                "over 200,000 items": [partial(run_memory, items=200_000)],
                "over 1,000,000 items": [partial(run_memory, items=1_000_000)],
            },
            unit="bytes",
        ),
    ]


def drain_beside(folder: Path, *, old: int) -> float:
    """Submit and drain new jobs in a file that holds old ones, a few times; the best time counts."""
    pipeline = pipeline_of()
    path = folder / "size.db"
    with connect(path) as rd:
        # The first job makes the lanes known; it is drained, so that all that is queued later is new.
        rd.submit_many(pipeline, [PAYLOAD])
        rd.work([pipeline], until_idle=True)
    _fill(path, old)
    with connect(path) as rd:

        def work() -> None:
            rd.submit_many(pipeline, itertools.repeat(PAYLOAD, ours.JOBS))
            rd.work([pipeline], until_idle=True, concurrency=ours.CONCURRENCY)

        spent = min(per_job(ours.JOBS, work) for _ in range(ROUNDS))
        assert "queued" not in rd.jobs.counts(), rd.jobs.counts()
    return spent


def growth(folder: Path, *, stages: int = 1, fails_once: bool = False, jobs: int = 10_000) -> float:
    """Return how many bytes each completed job has left in the file."""
    pipeline = pipeline_of(stages=stages, fails_once=fails_once)
    path = folder / "size.db"
    with connect(path) as rd:
        rd.submit_many(pipeline, [PAYLOAD])
    before = _weight(path)
    with connect(path) as rd:
        rd.submit_many(pipeline, itertools.repeat(PAYLOAD, jobs))
        rd.work([pipeline], until_idle=True, concurrency=ours.CONCURRENCY)
    return (_weight(path) - before) / jobs


def run_memory(folder: Path, *, items: int) -> float:
    """Return how many bytes the process held at most while it ran a source of so many items."""
    with connect(folder / "size.db") as rd:
        report = rd.run(pipeline_of(), itertools.repeat(PAYLOAD, items), concurrency=ours.CONCURRENCY)
        assert report.succeeded == items, report
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def plain_growth(folder: Path, *, jobs: int = 10_000) -> float:
    """Return how many bytes a row takes that holds nothing else."""
    db = sqlite3.connect(folder / "plain.db")
    db.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, payload BLOB, result BLOB)")
    db.executemany(PLAIN, itertools.repeat((b"x" * 201, b"1"), jobs))
    db.commit()
    db.close()
    return _weight(folder / "plain.db") / jobs


def _fill(path: Path, old: int) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    # The old rows need not survive a power cut.
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA cache_size = -500000")
    db.execute("BEGIN")
    db.execute("DELETE FROM attempts")
    db.execute(OLD_JOBS, (old,))
    db.execute(OLD_ATTEMPTS)
    db.execute(OLD_GROUPS)
    db.execute(OLD_LETTERS)
    db.execute(OLD_FACTS)
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    # What the system has not written yet would be written during the first commits that are timed.
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _weight(path: Path) -> int:
    """Return the size of a closed file, with what its log still holds written back."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return path.stat().st_size
