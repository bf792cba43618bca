# SPDX-License-Identifier: Apache-2.0
"""What may happen to the file: a full disk, no right to write, a file that is damaged or something else entirely."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from redrive import connect
from redrive.errors import StoreDamagedError, StoreRefusedError

from .flows import Order
from .fulldisk import JOBS, command, noticed
from .herd import ROOT, Herd, Scene, until
from .ledger import breaches

NOBODY = 65_534
PAGE = 4_096


@pytest.mark.parametrize("kind", ["tmpfs", "limit"])
def test_while_the_disk_is_full_everything_waits_and_then_goes_on(scene: Scene, kind: str) -> None:
    program = subprocess.run(
        command(kind, scene.here), cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
    )
    assert program.returncode == 0, program.stderr
    seen = json.loads(program.stdout)

    assert len(noticed(seen.pop("log"))) == 2
    assert seen.pop("held") >= 4
    assert seen == {
        "leases kept": True,
        "alive": 2,
        "submit": True,
        "ended": 0,
        "exits": [0, 0],
    }
    db = sqlite3.connect(scene.here / "after.db")
    assert breaches(db, scene.effects(), set(range(1, JOBS + 1))) == []
    assert db.execute("SELECT status, count(*) FROM jobs GROUP BY 1").fetchall() == [("complete", JOBS)]
    assert db.execute("SELECT count(*) FROM attempts WHERE outcome = 'crashed'").fetchone() == (0,)
    db.close()
    assert len(scene.effects()) == 3 * JOBS


def finished(scene: Scene) -> dict[str, str]:
    """Make a database with jobs in it, and return what its files hold."""
    scene.submit(Order(number) for number in range(300))
    scene.read("PRAGMA wal_checkpoint(TRUNCATE)")
    return contents(scene)


def contents(scene: Scene) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in scene.here.iterdir()
        if file.name.startswith("jobs.db")
        and not file.name.endswith(("-shm", ".lock"))
        and file.stat().st_size
    }


AS_NOBODY = f"""
import importlib.metadata, os, sys
from redrive import connect
from redrive.cli.app import main
from redrive.cli.tree import load
load(sys.argv[1])  # Before the change of user: the other one may not be able to read the files of Python itself.
os.setgroups([]), os.setresgid(*[{NOBODY}] * 3), os.setresuid(*[{NOBODY}] * 3)
main()
"""


def as_nobody(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as somebody whom file permissions stop; without root, that is whoever runs the tests."""
    plain = "from redrive.cli.app import main; main()"
    return subprocess.run(
        [sys.executable, "-c", AS_NOBODY if os.getuid() == 0 else plain, *arguments],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        # Coverage is not measured there: that user may not write its file either.
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")},
            "COLUMNS": "200",
            "NO_COLOR": "1",
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        },
    )


@pytest.mark.parametrize("command", [("stats",), ("worker", "tests.faults.flows:steps", "--until-idle")])
def test_a_file_that_may_not_be_written_is_a_clear_error(scene: Scene, command: tuple[str, ...]) -> None:
    before = finished(scene)
    for file in scene.here.glob("jobs.db*"):
        file.chmod(0o444)
    scene.here.chmod(0o555)

    ended = as_nobody(scene.here, *command, "--database-url", "jobs.db")

    scene.here.chmod(0o755)
    assert ended.returncode in {1, 2}, ended.stderr
    assert "jobs.db" in ended.stderr
    assert "ermission denied" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert contents(scene) == before


def garbage(file: Path) -> None:
    file.write_bytes(b"This is somebody's letter, and not a database at all.\n" * 500)


def short_letter(file: Path) -> None:
    file.write_bytes(b"short")


def spoiled_header(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"SQLite format 4\x00")


def spoiled_pages(file: Path) -> None:
    """Every page but the first is noise, as after a disk that wrote to the wrong place."""
    size = file.stat().st_size
    noise = b"\xa5\x5a" * (PAGE // 2)
    with file.open("r+b") as opened:
        opened.seek(PAGE)
        opened.write(noise * (size // PAGE - 1))


def cut_off(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2 // PAGE * PAGE)


DAMAGES = [garbage, short_letter, spoiled_header, spoiled_pages, cut_off]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_a_clear_error_and_is_not_written_to(scene: Scene, damage: object) -> None:
    finished(scene)
    damage(scene.database)  # type: ignore[operator]
    before = contents(scene)

    with pytest.raises((StoreDamagedError, StoreRefusedError), match=r"malformed|not a redrive") as raised:
        with connect(scene.database) as rd:
            rd.jobs.counts()

    assert "jobs.db" in str(raised.value)
    assert contents(scene) == before


@pytest.mark.parametrize("damage", [garbage, spoiled_pages], ids=lambda damage: damage.__name__)
def test_a_worker_on_a_damaged_file_ends_with_a_clear_error(scene: Scene, damage: object) -> None:
    """What is damaged does not heal by being asked again; a worker that waits for it would look alive for ever."""
    finished(scene)
    damage(scene.database)  # type: ignore[operator]
    before = contents(scene)

    with Herd(scene, "--until-idle", "--once") as herd:
        assert herd.wait(10) != 0

    assert "malformed" in herd.log() or "not a redrive database" in herd.log()
    assert contents(scene) == before


def test_a_file_damaged_under_a_running_worker_ends_it_with_a_clear_error(scene: Scene) -> None:
    scene.submit([Order(0, "gate"), *(Order(number) for number in range(1, 400))])

    with Herd(scene, "--until-idle", "--once") as herd:
        until(lambda: scene.count("status = 'complete'") > 100)
        db = sqlite3.connect(scene.database, timeout=30)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        spoiled_pages(scene.database)
        (scene.here / "gate").touch()
        assert herd.wait(10) != 0

    assert "malformed" in herd.log()
