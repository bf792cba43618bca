# SPDX-License-Identifier: Apache-2.0
"""redrive on PostgreSQL as a contender, through its public face, in worker processes of its own; and bare SQL as its limit.

The limit writes the same rows in batches with the statements that the store ships: claim many, complete them behind the fence, one
attempt for each, one commit. No stage is called, nothing is decoded, classified or handed between threads.
"""

from __future__ import annotations

import itertools
import multiprocessing
import struct
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg

from bench.limit import ENCODED, FAILED
from bench.measure import per_job
from bench.ours import CONCURRENCY, PAYLOAD, pipeline_of
from bench.peers.postgres.contest import sampled
from bench.pickup import PIPELINE, REPORTER
from redrive import connect
from redrive.store.postgres.connection import Link, Server, address_of
from redrive.store.postgres.session import SQL, columns_of

SUBMIT_BATCH = 1_000


def drain(
    _: Path,
    *,
    url: str,
    jobs: int,
    workers: int = 1,
    stages: int = 1,
    fails_once: bool = False,
    concurrency: int = CONCURRENCY,
) -> float:
    """Return the nanoseconds per job, from the start of the worker processes' work until all jobs are complete."""
    pipeline = pipeline_of(stages=stages, fails_once=fails_once)
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    here, there = context.Pipe(duplex=False)
    with connect(url) as rd:
        rd.submit_many(pipeline, itertools.repeat(PAYLOAD, jobs))
        shape = {"stages": stages, "fails_once": fails_once}
        asked = {"url": url, "shape": shape, "concurrency": concurrency, "ready": there, "start": start}
        processes = [context.Process(target=_work, kwargs=asked, daemon=True) for _ in range(workers)]
        for process in processes:
            process.start()
        for _ in processes:
            here.recv()
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("CHECKPOINT")
            spent = per_job(jobs, partial(_wait, db, jobs, start))
        for process in processes:
            process.join()
        assert rd.jobs.counts() == {"complete": jobs}, rd.jobs.counts()
    return spent


def _work(*, url: str, shape: dict[str, Any], concurrency: int, ready: Connection, start: Any) -> None:
    pipeline = pipeline_of(**shape)
    with connect(url) as rd:
        ready.send("ready")
        start.wait()
        rd.work([pipeline], until_idle=True, concurrency=concurrency)


def _wait(db: psycopg.Connection, jobs: int, start: Any) -> None:
    start.set()
    counted = 0
    while counted < jobs:
        time.sleep(0.005)
        row = db.execute("SELECT coalesce(sum(jobs), 0) FROM redrive.tallies").fetchone()
        counted = 0 if row is None else int(row[0])


def submit(_: Path, *, url: str, jobs: int, has_keys: bool = False) -> float:
    """Store many jobs with one call."""
    pipeline = pipeline_of()
    numbers = itertools.count()
    key = (lambda _: f"job-{next(numbers)}") if has_keys else None
    with connect(url) as rd:
        rd.submit_many(pipeline, [PAYLOAD])
        return per_job(jobs, lambda: rd.submit_many(pipeline, itertools.repeat(PAYLOAD, jobs), key=key))


def pickup(_: Path, *, url: str) -> list[float]:
    """Submit to an idle worker in another process."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    with connect(url) as rd:
        worker = context.Process(target=_report_pickups, args=(url, there), daemon=True)
        worker.start()
        figures = sampled(lambda: rd.submit(PIPELINE, time.monotonic_ns()), here)
    worker.kill()
    worker.join()
    return figures


def _report_pickups(url: str, there: Connection) -> None:
    REPORTER.report = there.send
    with connect(url) as rd:
        rd.work([PIPELINE])


def limit(_: Path, *, url: str, jobs: int, batch: int, stages: int = 1, fails_once: bool = False) -> float:
    """Take every job through its stages with bare statements; with `fails_once`, through a failed attempt first."""
    with connect(url) as rd:
        rd.submit_many(pipeline_of(stages=stages), itertools.repeat(PAYLOAD, jobs))
    link = Server(address_of(url)).link()
    lanes = [row[0] for row in link.execute("SELECT id FROM lanes ORDER BY id DESC").fetchall()]
    link.execute("CHECKPOINT")

    def work() -> None:
        taken: list[Any] = []
        for token in itertools.count(1):
            with link.transaction():
                link.execute(SQL["plan_by_index"])
                if taken:
                    _settle(link, taken, lanes[0], fails_once=fails_once)
                wanted = [(lane, batch, -1, 0.0, 0) for lane in lanes]
                asked = (token, "w", 2e9, *columns_of("claim", wanted), batch)
                taken = link.cursor(binary=True).execute(SQL["claim"], asked).fetchall()
            if not taken:
                return

    spent = per_job(jobs, work)
    row = link.execute("SELECT count(*) FROM jobs WHERE status = 'complete'").fetchone()
    assert row == (jobs,), row
    return spent


def _settle(link: Link, taken: list[Any], last_lane: int, *, fails_once: bool) -> None:
    updates: dict[str, list[Any]] = {}
    plain: list[Any] = []
    failed: list[Any] = []
    for row in taken:
        job, token, dispatch, lane, attempt = row[2:7]
        ended = (job, dispatch, lane, 1, attempt, "config", 2e9, 2e9)
        if fails_once and attempt == 1:
            updates.setdefault("requeue", []).append(
                (job, token, dispatch, 2e9, 2, 0, b"{}", "retry", 0, 0, 2e9)
            )
            code, message, decision = FAILED
            failed.append((*ended, "retry", 1, code, "ConnectionError", message, 0, decision, ""))
            continue
        plain.append(ended)
        if lane == last_lane:
            updates.setdefault("complete", []).append((job, token, dispatch, 2e9, b"1"))
        else:
            updates.setdefault("advance", []).append((job, token, dispatch, lane + 1, ENCODED, 2e9))
    for name, rows in updates.items():
        link.cursor(binary=True).execute(SQL[name], columns_of(name, rows))
    for name, rows in (("insert_good_attempt", plain), ("insert_attempt", failed)):
        if rows:
            link.cursor(binary=True).execute(SQL[name], ("w", *columns_of(name, rows)))


def copy(_: Path, *, url: str, jobs: int) -> float:
    """Store jobs by COPY, a thousand per commit."""
    with connect(url) as rd:
        rd.submit_many(pipeline_of(), [PAYLOAD])
    link = Server(address_of(url)).link()
    lane = link.execute("SELECT id FROM lanes").fetchone()
    assert lane is not None
    columns = "pipeline, lane_id, status, priority, run_at, payload, created_at"
    row = (b"bench", struct.pack(">q", lane[0]), b"queued", struct.pack(">i", 5), struct.pack(">d", 1.0))
    encoded = struct.pack(">h", 7) + b"".join(
        struct.pack(">i", len(field)) + field for field in (*row, ENCODED, struct.pack(">d", 1.0))
    )

    def work() -> None:
        for first in range(0, jobs, SUBMIT_BATCH):
            count = min(SUBMIT_BATCH, jobs - first)
            with link.cursor().copy(f"COPY jobs ({columns}) FROM STDIN (FORMAT binary)".encode()) as into:
                into.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
                for _ in range(count):
                    into.write(encoded)
                into.write(struct.pack(">h", -1))

    return per_job(jobs, work)
