# SPDX-License-Identifier: Apache-2.0
"""The store on a PostgreSQL server: any number of processes on any number of machines, one connection for each store.

Every method is one transaction, durable when it returns as far as the server's `synchronous_commit` promises. The server's clock
decides about leases, so that workers whose clocks differ do not declare each other dead; `clock="caller"` is for tests in virtual
time. A job is due by the clock of the worker that looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache
from typing import Any, Final, Literal, TypeVar, cast, overload

from psycopg.errors import InsufficientPrivilege

from redrive.errors import SchemaMismatchError, StoreDamagedError, StoreRefusedError
from redrive.store.maintenance import Maintenance
from redrive.store.plan import IN_PLACE
from redrive.store.postgres.arrays import column
from redrive.store.postgres.callers import ServerTransactions, as_json, submitted_jobs
from redrive.store.postgres.claim import Marks
from redrive.store.postgres.connection import Address, Link, Server, address_of
from redrive.store.postgres.exchange import ExchangeCall
from redrive.store.postgres.listen import ListenSignal, channel_of
from redrive.store.postgres.migrations import open_schema, partition_attempts, version_of
from redrive.store.postgres.session import Session
from redrive.store.postgres.settle import NotAsRememberedError
from redrive.store.postgres.snapshots import ServerSnapshots
from redrive.store.postgres.stage_transactions import ServerStageTransactions
from redrive.store.postgres.submit import Submission, is_copied
from redrive.store.postgres.transactions import Transactions
from redrive.store.protocol import ChangeSignal
from redrive.store.reader import Reader
from redrive.store.records import (
    Call,
    Child,
    DoesNotFitError,
    Exchange,
    ExchangeRequest,
    JobId,
    LaneId,
    NewJob,
    Renewal,
    Row,
    Step,
    SubmittedJob,
    UpcomingWork,
    WorkerFacts,
    json_list,
    upcoming_work,
)
from redrive.store.settlement_rows import NotAtOnceError
from redrive.store.steps import BreakerStates
from redrive.store.versions import Older, newest

WAKING: Final = frozenset({"replay_jobs", "resume_lanes", "submit_tick"})
"""Statements after which idle workers are woken, as after a submission."""

_NO_FACTS: Final = WorkerFacts()
R = TypeVar("R")


class PostgresStore(BreakerStates):
    """A `Store` in a schema of a PostgreSQL database."""

    def __init__(
        self, url: str, *, older: Older = "refuse", clock: Literal["server", "caller"] = "server"
    ) -> None:
        self.address = address_of(url)
        self._server = Server(self.address, clock=clock)
        self._transactions = Transactions(self._server)
        self._snapshots = ServerSnapshots(self._server)
        self.maintenance = Maintenance(self)
        """See `Store.maintenance`."""
        self._pipelines: dict[LaneId, str] = {}
        self._installation: Row = ()
        self._installation_id = cache(lambda: str(self._transactions.query("identity")[0][0]))
        self._stages = ServerStageTransactions(self._server, self._pipelines)
        self.callers = ServerTransactions(self.address, self._installation_id, self._stages)
        """See `Store.callers`."""
        self._paused: str | None = None
        """Which lanes were paused at the last exchange, as JSON."""
        self._marks: Marks = {}
        """Where the last claim from each lane ended."""
        try:
            self._transactions.use(lambda link: open_schema(link, self.address, older))
        except BaseException:
            self.close()
            raise

    def lanes(self, pipeline: str, stages: Sequence[str]) -> list[LaneId]:
        """See `Store.lanes`. Who may not write them can read those that are there."""

        def work(db: Session) -> list[LaneId]:
            submission = Submission(db, self._pipelines)
            return submission.known_lanes(pipeline, stages) or submission.lanes(pipeline, stages)

        return self._transactions.write(work)

    def submit(self, jobs: Sequence[NewJob], now: float) -> list[SubmittedJob]:
        """See `Store.submit`. Whether a commit took place whose answer was lost is found out before it returns."""

        def work(db: Session) -> list[SubmittedJob]:
            # Announced when it is committed, and so not a word too early.
            self._wake(db)
            return Submission(db, self._pipelines).submit(jobs, now)

        try:
            if not jobs:
                return []
            return self._transactions.write(work, is_exact=True, is_pipelined=not is_copied(jobs))
        except StoreRefusedError as error:
            if not isinstance(error.__cause__, InsufficientPrivilege) or any(job.run for job in jobs):
                raise
            return self._submit_only(jobs, now)

    def _submit_only(self, jobs: Sequence[NewJob], now: float) -> list[SubmittedJob]:
        """Store jobs for a role that may do nothing else."""
        ask = (self._installation_id(), as_json(jobs, now))
        return self._transactions.write(
            lambda db: submitted_jobs(_row(db, "submit_jobs", *ask)[0]), is_exact=True
        )

    def start_worker(self, worker: str, now: float, lease: float, about: WorkerFacts = _NO_FACTS) -> None:
        """See `Store.start_worker`. The lease ends by the clock of the server."""
        facts = (about.host, about.process, json_list(about.pipelines), about.concurrency)

        def work(db: Session) -> None:
            at = self._now(db, now)
            db.execute("start_worker", (worker, *facts, at, at + lease))
            self._installation = self._identity(db)

        self._transactions.write(work)
        self._transactions.write(_fold_counters)

    def renew(self, worker: str, now: float, lease: float) -> Renewal:
        """See `Store.renew`. A worker that is too old for a migrated database gets SchemaMismatchError here.

        One whose database was replaced gets StoreDamagedError: what it works on is not there any more.
        """

        def work(db: Session) -> Renewal:
            if self._installation not in {(), self._identity(db)}:
                raise StoreDamagedError(
                    database=self.address.name,
                    cause="another database has taken its place since this worker started",
                    hint="Start the worker again if that is the database to work on.",
                )
            renewed = db.execute("renew", (self._now(db, now) + lease, worker))
            asked = db.execute("cancel_asked", (worker,)).fetchall()
            if renewed.rowcount != 1:
                return Renewal(is_known=False)
            return Renewal(is_known=True, cancel=tuple(JobId(row[0]) for row in asked))

        return self._transactions.write(work)

    def stop_worker(self, worker: str) -> None:
        """See `Store.stop_worker`."""

        def work(db: Session) -> None:
            db.execute("return_jobs", (worker,))
            db.execute("delete_worker", (worker,))

        self._transactions.write(work)

    def exchange(self, asked: ExchangeRequest) -> Exchange:
        """See `Store.exchange`."""
        if not (asked.done or asked.breakers) and not self._is_worth_a_commit(asked):
            return Exchange()
        call = ExchangeCall(asked)
        try:
            answer = self._commit(call)
        except NotAtOnceError:
            answer, self._paused = self._transactions.write(
                lambda db: call.looking(db, self._insert_child, is_at_once=False), is_pipelined=False
            )
        call.report_children(answer)
        return answer

    def _commit(self, call: ExchangeCall) -> Exchange:
        """Commit in one round trip by the lanes remembered as paused; read them first if none are, or if they have changed."""
        paused = self._paused
        if paused is not None:
            with suppress(NotAsRememberedError):
                return self._transactions.write_at_once(
                    lambda db: call.remembering(db, paused, self._marks, self._insert_child)
                )
        answer, self._paused = self._transactions.write(
            lambda db: call.looking(db, self._insert_child, is_at_once=True)
        )
        return answer

    def _insert_child(self, db: Session, child: Child, now: float, parent: JobId) -> JobId:
        return Submission(db, self._pipelines).insert_child(child, now, parent)

    def reap(self, now: float) -> int:
        """See `Store.reap`. By the clock of the server; a worker that is just committing is left alone."""

        def work(db: Session) -> int:
            at = self._now(db, now)
            returned = 0
            for (worker,) in db.execute("dead_workers", (at,)).fetchall():
                db.execute("insert_crashed_attempts", (at, worker))
                jobs = db.execute("return_crashed_jobs", (worker,))
                db.execute("delete_worker", (worker,))
                db.sync()
                returned += jobs.rowcount
            return returned

        # Most of the time nobody has died, and looking is no change.
        (at,) = self._transactions.query("lease_time", now)[0]
        return self._transactions.write(work) if self._transactions.query("has_dead_workers", at)[0][0] else 0

    def upcoming(self, lanes: Sequence[LaneId]) -> UpcomingWork:
        """See `Store.upcoming`."""
        return upcoming_work(self._transactions.query("upcoming", json_list(lanes)))

    def close(self) -> None:
        """See `Store.close`."""
        self._stages.close()
        self._transactions.close(self._snapshots.close)

    def query(self, asked: Call[R], /) -> list[R]:
        """See `Store.query`."""
        return asked.decode(self._transactions.query(asked.name, *asked.parameters))

    def reading(self) -> AbstractContextManager[Reader]:
        """See `Store.reading`."""
        return self._snapshots.reading(self._transactions.mapped)

    @overload
    def apply(self, step: Call[R], /) -> list[list[R]] | None: ...
    @overload
    def apply(self, *steps: Step) -> list[list[Any]] | None: ...
    def apply(self, *steps: Step) -> list[list[Any]] | None:
        """See `Store.apply`."""

        def work(db: Session) -> list[list[Any]]:
            rows = [_applied(db, step) for step in steps]
            if any(step.name in WAKING for step in steps):
                self._wake(db)
            return rows

        try:
            return self._transactions.write(work, is_exact=True)
        except DoesNotFitError:
            return None

    def change_counter(self) -> object:
        """See `Store.change_counter`. Which transactions have ended, of all databases of the server."""
        return self._transactions.query("snapshot")[0][0]

    def change_signal(self) -> ChangeSignal | None:
        """See `Store.change_signal`. It reports new jobs; behind a pooler there is none."""
        return self._transactions.use(
            lambda _: None if self._server.is_pooled else ListenSignal(self._server)
        )

    def read(self, sql: str, parameters: Row = ()) -> list[Row]:
        """Run a query that has no name."""
        return self._transactions.read(sql.encode(), parameters)

    def _is_worth_a_commit(self, asked: ExchangeRequest) -> bool:
        """Return whether there is anything to claim; asked first, so that idle workers write nothing."""
        want, token = asked.want, asked.token
        open_ = [lane for lane in want.lanes if want.limit > 0 and want.limits.get(lane, 1) > 0]
        free = column("bigint", [lane for lane in open_ if lane not in want.keys])
        # Their keys were found because they have jobs that are due.
        keyed = column("bigint", [lane for lane in open_ if any(want.keys.get(lane, {}).values())])
        rows = self._transactions.query(
            "is_claimable", asked.worker, token, token | IN_PLACE, free, asked.now, keyed
        )
        return bool(rows[0][0])

    def _now(self, db: Session, now: float) -> float:
        """Return the time that decides about leases."""
        return cast("float", _row(db, "lease_time", now)[0])

    def _identity(self, db: Session) -> Row:
        """Return the id and the place of the database; refuse one that a newer redrive has changed."""
        found, version, place = _row(db, "identity")
        if cast("int", version) > newest():
            raise SchemaMismatchError(database=self.address.name, found=cast("int", version), known=newest())
        return (found, place)

    def _wake(self, db: Session) -> None:
        db.execute("notify", (channel_of(self.address.schema),))


def version_at(url: str) -> int:
    """Return the version of the schema at an address; 0 for a missing one. Changes nothing."""
    return _at(url, version_of)


def partition_attempts_at(url: str) -> None:
    """Partition the attempts of the schema at an address by time; raises StoreRefusedError if there are some."""
    _at(url, partition_attempts)


def _at(url: str, ask: Callable[[Link, Address], R]) -> R:
    address = address_of(url)
    transactions = Transactions(Server(address))
    try:
        return transactions.use(lambda link: ask(link, address))
    finally:
        transactions.close()


def _applied(db: Session, step: Step) -> list[Any]:
    cursor = db.execute(step.name, step.parameters)
    db.sync()
    return step.answer(cursor.fetchall() if cursor.description else [], cursor.rowcount)


def _fold_counters(db: Session) -> None:
    """Add up what connections have counted that are gone."""
    for name in ("fold_tallies", "fold_letter_tallies", "fold_letter_trend"):
        db.execute(name)


def _row(db: Session, name: str, *parameters: object) -> Row:
    """Return the one row of a statement that always has one."""
    row = db.execute(name, parameters).fetchone()
    if row is None:
        raise LookupError(name)
    return row
