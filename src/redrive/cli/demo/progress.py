# SPDX-License-Identifier: Apache-2.0
"""How far the demo's jobs are, read from the store as any operator could.

Jobs of an earlier demo are not counted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from redrive.cli.demo.flow import MODEL, flow
from redrive.client.connection import Redrive
from redrive.engine.runtime import CURRENT
from redrive.ops.breakers import breakers
from redrive.ops.jobs.inspect import Event, counts, events_after, last_event

PAGE: Final = 1_000
RECENT_MAX: Final = 6
ENDED: Final = ("complete", "failed", "cancelled", "skipped")
STAGES: Final = tuple(stage.name for stage in flow.stages)


@dataclass(slots=True)
class Progress:
    """How far the jobs are; `update` reads what has changed."""

    rd: Redrive
    total: int
    before: Counter[tuple[str, str]]
    seq: int
    started_at: float
    elapsed: float = 0.0
    rate: float = 0.0
    """Attempts per second that ended lately."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Jobs by stage and status."""
    outcomes: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    recent: deque[Event] = field(default_factory=lambda: deque[Event](maxlen=RECENT_MAX))
    """The latest failed attempts."""
    phase: str = "closed"
    """The phase of the model's breaker."""
    _samples: deque[tuple[float, int]] = field(default_factory=lambda: deque[tuple[float, int]](maxlen=20))

    @classmethod
    def of(cls, rd: Redrive, total: int) -> Progress:
        """Follow so many jobs that are about to be submitted."""
        return cls(rd, total, _counts(rd), last_event(rd.store), CURRENT.get().clock.monotonic())

    def update(self) -> None:
        """Read what has changed."""
        self.elapsed = CURRENT.get().clock.monotonic() - self.started_at
        self.counts = _counts(self.rd)
        self.counts.subtract(self.before)
        for event in events_since(self.rd, self.seq):
            self._add(event)
        phases = {breaker.name: breaker.phase for breaker in breakers(self.rd.store)}
        self.phase = phases.get(MODEL.name, "closed")
        self._samples.append((self.elapsed, self.outcomes.total()))
        (then, before), (now, after) = self._samples[0], self._samples[-1]
        self.rate = (after - before) / (now - then) if now > then else 0.0

    def jobs(self, *statuses: str, stage: str | None = None) -> int:
        """Count jobs in any of these states, of one stage or of all."""
        stages = STAGES if stage is None else (stage,)
        return sum(self.counts[each, status] for each in stages for status in statuses)

    @property
    def ended(self) -> int:
        """How many jobs have ended."""
        return self.jobs(*ENDED)

    @property
    def held(self) -> int:
        """How many jobs wait for the model because its breaker is not closed."""
        return 0 if self.phase == "closed" else self.jobs("queued", stage="llm")

    def _add(self, event: Event) -> None:
        self.seq = event.seq
        self.outcomes[event.outcome] += 1
        if event.outcome == "retry":
            self.retried[str(event.code)] += 1
        elif event.outcome == "dead":
            self.dead[str(event.code)] += 1
        if event.outcome in {"retry", "hold", "dead"}:
            self.recent.append(event)


def events_since(rd: Redrive, seq: int) -> Iterator[Event]:
    """Yield the demo's events after `seq`, oldest first."""
    while page := events_after(rd.store, seq, pipeline=flow.name, limit=PAGE):
        yield from page
        seq = page[-1].seq


def _counts(rd: Redrive) -> Counter[tuple[str, str]]:
    return Counter(
        {
            (stage, status): jobs
            for (pipeline, stage), found in counts(rd.store).items()
            for status, jobs in found.items()
            if pipeline == flow.name
        }
    )
