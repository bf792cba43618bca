# SPDX-License-Identifier: Apache-2.0
"""Connections of other programs' drivers, on which redrive runs a few statements inside a transaction that is not its own.

A driver is known by the module of its classes: none of them is imported here. Nothing here begins, commits or closes anything:
that is the caller's. A statement is written with `$1`, and passed as the driver wants it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

from msgspec import Struct

from redrive.errors import ConfigurationError
from redrive.store.records import NewJob, Settlement, SubmittedJob

T = TypeVar("T")
Question = tuple[str, tuple[object, ...]]
Steps = Generator[Question, object, T]
"""Statements, one after the other: each is answered with the first column of its first row, or raises what the driver raised."""
SERVER, FILE = "postgresql", "sqlite"
KNOWN: Final = "a connection of psycopg, asyncpg, sqlite3, SQLAlchemy (Connection or Session) or Django"
_PLACE: Final = re.compile(r"\$\d+")


class RefusedSettlementError(Exception):
    """The store could not take the row of a settlement; `why`, where the application can do something about it."""

    def __init__(self, why: ConfigurationError | None) -> None:
        self.why = why
        super().__init__(why)


class StageTransaction(Protocol):
    """A transaction in which one stage runs. It ends once: with `settle` or with `roll_back`."""

    @property
    def connection(self) -> object:
        """The connection that the stage gets."""
        ...

    def settle(self, worker: str, one: Settlement) -> bool:
        """Settle the stage's job and commit all; return False, and roll all back, if its lease was lost.

        Raises:
            RefusedSettlementError: its row cannot be stored.
            StoreUnavailableError: it may have been committed, or not; the fence decides about whatever is settled next.
            Exception: an error of the driver about what the stage has written. In every case all of it is rolled back.
        """
        ...

    def roll_back(self) -> None:
        """Undo what the stage has written; never fails."""
        ...


class StageTransactions(Protocol):
    """Transactions in which stages run. May be called from any thread."""

    @property
    def database(self) -> str:
        """The address by which another process opens the database."""
        ...

    def begin(self, *, is_async: bool) -> StageTransaction:
        """Begin one, for a sync or an async stage; raises StoreError."""
        ...

    def close(self) -> None:
        """Close what is not in use."""
        ...


class CallerTransactions(Protocol):
    """Jobs that are stored in transactions of the caller's: they exist if and only if those commit. And stages that run in one."""

    @property
    def stages(self) -> StageTransactions | None:
        """Transactions in which stages run; None where a stage cannot have one."""
        ...

    is_exclusive: bool
    """Whether the caller's transaction may block all other writers."""

    def submit(self, connection: object, jobs: Sequence[NewJob], now: float, /) -> list[SubmittedJob]:
        """Store jobs by a connection of the caller's."""
        ...

    async def submit_async(
        self, connection: object, jobs: Sequence[NewJob], now: float, /
    ) -> list[SubmittedJob]:
        """Store jobs by an async connection of the caller's."""
        ...


class CallerSession(Struct, frozen=True):
    """A connection of the caller's."""

    connection: Any
    driver: str
    """The package it is of."""
    system: str
    """What it is connected to: `postgresql`, `sqlite` or another."""
    ask: Callable[[Any, str, tuple[object, ...]], Any]
    """Runs a statement on it, and returns the first column of the first row; in async code, what to await for that."""
    is_async: bool = False


def caller_of(connection: object, *, is_async: bool) -> CallerSession:
    """Return a connection of a known driver.

    Raises:
        ConfigurationError: it is none, or an async one in sync code, or the other way round.
    """
    parents = type(connection).__mro__
    packages = [parent.__module__.partition(".")[0] for parent in parents]
    known = next((_KINDS[package] for package in packages if package in _KINDS), None)
    found = None if known is None else known(connection, {parent.__name__ for parent in parents})
    if found is None:
        raise ConfigurationError(
            field="connection",
            value=connection,
            rule=f"must be {KNOWN}",
            fix="Pass the one that your own statements run on.",
        )
    if found.is_async is not is_async:
        raise ConfigurationError(
            field="connection",
            value=connection,
            rule="is for sync code" if is_async else "is for async code",
            fix="Submit by `with redrive.connect(...)`, without await."
            if is_async
            else "Submit by `async with redrive.connect(...)`, with await.",
        )
    return found


def other_database(ours: str, theirs: str) -> ConfigurationError:
    """Return the error about a connection to another database than ours."""
    return ConfigurationError(
        field="connection",
        value=theirs,
        rule=f"must be to the database of redrive, {ours}",
        fix="Use the same database for both, or submit without connection= after your commit.",
    )


def run(steps: Steps[T], caller: CallerSession) -> T:
    """Run statements on a connection of the caller's; return what the steps return."""
    try:
        question = next(steps)
        while True:
            try:
                answer = caller.ask(caller.connection, *question)
            except Exception as error:  # noqa: BLE001 - whatever a driver raises is for the steps to judge.
                question = steps.throw(error)
            else:
                question = steps.send(answer)
    except StopIteration as ended:
        return cast("T", ended.value)


