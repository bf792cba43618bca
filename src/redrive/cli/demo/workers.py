# SPDX-License-Identifier: Apache-2.0
"""The demo's workers and its scenes: the model goes down and comes back, the worker is killed, another one takes over.

Workers are real processes, started with the command a user would type. What happens next follows from what the store says, never
from how much time has passed, so that a slow machine plays the same scenes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from redrive.cli.demo.upstream import FlakyUpstream
from redrive.cli.demo.view import View
from redrive.cli.demo.watch import Watch
from redrive.core.breaker_state import Phase
from redrive.engine.runtime import CURRENT

CONCURRENCY: Final = 48
LEASE_SECONDS: Final = 2.0
COMMAND: Final = (
    *("worker", "redrive.cli.demo.flow:flow"),
    *("--concurrency", str(CONCURRENCY), "--lease", f"{LEASE_SECONDS:g}"),
)
KILL_AT: Final = 0.45
"""The share of jobs that have ended when the worker is killed."""
LOOK_SECONDS: Final = 0.2
STALL_SECONDS: Final = 120.0
"""So long nothing may move before the demo gives up."""
LAST_WORDS: Final = 1_000
"""Characters shown of what a worker wrote before it ended."""


class Crew:
    """The workers, one after the other; each is a process of its own, and writes into one log."""

    def __init__(self, database: str, log: Path) -> None:
        self._database = database
        self._log = log
        self._worker: subprocess.Popen[bytes] | None = None
        # A worker ends when the other end of this pipe is closed, so that none outlives a demo that was killed.
        self._lifeline, self._kept = os.pipe()

    def start(self) -> int:
        """Start a worker, as one would by hand; return its process id."""
        silent = ("--database-url", self._database, "--lifeline", str(self._lifeline))
        with self._log.open("ab") as log:
            self._worker = subprocess.Popen(  # noqa: S603 - our own command, with our own arguments.
                [sys.executable, "-m", "redrive.cli", *COMMAND, *silent],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(self._lifeline,),
            )
        return self._worker.pid

    @property
    def is_working(self) -> bool:
        """Whether there is a worker, and it has not ended."""
        return self._worker is not None and self._worker.poll() is None

    @property
    def last_words(self) -> str:
        """The end of what the workers wrote."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-LAST_WORDS:]

    def kill(self) -> None:
        """Kill the worker as the system would: no warning, and nothing cleaned up."""
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait()

    def close(self) -> None:
        """Let the worker end politely; one that does not is killed."""
        if self._worker is not None:
            self._worker.terminate()
            try:
                self._worker.wait(STALL_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        os.close(self._lifeline)
        os.close(self._kept)


@dataclass(slots=True)
class Scenes:
    """What happens, in order."""

    watch: Watch
    view: View
    crew: Crew
    upstream: FlakyUpstream
    is_killed: bool = False
    moved_at: float = 0.0
    told: set[str] = field(default_factory=set[str])

    def play(self) -> str | None:
        """Play until every job has ended; return what went wrong with the demo itself, if anything did."""
        self._start("the first worker")
        watch = self.watch
        while True:
            before = watch.seq
            watch.look()
            if watch.seq != before:
                self.moved_at = watch.elapsed
            self._tell_changes()
            self.view.show(watch)
            if watch.ended >= watch.total:
                return None
            if not self.crew.is_working:
                return f"the worker ended by itself; its last words: {self.crew.last_words}"
            if watch.elapsed - self.moved_at > STALL_SECONDS:
                return f"nothing has moved for {STALL_SECONDS:g} s"
            if not self.is_killed and watch.ended >= KILL_AT * watch.total and watch.jobs("processing"):
                self._kill()
            CURRENT.get().clock.sleep(LOOK_SECONDS)

    def _start(self, who: str) -> None:
        pid = self.crew.start()
        self.view.tell(f"{who} starts, process {pid}: redrive {' '.join(COMMAND)}", "bold green")

    def _kill(self) -> None:
        self.is_killed = True
        self.crew.kill()
        self.watch.look()
        self.view.tell(
            f"kill -9: the worker is dead, with {self.watch.jobs('processing')} jobs in its hands; "
            f"they come back when its lease of {LEASE_SECONDS:g} s has ended",
            "bold red",
        )
        self._start("another worker")

    def _tell_changes(self) -> None:
        """Announce the outage and what the breaker does about it, from what stays on record: a slow look misses nothing."""
        outage, watch = self.upstream.outage, self.watch
        is_closed, was_open = watch.phase is Phase.CLOSED, bool(watch.outcomes["hold"])
        if outage.began_at is not None:
            self._tell_once("the model is down: it answers 503 to everything", "bold yellow")
        if was_open or not is_closed:
            self._tell_once("the breaker opens: jobs wait in the store, and burn no attempt", "bold cyan")
        if outage.is_over:
            self._tell_once("the model is back", "bold yellow")
        if was_open and is_closed:
            self._tell_once(
                "a probe went through, the breaker closes: jobs are let go gradually", "bold cyan"
            )

    def _tell_once(self, sentence: str, style: str) -> None:
        if sentence not in self.told:
            self.told.add(sentence)
            self.view.tell(sentence, style)
