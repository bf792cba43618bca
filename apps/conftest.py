# SPDX-License-Identifier: Apache-2.0
"""What the tests of all applications share: virtual time, and the database of their jobs.

The database is a file, or with REDRIVE_TEST_STORES=postgres (`make app-tests-postgres`) a schema on a PostgreSQL server,
empty for each test.
Tests that are about the file are marked `sqlite`, and left out there: they delete it, a README names it, they have one for each of
two folders, or look at how far a run is while virtual time stands.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing

import pytest

from redrive.store.postgres.store import PostgresStore
from redrive.store.protocol import Store
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock, virtual_time
from tests.databases import Schemas, server_of

IS_ON_SERVER = os.environ.get("REDRIVE_TEST_STORES") == "postgres"


def pytest_configure(config: pytest.Config) -> None:
    """Add the mark."""
    config.addinivalue_line("markers", "sqlite: it is about the embedded store alone")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about files."""
    about_files = [each for each in items if IS_ON_SERVER and each.get_closest_marker("sqlite") is not None]
    config.hook.pytest_deselected(items=about_files)
    items[:] = [each for each in items if each not in about_files]


@pytest.fixture(scope="session")
def schemas(testrun_uid: str, worker_id: str) -> Generator[Schemas | None]:
    """Schemas on a PostgreSQL server that all processes of the run share; None if the tests use files."""
    if not IS_ON_SERVER:
        yield None
        return
    with closing(Schemas(server_of(testrun_uid), worker_id)) as made:
        yield made


@pytest.fixture(autouse=True)
def database_url(schemas: Schemas | None, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The address of the database of this test alone; None if it uses files."""
    if schemas is None:
        monkeypatch.delenv("REDRIVE_DATABASE_URL", raising=False)
        return None
    address = schemas.address("application")
    monkeypatch.setenv("REDRIVE_DATABASE_URL", address)
    return address


@pytest.fixture(scope="session")
def installation(schemas: Schemas | None) -> dict[str, str]:
    """What the environment of an installation that several tests share has about its database."""
    return {} if schemas is None else {"REDRIVE_DATABASE_URL": schemas.address("installation")}


@pytest.fixture
def clock() -> Generator[VirtualClock]:
    """Virtual time for everything the test runs."""
    with virtual_time() as virtual:
        yield virtual


@pytest.fixture
def memory(database_url: str | None) -> Generator[Store]:
    """A store without a file, in the time of the test."""
    made = SqliteStore(":memory:") if database_url is None else PostgresStore(database_url, clock="caller")
    yield made
    made.close()
