# SPDX-License-Identifier: Apache-2.0
"""A worker that is killed between the commit of a dead letter and its delivery: the next one delivers it.

The worker is a process of its own, `python -m tests.faults.test_sinks`: its sink says that it was called, and then, as long as the
gate is closed, hangs, so that the kill hits it at exactly that point.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redrive import Pipeline, connect, stage
from redrive.sinks import Files, SunkLetter

from .herd import ROOT, Scene, until

HERE = "FAULTS_HERE"
JOBS = 5


class GatedFiles:
    """Files behind a gate: `before` stops ahead of the first write, `after` behind it, while no file `gate` is there."""

    name = "files"

    def __init__(self, here: Path, where: str) -> None:
        self._here = here
        self._where = where
        self._files = Files(here / "letters")

    def deliver(self, letter: SunkLetter) -> None:
        if self._where == "before":
            self._stand()
        self._files.deliver(letter)
        if self._where == "after":
            self._stand()

    def _stand(self) -> None:
        (self._here / "ready").touch()
        until((self._here / "gate").exists)


def flow(here: Path, where: str) -> Pipeline:
    @stage
    def fail(number: int) -> None:
        raise KeyError(number)

    return Pipeline("sinking", [fail], sinks=[GatedFiles(here, where)])


def main(where: str) -> None:
    here = Path(os.environ[HERE])
    with connect(here / "jobs.db") as rd:
        rd.work([flow(here, where)], lease=1.0, until_idle=True)


@contextmanager
def worker(here: Path, where: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.test_sinks", where],
        cwd=ROOT,
        env={**os.environ, HERE: str(here)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def show_all_now(scene: Scene) -> None:
    """End the time for which the dead worker's notices are hidden."""
    db = sqlite3.connect(scene.database, timeout=30)
    with db:
        db.execute("UPDATE outbox SET due_at = 0")
    db.close()


def killed_then_restarted(scene: Scene, where: str) -> None:
    scene.submit(range(JOBS), flow(scene.here, where))
    with worker(scene.here, where) as first:
        until((scene.here / "ready").exists)
        until(lambda: scene.count("status = 'failed'") == JOBS)
        first.send_signal(signal.SIGKILL)
        assert first.wait(60) == -signal.SIGKILL

    assert scene.read("SELECT count(*) FROM outbox") == [(JOBS,)]
    show_all_now(scene)
    (scene.here / "gate").touch()
    with worker(scene.here, where) as second:
        assert second.wait(60) == 0


def delivered(scene: Scene) -> list[int]:
    files = (scene.here / "letters").rglob("*")
    return sorted(json.loads(file.read_bytes())["job_id"] for file in files if file.is_file())


def test_a_letter_is_delivered_after_a_kill_between_its_commit_and_its_delivery(scene: Scene) -> None:
    killed_then_restarted(scene, "before")

    assert delivered(scene) == sorted(scene.submitted)
    assert scene.read("SELECT count(*) FROM outbox") == [(0,)]
    assert scene.count("status = 'failed'") == JOBS


def test_a_letter_that_was_delivered_before_the_kill_is_delivered_again_and_is_one_file(scene: Scene) -> None:
    killed_then_restarted(scene, "after")

    assert delivered(scene) == sorted(scene.submitted)
    assert scene.read("SELECT count(*) FROM outbox") == [(0,)]
    assert scene.read("SELECT count(*) FROM dead_letters") == [(JOBS,)]


if __name__ == "__main__":
    main(sys.argv[1])
