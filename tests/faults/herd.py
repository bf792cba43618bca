# SPDX-License-Identifier: Apache-2.0
"""A herd of workers as a test sees it: real processes on one file, to be killed, stopped and waited for."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from redrive import Pipeline, connect
from redrive.store.postgres.connection import Server, address_of
from tests.embedded import Numbered, Tables
from tests.faults.flows import steps
from tests.faults.ledger import breaches

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


def until(condition: Callable[[], object], *, seconds: float = PATIENCE, what: str = "") -> None:
    """Look again and again until a condition holds; fail when it never does."""
    end_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_at, f"this never came: {what or condition}"
        threading.Event().wait(0.01)


@dataclass
class Scene:
    """One database with its ledger, and the jobs that were submitted."""

    here: Path
    submitted: set[int] = field(default_factory=set)

    @property
    def database(self) -> Path:
        return self.here / "jobs.db"

    def exists(self) -> bool:
        """Return whether its database has been created."""
        return self.database.exists()

    @property
    def ledger(self) -> Path:
        return self.here / "ledger"

    def submit(self, orders: Iterable[object], pipeline: Pipeline = steps) -> list[int]:
        with connect(self.database) as rd:
            ids = rd.submit_many(pipeline, orders)
        self.submitted.update(ids)
        return ids

    def read(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        with self.reading() as db:
            return db.execute(sql, parameters).fetchall()

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        db = sqlite3.connect(self.database, isolation_level=None, timeout=30)
        try:
            yield db
        finally:
            db.close()

    def count(self, condition: str) -> int:
        return int(str(self.read(f"SELECT count(*) FROM jobs WHERE {condition}")[0][0]))

    def outcomes(self, outcome: str) -> int:
        return int(str(self.read("SELECT count(*) FROM attempts WHERE outcome = ?", outcome)[0][0]))

    def effects(self) -> list[tuple[int, str]]:
        """Every effect so far: job and stage."""
        if not self.ledger.exists():
            return []
        lines = [line.split() for line in self.ledger.read_text(encoding="utf-8").splitlines()]
        return [(int(job), name) for job, name, _ in lines]

    def pids(self) -> list[int]:
        """The processes in which the effects happened."""
        return [int(line.split()[2]) for line in self.ledger.read_text(encoding="utf-8").splitlines()]

    def breaches(self) -> list[str]:
        """What the store and the ledger disagree about."""
        with self.reading() as db:
            return breaches(db, self.effects(), self.submitted)


@dataclass
class ServerScene(Scene):
    """A scene whose database is on a PostgreSQL server."""

    server: str = ""
    """How the judge reaches it."""
    through: str = ""
    """How workers reach it, if that is another way."""
    options: str = ""
    """More of their address."""
    schema: str = field(default_factory=lambda: f"scene_{time.monotonic_ns()}")

    @property
    def database(self) -> str:  # type: ignore[override]
        return f"{self.through or self.server}?schema={self.schema}{self.options}"

    def exists(self) -> bool:
        return True

    def submit(self, orders: Iterable[object], pipeline: Pipeline = steps) -> list[int]:
        with connect(f"{self.server}?schema={self.schema}") as rd:
            ids = rd.submit_many(pipeline, orders)
        self.submitted.update(ids)
        return ids

    @contextmanager
    def reading(self) -> Generator[Tables]:  # type: ignore[override]
        with Server(address_of(f"{self.server}?schema={self.schema}")).connect() as link:
            yield Numbered(link)


class Herd:
    """Workers on a scene; use it in a `with` block, which ends them all."""

    def __init__(self, scene: Scene, *flags: str, prefix: Iterable[str] = (), **options: object) -> None:
        self._scene = scene
        self._told = scene.here / f"told-{time.monotonic_ns()}"
        self._told.touch()
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._log = scene.here / "log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *prefix,
                    *(sys.executable, "-m", "tests.faults.driver", "--database", str(scene.database)),
                    *("--told", str(self._told), *flags, *words),
                ],
                cwd=ROOT,
                stderr=log,
                env={**os.environ, "FAULTS_LEDGER": str(scene.ledger)},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for worker in self.workers():
            with_pid(worker, signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def workers(self) -> list[int]:
        """The workers that live now."""
        alive: dict[int, None] = {}
        for line in self._told.read_text(encoding="utf-8").splitlines():
            word, pid, *_ = line.split()
            if word == "start":
                alive[int(pid)] = None
            else:
                alive.pop(int(pid), None)
        return list(alive)

    def ends(self) -> list[int]:
        """The exit codes of the workers that have ended."""
        lines = [line.split() for line in self._told.read_text(encoding="utf-8").splitlines()]
        return [int(line[2]) for line in lines if line[0] == "end"]

    def known(self) -> list[str]:
        """The names of the workers in the store."""
        return [str(row[0]) for row in self._scene.read("SELECT id FROM workers ORDER BY started_at")]

    def has_started(self, workers: int) -> bool:
        return self._scene.exists() and len(self.workers()) >= workers and len(self.known()) >= workers

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait until all workers have ended by themselves."""
        return self._process.wait(seconds)

    def terminate(self) -> None:
        self._process.terminate()

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")


def with_pid(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that has ended meanwhile does not mind."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def deliver(pid: int, number: signal.Signals) -> None:
    """Send a signal and wait until the process has taken it; two that wait to be taken would become one."""
    os.kill(pid, number)
    status = Path(f"/proc/{pid}/status")
    until(lambda: not status.exists() or "ShdPnd:\t0000000000000000" in status.read_text(encoding="ascii"))
