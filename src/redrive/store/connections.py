# SPDX-License-Identifier: Apache-2.0
"""The connections of a store, the same for every driver: when they may be used, and those beside the store's own.

A connection of a pool is for one transaction at a time, and is kept for the next one. How one is opened, and how its transaction
begins, is each store's own.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from redrive.errors import StoreRefusedError
from redrive.store.reader import Reader
from redrive.store.records import Call, Row

Mapped = Callable[[], AbstractContextManager[None]]
"""Turns the errors of the driver into the store's."""
R = TypeVar("R")


def refuse_unusable(database: str, process: int, *, is_closed: bool) -> None:
    """Refuse a store that another process has opened, which this one was forked from, or that is closed."""
    if os.getpid() != process:
        raise StoreRefusedError(
            database=database,
            cause="it was opened before this process was forked",
            hint="Connect after the fork.",
        )
    if is_closed:
        raise StoreRefusedError(
            database=database,
            cause="the connection is closed",
            hint="Use it inside its `with` block or before close(), or connect again.",
        )


class Connection(Protocol):
    """A connection of any driver."""

    def execute(self, query: Any, /) -> Any:
        """Run a statement."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


C = TypeVar("C", bound=Connection)


class Pool(ABC, Generic[C]):
    """Connections beside the store's own."""

    kept_max: ClassVar[int]
    """How many are kept for the next transactions."""
    errors: ClassVar[type[Exception]]
    """What the driver raises."""
    lost: ClassVar[tuple[type[Exception], ...]] = ()
    """What it raises for a kept connection that was lost meanwhile: another one is opened."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._free: list[C] = []
        self._is_closed = False

    @abstractmethod
    def opened(self) -> C:
        """Return another connection."""

    @abstractmethod
    def begin(self, connection: C) -> None:
        """Begin a transaction."""

    @abstractmethod
    def end(self, connection: C) -> bool:
        """End the transaction; return whether the connection can be used again."""

    def take(self) -> C:
        """Return a connection in a transaction."""
        with self._mutex:
            kept = self._free.pop() if self._free else None
        if kept is not None:
            with suppress(*self.lost):
                self.begin(kept)
                return kept
            kept.close()
        connection = self.opened()
        self.begin(connection)
        return connection

    def give_back(self, connection: C) -> None:
        """End the transaction, and keep the connection for the next one, or close it."""
        is_kept = False
        with suppress(self.errors):
            is_kept = self.end(connection)
        with self._mutex:
            is_kept = is_kept and not self._is_closed and len(self._free) < self.kept_max
            if is_kept:
                self._free.append(connection)
        if not is_kept:
            connection.close()

    def close(self) -> None:
        """Close the connections; one that is in use closes when it is given back."""
        with self._mutex:
            self._is_closed = True
            while self._free:
                self._free.pop().close()


class Snapshots(Pool[C]):
    """Connections for reads of one moment: no writer waits for them, and they wait for none."""

    kept_max = 4

    def end(self, connection: C) -> bool:
        """See `Pool.end`."""
        connection.execute("ROLLBACK")
        return True

    @abstractmethod
    def rows(self, connection: C, name: str, parameters: Row) -> list[Row]:
        """Return the rows of a named statement."""

    @contextmanager
    def reading(self, mapped: Mapped) -> Generator[Reader]:
        """See `Store.reading`."""
        with mapped():
            connection = self.take()
        try:
            yield _Snapshot(self, connection, mapped)
        finally:
            self.give_back(connection)


class _Snapshot(Generic[C]):
    """One moment of a database."""

    def __init__(self, snapshots: Snapshots[C], connection: C, mapped: Mapped) -> None:
        self._snapshots = snapshots
        self._connection = connection
        self._mapped = mapped

    def query(self, asked: Call[R], /) -> list[R]:
        """See `Reader.query`."""
        with self._mapped():
            rows = self._snapshots.rows(self._connection, asked.name, asked.parameters)
        return asked.decode(rows)
