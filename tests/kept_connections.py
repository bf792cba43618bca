# SPDX-License-Identifier: Apache-2.0
"""Connections to a PostgreSQL server that tests use one after another.

A new process of a server knows no table, so that the first run of each statement takes it several times as long as all later ones;
for a test of a few statements that is most of the time. So a connection that is closed in good order is emptied of its session, and
the next one to the same address takes over its process. Whoever closes because of an error ends it for good.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any, ClassVar, Final, Self

from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn

from redrive.store.postgres.watchdog import WatchedConnection

KEPT_MAX: Final = 4
"""How many are kept for each address."""
NOWHERE: Final = b"nowhere="
"""What leads to no server, and is not even tried."""


class KeptConnection(WatchedConnection):
    """A connection whose process serves the next one when it is closed."""

    kept: ClassVar[defaultdict[str, list[PGconn]]] = defaultdict(list)
    """What no connection uses now, by address."""
    home: str = ""

    @classmethod
    def connect(cls, conninfo: str = "", **given: Any) -> Self:
        """Return a connection with a process that another one has left, or with a new one."""
        made = cls._taken_over(conninfo, **given) or super().connect(conninfo, **given)
        made.home = conninfo
        return made

    @classmethod
    def _taken_over(
        cls, home: str, *, autocommit: bool, cursor_factory: Any, **_given: object
    ) -> Self | None:
        unused = cls.kept[home]
        while unused:
            link = unused.pop()
            if link.exec_(b"").status == ExecStatus.EMPTY_QUERY:
                made = cls(link)
                made._autocommit, made.cursor_factory = autocommit, cursor_factory
                return made
            link.finish()
        return None

    def close(self) -> None:
        """Leave the process to the next connection."""
        link = self.pgconn
        unused = self.kept[self.home]
        is_in_order = (
            link.status == ConnStatus.OK
            and link.transaction_status == TransactionStatus.IDLE
            and link.pipeline_status == PipelineStatus.OFF
        )
        if (
            is_in_order
            and self.home
            and len(unused) < KEPT_MAX
            and sys.exception() is None
            and _is_emptied(link)
        ):
            # It is closed like any other: whoever goes on to use it is refused.
            self._closed = True
            self.pgconn = link.connect_start(NOWHERE)
            self.pgconn.finish()
            unused.append(link)
        super().close()

    @classmethod
    def end_all(cls) -> None:
        """End what is kept."""
        for unused in cls.kept.values():
            while unused:
                unused.pop().finish()


def _is_emptied(link: PGconn) -> bool:
    """Empty a connection of its session; return whether it answers. Before it is kept: what it listens to would never be read."""
    return link.exec_(b"DISCARD ALL").status == ExecStatus.COMMAND_OK
