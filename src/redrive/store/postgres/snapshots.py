# SPDX-License-Identifier: Apache-2.0
"""Reads of one moment of a database on a server, on connections of their own, in transactions that only read.

A kept connection may be lost by now; then another one is made.
"""

from __future__ import annotations

import psycopg

from redrive.store.connections import Snapshots
from redrive.store.postgres.connection import Link, Server
from redrive.store.postgres.session import SQL
from redrive.store.records import Row


class ServerSnapshots(Snapshots[Link]):
    """The connections of a store on a server that only read."""

    errors = psycopg.Error
    lost = (psycopg.OperationalError,)

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def opened(self) -> Link:
        """See `Pool.opened`."""
        return self._server.connect()

    def begin(self, connection: Link) -> None:
        """See `Pool.begin`."""
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # The moment is that of the first statement.
        connection.execute(self._server.settings if self._server.is_pooled else "SELECT 1")

    def rows(self, connection: Link, name: str, parameters: Row) -> list[Row]:
        """See `Snapshots.rows`."""
        return connection.cursor(binary=True).execute(SQL[name], parameters).fetchall()
