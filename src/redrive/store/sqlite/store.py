# SPDX-License-Identifier: Apache-2.0
"""The embedded store: one SQLite file, one writer connection per process, every method one transaction.

WAL with synchronous=FULL: what a method has returned from survives a power cut. Writers hold the lock beside the database
(`file_lock`); opening, reading and closing an existing database take no lock, write nothing and never wait. The file is
readable by its owner only.
"""

from __future__ import annotations

import functools
import logging
import os
import sqlite3
import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast, overload

import msgspec

from redrive.errors import (
    SchemaMismatchError,
    StoreDamagedError,
    StoreRefusedError,
    StoreUnavailableError,
)
from redrive.store import records
from redrive.store.connections import refuse_unusable
from redrive.store.maintenance import Maintenance
from redrive.store.plan import IN_PLACE, ExchangePlan
from redrive.store.protocol import ChangeSignal
from redrive.store.reader import Reader
from redrive.store.settlement_rows import NotAtOnceError
from redrive.store.sqlite.backup import copy_file
from redrive.store.sqlite.callers import FileTransactions
from redrive.store.sqlite.claim import claim, claimed
from redrive.store.sqlite.file_lock import FileLock
from redrive.store.sqlite.migrations import migrate, needs_migration
from redrive.store.sqlite.opening import file_numbers, find_or_create, identify, refuse_foreign
from redrive.store.sqlite.settle import settle_at_once, settle_one_by_one
from redrive.store.sqlite.snapshots import FileSnapshots
from redrive.store.sqlite.submit import Submission
from redrive.store.statements.text import statements_of
from redrive.store.steps import BreakerStates
from redrive.store.versions import Older, newest

BUSY_SECONDS: Final = 30.0
REFUSED: Final = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.NotSupportedError)
"""Errors that occur again when the call is repeated."""
ERASING: Final = frozenset({"erase_values", "prune_values"})
"""Statements after which the write-ahead log must not contain the values any more."""
EMPTY_LOG_SECONDS: Final = 2.0
"""How long readers of an older state may keep the write-ahead log from being emptied; writers wait meanwhile."""
REWRITE_MAX: Final = 256 * 1024 * 1024
"""Bytes of a database that is rewritten after an erasure; a larger one would keep its workers waiting for too long."""
DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

logger = logging.getLogger("redrive.store")
R = TypeVar("R")

_NO_FACTS: Final = records.WorkerFacts()
_SQL: Final = statements_of("sqlite")


