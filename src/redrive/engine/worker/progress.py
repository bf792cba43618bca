# SPDX-License-Identifier: Apache-2.0
"""Progress that running stages report: redacted and written beside the heartbeat, which waits for neither.

Redacting takes time that grows with the values of a job, and a lease must not depend on those. So each text is redacted once, what
has not changed is not written again, and one round of redacting ends after a while: runs that were left out come first in the next.
What is written is fenced like everything else, and touches no lease: it may come late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from redrive.engine.clock import Clock
from redrive.engine.worker.dead_letter import literals_of, safe_text
from redrive.engine.worker.dispatch import Dispatch
from redrive.errors import StoreError
from redrive.store.protocol import Store
from redrive.store.records import JobId
from redrive.store.statements import workers as worker_sql

logger = logging.getLogger("redrive.worker")

REDACTING_MAX: Final = 1 / 6
"""The share of a lease after which no further text is redacted in one round; there are three rounds to a lease."""
STOP_SECONDS: Final = 1.0
"""How long to wait for a last round when a worker ends; one that takes longer is not waited for."""


@dataclass(slots=True, eq=False)
class _Report:
    """What one attempt has reported last."""

    literals: dict[str, str] | None = None
    """The values of its job; read once, because they do not change."""
    raw: str | None = None
    text: str = ""
    """The raw text, redacted."""
    is_written: bool = True
    turn: int = 0
    """The round in which it was redacted last."""


class Progress:
    """The progress of one worker's running stages. To be written from one thread at a time."""

    def __init__(
        self, store: Store, clock: Clock, running: Callable[[], Iterable[Dispatch]], *, lease: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._running = running
        self._budget = REDACTING_MAX * lease
        self._reports: dict[tuple[JobId, int], _Report] = {}
        self._turn = 0

    def write(self, worker: str) -> None:
        """Write what has changed; what the store does not take is written the next time."""
        running = {(each.job.id, each.job.dispatch): each for each in self._running()}
        self._reports = {
            run: self._reports.get(run) or _Report()
            for run, dispatch in running.items()
            if dispatch.context.progress_text
        }
        self._redact([(report, running[run]) for run, report in self._reports.items()])
        fresh = [(run, report) for run, report in self._reports.items() if not report.is_written]
        if not fresh:
            return
        try:
            self._store.apply(
                *(
                    worker_sql.progress(progress=report.text, job=job, worker=worker, dispatch=dispatch)
                    for (job, dispatch), report in fresh
                )
            )
        except StoreError as error:
            logger.warning("worker %s: progress is written later: %s", worker, error)
        else:
            for _, report in fresh:
                report.is_written = True

    def _redact(self, runs: list[tuple[_Report, Dispatch]]) -> None:
        """Redact what is new, as far as there is time; first those whose turn is longest ago."""
        self._turn += 1
        ends_at = self._clock.monotonic() + self._budget
        for report, dispatch in sorted(runs, key=lambda each: each[0].turn):
            raw = dispatch.context.progress_text
            if raw is None or raw == report.raw:
                continue
            if self._clock.monotonic() >= ends_at:
                return
            report.raw, report.turn = raw, self._turn
            try:
                if report.literals is None:
                    report.literals = literals_of(dispatch.job)
                report.text = safe_text(raw, report.literals)
                report.is_written = False
            except Exception as error:  # noqa: BLE001 - the others have something to report, too.
                name = type(error).__name__
                logger.warning("job %s: its progress could not be redacted: %s", dispatch.job.id, name)
