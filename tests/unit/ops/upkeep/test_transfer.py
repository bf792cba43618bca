# SPDX-License-Identifier: Apache-2.0
"""Moving an installation from a file to a server: all of it or nothing, and only while nobody works on it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redrive import Pipeline, RetryPolicy, connect, stage
from redrive.errors import ConfigurationError, StoreRefusedError
from redrive.ops.audit import Actor, operations
from redrive.ops.checkup.doctor import has_problems
from redrive.ops.checkup.integrity import check_integrity
from redrive.ops.upkeep.transfer import transfer
from redrive.store.statements.text import schema_of
from redrive.testing import VirtualClock
from tests.databases import Schemas
from tests.embedded import changing, read_rows, table_rows

ANN = Actor("ann", "one machine is not enough")


@stage(retry=RetryPolicy(1))
def shout(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


FLOW = Pipeline("shouts", [shout])


@pytest.fixture
def file(tmp_path: Path, clock: VirtualClock) -> Path:
    """A database with jobs that wait, ended and failed, a large value and a schedule."""
    path = tmp_path / "jobs.db"
    with connect(path) as rd:
        rd.submit_many(FLOW, ["a", "", "long" * 5_000], key=lambda text: f"key of {str(text)[:4]}")
        rd.schedules.add("daily", FLOW, "again", cron="0 0 * * *")
        rd.work([FLOW], until_idle=True)
        rd.submit(FLOW, "late")
    return path


@pytest.fixture
def target(schemas: Schemas) -> str:
    return schemas.address("target")


@pytest.mark.untraced
@pytest.mark.parametrize("partitioned_at", [None, 0.0], ids=["one table", "attempts by week"])
def test_all_of_an_installation_is_there_and_work_continues(
    file: Path, schemas: Schemas, partitioned_at: float | None
) -> None:
    name = "target" if partitioned_at is None else "target_parts"
    target = schemas.named(schemas.emptied(name, partitioned_at=partitioned_at))
    told: list[str] = []

    report = transfer(str(file), target, ANN, on_table=lambda table, _rows: told.append(table))

    assert (report.rows["jobs"], report.rows["dead_letters"], report.rows["job_values"]) == (4, 1, 2)
    assert set(told) == set(report.rows)
    with connect(file) as here, connect(target) as there:
        for table in report.rows:
            names = [str(row[1]) for row in read_rows(here, f"PRAGMA table_info({table})")]
            # Where an installation is, is another place on a server.
            columns = ", ".join(name for name in names if (table, name) != ("installations", "file"))
            moved = table_rows(there, table, columns)
            assert (moved[:-1] if table == "operations" else moved) == table_rows(here, table, columns), table
        assert [(each.verb, each.subject) for each in operations(there.store)][-1] == (
            "transfer",
            f"file {file}",
        )
        assert not has_problems([*check_integrity(there.store)])
        assert there.submit(FLOW, "new").id == 5
        there.jobs.cancel(4)
        there.work([FLOW], until_idle=True)
        assert there.jobs.counts() == {"complete": 3, "failed": 1, "cancelled": 1}
        assert there.job(3).result() == "Long" + "long" * 4_999


def test_a_file_with_the_name_of_a_letter_is_not_in_the_log_of_the_letter(
    file: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    file.rename("letter 1")

    transfer("letter 1", target, ANN)

    with connect(target) as there:
        assert there.letters.show(1).operations == []
        (done,) = there.events.operations(limit=1)
    assert (done.subject_kind, done.subject_id) == ("file", "letter 1")


def test_every_table_of_a_file_has_its_place_on_a_server(file: Path, target: str) -> None:
    tables = re.findall(r"^CREATE TABLE (\w+)", schema_of("sqlite"), re.MULTILINE)

    assert set(tables) == set(transfer(str(file), target, ANN).rows)


def test_nothing_is_moved_while_a_worker_is_live(file: Path, target: str, clock: VirtualClock) -> None:
    with connect(file) as here:
        here.store.start_worker("w1", clock.wall(), 30.0)

    with pytest.raises(StoreRefusedError, match=r"1 of its workers are live: w1") as refused:
        transfer(str(file), target, ANN)

    assert "Stop all workers" in refused.value.hint
    clock.advance(60)
    assert transfer(str(file), target, ANN).rows["workers"] == 1


def test_a_database_that_is_in_use_is_not_mixed_with_another(file: Path, target: str) -> None:
    with connect(target) as there:
        there.submit(FLOW, "mine")

    with pytest.raises(StoreRefusedError, match=r"it is not empty: \w+ has rows"):
        transfer(str(file), target, ANN)

    with connect(target) as there:
        assert there.jobs.counts() == {"queued": 1}


def test_what_is_interrupted_leaves_nothing_and_can_be_repeated(file: Path, target: str) -> None:
    def interrupt(table: str, _rows: int) -> None:
        if table == "jobs":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transfer(str(file), target, ANN, on_table=interrupt)

    with connect(target) as there:
        assert there.jobs.counts() == {}
    assert transfer(str(file), target, ANN).rows["jobs"] == 4


KILLED = """
import os, signal, sys
from redrive.ops.audit import Actor
from redrive.ops.upkeep.transfer import transfer

def die(table, _rows=0):
    if table == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

transfer(sys.argv[1], sys.argv[2], Actor("ann"), on_table=die)
die("the end")
"""


@pytest.mark.untraced
@pytest.mark.parametrize("at", ["lanes", "jobs", "workers", "the end"])
def test_a_transfer_that_is_killed_ends_with_equal_counts_when_it_is_repeated(
    file: Path, target: str, at: str
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(file), target, at], timeout=60, capture_output=True, check=False
    )
    with connect(target) as there:
        jobs_then = there.jobs.counts()

    report = transfer(str(file), target, ANN)

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert bool(jobs_then) == (at == "the end")
    with connect(file) as here, connect(target) as there:
        assert there.jobs.counts() == here.jobs.counts()
        counted = {table: len(table_rows(there, table)) for table in report.rows}
        assert counted == {**report.rows, "operations": report.rows["operations"] + 1}
        assert [each.verb for each in operations(there.store)].count("transfer") == 1


def test_what_was_moved_and_worked_on_is_not_moved_again(file: Path, target: str) -> None:
    transfer(str(file), target, ANN)
    with connect(target) as there:
        there.submit(FLOW, "new")

    with pytest.raises(StoreRefusedError, match=r"it is not empty"):
        transfer(str(file), target, ANN)


def test_text_that_postgresql_cannot_hold_is_moved_with_a_sign(file: Path, target: str) -> None:
    with connect(file) as here, changing(here) as db:
        db.execute("UPDATE jobs SET owner = ? WHERE id = 1", ("a\x00b",))

    transfer(str(file), target, ANN)

    with connect(target) as there:
        assert there.jobs.show(1).facts.owner == "a\N{SYMBOL FOR NULL}b"


def test_only_a_file_is_moved_and_only_to_a_server(file: Path, target: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is no database file"):
        transfer(str(tmp_path / "none.db"), target, ANN)
    with pytest.raises(ConfigurationError, match="is no database file"):
        transfer(target, target, ANN)
    with pytest.raises(ConfigurationError, match="must be on a PostgreSQL server"):
        transfer(str(file), str(tmp_path / "other.db"), ANN)
    assert not (tmp_path / "none.db").exists()
