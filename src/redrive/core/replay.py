# SPDX-License-Identifier: Apache-2.0
"""The next turn of a replay: release more letters, wait, stop, or finish.

A replay goes in steps, the canaries first: a step is released when the one before has ended. What follows the last step is
released as places become free. It stops itself if the old failure comes back, or if most of it fails. Pure: the driver counts and
acts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Literal

from msgspec import Struct

from redrive.core.arguments import number, one_of
from redrive.core.stop_reason import MostFailures, SameFailures, StopReason
from redrive.errors import ConfigurationError

CANARY: Final = (1, 5, 20, 100)
STRICT_MAX: Final = 20
"""In steps up to this size, one letter with the old failure stops the replay."""
SHARE_MAX: Final = 0.02
"""In larger ones, more than this share."""
SAMPLE_MIN: Final = 50
"""No share is measured of fewer letters than this: one is never more than 2 % of them."""
HALF: Final = 0.5
"""And, whatever the failure, more than this share of the ended ones."""
WINDOW: Final = 4_000
"""Letters that may run at once after the last step; few enough to notice a wrong fix soon."""
REFILL: Final = 1_000
"""Places that must be free before more are released: a few hundred letters cost nearly as much as a thousand."""
BURST_SECONDS: Final = 1.0
"""How much unused rate may be caught up at once."""
RECENT_SECONDS: Final = 60.0
"""What ended longer ago does not count for the pace: there may have been a pause since, or no worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRules:
    """What a pipeline requires before its failed jobs run again.

    `evidence`: whether a record is required of what was done about the cause, and that running again does no harm.
    `owner_retry`: whether the owner of a job may retry it without evidence. `export`: whether an export may include values.
    """

    evidence: Literal["required", "optional"] = "required"
    owner_retry: bool = False
    export: Literal["redacted", "include"] = "redacted"

    def __post_init__(self) -> None:
        one_of("ReplayRules.evidence", self.evidence, ("required", "optional"))
        one_of("ReplayRules.export", self.export, ("redacted", "include"))


class Plan(Struct, frozen=True, kw_only=True):
    """The plan of a replay; made by `plan_of`, which checks it."""

    canary: tuple[int, ...] = CANARY
    rate: float | None = None
    """Releases per second; None for no limit."""
    from_start: bool = False
    """True to begin at the first stage, although later ones were reached."""


class Counts(Struct, frozen=True, kw_only=True):
    """How many letters of a replay are in which state."""

    waiting: int = 0
    replaying: int = 0
    completed: int = 0
    cancelled: int = 0
    same: int = 0
    """Failed again with the old fingerprint."""
    other: int = 0
    """Failed again with another one."""

    @property
    def ended(self) -> int:
        """How many replays have ended."""
        return self.completed + self.cancelled + self.same + self.other

    @property
    def released(self) -> int:
        """How many were released so far."""
        return self.ended + self.replaying

    def since(self, earlier: Counts) -> Counts:
        """Return what has ended since `earlier`."""
        return Counts(
            completed=self.completed - earlier.completed,
            cancelled=self.cancelled - earlier.cancelled,
            same=self.same - earlier.same,
            other=self.other - earlier.other,
        )


class Release(Struct, frozen=True):
    """Release so many letters; the rate allows the next ones at `next_at`."""

    letters: int
    next_at: float


class Wait(Struct, frozen=True):
    """Nothing to do now."""

    reason: str
    until: float | None = None
    """When to look again; None until something ends."""


class Stop(Struct, frozen=True):
    """The cause is not fixed; an operator has to look."""

    reason: StopReason


class Finish(Struct, frozen=True):
    """Every letter was replayed or skipped."""


Turn = Release | Wait | Stop | Finish


