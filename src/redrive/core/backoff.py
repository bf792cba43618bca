# SPDX-License-Identifier: Apache-2.0
"""Compute how long to wait before the next attempt: a growing delay, a cap, and jitter on top.

    capped(n) = clamp(growth(n), floor, cap)          n = number of the attempt that failed, from 1
    delay(n)  = jitter(capped(n), draw)               draw in [0, 1)

The cap bounds the delay *before* jitter, so jitter still jitters at the cap. Pure: the same attempt and draw give the same delay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Self

from redrive.core.arguments import instance, number, seconds, share, whole
from redrive.errors import ConfigurationError

_JITTERS: Final = "Use Jitter.none(), Jitter.full(), Jitter.ratio(0.25) or Jitter.additive(0, 2)."


class JitterKind(StrEnum):
    """The ways to randomise a delay."""

    NONE = "none"
    FULL = "full"
    RATIO = "ratio"
    ADDITIVE = "additive"


@dataclass(frozen=True, slots=True)
class Jitter:
    """Randomise a delay, so that callers that failed together do not retry together."""

    kind: JitterKind = JitterKind.NONE
    low: float = 0.0
    high: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.kind, JitterKind):
            raise ConfigurationError(
                field="Jitter", value=self.kind, rule="must be built by name", fix=_JITTERS
            )

    @classmethod
    def none(cls) -> Self:
        """Leave the delay unchanged."""
        return cls()

    @classmethod
    def full(cls) -> Self:
        """Spread over everything from 0 to the delay: `delay * draw`."""
        return cls(JitterKind.FULL)

    @classmethod
    def ratio(cls, ratio: float) -> Self:
        """Spread by a share to both sides: `delay * (1 - ratio + 2 * ratio * draw)`."""
        return cls(
            JitterKind.RATIO,
            high=share("Jitter.ratio", ratio, fix="0.25 spreads by a quarter to both sides."),
        )

    @classmethod
    def additive(cls, low: timedelta | float, high: timedelta | float) -> Self:
        """Add between `low` and `high` seconds: `delay + low + (high - low) * draw`."""
        shortest, longest = seconds("Jitter.additive low", low), seconds("Jitter.additive high", high)
        if longest <= shortest:
            raise ConfigurationError(
                field="Jitter.additive high",
                value=high,
                rule=f"must be more than low ({shortest:g})",
                fix="Give a wider range.",
            )
        return cls(JitterKind.ADDITIVE, shortest, longest)

    def apply(self, delay: float, draw: float) -> float:
        """Return the delay after jitter."""
        if self.kind is JitterKind.FULL:
            return delay * draw
        if self.kind is JitterKind.RATIO:
            return delay * (1.0 - self.high + 2.0 * self.high * draw)
        # Additive; `none` is the same with an empty range.
        return delay + self.low + (self.high - self.low) * draw


class Growth(StrEnum):
    """How the delay grows from attempt to attempt."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait before each next attempt. Build one with `exponential`, `linear`, `fixed` or `schedule`."""

    growth: Growth
    steps: tuple[float, ...]
    """The first delay; for a schedule, every delay in order, the last one repeating."""
    factor: float
    floor: float
    cap: float
    jitter: Jitter

    def __post_init__(self) -> None:
        if not isinstance(self.growth, Growth):
            raise ConfigurationError(
                field="Backoff",
                value=self.growth,
                rule="must be built by name",
                fix="Use Backoff.exponential(1), .linear(1), .fixed(1) or .schedule([1, 5]).",
            )
        instance("Backoff.jitter", self.jitter, Jitter, fix=_JITTERS)

    @classmethod
    def exponential(
        cls,
        initial: timedelta | float = 1.0,
        *,
        factor: float = 2.0,
        cap: timedelta | float = 60.0,
        floor: timedelta | float = 0.0,
        jitter: Jitter = Jitter(JitterKind.FULL),  # noqa: B008 - a frozen value.
    ) -> Self:
        """Grow by a factor: `initial * factor ** (attempt - 1)`, kept between `floor` and `cap`."""
        first = seconds("Backoff.exponential initial", initial, above=True)
        growth = number(factor)
        if growth is None or growth < 1:
            raise ConfigurationError(
                field="Backoff.exponential factor",
                value=factor,
                rule="must be a number of at least 1",
                fix="2 doubles the delay.",
            )
        lowest = seconds("Backoff.exponential floor", floor)
        return cls(Growth.EXPONENTIAL, (first,), growth, lowest, _cap(cap, max(first, lowest)), jitter)

    @classmethod
    def linear(
        cls,
        step: timedelta | float,
        *,
        cap: timedelta | float = 60.0,
        jitter: Jitter = Jitter(),  # noqa: B008 - a frozen value.
    ) -> Self:
        """Grow by a step: `step * attempt`, up to `cap`."""
        first = seconds("Backoff.linear step", step, above=True)
        return cls(Growth.LINEAR, (first,), 1.0, 0.0, _cap(cap, first), jitter)

    @classmethod
    def fixed(cls, delay: timedelta | float, *, jitter: Jitter = Jitter()) -> Self:  # noqa: B008 - a frozen value.
        """Wait the same time after every attempt; 0 retries at once."""
        first = seconds("Backoff.fixed delay", delay)
        return cls(Growth.FIXED, (first,), 1.0, 0.0, first, jitter)

    @classmethod
    def schedule(
        cls,
        delays: Iterable[timedelta | float],
        *,
        jitter: Jitter = Jitter(),  # noqa: B008 - a frozen value.
    ) -> Self:
        """Wait exactly these delays in order; the last one repeats."""
        if isinstance(delays, str) or not isinstance(delays, Iterable):
            raise ConfigurationError(
                field="Backoff.schedule delays",
                value=delays,
                rule="must be a list of delays",
                fix="[5, 15, 45], for example.",
            )
        steps = tuple(
            seconds(f"Backoff.schedule delay {place}", delay) for place, delay in enumerate(delays, start=1)
        )
        if not steps:
            raise ConfigurationError(
                field="Backoff.schedule delays",
                value=steps,
                rule="must name at least one delay",
                fix="[5, 15, 45], for example.",
            )
        return cls(Growth.SCHEDULE, steps, 1.0, 0.0, max(steps), jitter)

    def delay(self, attempt: int, draw: float) -> float:
        """Return the seconds to wait after attempt number `attempt` (from 1) failed; `draw` in [0, 1) selects the jitter."""
        whole("attempt", attempt, minimum=1, fix="The first attempt is number 1.")
        if not 0 <= draw < 1:
            raise ConfigurationError(
                field="draw", value=draw, rule="must be in [0, 1)", fix="Pass random.random()."
            )
        return self.jitter.apply(self.nominal(attempt), draw)

    def nominal(self, attempt: int) -> float:
        """Return the delay after this attempt before jitter."""
        if self.growth is Growth.EXPONENTIAL:
            return min(max(self._grown(attempt), self.floor), self.cap)
        if self.growth is Growth.LINEAR:
            return min(self.steps[0] * attempt, self.cap)
        # A fixed delay is a schedule of one step.
        return self.steps[min(attempt, len(self.steps)) - 1]

    def _grown(self, attempt: int) -> float:
        try:
            return self.steps[0] * self.factor ** (attempt - 1)
        except OverflowError:
            # The float range ends long before attempt 10,000; from there on the cap applies.
            return math.inf


def _cap(cap: timedelta | float, least: float) -> float:
    highest = seconds("Backoff cap", cap, above=True)
    if highest < least:
        raise ConfigurationError(
            field="Backoff cap",
            value=cap,
            rule=f"must not be below the first delay ({least:g} s)",
            fix="Raise the cap or lower the first delay.",
        )
    return highest
