# SPDX-License-Identifier: Apache-2.0
"""A connection that does not wait for ever for a server that no longer answers.

Keepalives notice a machine that is gone. They do not notice what stands in between and takes all that is sent without passing it
on: a proxy, or a firewall that has forgotten the connection. So after a while without a word the server is asked, on another
connection, whether it still works on the statement. A long statement is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

from redrive.store.records import Row

T = TypeVar("T")
TICK_SECONDS: Final = 0.1
"""How long the driver waits before it checks the connection; no clock is needed to count these."""


def _is_lost() -> bool:
    return True


class WatchedConnection(psycopg.Connection[TupleRow]):
    """A connection; `is_lost` is asked after every `patience` seconds of silence in which an answer was awaited."""

    patience: float = 30.0
    is_lost: Callable[[], bool] = staticmethod(_is_lost)
    session: Row = ()
    """The process that serves it, and when that began."""

    def wait(self, gen: PQGen[T], interval: float = TICK_SECONDS, timeout: float | None = None) -> T:
        """Wait for the driver's work to be done, but not for a connection that is lost."""
        return super().wait(self._watched(gen, interval), interval, timeout)

    def _watched(self, gen: PQGen[T], interval: float) -> PQGen[T]:
        silent = 0.0
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                silent = 0.0 if ready else silent + interval
                if silent >= self.patience:
                    if self.is_lost():
                        # Whoever waits must not try to end the transaction over it.
                        self.pgconn.finish()
                        problem = f"no answer for {self.patience:g} s, and the server works on no statement"
                        raise psycopg.OperationalError(problem)
                    silent = 0.0
                wanted = gen.send(ready)
        except StopIteration as ended:
            result: T = ended.value
            return result
