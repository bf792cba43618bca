# SPDX-License-Identifier: Apache-2.0
"""Connections for reads of one moment, each for one read at a time: no writer waits for them, and they wait for none.

A connection is kept for the next read. How one is opened, and how its moment begins, is each store's own.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

KEPT_MAX: Final = 4
"""Connections that are kept for the next reads."""


class Connection(Protocol):
    """A connection of any driver."""

    def execute(self, query: Any, /) -> Any:
        """Run a statement."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


C = TypeVar("C", bound=Connection)


class Snapshots(ABC, Generic[C]):
    """The connections of a store that only read."""

    errors: ClassVar[type[Exception]]
    """What the driver raises."""
    lost: ClassVar[tuple[type[Exception], ...]] = ()
    """What it raises for a kept connection that was lost by now: another one is opened."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._free: list[C] = []
        self._is_closed = False

    @abstractmethod
    def opened(self) -> C:
        """Return another connection."""

    @abstractmethod
    def begin(self, connection: C) -> None:
        """Begin a transaction that sees one moment, which is now."""

    def take(self) -> C:
        """Return a connection in a transaction that sees one moment."""
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
        """End the transaction, and keep the connection for the next one."""
        try:
            connection.execute("ROLLBACK")
        except self.errors:
            connection.close()
            return
        with self._mutex:
            is_kept = not self._is_closed and len(self._free) < KEPT_MAX
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
