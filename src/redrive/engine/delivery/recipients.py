# SPDX-License-Identifier: Apache-2.0
"""Who is told about failures: the hooks of a pipeline, and each of its sinks; and how long one that fails is left alone."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from redrive.engine.pipeline.lanes import Lane
from redrive.sinks.base import Sink
from redrive.store.protocol import HOOK, LaneId

PAUSE_FIRST: Final = 5.0
PAUSE_MAX: Final = 600.0
"""The pause before a notice comes up again: twice as long each time, from the first to this."""
STRIKES_MAX: Final = 3
"""When a sink has failed so often in a row, it is left alone for a pause, instead of failing for each letter there is."""


@dataclass(slots=True, eq=False)
class Recipient:
    """Somebody who is told: the hooks of a pipeline, or one of its sinks."""

    name: str
    sink: Sink | None
    """None for the hooks."""
    lanes: list[Lane] = field(default_factory=list[Lane])
    strikes: int = 0
    """How often it failed since it last did not."""
    rests_until: float = 0.0
    next_at: float = math.inf
    """When the first of what was put off comes up again."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is told: whoever flushes at the end waits for what is being told already."""

    def failed(self, now: float) -> None:
        """Count a failure. Only a sink rests: it takes all letters in the same way, and hooks have nothing in common."""
        self.strikes += 1
        if self.sink is not None and self.strikes >= STRIKES_MAX:
            self.rests_until = now + pause(self.strikes - STRIKES_MAX + 1)


def pause(tries: int) -> float:
    """Return how long something that failed so often is left alone, in seconds."""
    return float(min(PAUSE_MAX, PAUSE_FIRST * 2 ** (min(tries, 20) - 1)))


def recipients_of(lanes: Mapping[LaneId, Lane]) -> list[Recipient]:
    """Return whom these lanes tell; a sink of two pipelines counts twice, because under its name each may have another one."""
    found: dict[tuple[str, str], Recipient] = {}
    for lane in lanes.values():
        pipeline = lane.pipeline
        told: list[tuple[str, Sink | None]] = [(sink.name, sink) for sink in pipeline.sinks]
        if pipeline.hooks:
            told.append((HOOK, None))
        for name, sink in told:
            found.setdefault((pipeline.name, name), Recipient(name, sink)).lanes.append(lane)
    return list(found.values())
