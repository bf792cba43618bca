# SPDX-License-Identifier: Apache-2.0
"""A pipeline in use, for the parts of the suite that go through the statements of a whole room: real workers in virtual time.

Its second stage fails while the shop is broken: with a failure that passes for orders that start with `r`, for good otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from redrive.client.connection import Redrive
from redrive.client.options import ActorOptions
from redrive.core.backoff import Backoff, Jitter
from redrive.core.policy import RetryPolicy
from redrive.core.replay import ReplayRules
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.stage import stage
from redrive.engine.replay.driver import ReplayDriver
from redrive.store.protocol import Store
from redrive.testing.clock import VirtualClock, virtual_time

LARGE: Final = "x" * 5_000
"""Too large for a value to be stored in the job's row."""
BY: Final[ActorOptions] = {"actor": "ann", "reason": "a test"}


@dataclass
class ShopScene:
    """A connection, and a pipeline whose orders fail while it is broken."""

    rd: Redrive
    clock: VirtualClock
    options: dict[str, Any] = field(default_factory=dict)
    """More options of the pipeline."""
    is_broken: bool = True

    def __post_init__(self) -> None:
        @stage
        def fetch(order: str) -> str:
            return order

        @stage(retry=RetryPolicy(2, Backoff.fixed(1, jitter=Jitter.none())))
        def pay(order: str) -> str:
            if self.is_broken and order.startswith("r"):
                raise ConnectionResetError(104, "reset")
            if self.is_broken:
                raise PermissionError(13, "denied")
            return order

        rules = ReplayRules(evidence="optional", export="include")
        self.pipeline = Pipeline("shop", [fetch, pay], replay=rules, **self.options)

    def fail(self, *orders: str, **options: Any) -> None:
        """Submit orders, and work until they have failed, one after the other: letters are numbered like their jobs."""
        for order in orders:
            self.rd.submit(self.pipeline, order, **options)
            self.work()

    def work(self) -> None:
        """Work until nothing is left to do."""
        self.rd.work([self.pipeline], until_idle=True)

    def drive(self, turns: int = 1) -> None:
        """Take turns in the replays, as a worker would."""

        async def ask_store(question: Callable[[], Any]) -> Any:
            return question()

        driver = ReplayDriver(
            self.rd.store, [self.pipeline], self.clock, name=lambda: "w9", ask_store=ask_store
        )
        for _ in range(turns):
            driver.drive()


class ShopTests:
    """What these parts of the suite start from: an empty store with a shop."""

    @pytest.fixture
    def shop(self, store: Store) -> Iterator[ShopScene]:
        """Return a shop that is broken."""
        with virtual_time() as clock:
            yield ShopScene(Redrive(store), clock)
