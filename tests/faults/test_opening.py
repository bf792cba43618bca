# SPDX-License-Identifier: Apache-2.0
"""Opening a file: by many who all want to make it, and one that is somebody else's."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from redrive.errors import StoreRefusedError
from redrive.store.sqlite.store import SqliteStore
from redrive.store.versions import newest

from .herd import PATIENCE, until

OPENERS = 8
FILES = 20

together: Barrier
"""Where the openers wait for one another; set in their own processes."""


def meet_at(barrier: Barrier) -> None:
    global together  # noqa: PLW0603 - a barrier reaches a process only while that is started.
    together = barrier


def open_each(files: list[Path]) -> list[str]:
    """Open new databases, each at the moment at which the others do; return what went wrong."""
    wrong: list[str] = []
    for file in files:
        together.wait(PATIENCE)
        try:
            SqliteStore(file).close()
        except Exception as error:
            wrong.append(f"{file.name}: {error!r}")
    return wrong


def test_all_who_open_a_new_database_at_the_same_moment_can_work_with_it(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.db" for number in range(FILES)]
    # One process imports redrive, and the openers are forked from it.
    forks = get_context("forkserver")
    forks.set_forkserver_preload([__name__])

    with ProcessPoolExecutor(OPENERS, forks, meet_at, (forks.Barrier(OPENERS),)) as openers:
        asked = [openers.submit(open_each, files) for _ in range(OPENERS)]
        wrong = [each.result(PATIENCE) for each in asked]

    assert wrong == [[]] * OPENERS
    for file in files:
        store = SqliteStore(file)
        assert store.read("SELECT count(*) FROM installations") == [(1,)]
        store.close()


def test_one_who_opens_a_database_waits_while_another_one_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself does not wait there: whoever comes second is told at once that the database is locked."""
    file = tmp_path / "new.db"
    lock = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    maker = sqlite3.connect(file, isolation_level=None)
    maker.execute("BEGIN IMMEDIATE")
    is_asked_for = threading.Event()
    flock = fcntl.flock

    def spy(descriptor: int, operation: int) -> None:
        is_asked_for.set()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", spy)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(SqliteStore, file)
        until(lambda: is_asked_for.is_set() or opening.done())
        maker.execute("COMMIT")
        maker.close()
        os.close(lock)
        store = opening.result(PATIENCE)

    assert store.read("SELECT count(*) FROM installations") == [(1,)]
    store.close()


def opened(here: Path) -> list[str]:
    """Return which files in a folder this process holds open."""
    held: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = descriptor.readlink()
        except FileNotFoundError:
            # It was the one for reading this folder.
            continue
        if target.is_relative_to(here):
            held.append(target.name)
    return held


@pytest.mark.parametrize("version", [0, newest()])
def test_a_file_of_another_program_is_refused_and_left_as_it_was_found(tmp_path: Path, version: int) -> None:
    """Also when it counts the versions of its schema in the same place, and has come as far."""
    theirs = tmp_path / "theirs.db"
    db = sqlite3.connect(theirs)
    db.execute("CREATE TABLE theirs (id INTEGER PRIMARY KEY)")
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    before = theirs.read_bytes()

    for _ in range(3):
        with pytest.raises(StoreRefusedError, match="not a redrive database"):
            SqliteStore(theirs)

    assert opened(tmp_path) == []
    assert list(tmp_path.iterdir()) == [theirs]
    assert theirs.read_bytes() == before
