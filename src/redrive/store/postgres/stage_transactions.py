# SPDX-License-Identifier: Apache-2.0
"""Transactions in which stages run: what a stage writes is committed with its job's settlement, behind the fence, or not at all.

A stage gets a connection of psycopg as any program has it, with the settings of its role, and cannot commit, roll back or close it.
The same session settles the job when the stage has returned: nothing is passed between two sessions that could be half done. Each
stage that runs has a session of its own; those that are free are kept, cleaned of what the stage has set.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import psycopg
from psycopg.pq import PGconn, TransactionStatus
from psycopg.pq.abc import PGconn as PGconnABC

from redrive.errors import ConfigurationError, StoreRefusedError, StoreUnavailableError
from redrive.store.callers import RefusedSettlementError
from redrive.store.plan import NOTHING, Continuation
from redrive.store.postgres.connection import LOCK_SECONDS, Link, Server, ServerPool, error_of
from redrive.store.postgres.session import EXPECTED, Session
from redrive.store.postgres.settle import at_once, settle_at_once
from redrive.store.postgres.submit import Submission
from redrive.store.records import Child, JobId, LaneId, Settlement
from redrive.store.settlement_rows import NotAtOnceError

_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL search_path TO DEFAULT; SET LOCAL lock_timeout TO DEFAULT;"
    " SET LOCAL jit TO DEFAULT;"
    # A stage may be idle for long. The server still notices a machine that is gone.
    " SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL tcp_keepalives_idle = 10;"
    " SET LOCAL tcp_keepalives_interval = 5; SET LOCAL tcp_keepalives_count = 4; SET LOCAL redrive.stage = 'runs'"
)
_CLEAN: Final = (
    "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; UNLISTEN *; CLOSE ALL; DISCARD TEMP;"
    " SELECT pg_advisory_unlock_all()"
)


class StageConnection(psycopg.Connection[Any]):
    """The connection of a sync stage; its transaction ends with the stage."""

    def commit(self) -> NoReturn:
        """Refuse."""
        _refuse("commit")

    def rollback(self) -> NoReturn:
        """Refuse."""
        _refuse("rollback")

    def close(self) -> NoReturn:
        """Refuse."""
        _refuse("close")


class AsyncStageConnection(psycopg.AsyncConnection[Any]):
    """The connection of an async stage; its transaction ends with the stage."""

    async def commit(self) -> NoReturn:
        """Refuse."""
        _refuse("commit")

    async def rollback(self) -> NoReturn:
        """Refuse."""
        _refuse("rollback")

    async def close(self) -> NoReturn:
        """Refuse."""
        _refuse("close")


def _refuse(verb: str) -> NoReturn:
    text = f"{verb}() is left to redrive: it commits with the stage's outcome, and rolls back when the stage raises"
    raise psycopg.ProgrammingError(text)


class StageConnections(ServerPool):
    """The sessions of stages."""

    kept_max = 8

    def begin(self, connection: Link) -> None:
        """See `Pool.begin`."""
        connection.execute(_BEGIN)

    def end(self, connection: Link) -> bool:
        """See `Pool.end`. The transaction itself has ended before; what the stage has set is cleaned away."""
        if connection.closed or connection.info.transaction_status is not TransactionStatus.IDLE:
            return False
        if not self._server.is_pooled:
            connection.execute(_CLEAN)
            connection.execute(self._server.settings)
        return True


class ServerStageTransactions:
    """See `StageTransactions`. `pipelines` are those of all lanes the store knows."""

    def __init__(self, server: Server, pipelines: dict[LaneId, str]) -> None:
        self.server = server
        self.pipelines = pipelines
        self.connections = StageConnections(server)

    @property
    def database(self) -> str:
        """See `StageTransactions.database`."""
        return self.server.address.url

    def begin(self, *, is_async: bool) -> ServerStageTransaction:
        """See `StageTransactions.begin`."""
        try:
            link = self.connections.take()
        except (psycopg.Error, OSError) as error:
            raise error_of(error, self.server.address) from error
        return ServerStageTransaction(self, link, is_async=is_async)

    def close(self) -> None:
        """See `StageTransactions.close`."""
        self.connections.close()


class ServerStageTransaction:
    """See `StageTransaction`."""

    def __init__(self, transactions: ServerStageTransactions, link: Link, *, is_async: bool) -> None:
        self._transactions = transactions
        self._link = link
        made = AsyncStageConnection(link.pgconn) if is_async else StageConnection(link.pgconn)
        # Two objects for one session: neither may take its prepared statements for the other's.
        made.prepare_threshold = link.prepare_threshold = None
        self._connection: StageConnection | AsyncStageConnection = made

    @property
    def connection(self) -> object:
        """What the stage gets."""
        return self._connection

    def settle(self, worker: str, one: Settlement) -> bool:
        """See `StageTransaction.settle`."""
        try:
            return self._settle(worker, one)
        except (psycopg.Error, OSError) as error:
            mapped = error_of(error, self._transactions.server.address)
            if isinstance(mapped, StoreUnavailableError):
                raise mapped from error
            raise
        finally:
            self._end()

    def roll_back(self) -> None:
        """See `StageTransaction.roll_back`."""
        self._end()

    def _settle(self, worker: str, one: Settlement) -> bool:
        children: list[tuple[Child, JobId]] = []

        def insert(db: Session, child: Child, now: float, parent: JobId) -> None:
            made = Submission(db, self._transactions.pipelines).insert_child(child, now, parent)
            children.append((child, made))

        self._return_to_our_settings()
        db = Session(self._link)
        known = db.execute("before_exchange", (worker, 0, 0)).fetchone()
        if known is None or not known[0]:
            return False
        nothing = Continuation(NOTHING, frozenset[LaneId](), token=0, now=one.ended_at)
        try:
            with at_once():
                settle_at_once(db, worker, [one], insert, nothing)
        except NotAtOnceError as error:
            cause = error.__cause__
            if getattr(cause, "sqlstate", None) == EXPECTED:
                return False
            raise RefusedSettlementError(cause if isinstance(cause, ConfigurationError) else None) from error
        self._link.execute("COMMIT")
        for child, made in children:
            child.stored[:] = [made]
        return True

    def _return_to_our_settings(self) -> None:
        """Set what our statements need until the end of the transaction; refuse one that is not the one it was."""
        schema = self._transactions.server.address.schema
        row = self._link.execute(
            "SELECT current_setting('redrive.stage', true) = 'runs', set_config('search_path', $1, true),"
            " set_config('lock_timeout', $2, true), set_config('jit', 'off', true)",
            (f'"{schema}"', f"{LOCK_SECONDS}s"),
        ).fetchone()
        if row is None or not row[0] or self._link.info.transaction_status is not TransactionStatus.INTRANS:
            raise StoreRefusedError(
                database=self._transactions.server.address.name,
                cause="the stage has ended the transaction of ctx.connection itself; what it wrote before that is committed",
                hint="Leave COMMIT and ROLLBACK to redrive; connection.transaction() gives a savepoint.",
            )

    def _end(self) -> None:
        """Roll back what is not committed, take the connection from the stage, and keep the session if it can be used again."""
        link = self._link
        try:
            if link.info.transaction_status in {TransactionStatus.INTRANS, TransactionStatus.INERROR}:
                link.execute("ROLLBACK")
        except psycopg.Error:
            link.close()
        self._connection.pgconn = _no_session()
        self._transactions.connections.give_back(link)


def _no_session() -> PGconnABC:
    """Return a closed connection, in the place of one that a stage may have kept beyond its end."""
    return PGconn.connect_start(b"port=closed")
