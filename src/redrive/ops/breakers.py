# SPDX-License-Identifier: Apache-2.0
"""Breakers by hand: list them, open one, close it, or isolate it until it is closed again.

A change is a compare-and-swap against the workers' own, with its line of the operator log in the same transaction; workers see it
with their next commit, an idle one at once. Of the configuration of a breaker only what workers have recorded is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import msgspec

from redrive.core.arguments import text
from redrive.core.breaker_state import BreakerState, Phase, closed, isolated, opened
from redrive.core.decoding import prepare
from redrive.core.units import instant
from redrive.engine.delivery.messages import breaker_members
from redrive.engine.replay.rules import KnownBreaker, breakers_in_use, known_breakers
from redrive.engine.runtime import CURRENT
from redrive.errors import StoreUnavailableError
from redrive.ops.audit import Actor, Subject
from redrive.ops.suggest import unknown
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.records import PhaseChange, Step
from redrive.store.statements import operations as operation_sql
from redrive.store.statements import workers as worker_sql
from redrive.store.statements.workers import StoredChange
from redrive.store.steps import SWAPS_MAX, breaker_change, breaker_swap

Verb = Literal["open", "close", "isolate"]

_MOVES: Final[dict[Verb, Callable[[float], BreakerState]]] = {
    "open": opened,
    "close": closed,
    "isolate": isolated,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerFacts:
    """One breaker, as the workers share it."""

    name: str
    phase: str
    """closed, open, half_open or isolated."""
    changed_at: datetime | None
    failures: int
    """In a row, until it closes."""
    probe_at: datetime | None
    """Since when a probe has been running."""
    next_probe_at: datetime | None
    """When the next probe may start, unless it is closed or isolated; None if no worker has recorded the breaker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerEvent(StoredChange):
    """One change of a breaker's phase, and what it means."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldWork:
    """The jobs of one stage that are queued while its breaker lets none of them start."""

    pipeline: str
    stage: str
    jobs: int
    breaker: str
    phase: str
    since: datetime | None
    next_probe_at: datetime | None


def held_work(store: Reader, queued: Mapping[tuple[str, str], int]) -> list[HeldWork]:
    """Return which of the queued jobs, counted by pipeline and stage, are held, since when, and by which breaker."""
    shut = {each.name: each for each in breakers(store) if each.phase != Phase.CLOSED}
    return [
        HeldWork(
            pipeline=pipeline,
            stage=stage,
            jobs=jobs,
            breaker=known.name,
            phase=facts.phase,
            since=facts.changed_at,
            next_probe_at=facts.next_probe_at,
        )
        for pipeline, known in (breakers_in_use(store) if shut else ())
        if (facts := shut.get(known.name)) is not None
        for stage in known.stages
        if (jobs := queued.get((pipeline, stage), 0))
    ]


def breakers(store: Reader) -> list[BreakerFacts]:
    """Return the breakers that have seen a failure, or were moved by hand, by name."""
    known = known_breakers(store)
    return [_facts_of(row.name, row.state, known) for row in store.query(worker_sql.breakers())]


def move(store: Store, name: str, verb: Verb, by: Actor, *, is_new: bool = False) -> BreakerFacts:
    """Open, close or isolate a breaker; `is_new` allows a name that no worker has stored yet.

    Jobs that are held for a breaker are due as soon as it is closed; while it ramps, workers start few of them at a time.
    """
    for _ in range(SWAPS_MAX):
        before = store.breaker(name)
        if before is None and not is_new:
            known_breaker(store, name)
        if before is None:
            text("breaker", name, fix="Use its name in the pipeline code.")
        now = CURRENT.get().clock.wall()
        state = _MOVES[verb](now)
        after = msgspec.json.encode(state)
        act = by.line(verb, Subject("breaker", name))
        swap = breaker_swap(name, before=before, after=after)
        steps: list[Step] = [swap, operation_sql.log(act=act), *_change_of(name, before, state, act)]
        if verb == "close":
            steps.append(worker_sql.release_held(now=now, breaker=name))
        if store.apply(*steps) is not None:
            return _facts_of(name, after, known_breakers(store))
    raise StoreUnavailableError(
        database=f"breaker {name}", cause=f"somebody else changed it {SWAPS_MAX} times in a row"
    )


def known_breaker(store: Store, name: str) -> None:
    """Refuse a name that no breaker has."""
    if store.breaker(name) is None:
        known = [each.name for each in breakers(store)]
        raise unknown(name, known, kind="breaker", otherwise="No breaker has seen a failure yet.")


def _change_of(name: str, raw: bytes | None, after: BreakerState, act: operation_sql.Act) -> list[Step]:
    """Return the step that records a change of phase by hand; none if the breaker was in that phase."""
    before = BreakerState() if raw is None else msgspec.json.decode(raw, type=BreakerState)
    if before.phase is after.phase:
        return []
    change = PhaseChange(
        at=act.at,
        breaker=name,
        before=before.phase,
        after=after.phase,
        cause="operator",
        actor=act.actor,
        reason=act.reason,
    )
    return [breaker_change(change)]


def breaker_changes(
    store: Reader, *, after: int | None = None, pipeline: str | None = None, limit: int = 50
) -> list[BreakerEvent]:
    """Return changes of breakers, oldest first: those after the one with this id, or else the latest ones."""
    if after is not None:
        rows = store.query(worker_sql.breaker_changes(after=after, pipeline=pipeline, limit=limit))
    else:
        rows = store.query(worker_sql.latest_breaker_changes(pipeline=pipeline, limit=limit))[::-1]
    return [msgspec.convert(breaker_members(row), BreakerEvent) for row in rows]


def last_breaker_change(store: Reader) -> int:
    """Return where the changes of breakers end now."""
    return store.query(worker_sql.last_breaker_change())[0]


def _facts_of(name: str, raw: bytes, known: Mapping[str, KnownBreaker]) -> BreakerFacts:
    state = msgspec.json.decode(raw, type=BreakerState)
    recorded = known.get(name) or _of_all_keys(name, known)
    return BreakerFacts(
        name=name,
        phase=state.phase.value,
        changed_at=None if state.changed_at is None else instant(state.changed_at),
        failures=state.failures,
        probe_at=None if state.probe is None else instant(state.probe.taken_at),
        next_probe_at=_next_probe_at(state, recorded),
    )


def _of_all_keys(name: str, known: Mapping[str, KnownBreaker]) -> KnownBreaker | None:
    """Return what workers recorded about the breaker with keys that this one is of a key of; names and keys may have brackets."""
    of_key = [each for each in known if name.startswith(f"{each}[")]
    return known[max(of_key, key=len)] if of_key else None


def _next_probe_at(state: BreakerState, known: KnownBreaker | None) -> datetime | None:
    if known is None or state.changed_at is None or state.phase not in {Phase.OPEN, Phase.HALF_OPEN}:
        return None
    if state.phase is Phase.OPEN:
        return instant(state.changed_at + known.open_for)
    return instant(state.changed_at if state.probe is None else state.probe.taken_at + known.probe_timeout)


prepare(BreakerState, BreakerEvent)
