# SPDX-License-Identifier: Apache-2.0
"""Limits by hand: list them, set other numbers, pause and resume one; and which work waits for one.

A change is a compare-and-swap against the workers' own, with its line of the operator log in the same transaction; workers see it
with their next commit. Of the configuration of a limit only what workers have recorded is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from redrive.core import limit_state as step
from redrive.core.arguments import text, whole
from redrive.core.limit import Limit, check_burst, parse_rate, rate_text
from redrive.core.limit_state import LimitState
from redrive.core.units import instant
from redrive.engine.limits.meter import DECODE_LIMIT, ENCODE_LIMIT
from redrive.engine.replay.rules import KnownLimit, limits_in_use
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError, StoreUnavailableError
from redrive.ops.audit import Actor, Subject
from redrive.ops.suggest import unknown
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.statements import workers as worker_sql
from redrive.store.steps import SWAPS_MAX, limit_swap


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFacts:
    """One limit, or one key of it, as the workers share it."""

    name: str
    key: str
    """Empty for a limit without keys, and for what holds for all of them."""
    rate: str | None
    """As it is now: set by hand, learned, or as the code says; None for a limit of concurrency alone."""
    burst: float | None
    tokens: float | None
    """What may be spent at once now; below zero when more is reserved than there is."""
    concurrency: int | None
    slots: int
    """How many slots workers have taken."""
    status: str
    """`open`, `paused` (by hand) or `waiting` (as the dependency asked)."""
    until: datetime | None
    """Until when the dependency asked to wait."""
    refused_at: datetime | None
    """When the dependency last refused a call because there were too many."""
    is_set: bool
    """Whether an operator has overridden the numbers of the code."""

    @property
    def title(self) -> str:
        """The name, with the key if it is about one."""
        return f"{self.name} for {self.key}" if self.key else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedWork:
    """The jobs of one stage that are queued while one of its limits lets none of them start."""

    pipeline: str
    stage: str
    jobs: int
    limit: str
    why: str
    until: datetime | None


def limits(store: Reader) -> list[LimitFacts]:
    """Return the limits that workers have recorded or used, by name and key."""
    now, known = CURRENT.get().clock.wall(), _known(store)
    rows = {(row.name, row.key): DECODE_LIMIT(row.state) for row in store.query(worker_sql.limits())}
    for name in known:
        rows.setdefault((name, ""), LimitState())
    return [_facts_of(name, key, rows[name, key], known.get(name), now) for name, key in sorted(rows)]


def set_limit(
    store: Store,
    name: str,
    *,
    by: Actor,
    key: str = "",
    rate: str | float | None = None,
    burst: float | None = None,
    concurrency: int | None = None,
) -> LimitFacts:
    """Override the numbers of the code until they are set again; without any number, use those of the code again."""
    where = f"limit {name}"
    per_second = None if rate is None else parse_rate(f"{where}.rate", rate)
    if burst is not None:
        check_burst(where, burst)
    if concurrency is not None:
        whole(
            f"{where}.concurrency", concurrency, minimum=1, fix="To let nothing start: redrive limit pause."
        )

    def changed(state: LimitState) -> LimitState:
        return replace(state, rate=per_second, burst=burst, concurrency=concurrency)

    return _change(store, name, key, by, verb="set", change=changed)


def pause(store: Store, name: str, by: Actor, *, key: str = "") -> LimitFacts:
    """Let no job of a limit start until it is resumed."""
    return _change(store, name, key, by, verb="pause", change=lambda state: replace(state, is_paused=True))


def resume(store: Store, name: str, by: Actor, *, key: str = "") -> LimitFacts:
    """Let the jobs of a limit start again, also if the dependency had asked to wait."""
    now = CURRENT.get().clock.wall()

    def resumed(state: LimitState) -> LimitState:
        return replace(state, is_paused=False, paused_until=None, at=min(state.at, now))

    return _change(store, name, key, by, verb="resume", change=resumed)


def limited_work(store: Reader, queued: Mapping[tuple[str, str], int]) -> list[LimitedWork]:
    """Return which of the queued jobs, counted by pipeline and stage, wait for a limit, why, and until when."""
    shut = {
        each.name: found for each in limits(store) if not each.key and (found := _obstacle(each)) is not None
    }
    return [
        LimitedWork(pipeline=pipeline, stage=stage, jobs=jobs, limit=known.name, why=why, until=until)
        for pipeline, known in (limits_in_use(store) if shut else ())
        if known.name in shut
        for why, until in (shut[known.name],)
        for stage in known.stages
        if (jobs := queued.get((pipeline, stage), 0))
    ]


def waits_of(store: Reader, job: int, pipeline: str, stage: str) -> list[str]:
    """Return for which limits a queued job waits, and why, in words."""
    rows = store.query(worker_sql.key_of_job(job=job))
    keys = _keys_in(*rows[0]) if rows else {}
    mine = {
        (known.name, keys.get(known.name, "") if known.has_keys else "")
        for name, known in limits_in_use(store)
        if name == pipeline and stage in known.stages
    }
    found = ((each, _obstacle(each)) for each in limits(store) if (each.name, each.key) in mine)
    return [f"limit {each.title}, which {obstacle[0]}" for each, obstacle in found if obstacle is not None]


def _obstacle(facts: LimitFacts) -> tuple[str, datetime | None] | None:
    """Return why a limit lets nothing start now, and until when; None if it does."""
    if facts.status == "paused":
        return "is paused by hand", None
    if facts.until is not None:
        return f"is paused until {facts.until:%H:%M:%S} UTC, as the dependency asked", facts.until
    if facts.tokens is not None and facts.tokens < 1:
        return f"has no tokens left at {facts.rate}", None
    if facts.concurrency is not None and facts.slots >= facts.concurrency:
        return f"has all {facts.concurrency} slots in use", None
    return None


def _change(
    store: Store, name: str, key: str, by: Actor, *, verb: str, change: Callable[[LimitState], LimitState]
) -> LimitFacts:
    """Change the state of a limit by compare-and-swap, with its line in the operator log."""
    if key:
        text("key", key, fix="What the key function of the limit returns.")
    known, log = _known(store), by.log(verb, Subject("limit", name))
    for _ in range(SWAPS_MAX):
        before = _state_of(store, name, key, known)
        now = CURRENT.get().clock.wall()
        after = change(LimitState() if before is None else DECODE_LIMIT(before))
        raw = ENCODE_LIMIT(after)
        if store.apply(limit_swap(name, key, before=before, after=raw, now=now), log) is not None:
            return _facts_of(name, key, after, known.get(name), now)
    raise StoreUnavailableError(
        database=f"limit {name}", cause=f"somebody else changed it {SWAPS_MAX} times in a row"
    )


def known_limit(store: Store, name: str, key: str) -> None:
    """Refuse a name that no limit has, and a key of one that has none."""
    _state_of(store, name, key, _known(store))


def _state_of(store: Store, name: str, key: str, known: Mapping[str, KnownLimit]) -> bytes | None:
    """Return the stored state of a limit; None if it has none yet."""
    rows = store.query(worker_sql.limit(name=name, key=key))
    if not rows and name not in known:
        names = sorted({each.name for each in limits(store)})
        raise unknown(name, names, kind="limit", otherwise="No worker has used a limit yet.")
    if key and name in known and not known[name].has_keys:
        raise ConfigurationError(field=f"limit {name}", value=key, rule="has no keys", fix="Leave out --key.")
    return rows[0] if rows else None


def _facts_of(name: str, key: str, state: LimitState, known: KnownLimit | None, now: float) -> LimitFacts:
    limit = _limit_of(name, state, known)
    rate = step.rate_of(limit, state, now)
    until = state.paused_until if state.paused_until is not None and state.paused_until > now else None
    return LimitFacts(
        name=name,
        key=key,
        rate=None if rate is None else rate_text(rate),
        burst=None if rate is None else round(step.burst_of(limit, state, now), 1),
        tokens=None if rate is None else round(step.available(limit, state, now), 1),
        concurrency=step.concurrency_of(limit, state),
        slots=sum(share.slots for share in state.shares.values()),
        status="paused" if state.is_paused else "open" if until is None else "waiting",
        until=None if until is None else instant(until),
        refused_at=None if state.refused_at is None else instant(state.refused_at),
        is_set=(state.rate, state.burst, state.concurrency) != (None, None, None),
    )


def _limit_of(name: str, state: LimitState, known: KnownLimit | None) -> Limit:
    """Return a limit as its code defines it; one that no worker has recorded is known by what was set."""
    if known is None:
        return Limit(
            name, rate=state.rate, concurrency=state.concurrency if state.rate else state.concurrency or 1
        )
    return Limit(
        name,
        rate=known.rate,
        burst=known.burst,
        concurrency=known.concurrency,
        adaptive=known.is_adaptive,
    )


def _known(store: Reader) -> dict[str, KnownLimit]:
    return {limit.name: limit for _, limit in limits_in_use(store)}


def _keys_in(keys: str | None, keyed_by: str | None) -> dict[str, str]:
    try:
        names, values = (msgspec.json.decode(each or "[]", type=list[str]) for each in (keyed_by, keys))
    except msgspec.DecodeError:
        return {}
    return dict(zip(names, values, strict=False))
