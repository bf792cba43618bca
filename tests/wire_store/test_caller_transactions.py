# SPDX-License-Identifier: Apache-2.0
"""Jobs that are stored in transactions of the caller's, by real libraries: they exist if and only if those commit."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy

from redrive import ConfigurationError, Pipeline, Redrive, connect, stage
from redrive.errors import SerializationError, StoreRefusedError
from redrive.store.postgres.store import PostgresStore
from redrive.store.records import NewJob
from tests.databases import Schemas
from tests.wire_store.transactions import ASYNC, SYNC, Begin, BeginAsync, Undo, django_connection

LARGE = "x" * 10_000


@stage
def greet(name: str) -> str:
    return f"hello {name}"


@stage
def send(text: str) -> str:
    return text


FLOW = Pipeline("greetings", [greet, send])


def statuses(rd: Redrive) -> list[tuple[int, str]]:
    return [(job.id, job.status) for job in rd.jobs.list()]


@pytest.mark.untraced
@pytest.mark.parametrize("begin", SYNC.values(), ids=SYNC)
def test_a_job_exists_if_and_only_if_the_callers_transaction_commits(
    rd: Redrive, schemas: Schemas, begin: Begin
) -> None:
    with pytest.raises(Undo), begin(schemas.server) as connection:
        rd.submit(FLOW, "ann", connection=connection)
        rd.submit_many(FLOW, ["bob", LARGE], connection=connection)
        raise Undo
    assert statuses(rd) == []

    with begin(schemas.server) as connection:
        job = rd.submit(FLOW, "ann", key="k", owner="o", priority=2, connection=connection)
        again = rd.submit(FLOW, "ann", key="k", connection=connection)
        ids = rd.submit_many(FLOW, ["bob", LARGE], key=lambda name: str(name)[:3], connection=connection)
        assert statuses(rd) == []

    assert (again.id, again.is_duplicate, job.is_duplicate) == (job.id, True, False)
    assert sorted(statuses(rd)) == [(each, "queued") for each in sorted([job.id, *ids])]
    assert (job.facts.key, job.facts.owner, job.facts.priority) == ("k", "o", 2)
    rd.work([FLOW], until_idle=True)
    assert [rd.job(each).result(0) for each in (job.id, *ids)] == [
        "hello ann",
        "hello bob",
        f"hello {LARGE}",
    ]


@pytest.mark.parametrize("begin", ASYNC.values(), ids=ASYNC)
def test_a_job_exists_if_and_only_if_the_callers_async_transaction_commits(
    url: str, schemas: Schemas, begin: BeginAsync
) -> None:
    async def scene() -> None:
        async with connect(url) as rd:
            with pytest.raises(Undo):
                async with begin(schemas.server) as connection:
                    await rd.submit(FLOW, "ann", connection=connection)
                    await rd.submit_many(FLOW, ["bob"], connection=connection)
                    raise Undo
            assert await rd.jobs.list() == []

            async with begin(schemas.server) as connection:
                job = await rd.submit(FLOW, "ann", key="k", connection=connection)
                again = await rd.submit(FLOW, "ann", key="k", connection=connection)
                ids = await rd.submit_many(FLOW, ["bob", LARGE], connection=connection)
                assert await rd.jobs.list() == []

            assert (again.id, again.is_duplicate) == (job.id, True)
            assert {each.id for each in await rd.jobs.list()} == {job.id, *ids}

    asyncio.run(scene())


def test_workers_are_told_after_the_commit(rd: Redrive, url: str, schemas: Schemas) -> None:
    rd.submit(FLOW, "first")
    store = PostgresStore(url)
    signal = store.change_signal()
    assert signal is not None

    with psycopg.connect(schemas.server) as connection:
        rd.submit(FLOW, "ann", connection=connection)
        signal.clear()
        assert not _is_readable(signal.fileno(), 0)
        connection.commit()
        assert _is_readable(signal.fileno(), 30)

    signal.close()
    store.close()


def _is_readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def test_a_key_that_another_transaction_is_storing_is_waited_for(rd: Redrive, schemas: Schemas) -> None:
    rd.submit(FLOW, "first")
    with psycopg.connect(schemas.server) as one:
        job = rd.submit(FLOW, "ann", key="k", connection=one)
        found: list[tuple[int, bool]] = []

        def submit() -> None:
            with psycopg.connect(schemas.server) as other:
                made = rd.submit(FLOW, "ann", key="k", connection=other)
                found.append((made.id, made.is_duplicate))

        thread = threading.Thread(target=submit)
        thread.start()
        with psycopg.connect(schemas.server, autocommit=True) as look:
            waiting = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
            while not look.execute(waiting, (one.info.backend_pid,)).fetchone():
                pass
        one.commit()
        thread.join()

    assert found == [(job.id, True)]


def autocommitting(server: str) -> Iterator[Any]:
    with psycopg.connect(server, autocommit=True) as connection:
        yield connection
    engine = sqlalchemy.create_engine(
        server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as bound:
        yield bound
    engine.dispose()
    with closing(django_connection(server)) as wrapped:
        yield wrapped


def test_a_connection_without_a_transaction_is_refused(rd: Redrive, schemas: Schemas, url: str) -> None:
    async def scene() -> None:
        connection = await asyncpg.connect(schemas.server)
        async with connect(url) as awaited:
            with pytest.raises(ConfigurationError, match="must be in a transaction"):
                await awaited.submit(FLOW, "ann", connection=connection)
        await connection.close()

    for connection in autocommitting(schemas.server):
        with pytest.raises(ConfigurationError, match="must be in a transaction"):
            rd.submit(FLOW, "ann", connection=connection)
    asyncio.run(scene())

    assert statuses(rd) == []


@pytest.mark.parametrize("begin", SYNC.values(), ids=SYNC)
def test_a_transaction_that_has_failed_is_named(rd: Redrive, schemas: Schemas, begin: Begin) -> None:
    def scene() -> None:
        with begin(schemas.server) as connection:
            link = connection.connection() if hasattr(connection, "get_bind") else connection
            with pytest.raises(Exception, match="division by zero"):
                _execute(link, "SELECT 1 / 0")
            with pytest.raises(StoreRefusedError, match=r"has failed, and takes nothing more") as refused:
                rd.submit(FLOW, "ann", connection=connection)
            assert refused.value.hint == "Roll it back, and repeat all of it."
            raise Undo

    with pytest.raises(Undo):
        scene()


def _execute(connection: Any, text: str) -> None:
    if hasattr(connection, "exec_driver_sql"):
        connection.exec_driver_sql(text)
    else:
        connection.cursor().execute(text)


@pytest.mark.parametrize("begin", SYNC.values(), ids=SYNC)
def test_what_is_refused_leaves_the_transaction_as_it_was(
    rd: Redrive, schemas: Schemas, begin: Begin
) -> None:
    kept = rd.submit(FLOW, "first")
    _, second = rd.store.lanes(FLOW.name, ["greet", "send"])
    past_the_first = NewJob(lane=second, payload=b'"ann"', run_at=0.0)

    with begin(schemas.server) as connection:
        with pytest.raises(StoreRefusedError, match="submitted at the first stage"):
            rd.store.callers.submit(connection, [past_the_first], 0.0)
        with pytest.raises(SerializationError):
            rd.submit(FLOW, 7, connection=connection)
        made = rd.submit(FLOW, "ann", connection=connection)

    assert {each for each, _ in statuses(rd)} == {kept.id, made.id}


def test_another_database_is_refused_naming_both(rd: Redrive, url: str, schemas: Schemas) -> None:
    other = f"{url.rpartition('=')[2]}_elsewhere"

    def refused() -> None:
        with psycopg.connect(schemas.server, dbname=other) as connection:
            with pytest.raises(ConfigurationError, match=rf"schema=\w+_jobs.*'{other}"):
                rd.submit(FLOW, "ann", connection=connection)
            assert connection.execute("SELECT 1").fetchone() == (1,)

    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {other}")
        try:
            refused()
            # One that has a schema of the same name.
            with connect(url.replace("/postgres?", f"/{other}?", 1)) as namesake:
                namesake.submit(FLOW, "first")
            refused()
        finally:
            db.execute(f"DROP DATABASE {other} WITH (FORCE)")

    assert statuses(rd) == []


def test_what_is_no_connection_is_refused_by_name(rd: Redrive, url: str, schemas: Schemas) -> None:
    engine = sqlalchemy.create_engine(schemas.server.replace("postgresql:", "postgresql+psycopg:"))
    for wrong in (7, "postgresql://", engine, django_connection):
        with pytest.raises(ConfigurationError, match="must be a connection of psycopg, asyncpg"):
            rd.submit(FLOW, "ann", connection=wrong)
    memory = sqlalchemy.create_engine("sqlite://")
    with (
        memory.begin() as lite,
        pytest.raises(ConfigurationError, match="must be to the database of redrive"),
    ):
        rd.submit(FLOW, "ann", connection=lite)
    engine.dispose()
    memory.dispose()

    async def scene() -> None:
        async with await psycopg.AsyncConnection.connect(schemas.server) as connection:
            with pytest.raises(ConfigurationError, match="is for async code"):
                rd.submit(FLOW, "ann", connection=connection)
        with psycopg.connect(schemas.server) as connection:
            async with connect(url) as awaited:
                with pytest.raises(ConfigurationError, match="is for sync code"):
                    await awaited.submit(FLOW, "ann", connection=connection)

    asyncio.run(scene())
    with pytest.raises(ConfigurationError, match="cannot be combined with connection"):
        rd.submit_many(FLOW, [], run=1, connection=engine)
