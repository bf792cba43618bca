# SPDX-License-Identifier: Apache-2.0
"""Reads of one moment of a database on a server, each on a connection of its own: no writer waits for them, and they wait for none.

A connection is kept for the next read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Final, TypeVar

import psycopg

from redrive.store.postgres.connection import Link, Server
from redrive.store.postgres.session import SQL
from redrive.store.records import Call

KEPT_MAX: Final = 4
"""Connections that are kept for the next reads."""
R = TypeVar("R")


class Snapshot:
    """One moment of a database."""

    def __init__(self, link: Link, mapped: Callable[[], AbstractContextManager[None]]) -> None:
        self._link = link
        self._mapped = mapped

    def query(self, asked: Call[R], /) -> list[R]:
        """See `Reader.query`."""
        with self._mapped():
            rows = self._link.cursor(binary=True).execute(SQL[asked.name], asked.parameters).fetchall()
        return asked.decode(rows)


class Snapshots:
    """The connections of a store that only read."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._mutex = threading.Lock()
        self._free: list[Link] = []
        self._is_closed = False

    def take(self) -> Link:
        """Return a connection in a transaction that sees one moment; a kept one may be lost by now."""
        with self._mutex:
            link = self._free.pop() if self._free else None
        if link is not None:
            with suppress(psycopg.OperationalError):
                self._begin(link)
                return link
            link.close()
        link = self._server.connect()
        self._begin(link)
        return link

    def _begin(self, link: Link) -> None:
        link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # The moment is that of the first statement.
        link.execute(self._server.settings if self._server.is_pooled else "SELECT 1")

    def give_back(self, link: Link) -> None:
        """End the transaction, and keep the connection for the next one."""
        try:
            link.execute("ROLLBACK")
        except psycopg.Error:
            link.close()
            return
        with self._mutex:
            is_kept = not self._is_closed and len(self._free) < KEPT_MAX
            if is_kept:
                self._free.append(link)
        if not is_kept:
            link.close()

    def close(self) -> None:
        """Close the connections; one that is in use closes when it is given back."""
        with self._mutex:
            self._is_closed = True
            while self._free:
                self._free.pop().close()
