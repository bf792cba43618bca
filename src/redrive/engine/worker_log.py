# SPDX-License-Identifier: Apache-2.0
"""What a worker logs about its jobs: its start and end, every retry, hold and dead letter, and now and then a summary.

Changes of breakers are logged where they are made. A storm of failures does not flood the log: after some lines in a second, the
rest of it is only counted. No line contains a message or a value of a job: those are in its attempts, redacted.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from redrive.core.decide import Hold
from redrive.core.decision_text import decode_decision
from redrive.engine.clock import Clock
from redrive.engine.observers import CommitFacts, Observer
from redrive.engine.pipeline.lanes import Lane
from redrive.store.records import Settlement, WorkerFacts

logger = logging.getLogger("redrive.worker")

SUMMARY_SECONDS: Final = 30.0
LINES_MAX: Final = 10
"""Lines about single jobs in one second."""
_LOGGED: Final = frozenset({"retry", "hold", "dead"})


class WorkerLog(Observer):
    """Logs what one worker does. Belongs to its loop."""

    def __init__(self, clock: Clock, *, store: str, lease: float) -> None:
        self._clock = clock
        self._store = store
        self._lease = lease
        self._name = ""
        self._started_at = clock.monotonic()
        self._total: Counter[str] = Counter()
        self._recent: Counter[str] = Counter()
        self._second = self._started_at
        self._lines = 0
        self._left_out: Counter[str] = Counter()

    def worker_started(self, name: str, facts: WorkerFacts) -> None:
        """Log where and how it works."""
        self._name = name
        pipelines = ", ".join(facts.pipelines)
        text = "worker %s started: serves %s from %s, %d at once, lease %g s"
        logger.info(
            text,
            name,
            pipelines,
            self._store,
            facts.concurrency,
            self._lease,
            extra=_facts(
                event="started",
                worker=name,
                pipelines=facts.pipelines,
                store=self._store,
                concurrency=facts.concurrency,
                lease=self._lease,
            ),
        )

    def worker_ended(self, ending: str) -> None:
        """Log why it ended, and what it did."""
        self._report_left_out()
        self._total += self._recent
        seconds = self._clock.monotonic() - self._started_at
        counts = _sentence(self._total)
        logger.info(
            "worker %s ended (%s) after %.3g s: %s",
            self._name,
            ending,
            seconds,
            counts,
            extra=_facts(
                event="ended",
                worker=self._name,
                ending=ending,
                seconds=round(seconds, 3),
                outcomes=dict(self._total),
            ),
        )

    def committed(self, commit: CommitFacts) -> None:
        """Log every outcome but a plain success."""
        for one in commit.settled():
            self._recent[one.outcome] += 1
            if one.outcome in _LOGGED:
                self._log(one, commit.lanes[one.job.lane])

    async def run(self) -> None:
        """Log a summary now and then, until cancelled."""
        while True:
            await self._clock.asleep(SUMMARY_SECONDS)
            self.summarise()

    def summarise(self) -> None:
        """Log what happened since the last summary; nothing if nothing did."""
        self._report_left_out()
        recent, self._recent = self._recent, Counter()
        self._total += recent
        if recent:
            extra = _facts(event="summary", worker=self._name, seconds=SUMMARY_SECONDS, outcomes=dict(recent))
            logger.info("in the last %g s: %s", SUMMARY_SECONDS, _sentence(recent), extra=extra)

    def _log(self, one: Settlement, lane: Lane) -> None:
        if not self._has_room():
            self._left_out[one.outcome] += 1
            return
        delay = max(0.0, one.run_at - one.ended_at)
        where = (one.job.id, lane.pipeline.name, lane.stage.name, one.job.attempt)
        facts = _facts(
            event=one.outcome,
            job_id=one.job.id,
            pipeline=lane.pipeline.name,
            stage=lane.stage.name,
            attempt=one.job.attempt,
            code=one.code,
            delay=None if one.outcome == "dead" else round(delay, 3),
        )
        logger.info("job %s %s.%s attempt %s: %s", *where, _what(one, delay), extra=facts)

    def _has_room(self) -> bool:
        """Return whether another line may be logged in this second."""
        now = self._clock.monotonic()
        if now - self._second >= 1.0:
            self._report_left_out()
            self._second, self._lines = now, 0
        self._lines += 1
        return self._lines <= LINES_MAX

    def _report_left_out(self) -> None:
        left_out, self._left_out = self._left_out, Counter()
        if left_out:
            extra = _facts(event="left_out", outcomes=dict(left_out))
            logger.info("too many to log each: %s", _sentence(left_out), extra=extra)


def _what(one: Settlement, delay: float) -> str:
    """Return what became of an attempt."""
    if one.outcome == "retry":
        return f"retried in {delay:.3g} s after {one.code}"
    if one.outcome == "dead":
        return f"dead letter with {one.code} ({one.exception})"
    decision = decode_decision(one.decision)
    if isinstance(decision, Hold) and decision.breaker is not None:
        return f"held for {delay:.3g} s by breaker {decision.breaker} after {one.code}"
    return f"snoozed for {delay:.3g} s"


def _sentence(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "nothing"


def _facts(**facts: object) -> dict[str, object]:
    """Return what a formatter that writes JSON adds to a line."""
    return {"facts": {name: value for name, value in facts.items() if value is not None}}
