# SPDX-License-Identifier: Apache-2.0
"""A storm: many clients call one service at the same moment, and retry by a policy until they are served.

A discrete-event simulation in virtual time. Delays, breakers and limits are those of `core`; only the service and the queue of
events are made here. The same scenario, strategy and seed give the same result. A call takes no time: what is measured is what
clients and service do to each other, not the network.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Final, cast

from redrive.core import breaker_state, limit_state
from redrive.core.arguments import seconds, share, whole
from redrive.core.breaker import Breaker
from redrive.core.limit import Limit, parse_rate
from redrive.core.limit_state import Block, LimitState
from redrive.core.policy import RetryPolicy
from redrive.engine.clock import Chance

SECONDS_MAX: Final = 86_400.0
"""A storm that is not over after a day of virtual time is cut off; what has not ended is counted as unfinished."""
WHOLE: Final = 1.0 - 1e-9
"""Counts as a whole token: sums of small parts are rounded."""
WORKERS: Final = 4
"""The number of workers that share the clients when a limit paces them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The service and its clients: all of them call at once, at second 0.

    The service serves `rate` calls per second, and `burst` at once after a pause; the others get a 429, with `retry_after` if it
    is set. For the first `outage` seconds it refuses connections; afterwards it fails for a share of the calls it has room for.
    """

    clients: int = 10_000
    rate: float | str = 100.0
    burst: int = 100
    retry_after: float | None = None
    outage: float = 0.0
    failure_rate: float = 0.0

    def __post_init__(self) -> None:
        whole("clients", self.clients, minimum=1, fix="10000, for example.")
        object.__setattr__(self, "rate", parse_rate("rate", self.rate))
        whole("burst", self.burst, minimum=1, fix="100, for example.")
        if self.retry_after is not None:
            seconds("retry-after", self.retry_after, above=True)
        seconds("outage", self.outage)
        if self.failure_rate:
            share("failure-rate", self.failure_rate, fix="0.1 fails one call in ten.")

    @property
    def per_second(self) -> float:
        """The rate as a number."""
        return cast("float", self.rate)

    @property
    def ideal_seconds(self) -> float:
        """The time in which a perfect pace serves all clients: what is beyond the burst, at the rate."""
        return self.outage + max(0.0, self.clients - self.burst) / self.per_second


@dataclass(frozen=True, slots=True)
class Strategy:
    """What the clients do: a policy, perhaps a breaker or a limit that all of them share."""

    name: str
    policy: RetryPolicy
    breaker: Breaker | None = None
    limit: Limit | None = None

    @property
    def is_seeded(self) -> bool:
        """Whether it depends on the seed; a strategy without jitter does the same for every seed."""
        return self.policy.backoff.delay(1, 0.0) != self.policy.backoff.delay(1, 0.5)


@dataclass(slots=True)
class StormResult:
    """What happened. `calls = served + refused + failed`, and `clients = served + given_up + unfinished`."""

    clients: int
    calls: int = 0
    served: int = 0
    refused: int = 0
    """Answers with status 429."""
    failed: int = 0
    given_up: int = 0
    seconds: float = 0.0
    """When the last client was served or gave up."""
    calls_by_second: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def retries(self) -> int:
        """Calls beyond the first one of each client."""
        return max(0, self.calls - self.clients)

    @property
    def unfinished(self) -> int:
        """Clients that were neither served nor gave up when the storm was cut off."""
        return self.clients - self.served - self.given_up


class _Service:
    """A bucket of tokens that is filled at a rate."""

    def __init__(self, scenario: Scenario, chance: Chance) -> None:
        self._scenario = scenario
        self._rate = scenario.per_second
        self._chance = chance
        self._tokens, self._at = float(scenario.burst), 0.0

    def answer(self, now: float) -> int:
        """Return the HTTP status of a call; 0 when no connection was made."""
        scenario = self._scenario
        if now < scenario.outage:
            return 0
        self._tokens = min(float(scenario.burst), self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < WHOLE:
            return 429
        self._tokens -= 1.0
        return 503 if scenario.failure_rate and self._chance.random() < scenario.failure_rate else 200


class Storm:
    """One run of a scenario with one strategy and one seed."""

    def __init__(self, scenario: Scenario, strategy: Strategy, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - seeded on purpose.
        self._scenario = scenario
        self._strategy = strategy
        self._service = _Service(scenario, self._chance)
        self._attempts = [0] * scenario.clients
        self._events: list[tuple[float, int]] = [(0.0, client) for client in range(scenario.clients)]
        self._breaker_state = breaker_state.BreakerState()
        self._starts = 0
        """Calls since the breaker closed."""
        self._pacer = None if strategy.limit is None else _Pacer(strategy.limit)
        self.result = StormResult(scenario.clients)

    def run(self) -> StormResult:
        """Run until every client was served or gave up."""
        events, pacer = self._events, self._pacer
        is_plain = self._strategy.breaker is None and pacer is None
        while events and events[0][0] <= SECONDS_MAX:
            now, client = heapq.heappop(events)
            if is_plain:
                self._call(now, client)
            elif client < 0:
                self._wake(cast("_Pacer", pacer), now, -client - 1)
            elif (at := self._admitted_at(now, client)) > now:
                heapq.heappush(events, (at, client))
            elif pacer is None:
                self._call(now, client)
            elif (worker := pacer.add(client)) is not None:
                heapq.heappush(events, (now, -worker - 1))
        return self.result

    def _wake(self, pacer: _Pacer, now: float, worker: int) -> None:
        """Let a worker make the calls for which it has tokens; it wakes again when the next one is usable."""
        while (at := pacer.start_at(now, worker)) is not None:
            if at > now:
                heapq.heappush(self._events, (at, -worker - 1))
                return
            self._call(now, pacer.take(worker))

    def _call(self, now: float, client: int) -> None:
        result = self.result
        result.calls += 1
        second = int(now)
        result.calls_by_second[second] = result.calls_by_second.get(second, 0) + 1
        status = self._service.answer(now)
        if self._strategy.breaker is not None:
            self._record(self._strategy.breaker, now, client, is_down=status in {0, 503})
        if status == 200:
            result.served += 1
            result.seconds = now
            return
        if status == 429:
            result.refused += 1
            if self._pacer is not None:
                self._pacer.refused(now, self._scenario.retry_after)
        else:
            result.failed += 1
        self._retry(now, client, is_refused=status == 429)

    def _retry(self, now: float, client: int, *, is_refused: bool) -> None:
        policy = self._strategy.policy
        self._attempts[client] += 1
        if self._attempts[client] >= policy.max_attempts:
            self.result.given_up += 1
            self.result.seconds = now
            return
        delay = policy.backoff.delay(self._attempts[client], self._chance.random())
        asked = self._scenario.retry_after
        if is_refused and asked is not None and policy.respect_retry_after:
            # As `core.decide` does.
            delay = max(delay, min(asked, cast("float", policy.retry_after_cap)))
        heapq.heappush(self._events, (now + delay, client))

    def _admitted_at(self, now: float, client: int) -> float:
        """Return when the breaker admits a call of this client; now if it does."""
        breaker, state = self._strategy.breaker, self._breaker_state
        if breaker is None:
            return now
        ramp_at = breaker_state.next_start_at(breaker, state, self._starts)
        if ramp_at > now:
            return ramp_at
        self._breaker_state, answer = breaker_state.admit(breaker, state, now, str(client))
        if isinstance(answer, breaker_state.Refused):
            # Held: whoever looks at the very moment at which the breaker opens finds its probe out.
            return max(answer.retry_at or SECONDS_MAX, math.nextafter(now, math.inf))
        self._starts += 1
        return now

    def _record(self, breaker: Breaker, now: float, client: int, *, is_down: bool) -> None:
        before = self._breaker_state
        self._breaker_state = breaker_state.record(
            breaker, before, now, ok=int(not is_down), failed=int(is_down), token=str(client)
        )
        if self._breaker_state.phase is not before.phase:
            self._starts = 0


class _Pacer:
    """A limit that workers share: each reserves blocks of tokens for the clients that wait for it, as the engine does."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._state = LimitState()
        self._blocks: dict[int, Block] = {}
        self._waiting = [deque[int]() for _ in range(WORKERS)]
        self._is_awake = [False] * WORKERS

    def add(self, client: int) -> int | None:
        """Let a client wait for its worker; return the worker if it has to be woken."""
        worker = client % WORKERS
        self._waiting[worker].append(client)
        if self._is_awake[worker]:
            return None
        self._is_awake[worker] = True
        return worker

    def take(self, worker: int) -> int:
        """Return the client that has waited longest, and spend a token for it."""
        self._blocks[worker] = self._blocks[worker].spent(1.0)
        return self._waiting[worker].popleft()

    def start_at(self, now: float, worker: int) -> float | None:
        """Return from when a worker may make its next call; None if nobody waits for one."""
        waiting = self._waiting[worker]
        if not waiting:
            self._is_awake[worker] = False
            return None
        opens_at = limit_state.opens_at(self._state, now)
        if opens_at is not None and opens_at > now:
            return opens_at
        block = self._blocks.get(worker)
        if block is None or block.tokens < WHOLE:
            self._state, block = limit_state.reserve(self._limit, self._state, now, float(len(waiting)))
            if block is None:
                return SECONDS_MAX
            self._blocks[worker] = block
        return now if block.usable(now) >= WHOLE else max(block.usable_at(1.0), math.nextafter(now, math.inf))

    def refused(self, now: float, retry_after: float | None) -> None:
        """Note a 429: the limit learns, or waits as it was asked to; then the blocks of all workers are void."""
        before = self._state.paused_until
        self._state = limit_state.refused(
            self._limit, self._state, now, started_at=now, retry_after=retry_after
        )
        if self._state.paused_until != before:
            self._blocks.clear()


def run_storm(scenario: Scenario, strategy: Strategy, seeds: range) -> dict[int, StormResult]:
    """Run a scenario for every seed; once, if chance has no part in it."""
    is_seeded = strategy.is_seeded or scenario.failure_rate > 0
    return {seed: Storm(scenario, strategy, seed).run() for seed in (seeds if is_seeded else seeds[:1])}
