# SPDX-License-Identifier: Apache-2.0
"""The shared state of a limit as pure step functions: configuration, state and the time in, the next state out.

The bucket is filled at the limit's rate up to its burst. A worker reserves a block of tokens at once, also tokens that are yet to
come: those become usable one by one, and reservations are served in order. So nobody starves, nothing is written per call, and
calls exceed burst + rate x time by no more than the block that each worker has. Slots of a concurrency belong to workers by name;
the slots of a worker that is gone are free. An adaptive limit doubles its rate until the first refusal; from then on it returns
to the rate of the last refusal along a cubic curve, and beyond it when none comes.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from redrive.core.limit import Limit

BLOCK_SECONDS: Final = 1.0
"""A worker reserves at most what the limit allows in this time, besides what has been saved up."""
TURN_SECONDS: Final = 1.0
"""How long a worker keeps a slot that others wait for, too, when there are fewer slots than workers."""
FIRST_RATE: Final = 10.0
"""Per second: where an adaptive limit without a rate of its own begins."""
LEARNED_MIN: Final = 1 / 60
LEARNED_MAX: Final = 1e6
"""Per second: what an adaptive limit tries at least and at most."""
LEARNING_BURST: Final = 0.1
"""Seconds of its rate that an adaptive limit saves up, unless it has a burst of its own."""
DOUBLING_SECONDS: Final = 0.5
"""Until its first refusal an adaptive limit doubles its rate in this time."""
DECREASE: Final = 0.7
"""To this share of its rate a refusal brings an adaptive limit down."""
RECOVERY_SECONDS: Final = 5.0
RECOVERY_CALLS: Final = 20.0
"""An adaptive limit is back at the rate of its last refusal after this many seconds, or calls if they take longer."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What an adaptive limit has learned: the rate is `peak` at its last refusal, or began at `base` when there was none."""

    since: float
    base: float
    peak: float | None = None
    cut_at: float | None = None
    """When it was last brought down."""


@dataclass(frozen=True, slots=True)
class Share:
    """The slots of a concurrency that one worker has, how many it wants, and since when it has or wants them."""

    slots: int
    wanted: int
    at: float


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """How many slots a worker uses, and how many it wants in all."""

    worker: str
    wanted: int
    used: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """The whole state of a limit, or of one of its keys. The default is a limit that nobody has used yet."""

    tokens: float | None = None
    """At the instant `at`; below zero when tokens are reserved that are yet to come. None for a full bucket."""
    at: float = 0.0
    """In the future while the limit is paused: until then nothing is filled in."""
    paused_until: float | None = None
    """Asked for by the dependency."""
    is_paused: bool = False
    """By an operator, until resumed."""
    rate: float | None = None
    """Set by an operator, as are the next two; None for what the code says."""
    burst: float | None = None
    concurrency: int | None = None
    pace: Pace | None = None
    refused_at: float | None = None
    """When the dependency last refused a call because there were too many."""
    shares: Mapping[str, Share] = field(default_factory=dict[str, Share])


@dataclass(frozen=True, slots=True)
class Block:
    """Tokens that a worker has reserved: all of them are usable from `ready_at` on, and until then they come at `rate`."""

    tokens: float
    ready_at: float
    rate: float

    def usable(self, now: float) -> float:
        """Return how many tokens may be spent now."""
        return self.tokens - max(0.0, self.ready_at - now) * self.rate

    def usable_at(self, tokens: float) -> float:
        """Return from when so many tokens, of those that are left, may be spent."""
        return self.ready_at - max(0.0, self.tokens - tokens) / self.rate

    def spent(self, tokens: float) -> Block:
        """Return what is left after spending so many tokens; below zero when a call cost more than was left."""
        return Block(self.tokens - tokens, self.ready_at, self.rate)


def rate_of(limit: Limit, state: LimitState, now: float) -> float | None:
    """Return the tokens per second that are allowed now; None for a limit of concurrency alone."""
    most = state.rate if state.rate is not None else limit.rate
    ceiling = None if most is None else float(most)
    if not limit.adaptive:
        return ceiling
    highest = LEARNED_MAX if ceiling is None else ceiling
    if state.pace is None:
        return min(highest, FIRST_RATE) if ceiling is None else highest
    return min(highest, _learned(state.pace, now))


def burst_of(limit: Limit, state: LimitState, now: float) -> float:
    """Return how many tokens the bucket holds: what was set, or what one second allows, at least 1.

    While the rate is being learned it is less: a burst that is refused says nothing about the rate.
    """
    given = state.burst if state.burst is not None else limit.burst
    if given is not None:
        return float(given)
    return max(1.0, (rate_of(limit, state, now) or 0.0) * (LEARNING_BURST if limit.adaptive else 1.0))


def concurrency_of(limit: Limit, state: LimitState) -> int | None:
    """Return how many calls may run at once; None for any number."""
    return limit.concurrency if state.concurrency is None else state.concurrency


def opens_at(state: LimitState, now: float) -> float | None:
    """Return from when calls may start again: now, unless it is paused; None when only an operator resumes it."""
    if state.is_paused:
        return None
    return now if state.paused_until is None else max(now, state.paused_until)


def available(limit: Limit, state: LimitState, now: float) -> float:
    """Return how many tokens are in the bucket; below zero when tokens are reserved that are yet to come."""
    burst = burst_of(limit, state, now)
    if state.tokens is None:
        return burst
    return min(burst, state.tokens + max(0.0, now - state.at) * (rate_of(limit, state, state.at) or 0.0))