class SqliteStore(BreakerStates):
    """A `Store` in one file, or in memory for tests."""

    def __init__(self, path: str | Path, *, synchronous: str = "FULL", older: Older = "refuse") -> None:
        self._path = str(path)
        self._mutex = threading.Lock()
        self._file_lock = None if self._path == ":memory:" else FileLock(self._path)
        self._locked = nullcontext if self._file_lock is None else self._file_lock.held
        self._pipelines: dict[records.LaneId, str] = {}
        self.callers = FileTransactions(self._path, self._pipelines)
        """See `Store.callers`."""
        self._snapshots = FileSnapshots(self._path, self._copy if self._file_lock is None else None)
        is_file = self._file_lock is not None
        self.maintenance = Maintenance(self, functools.partial(copy_file, Path(path)) if is_file else None)
        """See `Store.maintenance`."""
        self._process = os.getpid()
        self._is_closed = False
        self._files: tuple[int | None, ...] | None = None
        """Which files a worker has begun on."""
        self._is_identified = self._file_lock is None
        with self._mapped():
            if self._file_lock is not None:
                find_or_create(self._path)
            self._db = sqlite3.connect(
                self._path,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        try:
            with self._mapped():
                self._open(synchronous, older)
        except BaseException:
            self.close()
            raise

    def _open(self, synchronous: str, older: Older) -> None:
        for pragma in (
            f"synchronous = {synchronous}",
            "foreign_keys = ON",
            "cache_size = -65536",
            # Erased values must not remain in the file.
            "secure_delete = ON",
        ):
            self._db.execute(f"PRAGMA {pragma}")
        refuse_foreign(self._db, self._path)
        version = self._version(self._db)
        self._is_wal = self._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        if not needs_migration(version, self._path, older):
            # One that is older knows no installations.
            self._is_identified |= version < newest()
            return
        # Under the lock: SQLite does not wait for its own when two make the same file at once.
        with self._locked():
            refuse_foreign(self._db, self._path)
            self._use_wal()
        with self._writing(is_known=False) as db:
            migrate(db, self._version(db))

    def _use_wal(self) -> None:
        """Switch a new file, or a backup, to a write-ahead log; before the first write, under the lock."""
        self._db.execute("PRAGMA journal_mode = WAL")
        self._is_wal = True

    def lanes(self, pipeline: str, stages: Sequence[str]) -> list[records.LaneId]:
        """See `Store.lanes`."""
        with self._reading() as db:
            known = Submission(db, self._pipelines).known_lanes(pipeline, stages)
        if known is None:
            with self._writing() as db:
                return Submission(db, self._pipelines).lanes(pipeline, stages)
        if not self._is_identified:
            # Whoever serves lanes asks next which installation this is. A transaction of the caller's that keeps everybody from
            # writing is not waited for, because it may wait for this: the next write finds it out.
            with suppress(StoreUnavailableError), self._writing(waits=False):
                pass
        return known

    def submit(self, jobs: Sequence[records.NewJob], now: float) -> list[records.SubmittedJob]:
        """See `Store.submit`."""
        with self._writing() as db:
            made = Submission(db, self._pipelines).submit(jobs, now)
            self._note([job.id for job in made])
        return made

    def _note(self, made: Sequence[records.JobId]) -> None:
        if self._file_lock is not None and made:
            self._file_lock.note(max(made))

    def start_worker(
        self, worker: str, now: float, lease: float, about: records.WorkerFacts = _NO_FACTS
    ) -> None:
        """See `Store.start_worker`."""
        facts = (about.host, about.process, records.json_list(about.pipelines), about.concurrency)
        with self._writing() as db:
            db.execute(_SQL["start_worker"], (worker, *facts, now, now + lease))
            self._files = file_numbers(self._path)

    def renew(self, worker: str, now: float, lease: float) -> records.Renewal:
        """See `Store.renew`. A worker that is too old for a migrated database gets SchemaMismatchError here.

        One whose file was replaced gets StoreDamagedError: nobody else sees what it writes.
        """
        with self._writing() as db:
            self._version(db)
            if self._files not in {None, file_numbers(self._path)}:
                raise self._lost_files()
            if db.execute(_SQL["renew"], (now + lease, worker)).rowcount != 1:
                return records.Renewal(is_known=False)
            asked = db.execute(_SQL["cancel_asked"], (worker,)).fetchall()
        return records.Renewal(is_known=True, cancel=tuple(records.JobId(row[0]) for row in asked))

    def stop_worker(self, worker: str) -> None:
        """See `Store.stop_worker`."""
        with self._writing() as db:
            db.execute(_SQL["return_jobs"], (worker,))
            db.execute(_SQL["delete_worker"], (worker,))

    def exchange(self, asked: records.ExchangeRequest) -> records.Exchange:
        """See `Store.exchange`."""
        if not (asked.done or asked.breakers) and not self._is_worth_a_commit(asked):
            return records.Exchange()
        plan = ExchangePlan[sqlite3.Connection](asked)
        try:
            answer = self._carry_out(plan, is_at_once=True)
        except NotAtOnceError:
            answer = self._carry_out(plan, is_at_once=False)
        plan.report_children(answer)
        return answer

    def _carry_out(self, plan: ExchangePlan[sqlite3.Connection], *, is_at_once: bool) -> records.Exchange:
        """Settle and claim in one transaction."""
        lost: tuple[records.JobId, ...] = ()
        broken: tuple[records.JobId, ...] = ()
        worker, insert = plan.worker, plan.inserting(self._insert_child)
        with self._writing() as db:
            is_known, is_repeated, names, cancelled = db.execute(
                _SQL["before_exchange"], plan.tokens
            ).fetchone()
            before = claimed(db, *plan.tokens) if is_repeated else ()
            in_place, paused = plan.continuation(names, may_claim=is_known and not before)
            if is_at_once:
                settle_at_once(db, worker, plan.done, insert, in_place)
            else:
                lost, broken = settle_one_by_one(db, worker, plan.done, insert, in_place)
            swapped = [swap.name for swap in plan.breakers if db.execute(_SQL["swap_breaker"], swap).rowcount]
            jobs = before or claim(db, worker, in_place.rest(), paused, now=plan.now, token=plan.token)
            self._note(plan.children)
        answer = plan.answer(in_place, cancelled, jobs, swapped)
        return msgspec.structs.replace(answer, lost=lost, broken=broken, is_known=bool(is_known))

    def _insert_child(
        self, db: sqlite3.Connection, child: records.Child, now: float, parent: records.JobId
    ) -> records.JobId:
        return Submission(db, self._pipelines).insert_child(child, now, parent)

    def reap(self, now: float) -> int:
        """See `Store.reap`."""
        returned = 0
        with self._writing() as db:
            for (worker,) in db.execute(_SQL["dead_workers"], (now,)).fetchall():
                db.execute(_SQL["insert_crashed_attempts"], (now, worker))
                returned += db.execute(_SQL["return_crashed_jobs"], (worker,)).rowcount
                db.execute(_SQL["delete_worker"], (worker,))
        return returned

    def upcoming(self, lanes: Sequence[records.LaneId]) -> records.UpcomingWork:
        """See `Store.upcoming`."""
        with self._reading() as db:
            # One statement sees one state: a job that is returned between two would be neither due nor leased.
            rows = db.execute(_SQL["upcoming"], (records.json_list(lanes),)).fetchall()
        return records.upcoming_work(rows)

    def close(self) -> None:
        """See `Store.close`."""
        with self._mutex:
            self._is_closed = True
            self._snapshots.close()
            self._db.close()
            if self._file_lock is not None:
                self._file_lock.close()

    def query(self, asked: records.Call[R], /) -> list[R]:
        """See `Store.query`."""
        return asked.decode(self.read(_SQL[asked.name], asked.parameters))

    def reading(self) -> AbstractContextManager[Reader]:
        """See `Store.reading`."""
        return self._snapshots.reading(self._mapped)

    def _copy(self, into: sqlite3.Connection) -> None:
        with self._reading() as db:
            db.backup(into)

    @overload
    def apply(self, step: records.Call[R], /) -> list[list[R]] | None: ...
    @overload
    def apply(self, *steps: records.Step) -> list[list[Any]] | None: ...
    def apply(self, *steps: records.Step) -> list[list[Any]] | None:
        """See `Store.apply`. Erased values are gone from all files of the database when it returns."""
        rows: list[list[Any]] | None = None
        with suppress(records.DoesNotFitError), self._writing() as db:
            rows = [_applied(db, step) for step in steps]
        names = {step.name for step in steps}
        if "erase_job" in names:
            self._rewrite()
        if names & ERASING:
            self._empty_log()
        return rows

    def _rewrite(self) -> None:
        """Write the whole file anew: a row that once moved to another page left a copy that no deletion overwrites."""
        with self._mutex, self._mapped(), self._locked():
            pages = self._db.execute("PRAGMA page_count").fetchone()[0]
            if pages * self._db.execute("PRAGMA page_size").fetchone()[0] > REWRITE_MAX:
                logger.warning(
                    "%s: unused space inside its pages may still contain copies of erased values, and it is too large to be"
                    " rewritten while workers wait; run VACUUM on it when no worker runs",
                    self._path,
                )
                return
            self._db.execute("VACUUM")

    def _empty_log(self) -> None:
        """Write the log back into the file, where erased values are overwritten, and cut it to nothing."""
        with self._mutex, self._mapped(), self._locked():
            self._db.execute(f"PRAGMA busy_timeout = {EMPTY_LOG_SECONDS * 1_000:.0f}")
            try:
                (is_busy, *_) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._db.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1_000:.0f}")
        if is_busy:
            logger.warning(
                "%s-wal still contains erased values: another program reads an older state; repeat this when it has ended",
                self._path,
            )

    def change_counter(self) -> object:
        """See `Store.change_counter`."""
        with self._reading() as db:
            return db.execute("PRAGMA data_version").fetchone()[0], db.total_changes

    def change_signal(self) -> ChangeSignal | None:
        """See `Store.change_signal`."""
        with self._mutex, self._mapped():
            return None if self._file_lock is None else self._file_lock.signal()

    def read(self, sql: str, parameters: records.Row = ()) -> list[records.Row]:
        """Run a query that has no name."""
        with self._reading() as db:
            return db.execute(sql, parameters).fetchall()

    def _is_worth_a_commit(self, asked: records.ExchangeRequest) -> bool:
        """Return whether there is anything to claim; asked first, so that idle workers do not keep writers waiting."""
        want = asked.want
        with self._reading() as db:
            if db.execute(_SQL["is_known"], (asked.worker,)).fetchone() is None:
                return True
            if claimed(db, asked.worker, asked.token, asked.token | IN_PLACE):
                return True
            if want.limit <= 0:
                return False
            paused = {row[0] for row in db.execute(_SQL["paused"])}
            lanes = [lane for lane in want.lanes if lane not in paused and want.limits.get(lane, 1) > 0]
            if any(lane in want.keys and any(want.keys[lane].values()) for lane in lanes):
                # Their keys were found because they have jobs that are due.
                return True
            due = (
                db.execute(_SQL["next_due_at"], (lane,)).fetchone()[0]
                for lane in lanes
                if lane not in want.keys
            )
            return any(at is not None and at <= asked.now for at in due)

    def _version(self, db: sqlite3.Connection) -> int:
        """Return the version of the schema; refuse a database that a newer redrive has made or changed."""
        version = cast("int", db.execute("PRAGMA user_version").fetchone()[0])
        if version > newest():
            raise SchemaMismatchError(database=self._path, found=version, known=newest())
        return version

    @contextmanager
    def _writing(self, *, is_known: bool = True, waits: bool = True) -> Generator[sqlite3.Connection]:
        with self._mutex, self._mapped(), self._locked():
            if not self._is_wal:
                self._use_wal()
            if waits:
                self._db.execute("BEGIN IMMEDIATE")
            else:
                self._begin_at_once()
            try:
                is_first = is_known and not self._is_identified
                if is_first:
                    self._identify()
                yield self._db
                self._db.execute("COMMIT")
                self._is_identified |= is_first
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _begin_at_once(self) -> None:
        """Begin to write unless somebody else does."""
        self._db.execute("PRAGMA busy_timeout = 0")
        try:
            self._db.execute("BEGIN IMMEDIATE")
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1_000:.0f}")

    def _identify(self) -> None:
        """Find out, in the first transaction, which installation this is."""
        if self._file_lock is not None:
            self._file_lock.note(identify(self._db, self._path, self._file_lock.noted()))

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        with self._mutex, self._mapped():
            yield self._db

    @contextmanager
    def _mapped(self) -> Generator[None]:
        """Turn the errors of the driver and of the file system into the store's."""
        refuse_unusable(self._path, self._process, is_closed=self._is_closed)
        try:
            yield
        except (sqlite3.DatabaseError, OSError) as error:
            if isinstance(error, REFUSED):
                raise StoreRefusedError(
                    database=self._path, cause=f"the statement was refused: {error}"
                ) from error
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ:
                raise self._lost_files() from error
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED:
                raise StoreDamagedError(database=self._path, cause=str(error)) from error
            raise StoreUnavailableError(database=self._path, cause=str(error)) from error

    def _lost_files(self) -> StoreDamagedError:
        return StoreDamagedError(
            database=self._path,
            cause="the file or its -wal, which holds the latest commits, was deleted, cut off or replaced while in use",
            hint="Start nothing new. End every program that has it open with SIGTERM: the last one writes what it still has back"
            " into the file. Then: redrive doctor --deep.",
        )


def _applied(db: sqlite3.Connection, step: records.Step) -> list[Any]:
    cursor = db.execute(_SQL[step.name], step.parameters)
    # How many rows were touched is known when all are fetched.
    return step.answer(cursor.fetchall(), cursor.rowcount)
