# SPDX-License-Identifier: Apache-2.0
"""The demo's first scene: workers run the jobs while the model goes down and comes back, and one worker is killed.

Workers are real processes, started with the command a user would type. Each step follows from what the store contains, never from
how much time has passed, so a slow machine plays the same scene.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from redrive.cli.demo.progress import Progress
from redrive.cli.demo.upstream import FaultyUpstream
from redrive.cli.demo.view import View
from redrive.engine.runtime import CURRENT

TARGET: Final = "redrive.cli.demo.flow:flow"
LEASE_SECONDS: Final = 2.0
COMMAND: Final = ("worker", TARGET, "--concurrency", "48", "--lease", f"{LEASE_SECONDS:g}")
KILL_AT: Final = 0.45
"""The share of jobs that have ended when the worker is killed."""
POLL_SECONDS: Final = 0.2
STALL_SECONDS: Final = 120.0
"""After so long without a new event the demo gives up."""
LOG_MAX: Final = 1_000
"""Characters shown from the end of the worker's log."""


class Worker:
    """One worker process at a time; all of them write into one log."""

    def __init__(self, database: str, log: Path) -> None:
        self._database = database
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        # A worker ends when the other end of this pipe is closed, so none outlives a demo that was killed.
        self._lifeline, self._kept = os.pipe()

    def start(self) -> int:
        """Start a worker process and return its id."""
        options = ("--database-url", self._database, "--lifeline", str(self._lifeline))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command, with our own arguments.
                [sys.executable, "-m", "redrive.cli", *COMMAND, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(self._lifeline,),
            )
        return self._process.pid

    @property
    def problem(self) -> str | None:
        """Why nothing is worked on, with the end of the log; None while a worker runs."""
        if self._process is not None and self._process.poll() is None:
            return None
        log = self._log.read_text(encoding="utf-8", errors="replace")[-LOG_MAX:]
        return f"the worker exited unexpectedly; its last log lines: {log}"

    def kill(self) -> None:
        """Kill the worker as the system would: without warning or cleanup."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Stop the worker; kill one that does not end."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STALL_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        os.close(self._lifeline)
        os.close(self._kept)


@dataclass(slots=True)
class WorkScene:
    """Runs all jobs to their end."""

    progress: Progress
    view: View
    worker: Worker
    upstream: FaultyUpstream
    is_killed: bool = False
    moved_at: float = 0.0
    announced: set[str] = field(default_factory=set[str])

    def play(self) -> str | None:
        """Play until every job has ended; return what went wrong with the demo itself, if anything did."""
        self._start("the first worker")
        progress = self.progress
        while True:
            before = progress.seq
            progress.update()
            if progress.seq != before:
                self.moved_at = progress.elapsed
            self._announce_changes()
            self.view.show(progress)
            if progress.ended >= progress.total:
                return None
            if (problem := self.worker.problem) is not None:
                return problem
            if progress.elapsed - self.moved_at > STALL_SECONDS:
                return f"nothing has happened for {STALL_SECONDS:g} s"
            if (
                not self.is_killed
                and progress.ended >= KILL_AT * progress.total
                and progress.jobs("processing")
            ):
                self._kill()
            CURRENT.get().clock.sleep(POLL_SECONDS)

    def _start(self, which: str) -> None:
        pid = self.worker.start()
        self.view.announce(f"{which} starts, process {pid}: redrive {' '.join(COMMAND)}", "bold green")

    def _kill(self) -> None:
        self.is_killed = True
        self.worker.kill()
        self.progress.update()
        self.view.announce(
            f"kill -9: the worker is dead and {self.progress.jobs('processing')} jobs are leased to it; "
            f"another worker claims them when the lease of {LEASE_SECONDS:g} s expires",
            "bold red",
        )
        self._start("another worker")

    def _announce_changes(self) -> None:
        """Announce the outage and the breaker's phases, from what stays on record: a slow poll misses nothing."""
        outage, progress = self.upstream.outage, self.progress
        is_closed, was_open = progress.phase == "closed", bool(progress.outcomes["hold"])
        if outage.began_at is not None:
            self._announce_once("the model is down: it responds with 503 to every call", "bold yellow")
        if was_open or not is_closed:
            self._announce_once("the breaker opens: jobs are held and use no attempts", "bold cyan")
        if outage.is_over:
            self._announce_once("the model is up again", "bold yellow")
        if was_open and is_closed:
            self._announce_once(
                "a probe succeeded and the breaker closes: jobs are released gradually", "bold cyan"
            )

    def _announce_once(self, sentence: str, style: str) -> None:
        if sentence not in self.announced:
            self.announced.add(sentence)
            self.view.announce(sentence, style)
