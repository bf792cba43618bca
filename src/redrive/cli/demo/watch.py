# SPDX-License-Identifier: Apache-2.0
"""What the demo knows about its jobs while they run: read from the store, as any operator could, never from the worker.

Attempts are followed as they are committed, by their sequence; jobs are counted by the engine's own tallies. Jobs that were in the
store before the demo started are not counted.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from redrive.cli.demo.flow import MODEL, flow
from redrive.client.connection import Redrive
from redrive.core.breaker_state import BreakerState, Phase
from redrive.engine.runtime import CURRENT

EVENTS_MAX: Final = 5_000
"""Attempts read at one look."""
RECENT_MAX: Final = 6
ENDED: Final = ("complete", "failed", "cancelled")
STAGES: Final = tuple(stage.name for stage in flow.stages)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One failed attempt, to be shown."""

    job: int
    stage: str
    outcome: str
    code: str
    sentence: str


@dataclass(slots=True)
class Watch:
    """How the demo's jobs stand; `look` brings it up to date."""

    rd: Redrive
    total: int
    before: Counter[tuple[str, str]]
    seq: int
    started_at: float
    elapsed: float = 0.0
    rate: float = 0.0
    """Stages per second that ended lately."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Jobs by stage and status."""
    outcomes: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    crashed: set[int] = field(default_factory=set[int])
    recent: deque[Trouble] = field(default_factory=lambda: deque[Trouble](maxlen=RECENT_MAX))
    phase: Phase = Phase.CLOSED
    _marks: deque[tuple[float, int]] = field(default_factory=lambda: deque[tuple[float, int]](maxlen=20))

    @classmethod
    def over(cls, rd: Redrive, total: int) -> Watch:
        """Watch over so many jobs that are about to be submitted."""
        last = cast("int", rd.store.query("last_event")[0][0])
        return cls(rd, total, _counts(rd), last, CURRENT.get().clock.monotonic())

    def look(self) -> None:
        """Read what has changed."""
        self.elapsed = CURRENT.get().clock.monotonic() - self.started_at
        self.counts = _counts(self.rd)
        self.counts.subtract(self.before)
        while self._follow() == EVENTS_MAX:
            pass
        states = [cast("bytes", raw) for name, raw in self.rd.store.query("breakers") if name == MODEL.name]
        self.phase = msgspec.json.decode(states[0], type=BreakerState).phase if states else Phase.CLOSED
        self._marks.append((self.elapsed, self.outcomes.total()))
        (then, before), (now, after) = self._marks[0], self._marks[-1]
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
        """How many jobs wait for the model, because its breaker is not closed."""
        return 0 if self.phase is Phase.CLOSED else self.jobs("queued", stage="llm")

    def _follow(self) -> int:
        rows = self.rd.store.query("events", self.seq, None, flow.name, EVENTS_MAX)
        for seq, job, _, _, stage, _, _, outcome, code, _, sentence, _ in rows:
            self.seq = cast("int", seq)
            self.outcomes[str(outcome)] += 1
            if outcome == "crashed":
                self.crashed.add(cast("int", job))
            if outcome in {"retry", "dead"}:
                (self.retried if outcome == "retry" else self.dead)[str(code)] += 1
            if outcome in {"retry", "hold", "dead"}:
                self.recent.append(
                    Trouble(cast("int", job), str(stage), str(outcome), str(code), str(sentence))
                )
        return len(rows)


def _counts(rd: Redrive) -> Counter[tuple[str, str]]:
    rows = rd.store.query("counts")
    return Counter(
        {
            (str(stage), str(status)): cast("int", jobs)
            for pipeline, stage, status, jobs in rows
            if pipeline == flow.name
        }
    )
