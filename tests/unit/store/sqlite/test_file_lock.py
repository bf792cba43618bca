# SPDX-License-Identifier: Apache-2.0
"""Looking at a database writes nothing and waits for nobody; writers report who keeps them waiting."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from redrive import connect
from redrive.errors import StoreDamagedError, StoreRefusedError, StoreUnavailableError
from redrive.ops.audit import Actor
from redrive.ops.checkup.doctor import examine, unopened
from redrive.ops.upkeep.backup import backup
from redrive.store.sqlite import file_lock
from redrive.store.sqlite.store import SqliteStore
from tests.faults.flows import Order, steps
from tests.faults.herd import PATIENCE, ROOT, Scene, until

HOLDER = """
import fcntl, sys, threading
with open(sys.argv[1], "r+b") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("locked", flush=True)
    threading.Event().wait()
"""


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@contextmanager
def stopped_holder(scene: Scene) -> Generator[int]:
    """Let a process take the lock beside the database, and stop it there; yield its id."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, f"{scene.database}.lock"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "locked\n"
        process.send_signal(signal.SIGSTOP)
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def uncommitted_writer(scene: Scene) -> Generator[None]:
    """Hold SQLite's own write lock."""
    with scene.reading() as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def look(database: Path) -> dict[str, int]:
    with connect(database) as rd:
        assert unopened(database) is None
        examine(rd.store, is_deep=True)
        return rd.jobs.counts()


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")}


def test_looking_waits_for_no_writer(scene: Scene) -> None:
    scene.submit([Order(1)])

    with stopped_holder(scene), uncommitted_writer(scene), ThreadPoolExecutor(1) as pool:
        assert pool.submit(look, scene.database).result(PATIENCE / 4) == {"queued": 1}


def test_looking_at_a_database_leaves_its_files_as_they_are(scene: Scene, tmp_path: Path) -> None:
    scene.submit([Order(1)])
    (scene.here / "jobs.db.lock").unlink()
    before = files_of(scene.here)

    look(scene.database)

    assert files_of(scene.here) == before


def test_looking_at_a_backup_does_not_change_it_and_writing_does(scene: Scene, tmp_path: Path) -> None:
    scene.submit([Order(1)])
    folder = tmp_path / "backups"
    folder.mkdir()
    with connect(scene.database) as rd:
        backup(rd.store, folder / "copy.db", Actor("ann"))
    before = files_of(folder)

    assert look(folder / "copy.db") == {"queued": 1}
    assert files_of(folder) == before

    with connect(folder / "copy.db") as rd:
        rd.submit(steps, Order(2))
        assert (folder / "copy.db-wal").stat().st_size


def foreign_text(file: Path) -> None:
    file.write_text("root:x:0:0:root:/root:/bin/sh\n" * 40, encoding="utf-8")


