# SPDX-License-Identifier: Apache-2.0
"""The embedded store: one SQLite file, one writer connection per process, every method one transaction.

WAL with synchronous=FULL: what a method has returned from survives a power cut. A file lock beside the database is held around
every write, so that processes take turns fairly instead of racing for SQLite's own lock. The file is readable by its owner only.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Final, cast

from redrive.errors import SchemaMismatchError, StoreUnavailableError
from redrive.store.protocol import (
    Claimed,
    Count,
    Exchange,
    JobId,
    LaneId,
    NewJob,
    Outlook,
    Settlement,
    Submitted,
    Want,
)
from redrive.store.queries import statements_of, text_of
from redrive.store.settling import settle

SCHEMA_VERSION: Final = 1
PRIORITIES: Final = range(10)
BUSY_SECONDS: Final = 30.0

_SQL: Final = statements_of("sqlite")

Row = tuple[object, ...]


class SqliteStore:
    """A `Store` in one file, or in memory for tests."""

    def __init__(self, path: str | Path, *, synchronous: str = "FULL") -> None:
        self._path = str(path)
        self._mutex = threading.Lock()
        self._is_file = self._path != ":memory:"
        self._lock_file: int | None = None
        self._pipelines: dict[LaneId, str] = {}
        with self._mapped():
            if self._is_file:
                # The file must never be readable by others, not even between its creation and a later chmod.
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
                self._lock_file = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            self._db = sqlite3.connect(
                self._path,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            for pragma in (
                "journal_mode = WAL",
                f"synchronous = {synchronous}",
                "foreign_keys = ON",
                "cache_size = -65536",
            ):
                self._db.execute(f"PRAGMA {pragma}")
        self._migrate()

    def lanes(self, pipeline: str, stages: Sequence[str]) -> list[LaneId]:
        """See `Store.lanes`."""
        with self._writing() as db:
            found = [
                LaneId(db.execute(_SQL["add_lane"], (pipeline, stage, position)).fetchone()[0])
                for position, stage in enumerate(stages)
            ]
        self._pipelines.update(dict.fromkeys(found, pipeline))
        return found

    def submit(self, jobs: Sequence[NewJob], now: float) -> list[Submitted]:
        """See `Store.submit`."""
        with self._writing() as db:
            if not any(job.key for job in jobs):
                return self._insert_many(db, jobs, now)
            return [self._insert(db, job, now) for job in jobs]

    def start_worker(self, worker: str, now: float, lease: float) -> None:
        """See `Store.start_worker`."""
        with self._writing() as db:
            db.execute(_SQL["start_worker"], (worker, now, now + lease))

    def renew(self, worker: str, now: float, lease: float) -> bool:
        """See `Store.renew`."""
        with self._writing() as db:
            return db.execute(_SQL["renew"], (now + lease, worker)).rowcount == 1

    def stop_worker(self, worker: str) -> None:
        """See `Store.stop_worker`."""
        with self._writing() as db:
            db.execute(_SQL["give_back"], (worker,))
            db.execute(_SQL["forget_worker"], (worker,))

    def exchange(
        self, worker: str, done: Sequence[Settlement], want: Want, *, now: float, token: int
    ) -> Exchange:
        """See `Store.exchange`."""
        with self._writing() as db:
            lost, broken = settle(db, worker, done)
            is_known = db.execute(_SQL["is_known"], (worker,)).fetchone() is not None
            claimed = _claim(db, worker, want, now, token) if is_known else ()
        return Exchange(lost=lost, broken=broken, claimed=claimed, is_known=is_known)

    def reap(self, now: float) -> int:
        """See `Store.reap`."""
        given_back = 0
        with self._writing() as db:
            for (worker,) in db.execute(_SQL["dead_workers"], (now,)).fetchall():
                db.execute(_SQL["crashed"], (now, worker))
                given_back += db.execute(_SQL["reclaim"], (worker,)).rowcount
                db.execute(_SQL["forget_worker"], (worker,))
        return given_back

    def counts(self) -> list[Count]:
        """See `Store.counts`."""
        with self._reading() as db:
            return [Count(*row) for row in db.execute(_SQL["counts"])]

    def job(self, job: JobId) -> Row | None:
        """See `Store.job`."""
        with self._reading() as db:
            return cast("Row | None", db.execute(_SQL["job"], (job,)).fetchone())

    def outlook(self, lanes: Sequence[LaneId]) -> Outlook:
        """See `Store.outlook`."""
        with self._reading() as db:
            due = [db.execute(_SQL["next_due_at"], pair).fetchone()[0] for pair in product(lanes, PRIORITIES)]
            held = sum(db.execute(_SQL["held"], (lane,)).fetchone()[0] for lane in lanes)
        return Outlook(min((at for at in due if at is not None), default=None), held)

    def breaker(self, name: str) -> bytes | None:
        """See `Store.breaker`."""
        with self._reading() as db:
            row = db.execute(_SQL["breaker"], (name,)).fetchone()
        return None if row is None else cast("bytes", row[0])

    def swap_breaker(self, name: str, before: bytes | None, after: bytes) -> bool:
        """See `Store.swap_breaker`."""
        with self._writing() as db:
            if before is None:
                return db.execute(_SQL["add_breaker"], (name, after)).rowcount == 1
            return db.execute(_SQL["swap_breaker"], (after, name, before)).rowcount == 1

    def close(self) -> None:
        """See `Store.close`."""
        with self._mutex:
            self._db.close()
            if self._lock_file is not None:
                os.close(self._lock_file)
                self._lock_file = None

    def read(self, sql: str, parameters: Row = ()) -> list[Row]:
        """Run a query of the inspecting side."""
        with self._reading() as db:
            return db.execute(sql, parameters).fetchall()

    def _migrate(self) -> None:
        with self._writing() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in _statements(text_of("sqlite", "schema")):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif version > SCHEMA_VERSION:
                raise SchemaMismatchError(database=self._path, found=version, known=SCHEMA_VERSION)

    def _insert_many(self, db: sqlite3.Connection, jobs: Sequence[NewJob], now: float) -> list[Submitted]:
        """Insert jobs without keys; ids are given in order, so that the last one tells all."""
        db.executemany(_SQL["insert_job"], (self._row_of(job, now) for job in jobs))
        last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'").fetchone()[0] if jobs else 0
        return [
            Submitted(JobId(last - len(jobs) + place), is_twin=False) for place in range(1, len(jobs) + 1)
        ]

    def _insert(self, db: sqlite3.Connection, job: NewJob, now: float) -> Submitted:
        twin = db.execute(_SQL["twin"], (self._pipelines[job.lane], job.key)).fetchone() if job.key else None
        if twin is not None:
            return Submitted(JobId(twin[0]), is_twin=True)
        made = db.execute(_SQL["insert_job"], self._row_of(job, now)).lastrowid
        return Submitted(JobId(made or 0), is_twin=False)

    def _row_of(self, job: NewJob, now: float) -> Row:
        pipeline = self._pipelines[job.lane]
        return pipeline, job.lane, job.priority, job.run_at, job.key, job.owner, job.payload, now

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        with self._mutex, self._mapped(), self._file_locked():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        with self._mutex, self._mapped():
            yield self._db

    @contextmanager
    def _file_locked(self) -> Generator[None]:
        if self._lock_file is None:
            yield
            return
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    @contextmanager
    def _mapped(self) -> Generator[None]:
        """Turn the errors of the driver and of the file system into the store's."""
        try:
            yield
        except (sqlite3.DatabaseError, OSError) as error:
            raise StoreUnavailableError(database=self._path, cause=str(error)) from error


def _claim(db: sqlite3.Connection, worker: str, want: Want, now: float, token: int) -> tuple[Claimed, ...]:
    claimed = [
        Claimed(row[0], token, *row[1:-1]) for row in db.execute(_SQL["claimed_before"], (worker, token))
    ]
    if claimed:
        return tuple(claimed)
    for lane, priority in product(want.lanes, PRIORITIES):
        left = want.limit - len(claimed)
        if left <= 0:
            break
        rows = db.execute(_SQL["claim"], (token, worker, now, now, lane, priority, now, left)).fetchall()
        # The order of RETURNING is not promised; jobs that became due earlier go first, then those submitted earlier.
        claimed += [Claimed(row[0], token, *row[1:-1]) for row in sorted(rows, key=_order)]
    return tuple(claimed)


def _order(row: tuple[float, ...]) -> tuple[float, float]:
    return row[-1], row[0]


def _statements(script: str) -> list[str]:
    """Split a schema file into its statements; a semicolon inside a comment does not end one."""
    statements: list[str] = []
    held = ""
    for piece in script.split(";"):
        held += piece + ";"
        if sqlite3.complete_statement(held):
            statements.append(held)
            held = ""
    return statements
