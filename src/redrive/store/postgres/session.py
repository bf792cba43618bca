# SPDX-License-Identifier: Apache-2.0
"""One transaction on a connection: named statements, one at a time or over the columns of a whole batch.

Statements are sent without waiting for the answers (pipeline mode). Whoever needs an answer asks for its rows, or synchronises; a
transaction that does neither before it commits is one round trip. What it relies on is checked by the server (`EXPECTED`): all that
was sent after a failed expectation is void.
"""

from __future__ import annotations

import re
import select
from collections.abc import Sequence
from functools import cache
from typing import Final

import psycopg
from psycopg.rows import TupleRow

from redrive.store.postgres.arrays import Column, CopyWriter, column
from redrive.store.postgres.connection import Link, Server
from redrive.store.records import Row
from redrive.store.statements.text import statements_of

SQL: Final = {name: text.encode() for name, text in statements_of("postgres").items()}
"""The statements, as psycopg takes text that is no literal."""
EXPECTED: Final = "RD001"
"""The state of an error: a statement changed another number of rows than was expected."""
EXPECTED_FACTS: Final = "RD002"
"""The state of an error: what a worker remembers is not so any more."""
_ARRAY: Final = re.compile(r"\$(\d+)::(bigint|double precision|text|bytea)\[\]")

Cursor = psycopg.Cursor[TupleRow]


class Session:
    """A transaction that has begun."""

    def __init__(self, link: Link, pipeline: psycopg.Pipeline | None = None) -> None:
        self._link = link
        self._pipeline = pipeline
        self.is_committed = False

    def begin(self, server: Server) -> None:
        """Begin; behind a pooler with the settings that a session would have."""
        self._link.execute("BEGIN")
        if server.is_pooled:
            self._link.execute(server.settings)

    def commit(self) -> None:
        """Send the commit; its answer is waited for when the transaction is left."""
        self.run("COMMIT")
        self.is_committed = True

    def run(self, text: str) -> None:
        """Run a statement that has no name and no answer."""
        self._link.execute(text.encode())

    def execute(self, name: str, parameters: Row = ()) -> Cursor:
        """Send a named statement; its rows are fetched from the cursor."""
        return self._execute(SQL[name], parameters)

    def execute_rows(self, name: str, rows: Sequence[Row], terms: Row = ()) -> Cursor:
        """Send a named statement over rows; `terms` are the same for all of them."""
        return self.execute(name, (*terms, *columns_of(name, rows)))

    def change_rows(self, name: str, rows: Sequence[Row], terms: Row = ()) -> None:
        """Send a named update over rows; unless it changes as many, the transaction ends with an error of state `EXPECTED`."""
        self._execute(_expecting(name), (*terms, *columns_of(name, rows), len(rows)))

    @property
    def can_copy(self) -> bool:
        """Whether rows can be copied: not while statements are sent without waiting for the answers."""
        return self._pipeline is None

    def copy(self, name: str, rows: CopyWriter) -> None:
        """Copy rows by a named statement."""
        with self._link.cursor().copy(SQL[name]) as into:
            into.write(rows.encoded())

    def _execute(self, text: bytes, parameters: Row) -> Cursor:
        cursor = self._link.cursor(binary=True).execute(text, parameters)
        if self._pipeline is not None:
            self._send()
        return cursor

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
def _expecting(name: str) -> bytes:
    """Return a named update that checks how many rows it has changed; their number is its last parameter."""
    text = SQL[name].decode()
    last = 1 + max(int(number) for number in re.findall(r"\$(\d+)", text))
    return b"WITH done AS (%b RETURNING 1) SELECT expect(count(*) = $%d, '%b') FROM done" % (
        text.encode(),
        last,
        EXPECTED.encode(),
    )


@cache
def _kinds_of(name: str) -> tuple[str, ...]:
    """Return the types of a statement's arrays, in order."""
    found = {int(number): kind for number, kind in _ARRAY.findall(SQL[name].decode())}
    return tuple(found[number] for number in sorted(found))
