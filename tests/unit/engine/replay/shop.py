# SPDX-License-Identifier: Apache-2.0
"""A small shop whose second stage is broken until it is fixed, and what it takes to replay its failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from redrive import Context, Pipeline, RetryPolicy, stage
from redrive.core.replay import ReplayRules
from redrive.engine.replay.driver import ReplayDriver
from redrive.engine.worker.worker import Ending
from redrive.ops.audit import Actor
from redrive.store.protocol import Store
from redrive.store.records import NewJob
from redrive.testing import VirtualClock
from tests.embedded import read_rows
from tests.inline import at_once
from tests.unit.build import beside, bounded, worker_on

BY = Actor("ann", "the key was renewed")
LOOSE = ReplayRules(evidence="optional")


@dataclass
class Shop:
    """Orders that fail in their second stage while the shop is broken."""

    store: Store
    clock: VirtualClock
    rules: ReplayRules = LOOSE
    is_broken: bool = True
    hopeless: set[int] = field(default_factory=set)
    """Orders that fail whatever is done."""
    seen: list[tuple[str, int]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        @stage
        async def fetch(order: int) -> int:
            self.seen.append(("fetch", order))
            return order

        @stage(retry=RetryPolicy(1))
        async def pay(order: int, ctx: Context) -> int:
            self.seen.append(("pay", order))
            self.keys.append(ctx.idempotency_key)
            if self.is_broken or order in self.hopeless:
                raise PermissionError("the key has expired")
            return order

        self.pipeline = Pipeline("shop", [fetch, pay], replay=self.rules)

    def fail(self, orders: int, **options: object) -> None:
        """Submit orders and let them fail."""
        lane = self.store.lanes("shop", ["fetch", "pay"])[0]
        jobs = [
            NewJob(lane=lane, payload=str(order).encode(), run_at=0.0, **options)  # type: ignore[arg-type]
            for order in range(orders)
        ]
        self.store.submit(jobs, self.clock.wall())
        self.work()
        self.seen.clear()
        self.keys.clear()

    def fix(self, *hopeless: int) -> None:
        """Cure the cause, but for some orders."""
        self.is_broken = False
        self.hopeless = set(hopeless)

    def work(self) -> Ending:
        """Work until nothing is left, and drive replays meanwhile."""

        async def scene() -> Ending:
            worker = worker_on(self.store, self.pipeline)
            driver = self._driver(lambda: worker.name, on_news=worker.wake)
            async with beside(driver.run()):
                return await worker.run(until_idle=True)

        return bounded(scene())

    def driver(self, worker: str = "w") -> ReplayDriver:
        """Drive replays as a worker that lives, one turn at a time."""
        self.store.start_worker(worker, self.clock.wall(), 1_000.0)
        return self._driver(lambda: worker)

    def _driver(self, name: Callable[[], str], **options: Any) -> ReplayDriver:
        return ReplayDriver(self.store, [self.pipeline], self.clock, name=name, ask_store=at_once, **options)

    def counts(self) -> dict[str, int]:
        """Count the letters by state."""
        rows = read_rows(self.store, "SELECT state, count(*) FROM dead_letters GROUP BY state")
        return {str(state): int(str(letters)) for state, letters in rows}
