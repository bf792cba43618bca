# SPDX-License-Identifier: Apache-2.0
"""Runs transactions on one connection, and turns the errors of the driver into the store's.

A transaction in conflict with another one is repeated, as is one whose statements the server does not have. After a connection
was lost nothing is repeated here: the caller learns that the store is unavailable, and the next call connects again. Whether a
commit took place whose answer was lost is found out only where repeating the call would do its work twice.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from typing import Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from redrive.store.connections import refuse_unusable
from redrive.store.postgres.connection import Link, Server, error_of, holder_of_lock, lock_not_granted
from redrive.store.postgres.session import SQL, Session
from redrive.store.postgres.settle import at_once
from redrive.store.records import Row

UNPREPARED: Final = psycopg.errors.InvalidSqlStatementName
"""The driver takes a statement for prepared that the server does not know: one of a pipeline that ended before it, for example."""
REPEATED: Final = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure, UNPREPARED)
"""Errors of transactions that did nothing, and may succeed the next time."""
WAITED: Final = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)
"""Errors of statements that waited for too long."""
TRIES: Final = 5
"""How often a transaction is tried that is in conflict with another one."""
ASKED_MAX: Final = 20
"""How often the server is asked what became of a commit."""
ASK_SECONDS: Final = 0.5

T = TypeVar("T")


class Transactions:
    """Transactions of one store, one at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._mutex = threading.Lock()
        self._process = os.getpid()
        self._is_closed = False
        self._pause = threading.Event()

    def write(self, work: Callable[[Session], T], *, is_exact: bool = False, is_pipelined: bool = True) -> T:
        """Run work in a transaction; `is_exact` if repeating a call whose answer was lost would do its work twice."""
        return self._repeated(lambda: self._write(work, is_exact=is_exact, is_pipelined=is_pipelined))

    def write_at_once(self, work: Callable[[Session], Callable[[], T]]) -> T:
        """Run work that looks at no answer and commits by itself; then call what it returned. Raises as `at_once`."""

        def written() -> Callable[[], T]:
            with at_once():
                return self._write(work, is_exact=False, is_pipelined=True)

        return self._repeated(written)()

    def read(self, text: bytes, parameters: Row = ()) -> list[Row]:
        """Run a query that only reads."""
        return self._repeated(lambda: self._read(text, parameters))

    def _read(self, text: bytes, parameters: Row) -> list[Row]:
        link = self._server.link()
        with self._kept(link), link.transaction() if self._server.is_pooled else nullcontext():
            if self._server.is_pooled:
                link.execute(self._server.settings)
            return link.cursor(binary=True).execute(text, parameters).fetchall()

    def query(self, name: str, *parameters: object) -> list[Row]:
        """Run a named query that only reads."""
        return self.read(SQL[name], parameters)

    def close(self, *others: Callable[[], None]) -> None:
        """Close the connection for good, and others with it; not those that belong to the process this one was forked from."""
        with self._mutex:
            self._is_closed = True
            if os.getpid() == self._process:
                for close in (*others, self._server.drop):
                    close()

    def use(self, opened: Callable[[Link], T]) -> T:
        """Run something on the connection itself."""
        with self._mutex, self.mapped():
            link = self._server.link()
            with self._kept(link):
                return opened(link)

    def _repeated(self, run: Callable[[], T]) -> T:
        """Run a transaction, and again if it did nothing and may succeed the next time."""
        with self._mutex, self.mapped():
            for _ in range(TRIES - 1):
                with suppress(*REPEATED):
                    return run()
            return run()

    def _write(self, work: Callable[[Session], T], *, is_exact: bool, is_pipelined: bool) -> T:
        link = self._server.link()
        made: list[T] = []
        xid = ""
        try:
            with self._kept(link), link.pipeline() if is_pipelined else nullcontext() as pipeline:
                session = Session(link, pipeline)
                session.begin(self._server)
                # Sent before the work, so that the answer comes with one that the work waits for.
                asked = link.execute("SELECT pg_current_xact_id()::text") if is_exact else None
                result = work(session)
                if asked is not None:
                    row = asked.fetchone()
                    xid = "" if row is None else str(row[0])
                if not session.is_committed:
                    made.append(result)
                    session.commit()
        except psycopg.OperationalError:
            if made and xid and self._is_committed(xid):
                return made[0]
            raise
        return result

    def _is_committed(self, xid: str) -> bool:
        """Return whether a transaction was committed whose connection is gone."""
        for _ in range(ASKED_MAX):
            row = self._server.link().execute("SELECT pg_xact_status($1::text::xid8)", (xid,)).fetchone()
            if row is not None and row[0] != "in progress":
                return bool(row[0] == "committed")
            self._pause.wait(ASK_SECONDS)
        return False

    @contextmanager
    def _kept(self, link: Link) -> Generator[None]:
        """Leave the connection ready for the next transaction, or not at all."""
        try:
            yield
        except BaseException as error:
            try:
                is_unknown = link.closed or link.info.transaction_status is TransactionStatus.UNKNOWN
                if is_unknown or isinstance(error, UNPREPARED):
                    self._server.drop()
                elif link.info.transaction_status is not TransactionStatus.IDLE:
                    link.execute("ROLLBACK")
            except psycopg.Error:
                self._server.drop()
            raise

    @contextmanager
    def mapped(self) -> Generator[None]:
        """Turn the errors of the driver into the store's."""
        refuse_unusable(self._server.address.name, self._process, is_closed=self._is_closed)
        try:
            yield
        except (psycopg.Error, OSError, UnicodeError, OverflowError) as error:
            if holder := self._holder(error):
                raise lock_not_granted(error, self._server.address, holder) from error
            raise error_of(error, self._server.address) from error

    def _holder(self, error: Exception) -> str:
        """Return who holds the lock that a statement did not get; an empty text for other errors."""
        if not isinstance(error, WAITED):
            return ""
        with suppress(psycopg.Error):
            return holder_of_lock(self._server.link(), self._server.address)
        return ""
