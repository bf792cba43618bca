# SPDX-License-Identifier: Apache-2.0
"""How far running stages say they are: redacted and written down beside the heartbeat, which waits for neither.

Redacting takes time that grows with the values of a job, and a lease must not depend on those. So each text is redacted once, what
has not changed is not written again, and one round of telling ends after a while: whoever was not told then is told first in the
next one. What is written is fenced like everything else, and touches no lease: it may come late.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from redrive.engine.clock import Clock
from redrive.engine.error_text import shown
from redrive.engine.worker.dead_letter import literals_of, safe_text
from redrive.engine.worker.dispatch import Dispatch
from redrive.errors import StoreError
from redrive.store.protocol import JobId, Step, Store

logger = logging.getLogger("redrive.worker")

TELLING_MAX: Final = 1 / 6
"""The share of a lease after which no further text is redacted in one round of telling; there are three rounds to a lease."""
STOP_SECONDS: Final = 1.0
"""How long to wait for a last round when a worker ends; one that takes longer is left behind."""


class _Kept:
    """What is kept of one run that says how far it is."""

    __slots__ = ("is_written", "literals", "said", "text", "turn")

    def __init__(self) -> None:
        self.literals: dict[str, str] | None = None
        """The values of its job; looked up once, because they do not change."""
        self.said: str | None = None
        self.text = ""
        """What it said, fit to be written down."""
        self.is_written = True
        self.turn = 0
        """The round in which it was looked at last."""


class Progress:
    """What the running stages of one worker say. To be told from one thread at a time."""

    def __init__(
        self, store: Store, clock: Clock, running: Callable[[], Iterable[Dispatch]], *, lease: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._running = running
        self._budget = TELLING_MAX * lease
        self._kept: dict[tuple[JobId, int], _Kept] = {}
        self._turn = 0

    def tell(self, worker: str) -> None:
        """Write down what has changed; what the store does not take is written the next time."""
        running = {(each.job.id, each.job.dispatch): each for each in self._running()}
        self._kept = {run: self._kept.get(run) or _Kept() for run in running if running[run].context.shown}
        self._redact([(kept, running[run]) for run, kept in self._kept.items()])
        fresh = [(run, kept) for run, kept in self._kept.items() if not kept.is_written]
        if not fresh:
            return
        try:
            self._store.apply(
                *(Step("progress", (kept.text, job, worker, dispatch)) for (job, dispatch), kept in fresh)
            )
        except StoreError as error:
            logger.warning("worker %s: its progress is written later: %s", worker, error)
        else:
            for _, kept in fresh:
                kept.is_written = True

    def _redact(self, runs: list[tuple[_Kept, Dispatch]]) -> None:
        """Redact what is new, as far as there is time; first those that were looked at longest ago."""
        self._turn += 1
        ends_at = self._clock.monotonic() + self._budget
        for kept, dispatch in sorted(runs, key=lambda each: each[0].turn):
            said = dispatch.context.shown
            if said is None or said == kept.said:
                continue
            if self._clock.monotonic() >= ends_at:
                return
            kept.said, kept.turn = said, self._turn
            try:
                if kept.literals is None:
                    kept.literals = literals_of(dispatch.job)
                kept.text = safe_text(said, kept.literals)
                kept.is_written = False
            except Exception as error:  # noqa: BLE001 - the others have something to say, too.
                name = type(error).__name__
                logger.warning("job %s: its progress could not be told, because of %s", dispatch.job.id, name)


class ProgressThread:
    """The thread that tells progress, so that no heartbeat waits for it."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._worker = ""
        self._is_due = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="redrive-progress", daemon=True)

    def start(self) -> None:
        """Begin to wait for something to tell."""
        self._thread.start()

    def ask(self, worker: str) -> None:
        """Let progress be told soon under this worker's name; asked while it is being told, once more after that."""
        self._worker = worker
        self._is_due.set()

    def stop(self) -> None:
        """Tell no more."""
        self._is_over = True
        self._is_due.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while True:
            self._is_due.wait()
            self._is_due.clear()
            if self._is_over:
                return
            try:
                self._tell(self._worker)
            except Exception as error:  # noqa: BLE001 - what is said later can still be told.
                logger.warning("progress could not be told: %s", shown(error))
