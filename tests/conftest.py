# SPDX-License-Identifier: Apache-2.0
"""What every test shares: virtual time, a store, a connection; how hard Hypothesis looks; the check of requirement marks."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
import typer.main
from hypothesis import HealthCheck, settings

from redrive import Redrive, connect
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock, virtual_time
from tools import pytest_requirements

# A slow machine is no failure, so there is no deadline; `ci` draws the same examples in every run.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))

# A shell ignores SIGINT for what it starts in the background, and whatever a test starts inherits that: no test could interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Typer builds every command anew for each call, which takes 45 ms and is most of what a test of one command would cost.
typer.main.get_command = cache(typer.main.get_command)


def pytest_configure(config: pytest.Config) -> None:
    """Add the requirement marks."""
    pytest_requirements.register(config)


@pytest.fixture
def clock() -> Generator[VirtualClock]:
    """Virtual time for everything the test runs."""
    with virtual_time() as virtual:
        yield virtual


@pytest.fixture
def store() -> Generator[SqliteStore]:
    """A store in memory."""
    made = SqliteStore(":memory:")
    yield made
    made.close()


@pytest.fixture
def rd(clock: VirtualClock, store: SqliteStore) -> Redrive:
    """A connection to the store in memory, in virtual time."""
    return Redrive(store)


@pytest.fixture
def filed(tmp_path: Path) -> Generator[Redrive]:
    """A connection to a store in the file jobs.db, in real time."""
    with connect(tmp_path / "jobs.db") as opened:
        yield opened
