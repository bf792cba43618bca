# SPDX-License-Identifier: Apache-2.0
"""Jobs that are stored in a transaction of the caller's, on a connection of the caller's, to the same file.

An open transaction that has written to the file blocks all other writers, redrive too: the caller's transaction
must be short. Nobody announces its commit, so that an idle worker finds the jobs when it looks next. Errors of the driver reach the
caller as they are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from redrive.errors import ConfigurationError
from redrive.store.callers import FILE, CallerSession, StageTransactions, caller_of, other_database
from redrive.store.records import LaneId, NewJob, SubmittedJob
from redrive.store.sqlite.submit import Submission


class FileTransactions:
    """See `CallerTransactions`."""

    is_exclusive = True

    def __init__(self, path: str, pipelines: dict[LaneId, str]) -> None:
        self._path = path
        self.stages: StageTransactions | None = None
        """See `CallerTransactions.stages`. None: a file has one writer at a time, and a stage may take long."""
        self._pipelines = pipelines

    def submit(self, connection: object, jobs: Sequence[NewJob], now: float) -> list[SubmittedJob]:
        """See `CallerTransactions.submit`."""
        caller = caller_of(connection, is_async=False)
        if caller.system != FILE:
            raise other_database(self._path, caller.system)
        link = _link_of(caller)
        self._refuse_other_file(link)
        if not link.in_transaction:
            if _is_autocommit(link):
                raise ConfigurationError(
                    field="connection",
                    value="a connection in autocommit",
                    rule="must be in a transaction",
                    fix='Begin one first: connection.execute("BEGIN IMMEDIATE"), for example.',
                )
            # Not a deferred one: it reads first, and could not write if somebody else has written since.
            link.execute("BEGIN IMMEDIATE")
        return self._submit(link, jobs, now)

    async def submit_async(
        self, connection: object, _jobs: Sequence[NewJob], _now: float, /
    ) -> list[SubmittedJob]:
        """Refuse: see `CallerTransactions.submit_async`."""
        raise ConfigurationError(
            field="connection",
            value=connection,
            rule="must be for sync code, because the database is a file",
            fix="Submit by `with redrive.connect(...)` on a connection of sqlite3, without await.",
        )

    def _submit(self, link: sqlite3.Connection, jobs: Sequence[NewJob], now: float) -> list[SubmittedJob]:
        cursor = link.cursor()
        # The caller may have rows made of something else.
        cursor.row_factory = None
        cursor.execute("SAVEPOINT redrive_submit")
        try:
            made = Submission(cursor, self._pipelines).submit(jobs, now)
        except BaseException:
            cursor.execute("ROLLBACK TO redrive_submit")
            raise
        finally:
            cursor.execute("RELEASE redrive_submit")
            cursor.close()
        return made

    def _refuse_other_file(self, link: sqlite3.Connection) -> None:
        cursor = link.cursor()
        cursor.row_factory = None
        rows = cast("list[tuple[int, str, str]]", cursor.execute("PRAGMA database_list").fetchall())
        file = str(next((path for _, name, path in rows if name == "main"), ""))
        if not file or self._path == ":memory:" or not Path(file).samefile(self._path):
            raise other_database(self._path, file or "a database in memory")


def _link_of(caller: CallerSession) -> sqlite3.Connection:
    """Return the connection of sqlite3 that is behind another library's; that one notices that a transaction has begun."""
    link: Any = caller.connection
    if caller.driver == "sqlalchemy":
        caller.ask(link, "SELECT 1", ())
        bound = link if hasattr(link, "exec_driver_sql") else link.connection()
        link = bound.connection.driver_connection
    elif caller.driver == "django":
        link.ensure_connection()
        link = link.connection
    return cast("sqlite3.Connection", link)


def _is_autocommit(link: sqlite3.Connection) -> bool:
    """Return whether every statement commits by itself; Python 3.12 has a setting of its own for that."""
    setting = getattr(link, "autocommit", -1)
    return setting is True or (setting == -1 and link.isolation_level is None)
