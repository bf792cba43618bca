# SPDX-License-Identifier: Apache-2.0
"""Erased and pruned values are in no file of the database any more, also while others have it open."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import Pipeline, Redrive, RetryPolicy, connect, stage
from redrive.core.replay import ReplayRules
from redrive.engine.retention import Retention
from redrive.ops.audit import Actor
from redrive.ops.jobs.erase import erase
from redrive.ops.upkeep.prune import prune
from redrive.store.sqlite import store as sqlite_store
from redrive.store.sqlite.store import SqliteStore

ANN = Actor("ann")
JOBS = 24
SIZES = (1, 40, 900, 3_000)
"""How often a value is repeated in itself: inline, as long as a page, and far longer."""


@stage(retry=RetryPolicy(1))
def first(value: str) -> str:
    return value.replace("payload", "input")


@stage(retry=RetryPolicy(1))
def second(value: str) -> str:
    if value.startswith("fail"):
        raise KeyError("no")
    return value.replace("input", "result")


flow = Pipeline("flow", [first, second], replay=ReplayRules(evidence="optional"))


def value_of(number: int) -> str:
    name = "fail" if number % 3 == 0 else "pass"
    return f"{name}-payload-{number:04d}-" * SIZES[number % len(SIZES)]


def found(folder: Path) -> set[int]:
    """Return the jobs of which any value stands in any file of the database."""
    text = b"".join(file.read_bytes() for file in folder.iterdir() if file.name.startswith("jobs.db"))
    kinds = ("payload", "input", "result")
    return {
        number for number in range(JOBS) if any(f"{kind}-{number:04d}-".encode() in text for kind in kinds)
    }


@contextmanager
def worked(folder: Path) -> Generator[Redrive]:
    """Yield a database whose jobs have ended, while another connection, which has read, stays open."""
    with connect(folder / "jobs.db") as rd, connect(folder / "jobs.db") as other:
        rd.submit_many(flow, [value_of(number) for number in range(JOBS)])
        rd.work([flow], until_idle=True)
        assert other.jobs.counts() == {"complete": 16, "failed": 8}
        assert found(folder) == set(range(JOBS))
        yield rd


def erase_half(rd: Redrive) -> None:
    for number in range(0, JOBS, 2):
        erase(rd.store, number + 1, ANN)


HALF = set(range(1, JOBS, 2))


def test_an_erased_value_is_in_no_file_while_another_connection_is_open(tmp_path: Path) -> None:
    with worked(tmp_path) as rd:
        erase_half(rd)
        assert found(tmp_path) == HALF
        assert (tmp_path / "jobs.db-wal").stat().st_size == 0


def test_a_database_too_large_to_be_rewritten_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_store, "REWRITE_MAX", 1)
    with worked(tmp_path) as rd, caplog.at_level(logging.WARNING, "redrive.store"):
        erase(rd.store, 1, ANN)

        assert "too large to be rewritten" in caplog.messages[-1]


def copies_of_large_values(folder: Path) -> int:
    """Return how often the largest values stand in the files of the database."""
    text = b"".join(file.read_bytes() for file in folder.iterdir() if file.name.startswith("jobs.db"))
    return sum(text.count(f"-{number:04d}-".encode()) for number in range(3, JOBS, 4))


def test_the_pages_of_a_pruned_value_are_overwritten_while_another_connection_is_open(tmp_path: Path) -> None:
    with worked(tmp_path) as rd:
        prune(rd.store, Retention(complete=timedelta(0), failed=timedelta(0)), ANN)

        # A row that once moved left the beginning of its value in the page it came from, but never one of the pages that follow.
        assert copies_of_large_values(tmp_path) < SIZES[-1]
        assert (tmp_path / "jobs.db-wal").stat().st_size == 0


def test_a_reader_of_an_older_state_is_reported_and_erasing_again_removes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_store, "EMPTY_LOG_SECONDS", 0.01)
    with worked(tmp_path) as rd, caplog.at_level(logging.WARNING, "redrive.store"):
        reader = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchone()
        erase(rd.store, 1, ANN)
        assert 0 in found(tmp_path)
        assert "jobs.db-wal still contains erased values" in caplog.messages[-1]

        reader.close()
        assert not erase(rd.store, 1, ANN).is_new
        assert found(tmp_path) == set(range(1, JOBS))


def plant_no_secure_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = SqliteStore._open

    def insecure(store: SqliteStore, synchronous: str, older: str) -> None:
        opened(store, synchronous, older)  # type: ignore[arg-type]
        store._db.execute("PRAGMA secure_delete = OFF")

    monkeypatch.setattr(SqliteStore, "_open", insecure)


def plant_no_emptying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteStore, "_empty_log", lambda _: None)


def plant_no_rewriting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteStore, "_rewrite", lambda _: None)
    plant_no_secure_delete(monkeypatch)


@pytest.mark.parametrize("plant", [plant_no_rewriting, plant_no_emptying])
def test_erased_values_that_stay_in_a_file_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: object
) -> None:
    plant(monkeypatch)  # type: ignore[operator]
    with worked(tmp_path) as rd:
        erase_half(rd)
        assert found(tmp_path) > HALF


def test_pruned_values_that_stay_in_free_pages_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_no_secure_delete(monkeypatch)
    with worked(tmp_path) as rd:
        prune(rd.store, Retention(complete=timedelta(0), failed=timedelta(0)), ANN)

        assert copies_of_large_values(tmp_path) > SIZES[-1]
