# SPDX-License-Identifier: Apache-2.0
"""The probes of breakers with `probe=`: while one is open, its own function asks the dependency, and no job is risked.

A breaker with `probe=` is asked by this part of a worker instead of `worker.probes`, which sends jobs. Both take the same token in
the breaker's row, so that of all workers one asks at a time, and a worker that dies meanwhile blocks the others until the token
expires. Nothing is written while the breaker is closed, or isolated by an operator.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Callable
from typing import Final, cast

from redrive.core.arguments import seconds
from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import Phase, opens_at
from redrive.engine.classifier import classify
from redrive.engine.clock import Clock
from redrive.engine.outage import repeat
from redrive.engine.worker.probes import Probes
from redrive.engine.worker.threads import AskStore, BlockingCall

logger = logging.getLogger("redrive.worker")

LOOK_SECONDS: Final = 1.0
"""How often the state of a breaker is looked at; other workers see its changes as often."""


class HealthProbes:
    """Asks the dependencies of a worker's breakers, as long as the worker runs. Belongs to its loop."""

    def __init__(
        self,
        probes: Probes,
        clock: Clock,
        *,
        name: Callable[[], str],
        ask_store: AskStore,
        call: BlockingCall,
        on_close: Callable[[], None],
    ) -> None:
        self._probes = probes
        self._clock = clock
        self._name = name
        self._ask_store = ask_store
        self._call = call
        self._on_close = on_close
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        """Call the probe of each breaker whenever it is due, until cancelled."""
        await asyncio.gather(*map(self._watch, self._probes.own))

    async def _watch(self, breaker: Breaker) -> None:
        failure = f"the probe of {breaker.name}: store unavailable"
        await repeat(lambda: self.look(breaker), self._clock, logger, failure, every=LOOK_SECONDS)

    async def look(self, breaker: Breaker) -> float:
        """Ask the dependency if it is time; return in how many seconds to look again."""
        state = (await self._ask_store(lambda: self._probes.standing(breaker))).state
        now = self._clock.wall()
        due_at = opens_at(breaker, state)
        if state.phase is Phase.CLOSED or due_at is None:
            return LOOK_SECONDS
        if due_at > now:
            return min(LOOK_SECONDS, due_at - now)
        token = f"{self._name()}:health:{next(self._numbers)}"
        if not await self._ask_store(lambda: self._probes.take_alone(breaker, now, token)):
            return LOOK_SECONDS
        evidence, code = await self._asked(breaker)
        await self._ask_store(lambda: self._probes.end(breaker, self._clock.wall(), token, evidence, code))
        if evidence is Evidence.ALIVE:
            self._on_close()
        # A breaker that wants several good answers is still half open: the next one is due at once.
        return 0.0 if evidence is Evidence.ALIVE and breaker.close_after > 1 else LOOK_SECONDS

    async def _asked(self, breaker: Breaker) -> tuple[Evidence, str | None]:
        """Call the probe; whatever it raises means that the dependency is down, and so does an async one that takes too long."""
        probe = cast("Callable[[], object]", breaker.probe)
        try:
            answer = await self._call(probe)
            if inspect.isawaitable(answer):
                async with asyncio.timeout(seconds("Breaker.probe_timeout", breaker.probe_timeout)):
                    await answer
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything.
            return Evidence.DOWN, classify(error).code
        return Evidence.ALIVE, None
