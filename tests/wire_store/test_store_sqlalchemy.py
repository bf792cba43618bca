# SPDX-License-Identifier: Apache-2.0
"""SQLAlchemy over psycopg and sqlite3: the driver's error inside decides, the pool's and the mapper's errors speak themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy
from sqlalchemy import orm

from redrive.core.failure import Failure
from tests.wire_store.catching import failure_of
from tests.wire_store.servers import Postgres


class Base(orm.DeclarativeBase):
    pass


class Page(Base):
    __tablename__ = "page"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str | None] = orm.mapped_column(default=None)
    version: orm.Mapped[int] = orm.mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - the form that SQLAlchemy documents.


def running(engine: sqlalchemy.Engine, statement: str, **values: object) -> Failure:
    def run() -> None:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(statement), values)

    return failure_of(run)


@pytest.fixture
def engine(postgres: Postgres) -> Iterator[sqlalchemy.Engine]:
    url = f"postgresql+psycopg://postgres@127.0.0.1:{postgres.port}/postgres"
    engine = sqlalchemy.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def lite() -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.mark.untraced
@pytest.mark.req("CR-1.4", "CR-1.5")
@pytest.mark.parametrize(
    ("statement", "code", "state"),
    [
        ("insert into page (id, version) values (1, 1), (1, 1)", "CONFLICT", "23505"),
        ("insert into page (id, version) values (1, null)", "SCHEMA_INVALID", "23502"),
        ("select 'x'::int", "SCHEMA_INVALID", "22P02"),
        ("selec 1", "BUG_CODE", "42601"),
        ("select pg_terminate_backend(pg_backend_pid())", "NETWORK_UNAVAILABLE", "57P01"),
        ("set local statement_timeout = 20; select pg_sleep(5)", "LOCAL_TIMEOUT", "57014"),
    ],
)
def test_psycopgs_error_inside_decides(
    engine: sqlalchemy.Engine, statement: str, code: str, state: str
) -> None:
    failure = running(engine, statement)

    assert (failure.code, failure.provider_code) == (code, state)
    assert failure.exception.startswith("sqlalchemy.exc.")


@pytest.mark.req("CR-1.1")
def test_a_server_that_is_down_is_a_refused_connection(closed_port: int) -> None:
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://postgres@127.0.0.1:{closed_port}/postgres")

    failure = failure_of(engine.connect)

    assert (failure.code, failure.retryable) == ("NETWORK_REFUSED", True)


def test_an_exhausted_pool_heals(engine: sqlalchemy.Engine) -> None:
    with engine.connect():
        failure = failure_of(engine.connect)

    assert (failure.code, failure.retryable) == ("RESOURCE_EXHAUSTED", True)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("insert into page (id, version) values (1, 1), (1, 1)", "CONFLICT"),
        ("insert into page (id, version) values (1, null)", "SCHEMA_INVALID"),
        ("selec 1", "BUG_CODE"),
        ("select * from nowhere", "BUG_CODE"),
    ],
)
def test_sqlites_error_inside_decides_too(lite: sqlalchemy.Engine, statement: str, code: str) -> None:
    assert running(lite, statement).code == code


def test_a_missing_bind_value_is_a_bug(lite: sqlalchemy.Engine) -> None:
    assert running(lite, "select :x").code == "BUG_CODE"


@pytest.mark.req("CR-1.4")
def test_a_row_that_somebody_else_changed_is_a_conflict(lite: sqlalchemy.Engine) -> None:
    with orm.Session(lite) as session:
        session.add(Page(id=1))
        session.flush()
        page = session.get_one(Page, 1)
        session.execute(sqlalchemy.text("update page set version = 99"))
        page.title = "changed here too"
        failure = failure_of(session.flush)

    assert failure.code == "CONFLICT"


def test_a_row_that_is_not_there_is_not_found(lite: sqlalchemy.Engine) -> None:
    with orm.Session(lite) as session:
        assert failure_of(session.get_one, Page, 404).code == "NOT_FOUND"


def test_wrong_use_of_the_library_is_a_bug_and_an_unknown_driver_wrong_configuration(
    lite: sqlalchemy.Engine,
) -> None:
    with orm.Session(lite) as session:
        assert failure_of(session.get, int, 1).code == "BUG_CODE"
    assert failure_of(sqlalchemy.create_engine, "nosuchdb://x").code == "CONFIG_INVALID"


def test_an_error_of_the_asyncpg_adapter_is_read_by_the_sqlstate_it_copies() -> None:
    """The adapter itself needs greenlet, so its class is raised by hand, with the attributes it really has."""
    from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi

    def run() -> None:
        orig = AsyncAdapt_asyncpg_dbapi.IntegrityError("duplicate key", Exception("duplicate key"))
        orig.pgcode = orig.sqlstate = "23505"
        raise sqlalchemy.exc.IntegrityError("insert", {}, orig) from orig

    assert failure_of(run).code == "CONFLICT"


def test_a_mysql_drivers_number_is_read() -> None:
    driver_error = type("OperationalError", (Exception,), {"__module__": "pymysql.err"})

    def run(number: int) -> None:
        raise sqlalchemy.exc.OperationalError("select 1", {}, driver_error(number, "text"))

    assert failure_of(run, 1213).code == "CONFLICT"
    assert failure_of(run, 2006).code == "NETWORK_RESET"
    assert failure_of(run, 1045).code == "AUTH_INVALID"


def test_an_unknown_driver_is_read_by_class_and_by_whether_the_connection_was_thrown_away() -> None:
    def run(kind: type[sqlalchemy.exc.DBAPIError], *, invalidated: bool) -> None:
        raise kind("select 1", {}, Exception("what happened"), connection_invalidated=invalidated)

    assert failure_of(run, sqlalchemy.exc.OperationalError, invalidated=True).code == "NETWORK_RESET"
    assert failure_of(run, sqlalchemy.exc.OperationalError, invalidated=False).code == "UPSTREAM_ERROR"
    assert failure_of(run, sqlalchemy.exc.IntegrityError, invalidated=False).code == "SCHEMA_INVALID"
    assert failure_of(run, sqlalchemy.exc.ProgrammingError, invalidated=False).code == "BUG_CODE"