def foreign_database(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE theirs (id INTEGER PRIMARY KEY)")


def foreign_log(file: Path) -> None:
    """A database in WAL mode whose program died, so that the log was never written back."""
    live = file.with_name("live")
    with closing(sqlite3.connect(live, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE theirs (id INTEGER PRIMARY KEY)")
        db.execute("PRAGMA wal_checkpoint")
        db.execute("INSERT INTO theirs VALUES (1)")
        for rest in ("", "-wal"):
            file.with_name(file.name + rest).write_bytes(live.with_name(live.name + rest).read_bytes())
    live.unlink()


@pytest.mark.parametrize("make", [foreign_text, foreign_database, foreign_log])
def test_a_file_that_is_not_ours_is_named_so_and_left_alone(tmp_path: Path, make: object) -> None:
    make(tmp_path / "theirs")  # type: ignore[operator]
    before = files_of(tmp_path)

    with pytest.raises(StoreRefusedError, match="theirs: not a redrive database"):
        connect(tmp_path / "theirs")

    assert files_of(tmp_path) == before
    finding = unopened(tmp_path / "theirs")
    assert finding is not None
    assert "theirs: not a redrive database" in finding.sentence
    assert files_of(tmp_path) == before


def test_a_writer_reports_which_process_keeps_it_waiting_and_then_gives_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene.submit([])
    monkeypatch.setattr(file_lock, "WARN_SECONDS", 0.01)
    monkeypatch.setattr(file_lock, "WAIT_SECONDS", 0.05)
    with connect(scene.database) as rd, stopped_holder(scene) as holder:
        for _ in range(2):
            with (
                caplog.at_level(logging.WARNING, "redrive.store"),
                pytest.raises(StoreUnavailableError, match=f"process {holder} has held the lock") as raised,
            ):
                rd.submit(steps, Order(1))
            assert "resume it or end it" in raised.value.hint
            assert f"process {holder} holds the lock" in caplog.messages[-1]
        assert rd.jobs.counts() == {}


def test_a_lock_that_comes_too_late_is_given_back(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.submit([])
    monkeypatch.setattr(file_lock, "WARN_SECONDS", 0.01)
    monkeypatch.setattr(file_lock, "WAIT_SECONDS", 0.02)
    with connect(scene.database) as first, connect(scene.database) as second:
        with stopped_holder(scene), pytest.raises(StoreUnavailableError):
            first.submit(steps, Order(1))
        monkeypatch.undo()
        scene.submitted.add(second.submit(steps, Order(2)).id)
        scene.submitted.add(first.submit(steps, Order(3)).id)
    assert scene.breaches() == []


def test_one_who_gave_up_and_closed_leaves_no_lock_behind(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit([])
    # Other tests may have left theirs.
    before = set(threading.enumerate())
    monkeypatch.setattr(file_lock, "WARN_SECONDS", 0.01)
    monkeypatch.setattr(file_lock, "WAIT_SECONDS", 0.02)
    with stopped_holder(scene):
        with connect(scene.database) as rd, pytest.raises(StoreUnavailableError):
            rd.submit(steps, Order(1))

    def is_free() -> bool:
        with Path(f"{scene.database}.lock").open("r+b") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    until(is_free)
    until(lambda: not any("file-lock" in thread.name for thread in set(threading.enumerate()) - before))


def test_a_lock_is_waited_for_while_its_holder_is_at_work(scene: Scene) -> None:
    scene.submit([])
    with connect(scene.database) as rd, ThreadPoolExecutor(1) as pool:
        with Path(f"{scene.database}.lock").open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            submitting = pool.submit(rd.submit, steps, Order(1))
            until(lambda: any("file-lock" in thread.name for thread in threading.enumerate()))
            assert not submitting.done()
        scene.submitted.add(submitting.result(PATIENCE).id)
    assert scene.breaches() == []


def test_a_holder_the_system_does_not_show_is_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    assert file_lock.holder(lock) == "another process"
    monkeypatch.setattr(file_lock, "LOCKS", tmp_path / "none")
    assert file_lock.holder(lock) == "another process"
    os.close(lock)


@pytest.mark.parametrize("use", ["read", "write"])
def test_use_after_close_is_the_callers_mistake(tmp_path: Path, use: str) -> None:
    rd = connect(tmp_path / "jobs.db")
    rd.submit(steps, Order(1))
    rd.close()
    rd.close()

    with pytest.raises(StoreRefusedError, match="the connection is closed") as raised:
        rd.jobs.counts() if use == "read" else rd.submit(steps, Order(1))

    assert "connect again" in raised.value.hint
    assert "bug" not in raised.value.hint


def test_a_deleted_log_is_named_and_nothing_is_lost_with_it(scene: Scene) -> None:
    """Whoever had the database open still has the deleted file, and writes it back."""
    open_before = connect(scene.database)
    open_before.store.start_worker("w1", 0.0, 1e12)
    open_before.submit(steps, Order(1))
    Path(f"{scene.database}-wal").unlink()

    program = "import sys; from redrive.cli.app import main; sys.argv[0] = 'redrive'; main()"
    looking = subprocess.run(
        [sys.executable, "-c", program, "stats", "--database-url", str(scene.database)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    with pytest.raises(StoreDamagedError, match="-wal, which holds the latest commits, was deleted"):
        open_before.store.renew("w1", 0.0, 1e12)
    open_before.close()

    assert looking.returncode == 1
    assert "-wal, which holds the latest commits, was deleted" in looking.stderr
    assert "End every program that has it open with SIGTERM" in looking.stderr
    with connect(scene.database) as rd:
        assert rd.jobs.counts() == {"queued": 1}


@pytest.mark.parametrize("act", ["deleted", "replaced"])
def test_a_worker_notices_that_its_file_is_another_one(scene: Scene, act: str) -> None:
    with connect(scene.database) as rd:
        rd.store.start_worker("w1", 0.0, 1e12)
        assert rd.store.renew("w1", 0.0, 1e12).is_known
        scene.database.unlink()
        if act == "replaced":
            SqliteStore(scene.database).close()

        with pytest.raises(StoreDamagedError, match="was deleted, cut off or replaced"):
            rd.store.renew("w1", 0.0, 1e12)
