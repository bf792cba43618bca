# SPDX-License-Identifier: Apache-2.0
"""Jobs that are stored in transactions of the caller's on the file of the embedded store, by real libraries."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from django.db import transaction
from sqlalchemy import orm

from redrive import ConfigurationError, Pipeline, Redrive, connect, stage
from redrive.store.records import LaneId, NewJob
from tests.wire_store.transactions import ALIAS, Undo, django_connection

LARGE = "x" * 10_000


@stage
def greet(name: str) -> str:
    return f"hello {name}"


FLOW = Pipeline("greetings", [greet])


@contextmanager
def _sqlite3(path: str) -> Iterator[Any]:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.row_factory = lambda _cursor, row: {"row": row}
        yield connection


@contextmanager
def _begun(path: str) -> Iterator[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


@contextmanager
def _sqlalchemy_connection(path: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        yield connection
    engine.dispose()


@contextmanager
def _sqlalchemy_session(path: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with orm.Session(engine) as session, session.begin():
        yield session
    engine.dispose()


@contextmanager
def _django(path: str) -> Iterator[Any]:
    with closing(django_connection(path)) as connection, transaction.atomic(using=ALIAS):
        yield connection


BEGIN: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "sqlite3": _sqlite3,
    "sqlite3 that has begun": _begun,
    "sqlalchemy connection": _sqlalchemy_connection,
    "sqlalchemy session": _sqlalchemy_session,
    "django": _django,
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


@pytest.fixture
def rd(path: str) -> Iterator[Redrive]:
    with connect(path) as opened:
        opened.submit(FLOW, "first").cancel()
        yield opened


def queued(rd: Redrive) -> list[int]:
    return sorted(job.id for job in rd.jobs.list() if job.status == "queued")


@pytest.mark.parametrize("begin", BEGIN.values(), ids=BEGIN)
def test_a_job_exists_if_and_only_if_the_callers_transaction_commits(
    rd: Redrive, path: str, begin: Callable[[str], AbstractContextManager[Any]]
) -> None:
    with pytest.raises(Undo), begin(path) as connection:
        rd.submit(FLOW, "ann", key="k", connection=connection)
        rd.submit_many(FLOW, ["bob", LARGE], connection=connection)
        raise Undo
    assert queued(rd) == []

    with begin(path) as connection:
        job = rd.submit(FLOW, "ann", key="k", connection=connection)
        again = rd.submit(FLOW, "ann", key="k", connection=connection)
        ids = rd.submit_many(FLOW, ["bob", LARGE], connection=connection)
        assert queued(rd) == []

    assert (again.id, again.is_duplicate, job.is_duplicate) == (job.id, True, False)
    assert queued(rd) == [job.id, *ids]
    rd.work([FLOW], until_idle=True)
    assert [rd.job(each).result(0) for each in (job.id, *ids)] == [
        "hello ann",
        "hello bob",
        f"hello {LARGE}",
    ]


def test_what_is_refused_leaves_the_transaction_as_it_was(rd: Redrive, path: str) -> None:
    with _sqlite3(path) as connection:
        first = NewJob(lane=LaneId(1), payload=b'"ann"', run_at=0.0, key="k")
        with pytest.raises(sqlite3.IntegrityError):
            rd.store.callers.submit(
                connection, [first, NewJob(lane=LaneId(1), payload=b"1", run_at=0.0, priority=99)], 0.0
            )
        made = rd.submit(FLOW, "bob", connection=connection)

    assert queued(rd) == [made.id]


def test_a_connection_without_a_transaction_is_refused(rd: Redrive, path: str) -> None:
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
        pytest.raises(ConfigurationError, match="must be in a transaction"),
    ):
        rd.submit(FLOW, "ann", connection=connection)

    assert queued(rd) == []


def test_another_database_is_refused_naming_both(rd: Redrive, path: str, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    for place, named in ((other, "other.db"), (":memory:", "a database in memory")):
        with (
            closing(sqlite3.connect(place)) as connection,
            pytest.raises(ConfigurationError, match=rf"jobs\.db, got .*{named}"),
        ):
            rd.submit(FLOW, "ann", connection=connection)
    engine = sqlalchemy.create_engine("postgresql+psycopg://ann@127.0.0.1:1/shop")
    with (
        orm.Session(engine) as session,
        pytest.raises(ConfigurationError, match=r"jobs\.db, got 'postgresql'"),
    ):
        rd.submit(FLOW, "ann", connection=session)


def test_the_first_job_of_a_pipeline_is_refused(rd: Redrive, path: str) -> None:
    unknown = Pipeline("unknown", [greet])
    with _begun(path) as connection, pytest.raises(ConfigurationError, match="new to the database"):
        rd.submit(unknown, "ann", connection=connection)


def test_a_pipeline_that_another_connection_knows_is_no_new_one(rd: Redrive, path: str) -> None:
    with connect(path) as other, _begun(path) as connection:
        made = other.submit(FLOW, "ann", connection=connection)

    assert queued(rd) == [made.id]


def test_async_code_is_refused(rd: Redrive, path: str) -> None:
    async def scene() -> None:
        async with connect(path) as awaited:
            with closing(sqlite3.connect(path)) as connection:
                with pytest.raises(ConfigurationError, match="must be for sync code"):
                    await awaited.submit(FLOW, "ann", connection=connection)

    asyncio.run(scene())
