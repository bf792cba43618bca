# SPDX-License-Identifier: Apache-2.0
"""A disk that is full for a while, as a program of its own: `python -m tests.faults.fulldisk tmpfs|limit HERE`.

`tmpfs` mounts a small file system under HERE and fills it; it needs to be root in a mount namespace (`unshare -rm`), which is why
this is a program. `limit` works everywhere: it forbids the workers to let any file grow (RLIMIT_FSIZE), and allows it again. What was
seen is printed as one JSON object; the database is left in HERE for the judge.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Protocol

from redrive import Redrive, connect
from redrive.errors import StoreUnavailableError
from tests.faults.flows import Order, steps
from tests.faults.herd import Herd, Scene, until

LEASE = 1.0
JOBS = 300
DISK_BYTES = 8 * 1024 * 1024
LIMIT_BYTES = 64 * 1024


LEASES = "SELECT id, worker_id, dispatch FROM jobs WHERE status = 'processing' ORDER BY id"
"""Who holds what; a claim in between would show, because it counts the dispatch."""


class Disk(Protocol):
    """Where the database lies."""

    def fill(self, herd: Herd) -> None: ...
    def empty(self, herd: Herd) -> None: ...


class SmallDisk:
    """A file system of a few megabytes."""

    def __init__(self, at: Path) -> None:
        at.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(at)], check=True)
        self._filler = at / "filler"

    def fill(self, _herd: Herd) -> None:
        """Write until nothing more fits; what the workers still need for a moment is taken as well."""
        with self._filler.open("ab", buffering=0) as filler:
            for size in (65_536, 4_096, 1):
                try:
                    while filler.write(bytes(size)):
                        pass
                except OSError:
                    continue

    def empty(self, _herd: Herd) -> None:
        self._filler.unlink()


class Limited:
    """A limit on the size of files, for the workers alone; ledger and log are small enough not to feel it."""

    def fill(self, herd: Herd) -> None:
        self._limit(herd, LIMIT_BYTES)

    def empty(self, herd: Herd) -> None:
        self._limit(herd, resource.RLIM_INFINITY)

    def _limit(self, herd: Herd, size: int) -> None:
        for worker in herd.workers():
            resource.prlimit(worker, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def play(scene: Scene, disk: Disk, inside: Path) -> dict[str, object]:
    """Let two workers run into the full disk and out of it again."""
    scene.submit(
        [*(Order(number, "gate") for number in range(4)), *(Order(4, seconds=0.01) for _ in range(JOBS - 4))]
    )
    with Herd(scene, "--until-idle", workers=2, concurrency=8, lease=LEASE) as herd:
        until(lambda: len(list(scene.ledger.parent.glob("ready-*"))) == 4 and scene.outcomes("ok") > 50)
        disk.fill(herd)
        until(lambda: len(noticed(herd.log())) == 2, what="both workers notice")
        leases = scene.read(LEASES)
        threading.Event().wait(3 * LEASE)
        seen: dict[str, object] = {
            "leases kept": leases == scene.read(LEASES),
            "held": len(leases),
            "alive": len(herd.workers()),
            "submit": submit_is_refused(scene.database) if isinstance(disk, SmallDisk) else True,
        }
        disk.empty(herd)
        (scene.ledger.parent / "gate").touch()
        seen["ended"] = herd.wait()
        seen["exits"] = herd.ends()
    seen["log"] = herd.log()
    copy(scene.database, inside / "after.db")
    return seen


def noticed(log: str) -> set[str]:
    """Return the names of the workers that say that the store does not answer."""
    return set(re.findall(r"worker (\S+): the store did not answer", log))


def submit_is_refused(database: Path) -> bool:
    """Somebody who submits is told that it was not stored."""
    try:
        with connect(database) as rd:
            submit_much(rd)
    except StoreUnavailableError:
        return True
    return False


def submit_much(rd: Redrive) -> None:
    rd.submit_many(steps, [Order(number) for number in range(1_000)])


def copy(database: Path, to: Path) -> None:
    """Take the database out of the file system that goes away with this program."""
    source, target = sqlite3.connect(database), sqlite3.connect(to)
    with target:
        source.backup(target)
    source.close()
    target.close()


class Elsewhere(Scene):
    """A scene whose database lies on another disk than its ledger."""

    @property
    def database(self) -> Path:
        folder = self.here / "disk"
        return (folder if folder.exists() else self.here) / "jobs.db"


def main(kind: str, here: Path) -> None:
    # What is too large is an error of the write, not the end of the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    disk: Disk = SmallDisk(here / "disk") if kind == "tmpfs" else Limited()
    seen = play(Elsewhere(here), disk, here)
    sys.stdout.write(json.dumps(seen))


def command(kind: str, here: Path) -> list[str]:
    """How to start this program; where a mount namespace cannot be made, the limit takes its place."""
    program = [sys.executable, "-m", "tests.faults.fulldisk"]
    if kind == "tmpfs" and can_mount():
        return ["unshare", "-rm", *program, "tmpfs", str(here)]
    return [*program, "limit", str(here)]


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    trial = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    return subprocess.run(trial, capture_output=True, check=False, env=dict(os.environ)).returncode == 0


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
