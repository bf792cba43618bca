# SPDX-License-Identifier: Apache-2.0
"""Jobs that are stored in a transaction of the caller's, on a connection of the caller's, to the same database.

One statement calls `submit_jobs` of the schema, which also announces the jobs: PostgreSQL passes that on when the transaction
commits. A savepoint around it leaves the transaction as it was when the statement fails, and the server refuses it where there is
no transaction. Errors of the driver that are not listed here reach the caller as they are: a conflict is theirs to
repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from redrive.errors import ConfigurationError, RedriveError, StoreRefusedError
from redrive.store.callers import (
    SERVER,
    CallerSession,
    StageTransactions,
    Steps,
    caller_of,
    other_database,
    run,
    run_async,
    state_of,
)
from redrive.store.postgres.connection import Address
from redrive.store.postgres.submit import is_beside
from redrive.store.records import JobId, NewJob, SubmittedJob

MISSING: Final = frozenset({"3F000", "42883", "42P01"})
"""There is no such schema, function or table."""
_WHERE: Final = "SELECT current_database() || coalesce(' at ' || host(inet_server_addr()) || ':' || inet_server_port(), '')"


class ServerTransactions:
    """See `CallerTransactions`. `installation` returns the id of the store's own database."""

    is_exclusive = False

    def __init__(self, address: Address, installation: Callable[[], str], stages: StageTransactions) -> None:
        self._address = address
        self._installation = installation
        self.stages: StageTransactions | None = stages
        """See `CallerTransactions.stages`."""

    def submit(self, connection: object, jobs: Sequence[NewJob], now: float) -> list[SubmittedJob]:
        """See `CallerTransactions.submit`."""
        caller = self._checked(caller_of(connection, is_async=False))
        return run(self._submitting(jobs, now, self._installation()), caller)

    async def submit_async(
        self, connection: object, jobs: Sequence[NewJob], now: float
    ) -> list[SubmittedJob]:
        """See `CallerTransactions.submit_async`."""
        caller = self._checked(caller_of(connection, is_async=True))
        installation = await asyncio.to_thread(self._installation)
        return await run_async(self._submitting(jobs, now, installation), caller)

    def _checked(self, caller: CallerSession) -> CallerSession:
        if caller.system != SERVER:
            raise other_database(self._address.name, caller.system)
        return caller

    def _submitting(self, jobs: Sequence[NewJob], now: float, installation: str) -> Steps[list[SubmittedJob]]:
        try:
            yield "SAVEPOINT redrive_submit", ()
        except Exception as error:
            if (refusal := self._refusal(error)) is not None:
                raise refusal from error
            raise
        try:
            statement = f'SELECT "{self._address.schema}".submit_jobs($1, $2)'
            answer = yield statement, (installation, as_json(jobs, now))
        except Exception as error:
            with suppress(Exception):
                yield "ROLLBACK TO SAVEPOINT redrive_submit", ()
            if state_of(error) in MISSING:
                raise other_database(self._address.name, str((yield _WHERE, ()))) from error
            if (refusal := self._refusal(error)) is not None:
                raise refusal from error
            raise
        yield "RELEASE SAVEPOINT redrive_submit", ()
        if answer is None:
            raise other_database(self._address.name, str((yield _WHERE, ())))
        return submitted_jobs(answer)

    def _refusal(self, error: Exception) -> RedriveError | None:
        """Return what a driver's error means here; None to raise it as it is."""
        match state_of(error):
            case "25P01":  # There is no transaction.
                return ConfigurationError(
                    field="connection",
                    value="a connection in autocommit",
                    rule="must be in a transaction",
                    fix="Begin one first: with connection.transaction(), engine.begin() or transaction.atomic(), for example.",
                )
            case "25P02":  # It has failed.
                return StoreRefusedError(
                    database=self._address.name,
                    cause="the transaction of the given connection has failed, and takes nothing more",
                    hint="Roll it back, and repeat all of it.",
                )
            case "42501":  # Insufficient privilege.
                return StoreRefusedError(
                    database=self._address.name,
                    cause=f"the role of the given connection may not submit: {_line(error)}",
                    hint=f"GRANT USAGE ON SCHEMA {self._address.schema} and EXECUTE ON FUNCTION"
                    f" {self._address.schema}.submit_jobs to it (docs/how-to/postgresql.md).",
                )
            case _:
                return None


def as_json(jobs: Sequence[NewJob], now: float) -> str:
    """Return jobs as `submit_jobs` takes them."""
    return msgspec.json.encode([_fields_of(job, now) for job in jobs]).decode()


def submitted_jobs(answer: object) -> list[SubmittedJob]:
    """Return what `submit_jobs` answered."""
    made = msgspec.json.decode(str(answer), type=list[tuple[int, bool]])
    return [SubmittedJob(JobId(id_), is_duplicate=is_duplicate) for id_, is_duplicate in made]


def _fields_of(job: NewJob, now: float) -> dict[str, object]:
    payload = job.payload.decode()
    return {
        "lane": job.lane,
        "priority": job.priority,
        "run_at": job.run_at,
        "key": job.key,
        "owner": job.owner,
        "expires_at": job.expires_at,
        "large" if is_beside(job) else "payload": payload,
        "trace": job.trace,
        "created_at": now,
    }


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
