# SPDX-License-Identifier: Apache-2.0
"""asyncpg against a real PostgreSQL. Its pool and connect time-outs are the standard library's own exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from redrive.core.failure import Failure
from tests.wire_store.catching import failure_awaited
from tests.wire_store.servers import Postgres


async def connect(port: int, **options: Any) -> asyncpg.Connection:
    known = {"host": "127.0.0.1", "user": "postgres", "database": "postgres", "timeout": 5}
    return await asyncpg.connect(port=port, **{**known, **options})


@asynccontextmanager
async def connected(port: int, **options: object) -> AsyncIterator[asyncpg.Connection]:
    connection = await connect(port, **options)
    try:
        yield connection
    finally:
        await connection.close()


def connecting(port: int, **options: object) -> Failure:
    async def run() -> Failure:
        return await failure_awaited(connect(port, **options))

    return asyncio.run(run())


def executing(port: int, *statements: str, **options: object) -> Failure:
    """Return the failure of the last statement."""

    async def run() -> Failure:
        async with connected(port) as connection:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await failure_awaited(connection.execute(statements[-1], **options))

    return asyncio.run(run())


@pytest.fixture(scope="module")
def port(postgres: Postgres) -> int:
    async def prepare() -> None:
        async with connected(postgres.port) as admin:
            await admin.execute(
                "drop table if exists entry; create table entry (id int primary key, amount int not null)"
            )
            await admin.execute("insert into entry values (1, 1)")
            await admin.execute("drop role if exists amy; create role amy login password 'right'")

    asyncio.run(prepare())
    return postgres.port


@pytest.mark.req("CR-1.1")
def test_connections_that_cannot_be_made_heal(
    closed_port: int, silent_port: int, resetting_port: int, closing_port: int
) -> None:
    assert connecting(closed_port).code == "NETWORK_REFUSED"
    assert connecting(silent_port, timeout=0.1).code == "TIMEOUT"
    assert connecting(resetting_port).code == "NETWORK_RESET"
    assert connecting(closing_port).code == "NETWORK_ERROR"
    assert connecting(5432, host="nohost.invalid").code == "NETWORK_DNS"
    assert connecting(closed_port).retryable


@pytest.mark.req("CR-1.6")
def test_a_wrong_password_is_not_retried(port: int) -> None:
    failure = connecting(port, user="amy", password="wrong")

    assert (failure.code, failure.retryable, failure.provider_code) == ("AUTH_INVALID", False, "28P01")


def test_an_unknown_database_is_wrong_configuration(port: int) -> None:
    assert connecting(port, database="nowhere").code == "CONFIG_INVALID"


def test_an_impossible_configuration_is_reported_as_such() -> None:
    assert connecting(5432, target_session_attrs="sometimes").code == "CONFIG_INVALID"


def test_too_many_connections_heal(port: int) -> None:
    async def run() -> Failure:
        async with AsyncExitStack() as open_connections:

            async def open_all() -> None:
                for _ in range(20):
                    await open_connections.enter_async_context(connected(port, user="amy", password="right"))

            return await failure_awaited(open_all())

    failure = asyncio.run(run())

    assert (failure.code, failure.retryable, failure.provider_code) == ("RESOURCE_EXHAUSTED", True, "53300")


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("insert into entry values (1, 1)", "CONFLICT"),
        ("insert into entry values (2, null)", "SCHEMA_INVALID"),
        ("select 1/0", "SCHEMA_INVALID"),
        ("selec 1", "BUG_CODE"),
        ("select * from nowhere", "BUG_CODE"),
        ("set statement_timeout = 20; select pg_sleep(5)", "LOCAL_TIMEOUT"),
        ("set transaction read only; create table never (id int)", "NETWORK_UNAVAILABLE"),
    ],
)
@pytest.mark.req("CR-1.4", "CR-1.5")
def test_the_servers_errors_are_read_by_sqlstate(port: int, statement: str, code: str) -> None:
    assert executing(port, statement).code == code


def test_an_argument_that_does_not_fit_is_a_validation_failure(port: int) -> None:
    async def run() -> Failure:
        async with connected(port) as connection:
            return await failure_awaited(connection.execute("insert into entry values ($1, 1)", "x"))

    assert asyncio.run(run()).code == "SCHEMA_INVALID"


def test_a_slow_statement_is_a_timeout_by_the_clients_own_limit(port: int) -> None:
    assert executing(port, "select pg_sleep(5)", timeout=0.05).code == "TIMEOUT"


def test_a_terminated_backend_says_why_and_the_connection_is_lost_afterwards(port: int) -> None:
    async def run() -> tuple[Failure, Failure]:
        async with connected(port) as connection:
            ended = await failure_awaited(connection.execute("select pg_terminate_backend(pg_backend_pid())"))
            return ended, await failure_awaited(connection.execute("select 1"))

    ended, afterwards = asyncio.run(run())

    assert (ended.code, ended.provider_code) == ("NETWORK_UNAVAILABLE", "57P01")
    assert (afterwards.code, afterwards.retryable) == ("NETWORK_RESET", True)


def test_two_statements_at_once_on_one_connection_are_a_bug(port: int) -> None:
    async def run() -> Failure:
        async with connected(port) as connection:
            busy = asyncio.ensure_future(connection.execute("select pg_sleep(0.1)"))
            await asyncio.sleep(0)
            failure = await failure_awaited(connection.execute("select 1"))
            await busy
            return failure

    assert asyncio.run(run()).code == "BUG_CODE"


def test_an_exhausted_pool_is_a_timeout(port: int) -> None:
    async def run() -> Failure:
        options = {"host": "127.0.0.1", "port": port, "user": "postgres", "database": "postgres"}
        async with asyncpg.create_pool(**options, min_size=1, max_size=1) as pool, pool.acquire():
            return await failure_awaited(pool.acquire(timeout=0.05))

    failure = asyncio.run(run())

    assert (failure.code, failure.retryable) == ("TIMEOUT", True)


def test_a_deadlock_is_a_conflict(port: int) -> None:
    async def cross(
        first: asyncpg.Connection, mine: int, others: int, meet: Callable[[], Awaitable[object]]
    ) -> None:
        async with first.transaction():
            await first.execute("update entry set amount = 5 where id = $1", mine)
            await meet()
            await first.execute("update entry set amount = 6 where id = $1", others)

    async def run() -> Failure:
        barrier = asyncio.Barrier(2)
        async with connected(port) as first, connected(port) as second:
            await first.execute("insert into entry values (7, 1), (8, 1) on conflict do nothing")
            crossing = asyncio.gather(cross(first, 7, 8, barrier.wait), cross(second, 8, 7, barrier.wait))
            return await failure_awaited(crossing)

    failure = asyncio.run(run())

    assert (failure.code, failure.provider_code) == ("CONFLICT", "40P01")
