# SPDX-License-Identifier: Apache-2.0
"""The limits of a worker's lanes: how many jobs of each it may claim now, and which of their keys.

A lane whose limit is spent is not claimed: its jobs stay queued, take no slot and burn no attempt, and the worker knows when to
look again. What calls used, and which were refused, is collected on the loop and written before the next claim. Everything else
happens on the store's thread.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import msgspec

from redrive.core import breaker_state
from redrive.core import limit_state as step
from redrive.core.arguments import number
from redrive.core.breaker_state import Phase
from redrive.core.failure import Category, Failure
from redrive.core.limit import Limit
from redrive.core.limit_state import LimitState, Share
from redrive.engine.limits.keys import JobKeys, breaker_part
from redrive.engine.limits.meter import LOOK_SECONDS, Change, Meter
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.dispatch import Dispatch
from redrive.errors import ConfigurationError
from redrive.store.protocol import Store
from redrive.store.records import ClaimedJob, ClaimRequest, JobId, LaneId, Settlement
from redrive.store.statements import workers as worker_sql

if TYPE_CHECKING:
    from redrive.engine.worker.slots import Slots

METERS_MAX: Final = 1_000
"""Keys of limits that a worker keeps in memory, besides those in use."""
UPKEEP_SECONDS: Final = 60.0
FORGET_SECONDS: Final = 3_600.0
"""After this time a key of a limit that nobody has used is forgotten."""
PASS_SECONDS: Final = 1.0
"""How long a worker waits that has passed over all of very many keys."""

MeterKey = tuple[str, str]
"""Name and key of a limit; the key is empty for a limit without keys."""


class SharedLimits:
    """What one worker knows about the limits of its stages, and has yet to write about them."""

    def __init__(
        self,
        store: Store,
        lanes: Mapping[LaneId, Lane],
        breakers: SharedBreakers,
        *,
        worker: Callable[[], str],
        is_probe: Callable[[JobId], bool],
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._worker = worker
        self._is_probe = is_probe
        self._breakers = breakers
        self.keys = breakers.keys = JobKeys(store, lanes)
        self._by_limit: dict[str, tuple[Limit, list[LaneId]]] = {}
        """Limits without keys, and the lanes that have them."""
        for lane in lanes.values():
            for limit in lane.stage.limits:
                if limit.key is None:
                    self._by_limit.setdefault(limit.name, (limit, []))[1].append(lane.id)
        self.is_needed = bool(self._by_limit or self.keys.lanes)
        self._items = {
            lane.id: 1 if lane.stage.batch is None else lane.stage.batch.items_per_count
            for lane in lanes.values()
        }
        """How many jobs count as one: those of a call, where a batch counts calls."""
        self._meters: dict[MeterKey, Meter] = {}
        self._costs: dict[JobId, dict[str, float]] = {}
        self._errors: dict[JobId, Exception] = {}
        self._counted_for = 0
        self._counted: set[JobId] = set()
        """Jobs of the commit with this token that are counted: that commit may have to be made again."""
        self._reports: deque[tuple[Limit, str, Change]] = deque()
        self._corrections: deque[tuple[Limit, str, float]] = deque()
        self._asked: tuple[int, ClaimRequest] = 0, ClaimRequest((), 0)
        """The token of the last commit, and what it might claim."""
        self.opens: dict[LaneId, float] = {}
        """When lanes may be claimed again that were limited at the last claim; infinite for one that an operator paused."""
        self._passed: dict[LaneId, float] = {}
        """When keys of a lane may start again that were passed over since one was served."""
        self._turn = 0
        self._kept_up_at = -math.inf

    def ended(self, dispatch: Dispatch, failure: Failure | None = None) -> None:
        """Note what an attempt used of its limits, and whether the dependency refused it. On the loop."""
        usage = dispatch.context.usage
        costs = self._costs.pop(dispatch.job.id, None) if self._costs else None
        if self._errors:
            self._errors.pop(dispatch.job.id, None)
        if failure is None and not usage:
            return
        for limit in dispatch.lane.stage.limits:
            key = self._key_of(dispatch.job, limit)
            if key is None or not limit.is_metered:
                continue
            if limit.name in usage:
                self._corrections.append((limit, key, usage[limit.name] - self._paid(dispatch, limit, costs)))
            if failure is not None and failure.signal is None:
                self._note_refusal(limit, key, dispatch, failure)

    def _paid(self, dispatch: Dispatch, limit: Limit, costs: Mapping[str, float] | None) -> float:
        """Return what has been counted for a job; of a call that counts as one, its share."""
        if limit.cost is not None:
            return (costs or {}).get(limit.name, 1.0)
        return 1.0 / dispatch.shared_by if self._items[dispatch.lane.id] > 1 else 1.0

    def called(self, lane: Lane, items: int, *, is_again: bool) -> None:
        """Note a call of a batch that counts calls: its jobs have paid their share of a full one, and nothing for a call again."""
        size = self._items[lane.id]
        missing = 1.0 - (0.0 if is_again else items / size)
        for limit in lane.stage.limits if size > 1 and missing else ():
            if limit.is_metered and limit.cost is None and limit.key is None:
                self._corrections.append((limit, "", missing))

    def error_of(self, job: JobId) -> Exception | None:
        """Return why a job cannot be run: the function for its cost or its key failed. On the loop."""
        return self._errors.get(job) or self.keys.error_of(job)

    def unstarted(self, jobs: Iterable[ClaimedJob]) -> None:
        """Note that jobs were counted, and are released without a call. On the loop."""
        for job in jobs:
            lane, costs = self._lanes[job.lane], self._costs.pop(job.id, None) or {}
            self._errors.pop(job.id, None)
            for limit in lane.stage.limits:
                key = self._key_of(job, limit)
                if key is not None and limit.is_metered:
                    cost = costs.get(limit.name, 1.0 / self._items[lane.id])
                    self._corrections.append((limit, key, -cost))

    def flush(self, now: float) -> None:
        """Write what the dependencies asked for, and count what runs used beyond what they had reserved."""
        while self._reports:
            limit, key, change = self._reports[0]
            meter = self._meter(limit, key)
            meter.read()
            meter.change(change, now)
            meter.read()
            self._reports.popleft()
        self._correct()
        self._keep_up(now)

    def give_back(self, leased: Slots, now: float) -> None:
        """Return unused tokens and slots, for which others may wait. Not while a claim is under way: its jobs are not known yet."""
        self.flush(now)
        used = self._used_keys(leased.jobs())
        used.update({(name, ""): self._used(lanes, leased) for name, (_, lanes) in self._by_limit.items()})
        for name, meter in self._meters.items():
            meter.give_back(used[name], now)

    def _correct(self) -> None:
        while self._corrections:
            limit, key, delta = self._corrections.popleft()
            self._meter(limit, key).correct(delta)

    def limited(
        self, want: ClaimRequest, done: Sequence[Settlement], leased: Slots, *, now: float, token: int
    ) -> ClaimRequest:
        """Return what may be claimed of what is wanted; takes tokens and slots for it.

        A commit that is made again may have claimed before, and it is unknown what: it keeps what was taken for it the first time.
        """
        asked_for, before = self._asked
        if token == asked_for:
            limits = {lane: min(left, want.limits.get(lane, left)) for lane, left in before.limits.items()}
            return msgspec.structs.replace(want, limits={**want.limits, **limits}, keys=before.keys)
        self.flush(now)
        self._asked = token, (found := self._limited(want, done, leased, now))
        return found

    def _limited(
        self, want: ClaimRequest, done: Sequence[Settlement], leased: Slots, now: float
    ) -> ClaimRequest:
        self.opens = {}
        limits = dict(want.limits)
        for limit, lanes in self._by_limit.values():
            wanted = [lane for lane in lanes if lane in want.lanes and limits.get(lane, want.limit) > 0]
            if wanted:
                meter = self._meter(limit, "")
                # Asked at most once, and only when it matters.
                due = cache(partial(self._due, wanted, done, now))
                # What a cost counts are items, also of a batch that counts calls.
                items = self._items if limit.cost is None else dict.fromkeys(lanes, 1)
                room = -(-want.limit // min(items[lane] for lane in wanted))
                starts = meter.startable(room, self._used(lanes, leased), now, due)
                for lane in wanted:
                    self.opens[lane] = max(meter.opens_at, self.opens.get(lane, -math.inf))
                if starts < room:
                    self._turn += 1
                    served = (due() or wanted) if starts and len(wanted) > 1 else wanted
                    limits |= dict.fromkeys(set(wanted) - set(served), 0)
                    divide(served, starts, limits, self._turn, items)
        if not self.keys.lanes:
            return msgspec.structs.replace(want, limits=limits)
        self.keys.forget_others(leased.jobs())
        taken = self._used_keys(leased.jobs())
        keys = {
            lane: self._keys_for(lane, min(want.limit, limits.get(lane, want.limit)), taken, now)
            for lane in self.keys.lanes
            if lane in want.lanes
        }
        return msgspec.structs.replace(want, limits=limits, keys=keys)

    def _due(self, lanes: list[LaneId], done: Sequence[Settlement], now: float) -> list[LaneId]:
        """Return the lanes with a job that is due, or comes from the stage before, or is tried again, with this commit."""
        due = self._store.upcoming(lanes).due
        coming = {one.lane for one in done}
        return [lane for lane in lanes if lane in coming or due.get(lane, math.inf) <= now]

    def claimed(self, jobs: Sequence[ClaimedJob], *, token: int, now: float) -> list[ClaimedJob]:
        """Count jobs that were claimed, once however often their commit is made; return those that cost too much to start now."""
        if token != self._counted_for:
            self._counted_for, self._counted = token, set()
        new = [job for job in jobs if job.id not in self._counted] if self._counted else jobs
        self._counted.update([job.id for job in new])
        costly: list[ClaimedJob] = []
        for lane, count in Counter([job.lane for job in new]).items():
            limits = self._lanes[lane].stage.limits
            if all(limit.key is None and limit.cost is None for limit in limits):
                calls = count / self._items[lane]
                for limit in limits:
                    self._meter(limit, "").spend(calls, calls=calls)
            else:
                costly += self._count_in_turn([job for job in new if job.lane == lane], now)
        self._counted.difference_update([job.id for job in costly])
        return costly

    def release(self, now: float) -> None:
        """Return unspent tokens and all slots: the worker ends, or continues under another name."""
        self._correct()
        for meter in self._meters.values():
            meter.release(now)

    def _note_refusal(self, limit: Limit, key: str, dispatch: Dispatch, failure: Failure) -> None:
        """Note that a dependency asked to wait, or had too many calls."""
        retry_after = dispatch.lane.stage.retry.retry_after_delay(failure)
        began_at, now = dispatch.started_at, dispatch.ended_at

        def refused(state: LimitState) -> LimitState:
            return step.refused(limit, state, now, started_at=began_at, retry_after=retry_after)

        if failure.category is Category.RATE_LIMIT:
            self._reports.append((limit, key, refused))
        elif retry_after:
            self._reports.append((limit, key, lambda state: step.paused(state, now + retry_after)))

    def _count_in_turn(self, jobs: Sequence[ClaimedJob], now: float) -> Sequence[ClaimedJob]:
        """Count jobs until one does not fit; return it, and those behind it: they must not overtake it for ever.

        Probes first, and all of them fit: while a breaker holds their lane, nothing is reserved for it.
        """
        order = sorted(jobs, key=lambda job: not self._is_probe(job.id))
        for place, job in enumerate(order):
            if not self._count(job, now):
                return order[place:]
        return ()

    def _count(self, job: ClaimedJob, now: float) -> bool:
        """Count a job that is about to start against its limits; return whether it fits into them."""
        lane = self._lanes[job.lane]
        costs: dict[str, float] = {}
        meters: list[tuple[Meter, float]] = []
        for limit in lane.stage.limits:
            key = self._key_of(job, limit)
            if key is None:
                continue
            cost = self._cost(job, lane, limit)
            costs[limit.name] = cost
            meters.append((self._meter(limit, key), cost))
        if not self._is_probe(job.id) and not all(
            meter.limit.cost is None or meter.fits(cost, now) for meter, cost in meters
        ):
            return False
        for meter, cost in meters:
            is_plain = meter.limit.key is None and meter.limit.cost is None
            meter.spend(cost, calls=cost if is_plain else 1.0)
        if any(limit.cost is not None for limit in lane.stage.limits):
            self._costs[job.id] = costs
        return True

    def _cost(self, job: ClaimedJob, lane: Lane, limit: Limit) -> float:
        """Return what a call counts; a function for it that fails is a failure of its job alone."""
        if limit.cost is None:
            return 1.0 / self._items[lane.id]
        try:
            return _checked_cost(limit, limit.cost(lane.stage.input.check(job.input)))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything.
            self._errors[job.id] = error
            return 0.0

    def _keys_for(self, lane: LaneId, room: int, used: Counter[MeterKey], now: float) -> dict[str, int]:
        """Return how many jobs of which keys of a lane may be claimed; each key in its turn, and none more than the others."""
        if room <= 0:
            return {}
        self.keys.mark(lane)
        found = self.keys.upcoming(lane, now)
        fair = -(-room // max(1, len(found)))
        shares: dict[str, Share] = {}
        opens: list[float] = []
        for place, keys in enumerate(found):
            starts, opens_at = self._startable(lane, keys, fair, used, now)
            opens.append(opens_at)
            if starts:
                shares[keys] = Share(0, starts, place)
        given = {keys: count for keys, count in step.divided(room, shares).items() if count}
        opens_at = min([*opens, self._passed.pop(lane, math.inf)])
        if given:
            self.keys.served(lane, list(given)[-1])
            return given
        if self.keys.pass_over(lane):
            self._passed[lane] = opens_at
            opens_at = now + LOOK_SECONDS
        elif not opens and opens_at == math.inf and not self._is_held(lane):
            if not self.keys.is_many(lane):
                return given
            opens_at = now + PASS_SECONDS
        self.opens[lane] = max(opens_at, self.opens.get(lane, -math.inf))
        return given

    def _is_held(self, lane: LaneId) -> bool:
        """Return whether all that waits in a lane is held by the breakers of its keys."""
        breaker = self._lanes[lane].stage.breaker
        return (
            breaker is not None
            and breaker.key is not None
            and self._store.query(worker_sql.is_all_held(lane=lane))[0]
        )

    def _startable(
        self, lane: LaneId, keys: str, room: int, used: Counter[MeterKey], now: float
    ) -> tuple[int, float]:
        """Return how many jobs of a key may start, and from when more may."""
        parts = self.keys.parts(lane, keys)
        room, opens_at = self._probable(lane, parts, room, now)
        for limit in self._lanes[lane].stage.limits:
            if limit.name in parts:
                key = (limit.name, parts[limit.name])
                meter = self._meter(limit, key[1])
                room = min(room, meter.startable(room, used[key], now, lambda: True))
                opens_at = max(opens_at, meter.opens_at)
        return room, opens_at

    def _probable(self, lane: LaneId, parts: Mapping[str, str], room: int, now: float) -> tuple[int, float]:
        """Return how many jobs of a key its breaker lets start, one as its probe; and from when more may, unless they are held."""
        breaker = self._lanes[lane].stage.breaker
        key = None if breaker is None else parts.get(breaker_part(breaker.name))
        if breaker is None or key is None:
            return room, -math.inf
        own = self._breakers.of_key(breaker, key)
        # As others have left it: breakers of keys are only read here.
        self._breakers.change(own, lambda state: state)
        state = self._breakers.standing(own).state
        if state.phase is Phase.CLOSED:
            left = self._breakers.starts_left(own, now)
            return (room, -math.inf) if left >= room else (max(0, int(left)), now)
        opens = breaker_state.opens_at(own, state)
        if breaker.mode == "fail_fast":
            return room, -math.inf
        if opens is None or opens > now:
            return 0, math.inf
        return min(room, 1), now

    def _used(self, lanes: Iterable[LaneId], leased: Slots) -> int:
        """Return how many calls of lanes count as running: each job, or each call of a batch that counts calls."""
        return sum(
            leased.in_use[lane] if self._items[lane] == 1 else leased.gatherings[lane].calls for lane in lanes
        )

    def _used_keys(self, leased: Iterable[ClaimedJob]) -> Counter[MeterKey]:
        used: Counter[MeterKey] = Counter()
        for job in leased:
            for limit in self._lanes[job.lane].stage.limits:
                if limit.key is not None and (key := self.keys.key_of(job.id, limit.name)) is not None:
                    used[limit.name, key] += 1
        return used

    def _key_of(self, job: ClaimedJob, limit: Limit) -> str | None:
        return "" if limit.key is None else self.keys.key_of(job.id, limit.name)

    def _meter(self, limit: Limit, key: str) -> Meter:
        meter = self._meters.get((limit.name, key))
        if meter is None:
            meter = self._meters[limit.name, key] = Meter(self._store, limit, key, worker=self._worker)
        return meter

    def _keep_up(self, now: float) -> None:
        """Return unspent tokens, and forget unused keys."""
        for meter in self._meters.values():
            meter.settle_up(now)
        if len(self._meters) > METERS_MAX:
            self._meters = {key: meter for key, meter in self._meters.items() if not meter.is_idle}
        if self.keys.lanes and now >= self._kept_up_at + UPKEEP_SECONDS:
            self._kept_up_at = now
            self._store.apply(worker_sql.drop_old_limits(before=now - FORGET_SECONDS))
            self._breakers.forget_idle(now)


def divide(
    lanes: Sequence[LaneId],
    starts: int,
    limits: dict[LaneId, int],
    turn: int,
    items: Mapping[LaneId, int] | None = None,
) -> None:
    """Divide starts among lanes, as lower limits; what cannot be divided goes to another lane each turn.

    `items` is how many jobs of a lane one start is for; 1 by default.
    """
    for place, lane in enumerate(lanes):
        share = starts // len(lanes) + ((place + turn) % len(lanes) < starts % len(lanes))
        share *= 1 if items is None else items[lane]
        limits[lane] = min(share, limits.get(lane, share))


def _checked_cost(limit: Limit, given: object) -> float:
    cost = number(given)
    if cost is None or cost < 0:
        raise ConfigurationError(
            field=f"Limit({limit.name}).cost",
            value=given,
            rule="must return a number of at least 0",
            fix="Estimate it from the input: len(text) / 4, for example.",
        )
    return cost