async def run_async(steps: Steps[T], caller: CallerSession) -> T:
    """Run statements on an async connection of the caller's; return what the steps return."""
    try:
        question = next(steps)
        while True:
            try:
                answer = await cast("Awaitable[object]", caller.ask(caller.connection, *question))
            except Exception as error:  # noqa: BLE001 - as above.
                question = steps.throw(error)
            else:
                question = steps.send(answer)
    except StopIteration as ended:
        return cast("T", ended.value)


def state_of(error: BaseException) -> str:
    """Return the SQLSTATE of a driver's error, however deep it is wrapped; an empty text without one."""
    seen: BaseException | None = error
    while seen is not None:
        for name in ("sqlstate", "pgcode"):
            if isinstance(state := getattr(seen, name, None), str):
                return state
        inner = getattr(seen, "orig", None)
        seen = inner if isinstance(inner, BaseException) else seen.__cause__
    return ""


def _psycopg(connection: Any, names: set[str]) -> CallerSession | None:
    if "AsyncConnection" in names:
        return CallerSession(connection, "psycopg", SERVER, _ask_psycopg_async, is_async=True)
    return CallerSession(connection, "psycopg", SERVER, _ask_psycopg) if "Connection" in names else None


def _asyncpg(connection: Any, names: set[str]) -> CallerSession | None:
    is_known = bool(names & {"Connection", "PoolConnectionProxy"})
    return CallerSession(connection, "asyncpg", SERVER, _ask_asyncpg, is_async=True) if is_known else None


def _sqlite3(connection: Any, names: set[str]) -> CallerSession | None:
    return CallerSession(connection, "sqlite3", FILE, _ask_cursor) if "Connection" in names else None


def _sqlalchemy(connection: Any, names: set[str]) -> CallerSession | None:
    if names & {"AsyncConnection", "AsyncSession", "async_scoped_session"}:
        return CallerSession(
            connection, "sqlalchemy", _system_of(connection), _ask_sqlalchemy_async, is_async=True
        )
    if names & {"Connection", "Session", "scoped_session"}:
        return CallerSession(connection, "sqlalchemy", _system_of(connection), _ask_sqlalchemy)
    return None


def _system_of(connection: Any) -> str:
    """Return what a connection or a session of SQLAlchemy is connected to, without connecting it."""
    bound = connection if hasattr(connection, "dialect") else connection.get_bind()
    return str(bound.dialect.name)


def _django(connection: Any, _names: set[str]) -> CallerSession | None:
    vendor = getattr(connection, "vendor", None)
    return None if vendor is None else CallerSession(connection, "django", str(vendor), _ask_cursor)


_KINDS: Final[dict[str, Callable[[Any, set[str]], CallerSession | None]]] = {
    "psycopg": _psycopg,
    "asyncpg": _asyncpg,
    "sqlite3": _sqlite3,
    "sqlalchemy": _sqlalchemy,
    "django": _django,
}


def _ask_cursor(connection: Any, text: str, parameters: tuple[object, ...]) -> object:
    cursor = connection.cursor()
    try:
        cursor.execute(_PLACE.sub("%s", text), parameters)
        return _first(cursor.fetchone()) if cursor.description else None
    finally:
        cursor.close()


def _ask_psycopg(connection: Any, text: str, parameters: tuple[object, ...]) -> object:
    with connection.cursor(row_factory=_tuples) as cursor:
        cursor.execute(_for_psycopg(connection, text), parameters)
        return _first(cursor.fetchone()) if cursor.description else None


async def _ask_psycopg_async(connection: Any, text: str, parameters: tuple[object, ...]) -> object:
    async with connection.cursor(row_factory=_tuples) as cursor:
        await cursor.execute(_for_psycopg(connection, text), parameters)
        return _first(await cursor.fetchone()) if cursor.description else None


def _tuples(_cursor: object) -> type[tuple[object, ...]]:
    """Make tuples of rows, whatever the caller has them made of."""
    return tuple


def _for_psycopg(connection: Any, text: str) -> str:
    # One of its kinds of cursor takes statements as the server does.
    return text if "Raw" in connection.cursor_factory.__name__ else _PLACE.sub("%s", text)


async def _ask_asyncpg(connection: Any, text: str, parameters: tuple[object, ...]) -> object:
    if text.startswith("SELECT"):
        return await connection.fetchval(text, *parameters)
    return await connection.execute(text)


def _ask_sqlalchemy(connection: Any, text: str, parameters: tuple[object, ...]) -> object:
    link = connection if hasattr(connection, "exec_driver_sql") else connection.connection()
    if link.dialect.paramstyle != "numeric_dollar":
        text = _PLACE.sub("%s", text)
    result = link.exec_driver_sql(text, parameters or None)
    return result.scalar() if result.returns_rows else None


async def _ask_sqlalchemy_async(connection: Any, text: str, parameters: tuple[object, ...]) -> object:
    return await connection.run_sync(_ask_sqlalchemy, text, parameters)


def _first(row: Any) -> object:
    """Return the first column of a row."""
    if row is None:
        return None
    return next(iter(row.values())) if hasattr(row, "values") else next(iter(row))
