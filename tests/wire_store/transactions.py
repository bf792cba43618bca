# SPDX-License-Identifier: Apache-2.0
"""Transactions of real libraries on one server: each begins, lets a test use its connection, and commits or rolls back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

import asyncpg
import django
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

ALIAS = "shop"


class Undo(Exception):
    """Raised inside a transaction to have it rolled back."""


Begin = Callable[[str], AbstractContextManager[Any]]
BeginAsync = Callable[[str], AbstractAsyncContextManager[Any]]


@contextmanager
def _psycopg(server: str) -> Iterator[Any]:
    with psycopg.connect(server) as connection:
        yield connection


@contextmanager
def _psycopg_with_dicts(server: str) -> Iterator[Any]:
    with psycopg.connect(server, row_factory=dict_row, cursor_factory=psycopg.RawCursor) as connection:
        yield connection


@contextmanager
def _psycopg_block(server: str) -> Iterator[Any]:
    with psycopg.connect(server, autocommit=True) as connection, connection.transaction():
        yield connection


@contextmanager
def _sqlalchemy_connection(server: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(_for_sqlalchemy(server, "psycopg"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _sqlalchemy_session(server: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(_for_sqlalchemy(server, "psycopg"))
    try:
        with orm.Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def _django(server: str) -> Iterator[Any]:
    connection = django_connection(server)
    try:
        with transaction.atomic(using=ALIAS):
            yield connection
    finally:
        connection.close()


def django_connection(server: str) -> Any:
    """Return the connection of Django to a server, or to a file."""
    if not settings.configured:
        settings.configure(DATABASES={"default": {}})
        django.setup()
    known = {} if "://" not in server else conninfo_to_dict(server)
    engine, name = ("postgresql", known["dbname"]) if known else ("sqlite3", server)
    facts = {"HOST": known.get("host", ""), "USER": known.get("user", ""), "PORT": known.get("port", "")}
    if ALIAS in connections.settings:
        connections[ALIAS].close()
        del connections[ALIAS]
    connections.settings[ALIAS] = connections.configure_settings(
        {"default": {}, ALIAS: {"ENGINE": f"django.db.backends.{engine}", "NAME": name, **facts}}
    )[ALIAS]
    return connections[ALIAS]


@asynccontextmanager
async def _psycopg_async(server: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(server) as connection:
        yield connection


@asynccontextmanager
async def _asyncpg(server: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(server)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _asyncpg_pool(server: str) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(server, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def _sqlalchemy_async(server: str) -> AsyncIterator[Any]:
    engine = create_async_engine(_for_sqlalchemy(server, "asyncpg"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def _sqlalchemy_async_session(server: str) -> AsyncIterator[Any]:
    engine = create_async_engine(_for_sqlalchemy(server, "psycopg"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


def _for_sqlalchemy(server: str, driver: str) -> str:
    return server.replace("postgresql://", f"postgresql+{driver}://", 1)


SYNC: dict[str, Begin] = {
    "psycopg": _psycopg,
    "psycopg with dicts and raw cursors": _psycopg_with_dicts,
    "psycopg in a block": _psycopg_block,
    "sqlalchemy connection": _sqlalchemy_connection,
    "sqlalchemy session": _sqlalchemy_session,
    "django": _django,
}
ASYNC: dict[str, BeginAsync] = {
    "psycopg": _psycopg_async,
    "asyncpg": _asyncpg,
    "asyncpg pool": _asyncpg_pool,
    "sqlalchemy connection on asyncpg": _sqlalchemy_async,
    "sqlalchemy session on psycopg": _sqlalchemy_async_session,
}
