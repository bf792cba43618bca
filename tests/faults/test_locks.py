# SPDX-License-Identifier: Apache-2.0
"""Strangers on the same file: readers that stay, writers that know nothing of our lock file, and many submitters at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from .flows import Order
from .herd import ROOT, Herd, Scene, until

JOBS = 600

WRITER = """
import sqlite3, sys, threading
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS theirs (id INTEGER PRIMARY KEY, text TEXT)")
while True:
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO theirs (text) VALUES ('x')")
    threading.Event().wait(0.05)
    db.execute("COMMIT")
    sys.stdout.write(".")
    sys.stdout.flush()
    threading.Event().wait(0.01)
"""

READER = """
import sqlite3, sys, threading
while True:
    db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM jobs").fetchone()
    sys.stdout.write(".")
    sys.stdout.flush()
    threading.Event().wait(1)
    db.execute("SELECT sum(length(payload)) FROM jobs").fetchone()
    db.close()
"""

SUBMITTER = """
import sys
from redrive import connect
from tests.faults.flows import Order, steps
with connect(sys.argv[1]) as rd:
    for number in range(100):
        print(rd.submit(steps, Order(number)).id, flush=True)
"""


@contextmanager
def stranger(program: str, scene: Scene) -> Generator[Callable[[], str]]:
    """Run a program on the database; what it said so far can be asked for, and its end is not waited for."""
    said: list[str] = []
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(scene.database)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )

    def listen() -> None:
        assert process.stdout is not None
        while piece := process.stdout.read(1):
            said.append(piece)

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        yield lambda: "".join(said)
    finally:
        process.kill()
        process.wait()
        listener.join()
        assert process.stdout is not None
        process.stdout.close()


def test_outside_readers_and_writers_cost_time_and_nothing_else(scene: Scene) -> None:
    scene.submit(Order(number) for number in range(JOBS))

    with stranger(WRITER, scene) as written, stranger(READER, scene) as looked:
        until(lambda: written() and looked())
        with Herd(scene, "--until-idle", workers=2, concurrency=16) as herd:
            assert herd.wait() == 0
        assert len(written()) > 5

    assert scene.breaches() == []
    assert scene.count("status = 'complete'") == JOBS
    assert scene.outcomes("crashed") == 0
    assert "locked" not in herd.log()


def test_a_reader_that_never_leaves_stops_nobody(scene: Scene) -> None:
    """The log behind the database cannot be folded back while it is read; the work goes on."""
    scene.submit(Order(number) for number in range(JOBS))

    with scene.reading() as db:
        db.execute("BEGIN")
        assert db.execute("SELECT count(*) FROM jobs WHERE status = 'queued'").fetchone() == (JOBS,)
        with Herd(scene, "--until-idle", workers=2, concurrency=16) as herd:
            assert herd.wait() == 0
        assert db.execute("SELECT count(*) FROM jobs WHERE status = 'queued'").fetchone() == (JOBS,)
        db.execute("COMMIT")

    assert scene.breaches() == []
    assert scene.count("status = 'complete'") == JOBS
    assert "locked" not in herd.log()


def test_many_who_submit_while_others_work_all_get_their_ids(scene: Scene) -> None:
    scene.submit([])
    with Herd(scene, workers=2) as herd:
        until(lambda: herd.has_started(2))
        submitters = [
            subprocess.Popen(
                [sys.executable, "-c", SUBMITTER, str(scene.database)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        for each in submitters:
            said, _ = each.communicate(timeout=60)
            assert each.returncode == 0
            scene.submitted.update(int(line) for line in said.split())
        assert len(scene.submitted) == 300
        until(lambda: scene.count("status = 'complete'") == 300)
        herd.terminate()
        assert herd.wait() == 0

    assert scene.breaches() == []
    assert len(scene.effects()) == 900