def reserve(
    limit: Limit, state: LimitState, now: float, wanted: float, *, least: float = 1.0
) -> tuple[LimitState, Block | None]:
    """Reserve tokens: what is there, and for a block what is yet to come; None while an operator pauses it.

    At least `least` are reserved: a call that costs more than a block waits longer, and those behind it wait for it.
    """
    rate = rate_of(limit, state, now)
    if state.is_paused or rate is None:
        return state, None
    state = _filled(limit, state, now)
    rate = rate_of(limit, state, now) or rate
    saved, start = state.tokens or 0.0, state.at
    tokens = max(least, min(wanted, saved + rate * BLOCK_SECONDS))
    left = saved - tokens
    after = replace(state, tokens=left)
    return after, Block(tokens, start + max(0.0, -left) / rate, rate)


def returned(limit: Limit, state: LimitState, now: float, tokens: float) -> LimitState:
    """Return tokens that were reserved and not spent; or, below zero, take those that calls used beyond what they reserved."""
    if not tokens or rate_of(limit, state, now) is None:
        return state
    filled = _filled(limit, state, now)
    return replace(filled, tokens=min(burst_of(limit, filled, now), (filled.tokens or 0.0) + tokens))


def refused(
    limit: Limit, state: LimitState, now: float, *, started_at: float, retry_after: float | None
) -> LimitState:
    """Note that the dependency refused a call that began at `started_at`: wait as long as it asked, and learn the rate.

    Calls that had begun before the rate was last lowered do not lower it again.
    """
    state = _filled(limit, state, now)
    pace = state.pace
    if pace is not None and (pace.cut_at is None or started_at > pace.cut_at):
        state = replace(state, pace=_slower(limit, state, pace, now))
        if retry_after is None:
            # The bucket on the other side is empty: it has to fill, and the blocks of all workers are too large.
            state = paused(state, now + 1.0 / (rate_of(limit, state, now) or FIRST_RATE))
    if retry_after is not None and retry_after > 0:
        state = paused(state, now + retry_after)
    return replace(state, refused_at=now)


def paused(state: LimitState, until: float) -> LimitState:
    """Pause until an instant, as the dependency asked. What was saved up is gone then; so are the blocks of all workers."""
    if state.paused_until is not None and state.paused_until >= until:
        return state
    return replace(state, paused_until=until, tokens=0.0, at=until)


def shared(
    limit: Limit, state: LimitState, now: float, request: SlotRequest, live: Container[str]
) -> LimitState:
    """Return the state after a worker asked for slots; workers that are not in `live` have lost theirs.

    Everyone gets an equal share, what others do not want is shared again, and one slot too few goes round among those who wait.
    Nobody is given a slot that another worker still has: a share that grew comes when others have given theirs back.
    """
    most, worker = concurrency_of(limit, state), request.worker
    others = {name: each for name, each in state.shares.items() if name != worker and name in live}
    asked = max(request.wanted, request.used)
    if most is None or not asked:
        return state if len(others) == len(state.shares) else replace(state, shares=others)
    mine = state.shares.get(worker, Share(0, 0, now))
    if now - mine.at >= TURN_SECONDS and any(each.slots < each.wanted for each in others.values()):
        mine = replace(mine, at=now)
    fair = divided(most, {**others, worker: replace(mine, wanted=asked)})[worker]
    free = most - sum(each.slots for each in others.values())
    slots = max(request.used, min(fair, free))
    made = Share(slots, asked, now if slots and not mine.slots else mine.at)
    return replace(state, shares={**others, worker: made})


def without(state: LimitState, worker: str) -> LimitState:
    """Return the state without the share of a worker."""
    return replace(state, shares={name: each for name, each in state.shares.items() if name != worker})


def divided(slots: int, shares: Mapping[str, Share]) -> dict[str, int]:
    """Divide slots among workers: equally, no one more than it wants; what cannot be divided goes to whoever has waited longest."""
    given = dict.fromkeys(shares, 0)
    order = sorted(shares, key=lambda name: (shares[name].at, name))
    left = slots
    while left and (unserved := [name for name in order if given[name] < shares[name].wanted]):
        each = left // len(unserved)
        for name in unserved if each else unserved[:left]:
            more = min(max(1, each), shares[name].wanted - given[name])
            given[name] += more
            left -= more
    return given


def _filled(limit: Limit, state: LimitState, now: float) -> LimitState:
    """Fill the bucket up to now. While it is full nobody needs more, and an adaptive limit does not grow."""
    pace = state.pace
    if limit.adaptive and pace is None:
        pace = Pace(now, rate_of(limit, state, now) or FIRST_RATE)
    elif pace is not None and state.tokens is not None:
        missing = burst_of(limit, state, state.at) - state.tokens
        idle = now - state.at - missing / (rate_of(limit, state, state.at) or FIRST_RATE)
        pace = replace(pace, since=pace.since + max(0.0, idle))
    return replace(state, tokens=available(limit, state, now), at=max(now, state.at), pace=pace)


def _learned(pace: Pace, now: float) -> float:
    passed = max(0.0, now - pace.since)
    if pace.peak is None:
        return pace.base * math.exp2(min(passed / DOUBLING_SECONDS, 60.0))
    recovery = max(RECOVERY_SECONDS, RECOVERY_CALLS / pace.peak)
    return pace.peak * (1.0 + (1.0 - DECREASE) * (passed / recovery - 1.0) ** 3)


def _slower(limit: Limit, state: LimitState, pace: Pace, now: float) -> Pace:
    """Return the pace after a refusal."""
    rate = rate_of(limit, state, now) or FIRST_RATE
    if pace.peak is None:
        # Doubling has gone too far, by up to as much again.
        peak = rate if limit.rate is not None else rate / 2.0
    else:
        # Refused before it was back where it was refused last: there is less than there was.
        peak = rate * (1.0 + DECREASE) / 2.0 if rate < pace.peak else rate
    return Pace(now, rate, max(LEARNED_MIN, peak), cut_at=now)
