# SPDX-License-Identifier: Apache-2.0
"""One transaction on a connection: named statements, one at a time or over the columns of a whole batch.

Statements are sent without waiting for the answers (pipeline mode), so that a batch costs a few round trips. Whoever needs an
answer asks for its rows, or synchronises.
"""

from __future__ import annotations

import re
import select
from collections.abc import Sequence
from functools import cache
from typing import Final

import psycopg
from psycopg.rows import TupleRow

from redrive.store.postgres.arrays import Column, column
from redrive.store.postgres.connection import Link, Server
from redrive.store.records import Row
from redrive.store.statements import statements_of

SQL: Final = {name: text.encode() for name, text in statements_of("postgres").items()}
"""The statements, as psycopg takes text that is no literal."""
_ARRAY: Final = re.compile(r"\$(\d+)::(bigint|double precision|text|bytea)\[\]")

Cursor = psycopg.Cursor[TupleRow]


class Session:
    """A transaction that has begun."""

    def __init__(self, link: Link, pipeline: psycopg.Pipeline | None = None) -> None:
        self._link = link
        self._pipeline = pipeline

    def begin(self, server: Server) -> None:
        """Begin; behind a pooler with the settings that a session would have."""
        self._link.execute("BEGIN")
        if server.is_pooled:
            self._link.execute(server.settings)

    def run(self, text: str) -> None:
        """Run a statement that has no name and no answer."""
        self._link.execute(text.encode())

    def execute(self, name: str, parameters: Row = ()) -> Cursor:
        """Send a named statement; its rows are fetched from the cursor."""
        cursor = self._link.cursor(binary=True).execute(SQL[name], parameters)
        if self._pipeline is not None:
            self._send()
        return cursor

    def execute_rows(self, name: str, rows: Sequence[Row], terms: Row = ()) -> Cursor:
        """Send a named statement over rows; `terms` are the same for all of them."""
        return self.execute(name, (*terms, *columns_of(name, rows)))

    def _send(self) -> None:
        """Send all that is to be sent: waiting for an answer, psycopg would not send the rest of a large value."""
        server = self._link.pgconn
        while server.flush():
            waiting = select.poll()
            waiting.register(server.socket, select.POLLIN | select.POLLOUT)
            if any(event & select.POLLIN for _, event in waiting.poll()):
                server.consume_input()

    def sync(self) -> None:
        """Wait for all answers."""
        if self._pipeline is not None:
            self._pipeline.sync()


def columns_of(name: str, rows: Sequence[Row]) -> list[Column]:
    """Return rows as the arrays that a statement takes."""
    kinds = _kinds_of(name)
    columns = zip(*rows, strict=True) if rows else ((),) * len(kinds)
    return [column(kind, values) for kind, values in zip(kinds, columns, strict=True)]


@cache
def _kinds_of(name: str) -> tuple[str, ...]:
    """Return the types of a statement's arrays, in order."""
    found = {int(number): kind for number, kind in _ARRAY.findall(SQL[name].decode())}
    return tuple(found[number] for number in sorted(found))
