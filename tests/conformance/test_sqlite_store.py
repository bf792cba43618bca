# SPDX-License-Identifier: Apache-2.0
"""What is particular to the embedded store: the file, its constraints, its plans, its errors."""

from __future__ import annotations

import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from redrive.errors import SchemaMismatchError, StoreRefusedError, StoreUnavailableError
from redrive.store.records import ClaimRequest
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements.text import statements_of
from redrive.store.versions import newest
from redrive.testing.conformance.build import NOW, exchange, lanes_of, new, settlement, statuses


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> SqliteStore:
    made = SqliteStore(path)
    made.start_worker("w1", NOW, 60)
    return made


def test_the_file_belongs_to_its_owner_alone(store: SqliteStore, path: Path) -> None:
    store.submit([new(lanes_of(store)[0])], NOW)

    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


def test_what_was_submitted_is_there_when_the_file_is_opened_again(store: SqliteStore, path: Path) -> None:
    store.submit([new(lanes_of(store)[0])], NOW)
    store.close()

    again = SqliteStore(path)

    assert statuses(again) == {"queued": 1}
    again.close()


def test_a_database_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {newest() + 1}")
    db.close()

    with pytest.raises(SchemaMismatchError, match=f"version {newest() + 1}"):
        SqliteStore(path)
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    db.close()


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"this is no database, but a letter to my aunt" * 100)
    before = path.read_bytes()

    with pytest.raises(StoreRefusedError, match="not a redrive database"):
        SqliteStore(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("place", ["missing/jobs.db", "."])
def test_a_file_that_cannot_be_opened_is_an_error_of_the_store(tmp_path: Path, place: str) -> None:
    with pytest.raises(StoreUnavailableError, match=r"No such file|Is a directory"):
        SqliteStore(tmp_path / place)


def test_a_failed_statement_leaves_nothing_of_its_batch(store: SqliteStore) -> None:
    (lane,) = lanes_of(store)

    with pytest.raises(StoreRefusedError):
        store.submit([new(lane), new(lane, priority=99)], NOW)

    assert statuses(store) == {}


@pytest.mark.parametrize(
    "breach",
    [
        "UPDATE jobs SET status = 'processing'",
        "UPDATE jobs SET lease_token = 1",
        "UPDATE jobs SET result = '1'",
        "UPDATE jobs SET error_code = 'X'",
        "UPDATE jobs SET status = 'failed', finished_at = 1",
        "UPDATE jobs SET status = 'complete', finished_at = 1",
        "UPDATE jobs SET status = 'cancelled'",
        "UPDATE jobs SET status = 'paused'",
    ],
)
def test_the_database_itself_keeps_the_invariants(store: SqliteStore, path: Path, breach: str) -> None:
    store.submit([new(lanes_of(store)[0])], NOW)
    with sqlite3.connect(path) as db, pytest.raises(sqlite3.IntegrityError):
        db.execute(breach)
    db.close()


def test_the_claim_is_an_index_search_never_a_scan_or_a_sort(store: SqliteStore) -> None:
    plan = store.read("EXPLAIN QUERY PLAN " + statements_of("sqlite")["claim"], (1, "w1", NOW, 1, 10))
    steps = " | ".join(str(row[-1]) for row in plan)

    assert (
        "SEARCH jobs USING INDEX jobs_ready (lane_id=? AND lane_key=? AND priority=? AND run_at<?)" in steps
    )
    assert "SCAN jobs" not in steps
    assert "TEMP B-TREE" not in steps


def test_threads_and_a_second_connection_share_the_file_without_losing_a_job(
    store: SqliteStore, path: Path
) -> None:
    (lane,) = lanes_of(store)
    other = SqliteStore(path)
    lanes_of(other)
    other.start_worker("w2", NOW, 60)
    store.submit([new(lane)] * 400, NOW)
    taken: dict[str, list[int]] = {"w1": [], "w2": []}

    def drain(worker: str, mine: SqliteStore) -> None:
        while got := exchange(mine, worker, [], ClaimRequest((lane,), 7), NOW).claimed:
            taken[worker] += [each.id for each in got]
            exchange(mine, worker, [settlement(each) for each in got])

    threads = [
        threading.Thread(target=drain, args=pair) for pair in (("w1", store), ("w1", store), ("w2", other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken["w1"] + taken["w2"]) == list(range(1, 401))
    assert statuses(store) == {"complete": 400}
    other.close()
