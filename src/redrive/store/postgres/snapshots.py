# SPDX-License-Identifier: Apache-2.0
"""Reads of one moment of a database on a server, on connections of their own, in transactions that only read.

A kept connection may be lost by now; then another one is made.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import psycopg

from redrive.store.postgres.connection import Link, Server
from redrive.store.postgres.session import SQL
from redrive.store.records import Call
from redrive.store.snapshots import Snapshots

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


class ServerSnapshots(Snapshots[Link]):
    """The connections of a store on a server that only read."""

    errors = psycopg.Error
    lost = (psycopg.OperationalError,)

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def opened(self) -> Link:
        """See `Snapshots.opened`."""
        return self._server.connect()

    def begin(self, connection: Link) -> None:
        """See `Snapshots.begin`."""
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # The moment is that of the first statement.
        connection.execute(self._server.settings if self._server.is_pooled else "SELECT 1")
