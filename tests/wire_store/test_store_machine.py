# SPDX-License-Identifier: Apache-2.0
"""What the machine itself refuses: disks, files, descriptors, child processes, process pools, and SQLite files."""

from __future__ import annotations

import asyncio
import os
import pickle
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from redrive.engine.classifier import classify
from tests.wire_store.catching import failure_awaited, failure_of, raised_by


def die() -> None:
    os._exit(3)


def fail_in_the_child() -> None:
    raise ConnectionRefusedError(111, "Connection refused")


def test_a_full_disk_is_not_retried() -> None:
    def write() -> None:
        with Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")

    failure = failure_of(write)

    assert (failure.code, failure.retryable) == ("DISK_FULL", False)


def test_files_that_are_missing_barred_or_of_the_wrong_kind(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("content")

    assert failure_of((tmp_path / "nothing").read_text).code == "IO_NOT_FOUND"
    assert failure_of((file / "below").read_text).code == "IO_NOT_FOUND"
    assert failure_of(tmp_path.read_text).code == "IO_NOT_FOUND"
    assert failure_of(file.mkdir).code == "CONFLICT"
    assert failure_of(tmp_path.rmdir).code == "CONFLICT"
    assert failure_of((tmp_path / ("n" * 300)).write_text, "x").code == "SCHEMA_INVALID"
    assert failure_of(Path("/proc/version").write_text, "x").code in {"IO_DENIED", "IO_ERROR"}
    assert failure_of(os.kill, 2**22 + 1, 0).code == "NOT_FOUND"
    assert failure_of(os.close, 10_000).code == "BUG_CODE"


def test_running_out_of_descriptors_heals() -> None:
    def use_up() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        held: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        try:
            while True:
                held.append(os.dup(0))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in held:
                os.close(descriptor)

    failure = failure_of(use_up)

    assert (failure.code, failure.retryable) == ("RESOURCE_EXHAUSTED", True)


def test_running_out_of_memory_is_not_retried() -> None:
    failure = failure_of(lambda: bytearray(2**62))

    assert (failure.code, failure.retryable) == ("OUT_OF_MEMORY", False)


def shell(script: str, *, timeout: float | None = None) -> None:
    subprocess.run(["/bin/sh", "-c", script], check=True, capture_output=True, timeout=timeout)


@pytest.mark.parametrize(
    ("script", "code", "retryable"),
    [
        ("exit 1", "BUG_UNKNOWN", False),
        ("exit 124", "LOCAL_TIMEOUT", True),
        ("exit 75", "UPSTREAM_NOT_READY", True),
        ("exec no-such-program-anywhere", "CONFIG_INVALID", False),
        ("kill -9 $$", "WORKER_CRASH", False),
        ("kill -SEGV $$", "WORKER_CRASH", False),
        ("exit 137", "WORKER_CRASH", False),
        ("kill -TERM $$", "CANCELLED", False),
    ],
)
def test_a_child_process_is_read_by_how_it_ended(script: str, code: str, retryable: bool) -> None:
    failure = failure_of(shell, script)

    assert (failure.code, failure.retryable) == (code, retryable)


def test_a_child_process_that_takes_too_long_is_a_timeout() -> None:
    assert failure_of(shell, "sleep 5", timeout=0.05).code == "LOCAL_TIMEOUT"


def test_a_program_that_is_missing_or_may_not_run_is_wrong_configuration(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")

    assert failure_of(subprocess.run, ["/no/such/program"]).code == "CONFIG_INVALID"
    assert failure_of(subprocess.run, [str(script)]).code == "CONFIG_INVALID"

    async def start() -> str:
        return (await failure_awaited(asyncio.create_subprocess_exec("/no/such/program"))).code

    assert asyncio.run(start()) == "CONFIG_INVALID"


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


def test_a_failure_in_a_process_pool_keeps_its_meaning_and_a_dead_worker_is_a_crash(
    pool: ProcessPoolExecutor,
) -> None:
    assert failure_of(pool.submit(fail_in_the_child).result).code == "NETWORK_REFUSED"

    failure = failure_of(pool.submit(die).result)

    assert (failure.code, failure.retryable) == ("WORKER_CRASH", False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.db"
    with sqlite3.connect(path) as db:
        db.execute(
            "create table item (id integer primary key, name text unique, amount int not null check (amount < 100)) strict"
        )
        db.execute("insert into item values (1, 'one', 1)")
    db.close()
    return path


@pytest.fixture
def db(file: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(file, timeout=0, isolation_level=None)
    yield connection
    connection.close()


def test_a_locked_database_heals_whether_or_not_the_stage_is_idempotent(
    file: Path, db: sqlite3.Connection
) -> None:
    other = sqlite3.connect(file, timeout=0, isolation_level=None)
    other.execute("begin immediate")

    exc = raised_by(db.execute, "begin immediate")
    other.close()

    for exception in (exc, pickle.loads(pickle.dumps(exc))):
        assert (classify(exception).code, classify(exception).retryable) == ("RESOURCE_EXHAUSTED", True)
    assert classify(exc).provider_code == "SQLITE_BUSY"


def test_a_snapshot_that_another_writer_overtook_heals(file: Path, db: sqlite3.Connection) -> None:
    db.execute("pragma journal_mode = wal")
    other = sqlite3.connect(file, timeout=0, isolation_level=None)
    db.execute("begin")
    db.execute("select * from item").fetchall()
    other.execute("insert into item values (7, 'seven', 7)")

    failure = failure_of(db.execute, "insert into item values (8, 'eight', 8)")
    other.close()

    assert (failure.provider_code, failure.retryable) == ("SQLITE_BUSY_SNAPSHOT", True)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("insert into item values (1, 'x', 1)", "CONFLICT"),
        ("insert into item values (2, 'one', 1)", "CONFLICT"),
        ("insert into item values (2, 'x', null)", "SCHEMA_INVALID"),
        ("insert into item values (2, 'x', 100)", "SCHEMA_INVALID"),
        ("insert into item values (2, 'x', 'abc')", "SCHEMA_INVALID"),
        ("selec 1", "BUG_CODE"),
        ("select * from nowhere", "BUG_CODE"),
        ("select ?", "BUG_CODE"),
    ],
)
@pytest.mark.req("CR-1.4", "CR-1.5")
def test_sqlite_statements_that_fail(db: sqlite3.Connection, statement: str, code: str) -> None:
    assert failure_of(db.execute, statement).code == code


def test_a_database_that_is_full_or_read_only_or_none_at_all(
    file: Path, db: sqlite3.Connection, tmp_path: Path
) -> None:
    db.execute("pragma max_page_count = 3")
    assert failure_of(db.execute, "insert into item values (9, ?, 1)", ("x" * 100_000,)).code == "DISK_FULL"

    read_only = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    assert failure_of(read_only.execute, "delete from item").code == "IO_DENIED"
    read_only.close()

    no_database = tmp_path / "text"
    no_database.write_text("this is no database, " * 100)
    opened = sqlite3.connect(no_database)
    assert failure_of(opened.execute, "select * from item").code == "SCHEMA_INVALID"
    opened.close()

    assert failure_of(sqlite3.connect, tmp_path / "no" / "folder.db").code == "IO_NOT_FOUND"


def test_sqlite_interrupted_too_big_or_closed(db: sqlite3.Connection) -> None:
    db.set_progress_handler(lambda: 1, 1)
    assert failure_of(db.execute, "select * from item").code == "CANCELLED"
    db.set_progress_handler(None, 0)

    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100)
    assert failure_of(db.execute, "select ?", ("x" * 1000,)).code == "REQUEST_TOO_LARGE"

    db.close()
    assert failure_of(db.execute, "select 1").code == "BUG_CODE"
