# SPDX-License-Identifier: Apache-2.0
"""Reads of one moment of a database on a server, on connections of their own, in transactions that only read."""

from __future__ import annotations

from redrive.store.connections import Snapshots
from redrive.store.postgres.connection import Link, ServerPool
from redrive.store.postgres.session import SQL
from redrive.store.records import Row


class ServerSnapshots(ServerPool, Snapshots[Link]):
    """The connections of a store on a server that only read."""

    def begin(self, connection: Link) -> None:
        """See `Pool.begin`."""
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # The moment is that of the first statement.
        connection.execute(self._server.settings if self._server.is_pooled else "SELECT 1")

    def rows(self, connection: Link, name: str, parameters: Row) -> list[Row]:
        """See `Snapshots.rows`."""
        return connection.cursor(binary=True).execute(SQL[name], parameters).fetchall()
