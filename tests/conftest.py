# SPDX-License-Identifier: Apache-2.0
"""What every test shares: virtual time, a store, a connection; how hard Hypothesis looks; the check of requirement marks."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import cast

import pytest
import typer.main
from hypothesis import HealthCheck, settings

from redrive import Redrive, connect
from redrive.store.postgres import connection
from redrive.store.postgres.store import PostgresStore
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock, virtual_time
from tests import memory_databases, statement_record, tracing
from tests.databases import DIALECTS, Address, Schemas, server_of
from tests.kept_connections import KeptConnection
from tests.scheduling import GroupScheduling
from tools import pytest_requirements

# A slow machine is no failure, so there is no deadline; `ci` draws the same examples in every run, for which half of them will do.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", settings.get_profile("dev"), max_examples=50, derandomize=True, database=None, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))

# A shell ignores SIGINT for what it starts in the background, and whatever a test starts inherits that: no test could interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Typer builds every command anew for each call, which takes 45 ms and is most of what a test of one command would cost.
typer.main.get_command = cache(typer.main.get_command)


E2E = Path(__file__).parent / "e2e"
ABOVE_THE_SEAM = tuple(
    Path(__file__).parent / room
    for room in (
        *("unit/ops", "unit/client", "unit/engine/replay", "unit/engine/delivery", "unit/engine/limits"),
        *("unit/engine/test_retention.py", "e2e"),
    )
)
"""Tests that run over both stores."""
IN_FULL = os.environ.get("REDRIVE_TEST_STORES") == "all"
"""Whether the tests of every command run over both: `make test-postgres` does that, for which `make test` has no time."""
COMMANDS = frozenset({"letters", "replay", "upkeep"})
"""The commands that `make test` runs over both stores."""


def pytest_configure(config: pytest.Config) -> None:
    """Add the marks of the tests."""
    pytest_requirements.register(config)
    statement_record.register(config)
    tracing.register(config)
    memory_databases.register()
    config.addinivalue_line("markers", "sqlite: it is about the embedded store alone")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling | None:
    """Keep together what shares an installation."""
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare the collector of garbage thousands of tests and the libraries that they import, all of which stay to the end."""
    gc.freeze()


@pytest.fixture
def clock() -> Generator[VirtualClock]:
    """Virtual time for everything the test runs."""
    with virtual_time() as virtual:
        yield virtual


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is above the seam over both stores."""
    if "dialect" in metafunc.fixturenames and any(
        metafunc.definition.path.is_relative_to(room) for room in ABOVE_THE_SEAM
    ):
        place = metafunc.definition.path
        is_left_out = place.is_relative_to(E2E) and place.stem.removeprefix("test_") not in COMMANDS
        is_about_sqlite = metafunc.definition.get_closest_marker("sqlite") is not None
        # What is about servers names one of its own, and would share the kept connections of another user.
        is_about_servers = place.stem.startswith("test_postgres")
        is_once = is_about_sqlite or is_about_servers or (is_left_out and not IN_FULL)
        # What is above the seam runs the same lines over either; those of the second store are covered by its own tests.
        again = [] if is_once else [pytest.param(name, marks=pytest.mark.untraced) for name in DIALECTS[1:]]
        metafunc.parametrize("dialect", [DIALECTS[0], *again])


@pytest.fixture(scope="session")
def schemas(testrun_uid: str, worker_id: str) -> Generator[Schemas]:
    """Schemas on a PostgreSQL server that all processes of the run share."""
    made = Schemas(server_of(testrun_uid), worker_id)
    yield made
    KeptConnection.end_all()
    made.close()


@pytest.fixture
def dialect() -> str:
    """The store that the test runs over."""
    return DIALECTS[0]


@pytest.fixture
def address(dialect: str, tmp_path: Path, request: pytest.FixtureRequest) -> Address:
    """The address of an empty database, by its name."""
    if dialect == "sqlite":
        return lambda name: str(tmp_path / f"{name}.db")
    schemas: Schemas = request.getfixturevalue("schemas")
    # How connections begin and end is what the store's own tests are about.
    request.getfixturevalue("monkeypatch").setattr(connection, "WatchedConnection", KeptConnection)
    return cache(schemas.address)


@pytest.fixture
def store(dialect: str, address: Address) -> Generator[SqliteStore]:
    """An empty store; an embedded one is in memory. Leases end by the clock of the test."""
    made = SqliteStore(":memory:") if dialect == "sqlite" else PostgresStore(address("store"), clock="caller")
    # Most tests are about the embedded one, and say so.
    yield cast("SqliteStore", made)
    made.close()


@pytest.fixture
def rd(clock: VirtualClock, store: SqliteStore) -> Redrive:
    """A connection to the store, in virtual time."""
    return Redrive(store)


@pytest.fixture
def filed(address: Address) -> Generator[Redrive]:
    """A connection to the database `jobs`, in a file if it is an embedded one, in real time."""
    with connect(address("jobs")) as opened:
        yield opened
