# SPDX-License-Identifier: Apache-2.0
"""What is looked at after every call of a worker to the store, and whenever a stage runs.

The watch knows what no worker can: which processes live, when each of them last reached the store, and which runs are going on. It
looks only at what has changed since its last look, so that it may look often; what is dear to ask is asked once, when a story is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import cast

from redrive.store.records import JobId, Renewal
from redrive.store.sqlite.store import SqliteStore

LEASE = 30.0
ATTEMPTS_MAX = 4
NEVER = float("-inf")
LIVE_LETTER = "state IN ('open', 'triaged', 'ready', 'discarded')"


@dataclass(eq=False)
class Process:
    """One worker's process, as the world knows it."""

    is_dead: bool = False
    name: str = ""
    """What its worker is called now."""
    skew: float = 0.0
    """By how much its clock is wrong."""
    met_at: float = NEVER
    """When its lease was last renewed by a clock that was not behind."""
    told: dict[JobId, float] = field(default_factory=dict)
    """When it heard last that somebody asked to cancel a job."""


PROCESS: ContextVar[Process] = ContextVar("process")
"""The process in which a stage runs."""


@dataclass(eq=False)
class Run:
    """A stage that is running."""

    process: Process
    worker: str
    began_at: float


class Watch:
    """Sees everything, and remembers which promises were broken."""

    def __init__(self, store: SqliteStore, jobs: int, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._jobs = jobs
        self._monotonic = monotonic
        self._processes: dict[str, Process] = {}
        self._runs: dict[JobId, list[Run]] = {}
        self._counter: object = None
        self._last_attempt = 0
        self._burned: Counter[object] = Counter()
        self._committed: set[object] = set()
        self.steady_since = NEVER
        """When the store came back for all, or the clock of all jumped, for the last time."""
        self.broken: dict[str, None] = {}
        """The promises that were broken, in the order in which they were."""

    def call(self, name: str, method: Callable[[], object]) -> object:
        """Let a worker call the store, and look at what came of it."""
        answer = self._reaped(method) if name == "reap" else method()
        self.look()
        return answer

    def met(self, process: Process, worker: str) -> None:
        """Take in that the store has given a lease to a worker, or renewed it."""
        process.name = worker
        process.met_at = self._monotonic() if process.skew >= 0 else NEVER
        self._processes[worker] = process

    def heard(self, process: Process, renewal: Renewal) -> None:
        """Take in that a worker was told which of its jobs nobody wants any more."""
        process.told.update(dict.fromkeys(renewal.cancel, self._monotonic()))

    @contextmanager
    def running(self, process: Process, job: JobId) -> Generator[Run]:
        """Take in that a stage runs; nobody else may run the same job by a lease that was not taken away."""
        run = Run(process, process.name, self._monotonic())
        runs = self._runs.setdefault(job, [])
        known = {row[0] for row in self._store.read("SELECT id FROM workers")} if runs else set[object]()
        for other in runs:
            if not other.process.is_dead and other.worker in known:
                self._break(f"job {job} runs twice at once, by {other.worker} and {run.worker}")
        runs.append(run)
        try:
            yield run
        finally:
            runs.remove(run)

    def acts(self, run: Run, job: JobId) -> None:
        """Take in that a stage does what cannot be undone."""
        told = run.process.told.get(job)
        if told is not None and run.began_at <= told < self._monotonic():
            self._break(f"job {job} went on although its worker had heard that it was cancelled")

    def look(self) -> None:
        """Look at what has changed in the store since the last look."""
        counter = self._store.change_counter()
        if counter == self._counter:
            return
        self._counter = counter
        read = self._store.read
        if unheld := read(
            "SELECT id FROM jobs WHERE status = 'processing' AND worker_id NOT IN (SELECT id FROM workers)"
        ):
            self._break(f"jobs that are leased to nobody: {unheld}")
        if beyond := read("SELECT id FROM jobs WHERE attempt > ?", (ATTEMPTS_MAX,)):
            self._break(f"jobs beyond their last attempt: {beyond}")
        self._count()
        self._see_attempts()

    def _count(self) -> None:
        read = self._store.read
        counted = read("SELECT status, count(*) FROM jobs GROUP BY status")
        counts = dict(cast("list[tuple[str, int]]", counted))
        if sum(counts.values()) != self._jobs:
            self._break(f"{self._jobs} jobs were submitted, and there are {counts}")
        ended = {status: count for status, count in counts.items() if status not in {"queued", "processing"}}
        tallies = read("SELECT status, sum(jobs) FROM tallies GROUP BY status HAVING sum(jobs) > 0")
        tallied = dict(cast("list[tuple[str, int]]", tallies))
        if tallied != ended:
            self._break(f"the tally {tallied} is not the count {ended}")
        letters = read(f"SELECT count(*) FROM dead_letters WHERE {LIVE_LETTER}")[0][0]
        if letters != counts.get("failed", 0):
            self._break(f"{letters} open dead letters for {counts.get('failed', 0)} failed jobs")

    def _see_attempts(self) -> None:
        new = "SELECT seq, job_id, lane_id, round, outcome, burned FROM attempts WHERE seq > ? ORDER BY seq"
        for seq, job, lane, of, outcome, burned in self._store.read(new, (self._last_attempt,)):
            self._last_attempt = cast("int", seq)
            if (job, lane) in self._committed:
                self._break(f"a stage of job {job} ran again after it was committed")
            if outcome == "ok":
                self._committed.add((job, lane))
            elif burned:
                self._burned[job, lane, of] += 1
                if outcome in {"hold", "crashed"} or self._burned[job, lane, of] > ATTEMPTS_MAX:
                    self._break(f"an attempt too many of job {job} was burned, by its {outcome}")

    def _reaped(self, reap: Callable[[], object]) -> object:
        """Let a worker reap: only those whose lease has ended and who could have renewed it, and all they held is suspect."""
        held = self._store.read("SELECT id, worker_id, suspect_count FROM jobs WHERE status = 'processing'")
        before = self._store.read("SELECT id FROM workers ORDER BY id")
        answer = reap()
        gone = {row[0] for row in before} - {row[0] for row in self._store.read("SELECT id FROM workers")}
        if not gone:
            return answer
        for worker in (str(row[0]) for row in before if row[0] in gone):
            process = self._processes.get(worker, Process(is_dead=True))
            silent_for = self._monotonic() - max(process.met_at, self.steady_since)
            if not process.is_dead and silent_for < LEASE:
                self._break(
                    f"the lease of {worker} changed hands, who lives and had no full lease of time to renew it"
                )
        now = dict(cast("Sequence[tuple[int, int]]", self._store.read("SELECT id, suspect_count FROM jobs")))
        for job, worker, suspects in cast("list[tuple[int, str, int]]", held):
            if worker in gone and now[job] != suspects + 1:
                self._break(f"the worker of job {job} died, and it is not suspected of it")
        return answer

    def _break(self, promise: str) -> None:
        self.broken[promise] = None
