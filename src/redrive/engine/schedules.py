# SPDX-License-Identifier: Apache-2.0
"""Schedules: jobs submitted at the ticks of a cron expression in a time zone, once per tick over all workers.

The first worker that sees a due tick advances the schedule and submits the job in one transaction, so that a tick creates one job
with any number of workers. All ticks that passed while no worker ran create one job together.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from redrive.core.units import instant
from redrive.engine.clock import Clock
from redrive.engine.outage import repeat
from redrive.engine.replay.rules import recorded
from redrive.engine.worker.threads import AskStore
from redrive.errors import ConfigurationError
from redrive.store.protocol import Store
from redrive.store.statements import runs as run_sql

logger = logging.getLogger("redrive.schedules")

LOOK_SECONDS: Final = 5.0
"""How often to check for new schedules."""


def next_tick(cron: str, zone: str, after: float) -> float:
    """Return the first tick of a cron expression in a time zone after `after`."""
    try:
        there = datetime.fromtimestamp(after, ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigurationError(
            field="schedule(zone)",
            value=zone,
            rule="is not a known time zone",
            fix='"Europe/Berlin", for example.',
        ) from error
    try:
        return next(CronSim(cron, there)).timestamp()
    except (CronSimError, StopIteration) as error:
        raise ConfigurationError(
            field="schedule(cron)",
            value=cron,
            rule="is not a cron expression with a future tick",
            fix='"*/15 * * * *" is every quarter of an hour.',
        ) from error


class Ticker:
    """Submits the due jobs of schedules, in a worker."""

    def __init__(self, store: Store, clock: Clock, *, ask_store: AskStore) -> None:
        self._store = store
        self._clock = clock
        self._ask_store = ask_store

    async def run(self) -> None:
        """Submit what is due, until cancelled."""
        failure = "schedules: store unavailable"
        await repeat(self._look, self._clock, logger, failure, every=LOOK_SECONDS)

    async def _look(self) -> float:
        await self._ask_store(self.tick)
        (next_at,) = await self._ask_store(lambda: self._store.query(run_sql.next_schedule_at()))
        due_in = LOOK_SECONDS if next_at is None else next_at - self._clock.wall()
        # A schedule that is still due could not be advanced; trying again at once would not help.
        return min(due_in, LOOK_SECONDS) if due_in > 0 else LOOK_SECONDS

    def tick(self) -> int:
        """Submit one job for every schedule that is due; return how many."""
        now = self._clock.wall()
        made = 0
        for due in self._store.query(run_sql.due_schedules(now=now)):
            try:
                following = next_tick(due.cron, due.zone, now)
            except ConfigurationError as error:
                logger.warning("schedule %s skipped: %s", due.name, error)
                continue
            key = f"{due.name}@{instant(due.next_at).isoformat()}"
            advance = run_sql.tick(next_at=following, now=due.next_at, name=due.name, due_at=due.next_at)
            job = run_sql.submit_tick(
                lane=self._entry(due),
                priority=due.priority,
                run_at=now,
                key=key,
                payload=due.payload,
                now=now,
            )
            # A job with this key exists already if the clock was set back: then the tick has had its job.
            made += self._store.apply(advance.touching(1), job) is not None
        return made

    def _entry(self, due: run_sql.DueSchedule) -> int:
        """Return the lane of the pipeline's first stage as the workers have it now; it may have changed since."""
        stages = recorded(self._store, due.pipeline).stages
        return self._store.lanes(due.pipeline, stages)[0] if stages else due.lane_id
