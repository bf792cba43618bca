# SPDX-License-Identifier: Apache-2.0
"""A world whose workers share a limited service: workers die, answers are lost, and the service counts what it sees.

Clocks agree here: a limit is kept by the clocks of the workers, and one that is wrong by minutes would ask for minutes of tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import cast

from redrive import Backoff, Context, Jitter, Limit, Pipeline, RetryPolicy, stage
from redrive.engine.limits.meter import DECODE_LIMIT
from redrive.store.records import JobId
from redrive.testing import VirtualClock

from .watch import ATTEMPTS_MAX, PROCESS, Watch
from .world import Faults, World, breaches

RATE, BURST, AT_ONCE = 2.0, 20, 6
LIMIT = Limit("service", rate=RATE, burst=BURST, concurrency=AT_ONCE)


class LimitWatch(Watch):
    """Sees when the first tokens were reserved, too."""

    reserved_at = math.inf

    def look(self) -> None:
        """Look at the limit until somebody has reserved tokens of it."""
        super().look()
        if self.reserved_at == math.inf:
            states = self._store.read("SELECT state FROM limits")
            if any(DECODE_LIMIT(cast("bytes", state)).tokens is not None for (state,) in states):
                self.reserved_at = self._monotonic()


@dataclass
class LimitedWorld(World):
    """One run with a limited service behind the only stage."""

    jobs: int = 160
    faults: Faults = field(default_factory=lambda: Faults(freeze=0.0, outage=0.0, jump=0.0))
    begun: list[float] = field(default_factory=list)
    """When the service saw a call."""
    at_once: int = 0
    most_at_once: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.watch: LimitWatch = LimitWatch(self.store, self.jobs, self.clock.monotonic)

    def pipeline(self, clock: VirtualClock) -> Pipeline:
        """Build one stage that calls the service and sometimes fails."""
        policy = RetryPolicy(ATTEMPTS_MAX, Backoff.exponential(1, cap=20, jitter=Jitter.full()))

        async def call(text: str, ctx: Context) -> str:
            job = JobId(ctx.job_id)
            self.begun.append(clock.monotonic())
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                with self.watch.running(PROCESS.get(), job) as going:
                    await clock.asleep(0.1 + self.chance.random())
                    if self.chance.random() < 0.1:
                        raise ConnectionResetError(104, "reset")
                    self.watch.acts(going, job)
                    self.ledger.append((job, "call"))
                    return text
            finally:
                self.at_once -= 1

        return Pipeline("flow", [stage(retry=policy, name="call", limits=LIMIT)(call)])

    async def operate(self, _clock: VirtualClock) -> None:
        """Let nobody interfere."""


def limit_breaches(world: LimitedWorld) -> list[str]:
    """Return what the service saw beyond its limit, and every other promise that was broken."""
    found = breaches(world)
    # Not from the first call on: who reserved may learn of it late, when the answer of the store was lost, and the bucket fills meanwhile.
    since = world.watch.reserved_at
    above = [
        place + 1 - BURST - RATE * (at - since)
        for place, at in enumerate(world.begun)
        if place + 1 > BURST + RATE * (at - since) + 1e-3
    ]
    if above:
        found.append(f"the service saw {max(above):.1f} calls more than {RATE:g}/s with a burst of {BURST}")
    if world.most_at_once > AT_ONCE:
        found.append(f"the service saw {world.most_at_once} calls at once; {AT_ONCE} are allowed")
    return found