def plan_of(canary: tuple[int, ...] = CANARY, rate: float | None = None, *, from_start: bool = False) -> Plan:
    """Return the plan of a replay; raises ConfigurationError."""
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in canary):
        raise ConfigurationError(
            field="canary", value=canary, rule="must be whole numbers from 1 on", fix="1,5,20,100 is usual."
        )
    if any(later <= earlier for earlier, later in pairwise(canary)):
        raise ConfigurationError(
            field="canary", value=canary, rule="must rise from step to step", fix="1,5,20,100 is usual."
        )
    if rate is not None and (number(rate) or 0.0) <= 0:
        raise ConfigurationError(
            field="rate",
            value=rate,
            rule="must be a finite number of releases per second, more than 0",
            fix="Leave it out for no limit, or pause the replay to release nothing.",
        )
    return Plan(canary=canary, rate=rate, from_start=from_start)


def next_turn(plan: Plan, counts: Counts, pardoned: Counts, *, next_at: float, now: float) -> Turn:
    """Return the next turn of a replay. What had ended when it was resumed (`pardoned`) does not stop it again."""
    bounds = tuple(accumulate(plan.canary))
    if not counts.waiting:
        # Nothing is left to be spared by stopping.
        return Wait(f"the last {counts.replaying} to end") if counts.replaying else Finish()
    if (reason := _stop_reason(bounds, plan, counts, pardoned)) is not None:
        return Stop(reason)
    if counts.released in bounds and counts.replaying:
        return Wait(f"{counts.replaying} of this step to end")
    bound = next((bound for bound in bounds if bound > counts.released), None)
    room = WINDOW - counts.replaying if bound is None else bound - counts.released
    if room <= 0 or (bound is None and plan.rate is None and room < min(REFILL, counts.waiting)):
        return Wait(f"some of the {counts.replaying} running to end")
    return _paced(plan, min(room, counts.waiting), next_at, now)


def seconds_left(plan: Plan, counts: Counts, ended_at: Sequence[float], *, now: float) -> float | None:
    """Estimate how long a running replay still takes: by its rate, or else by the pace of what has ended lately (`ended_at`).

    None while there is no estimate. Under a rate it is what the rate alone takes, however long it was paused before. The canaries
    run few at a time, so their pace is not that of the rest.
    """
    if plan.rate is not None:
        return counts.waiting / plan.rate if counts.waiting else None
    after_canaries = max(counts.ended - sum(plan.canary), 0)
    recent = [at for at in heapq.nlargest(after_canaries, ended_at) if now - RECENT_SECONDS < at <= now]
    if len(recent) < 2:
        return None
    # Up to now, not to the last one that ended: if nothing ends any more, the estimate grows.
    return (counts.waiting + counts.replaying) * (now - min(recent)) / (len(recent) - 1)


def _stop_reason(bounds: tuple[int, ...], plan: Plan, counts: Counts, pardoned: Counts) -> StopReason | None:
    """Return why the replay must stop; None if it may continue."""
    fresh = counts.since(pardoned)
    strict = max(
        (bound for bound, size in zip(bounds, plan.canary, strict=True) if size <= STRICT_MAX), default=0
    )
    if fresh.same and counts.released <= strict:
        return SameFailures(same=fresh.same, ended=fresh.ended)
    # Until a step has ended, its failures are measured by its whole size: the first one to end must not decide for all.
    bound = next((bound for bound in bounds if bound >= counts.released), counts.ended)
    if fresh.same > SHARE_MAX * max(bound - pardoned.ended, SAMPLE_MIN):
        return SameFailures(same=fresh.same, ended=fresh.ended, share_max=SHARE_MAX)
    failed = fresh.same + fresh.other
    is_conclusive = not counts.replaying or fresh.ended >= STRICT_MAX
    if is_conclusive and failed > HALF * fresh.ended:
        return MostFailures(failed=failed, ended=fresh.ended, other=fresh.other)
    return None


def _paced(plan: Plan, letters: int, next_at: float, now: float) -> Turn:
    """Release no faster than the rate allows."""
    if plan.rate is None:
        return Release(letters, now)
    # No further ahead than the rate itself puts it: a clock that was set back must not make it wait for a day.
    next_at = min(next_at, now + BURST_SECONDS + 1 / plan.rate)
    if now < next_at:
        return Wait(f"the rate of {plan.rate:g} per second", next_at)
    since = max(next_at, now - BURST_SECONDS)
    allowed = min(letters, 1 + int((now - since) * plan.rate))
    return Release(allowed, since + allowed / plan.rate)
