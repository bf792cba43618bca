# SPDX-License-Identifier: Apache-2.0
"""The recipients of notices: the hooks of a pipeline and each of its sinks; and how long one that fails is paused.

Changes of letters, breakers and runs are also made without the code of a pipeline: who receives them is recorded in the store.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from redrive.engine.pipeline.lanes import Lane
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.sinks.base import Sink, hears_breakers
from redrive.store.protocol import Store
from redrive.store.records import HOOK, LaneId, Step
from redrive.store.statements import outbox as outbox_sql

PAUSE_FIRST: Final = 5.0
PAUSE_MAX: Final = 600.0
"""The pause before a notice is due again doubles each time, from PAUSE_FIRST up to this."""
FAILURES_MAX: Final = 3
"""After this many consecutive failures a sink is paused, instead of failing for every letter."""


@dataclass(slots=True, eq=False)
class Recipient:
    """A recipient of notices: the hooks of a pipeline, or one of its sinks."""

    name: str
    sink: Sink | None
    """None for the hooks."""
    lanes: list[Lane] = field(default_factory=list[Lane])
    failures: int = 0
    """Consecutive failures."""
    paused_until: float = 0.0
    next_at: float = math.inf
    """When the first postponed notice is due again."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during delivery, so that the flush at the end waits for a delivery in progress."""

    def failed(self, now: float) -> None:
        """Count a failure. Only a sink is paused: it handles all letters in the same way; different hooks share nothing."""
        self.failures += 1
        if self.sink is not None and self.failures >= FAILURES_MAX:
            self.paused_until = now + pause(self.failures - FAILURES_MAX + 1)


def pause(tries: int) -> float:
    """Return the pause after this many failures, in seconds."""
    return float(min(PAUSE_MAX, PAUSE_FIRST * 2 ** (min(tries, 20) - 1)))


def recipients_of(lanes: Mapping[LaneId, Lane]) -> list[Recipient]:
    """Return the recipients of these lanes; a sink of two pipelines counts twice, since the same name may mean another sink."""
    found: dict[tuple[str, str], Recipient] = {}
    for lane in lanes.values():
        pipeline = lane.pipeline
        named: list[tuple[str, Sink | None]] = [(sink.name, sink) for sink in pipeline.sinks]
        if pipeline.hooks or pipeline.on_breaker is not None or pipeline.on_run_end is not None:
            named.append((HOOK, None))
        for name, sink in named:
            found.setdefault((pipeline.name, name), Recipient(name, sink)).lanes.append(lane)
    return list(found.values())


def record_listeners(store: Store, lanes: Mapping[LaneId, Lane]) -> None:
    """Store who receives changes of letters, breakers and runs, and which lanes have which breaker, where that has changed."""
    steps: list[Step] = []
    for pipeline in {lane.pipeline.name: lane.pipeline for lane in lanes.values()}.values():
        listeners = _listeners_of(pipeline)
        if set(store.query(outbox_sql.listeners_of(pipeline=pipeline.name))) != listeners:
            steps.append(outbox_sql.drop_listeners(pipeline=pipeline.name))
            steps += [
                outbox_sql.add_listener(pipeline=pipeline.name, topic=topic, recipient=recipient)
                for topic, recipient in sorted(listeners)
            ]
        breakers = {
            (lane.id, lane.stage.breaker.name)
            for lane in lanes.values()
            if lane.pipeline is pipeline and lane.stage.breaker is not None
        }
        if set(store.query(outbox_sql.breakers_of_pipeline(pipeline=pipeline.name))) != breakers:
            steps.append(outbox_sql.drop_lane_breakers(pipeline=pipeline.name))
            steps += [outbox_sql.add_lane_breaker(lane=lane, breaker=name) for lane, name in sorted(breakers)]
    if steps:
        store.apply(*steps)


def _listeners_of(pipeline: Pipeline) -> set[tuple[str, str]]:
    """Return who receives what: topic and recipient."""
    return {
        *(("letters", sink.name) for sink in pipeline.sinks),
        *(("breakers", sink.name) for sink in pipeline.sinks if hears_breakers(sink)),
        *([] if pipeline.on_breaker is None else [("breakers", HOOK)]),
        *([] if pipeline.on_run_end is None else [("runs", HOOK)]),
    }
