# SPDX-License-Identifier: Apache-2.0
"""Dead letters by their cause: one group for each fingerprint, however many letters it has.

Everything is read from counters that the store keeps with every letter; letters themselves are not counted, and only one of each
group is looked at, as a sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, cast

import msgspec

from redrive.core.diagnosis import suggested_diagnosis
from redrive.core.fingerprint import VERSION
from redrive.engine.runtime import CURRENT
from redrive.engine.selection import LetterFilter
from redrive.errors import ConfigurationError
from redrive.ops.advice import Hints
from redrive.ops.inspect import instant
from redrive.ops.letter_pages import Pair, lines_of, pairs_of
from redrive.store.protocol import Store

HOURS: Final = 24
RISING: Final = 1.5
"""The later half of the hours has so many times the letters of the earlier half."""
NEAR_MAX: Final = 5
PENDING: Final = frozenset({"open", "triaged", "ready"})
"""States of letters that still wait for somebody."""

Direction = Literal["rising", "falling", "steady", "quiet"]


@dataclass(frozen=True, slots=True)
class Trend:
    """How many letters came in each of the last hours, oldest first, and where that goes."""

    hours: Sequence[int]
    word: Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterGroup:
    """All dead letters of one fingerprint."""

    fingerprint: str
    states: dict[str, int]
    """How many letters are in each state."""
    pending: int
    """How many of them wait for somebody: open, triaged or ready."""
    taken: int
    """How many of those a live campaign has taken."""
    first_at: datetime
    last_at: datetime
    trend: Trend
    pipelines: Sequence[str]
    stages: Sequence[str]
    code: str
    category: str
    error_class: str
    sample: int
    """The newest letter."""
    message: str
    """What that one says; redacted."""
    diagnosis: str
    """What it probably is, by the taxonomy; what an operator found is recorded with each letter."""
    hint: str

    @property
    def letters(self) -> int:
        """How many letters there are in all."""
        return sum(self.states.values())


@dataclass(frozen=True, slots=True)
class _Lane:
    """A group's row for one lane."""

    id: int
    fingerprint: str
    pipeline: str
    stage: str
    code: str
    category: str
    error_class: str
    first_at: float
    last_at: float


def groups(store: Store, which: LetterFilter, *, limit: int | None = None) -> list[LetterGroup]:
    """Return groups, those with the most pending letters first.

    A filter by time means groups that were seen in it, one by state those that have a letter in it; counts are those of the whole
    group. What only letters know (owner, key, ids) cannot be asked for here.
    """
    if not (which.owner is None and which.key is None and which.ids is None):
        raise ConfigurationError(
            field="groups",
            value=which,
            rule="cannot be chosen by owner, key or ids",
            fix="List the letters instead; each names its group.",
        )
    pairs = pairs_of(store, msgspec.structs.replace(which, state=None))
    states: dict[int, dict[str, int]] = {}
    for pair in pairs:
        states.setdefault(pair.group, {})[pair.state] = pair.letters
    wanted = [group for group, counts in states.items() if which.state is None or which.state in counts]
    lanes = [lane for lane in _lanes(store, wanted) if _is_seen(lane, which)]
    by_cause: dict[str, list[_Lane]] = {}
    for lane in lanes:
        by_cause.setdefault(lane.fingerprint, []).append(lane)
    counted = {cause: _summed(states[lane.id] for lane in same) for cause, same in by_cause.items()}
    order = sorted(
        by_cause,
        key=lambda cause: (-_pending(counted[cause]), -max(lane.last_at for lane in by_cause[cause]), cause),
    )[:limit]
    return _told(store, {cause: by_cause[cause] for cause in order}, counted, pairs)


def resolve_group(store: Store, prefix: str) -> str:
    """Return the fingerprint that begins like this, with or without its version; refuse what fits none, or several."""
    start = prefix.strip().lower()
    if start and ":" not in start and not (f"{VERSION}:").startswith(start):
        start = f"{VERSION}:{start}"
    found = _beginning(store, start, 2) if _is_prefix(start) else []
    if start in found or len(found) == 1:
        return found[0]
    if found:
        several = _beginning(store, start, NEAR_MAX)
        raise ConfigurationError(
            field="group",
            value=prefix,
            rule="is the beginning of several groups",
            fix=f"Give more of it: {', '.join(several)}.",
        )
    near = _nearest(store, start)
    raise ConfigurationError(
        field="group",
        value=prefix,
        rule="is not known here",
        fix=f"Near it are: {', '.join(near)}." if near else "There is no dead letter in this database.",
    )


def known_codes(store: Store) -> list[str]:
    """Return every code that a dead letter has."""
    return sorted(
        {lane.code for lane in _lanes(store, {pair.group for pair in pairs_of(store, LetterFilter())})}
    )


def fingerprints(store: Store, start: str = "", limit: int = 500) -> list[str]:
    """Return the fingerprints that begin like this."""
    return _beginning(store, start, limit)


def trend_of(hours: Sequence[int]) -> Trend:
    """Return letters by hour, oldest first, with a word for where they go."""
    half = len(hours) // 2
    before, after = sum(hours[:half]), sum(hours[half:])
    word: Direction = "steady"
    if not before + after:
        word = "quiet"
    elif after > RISING * before:
        word = "rising"
    elif before > RISING * after:
        word = "falling"
    return Trend(tuple(hours), word)


def _told(
    store: Store, causes: dict[str, list[_Lane]], counted: dict[str, dict[str, int]], pairs: Sequence[Pair]
) -> list[LetterGroup]:
    """Return the groups with all that is known about them."""
    ids = [lane.id for lanes in causes.values() for lane in lanes]
    wanted = set(ids)
    of_pairs = _json([(pair.group, pair.state) for pair in pairs if pair.group in wanted])
    heads: dict[int, tuple[float, int]] = {}
    for group, at, letter in cast("list[tuple[int, float, int]]", store.query("letter_heads", of_pairs)):
        heads[group] = max(heads.get(group, (at, letter)), (at, letter))
    taken = dict(cast("list[tuple[int, int]]", store.query("taken_letters", _json(ids))))
    trends = _trends(store, ids)
    samples = {
        cause: max(heads.get(lane.id, (0.0, 0)) for lane in lanes)[1] for cause, lanes in causes.items()
    }
    messages = {line.id: line.message for line in lines_of(store, list(samples.values()))}
    hints = Hints(store)
    return [
        LetterGroup(
            fingerprint=cause,
            states=counted[cause],
            pending=_pending(counted[cause]),
            taken=sum(taken.get(lane.id, 0) for lane in lanes),
            first_at=instant(min(lane.first_at for lane in lanes)),
            last_at=instant(max(lane.last_at for lane in lanes)),
            trend=trend_of([sum(hour) for hour in zip(*(trends[lane.id] for lane in lanes), strict=True)]),
            pipelines=sorted({lane.pipeline for lane in lanes}),
            stages=sorted({lane.stage for lane in lanes}),
            code=lanes[0].code,
            category=lanes[0].category,
            error_class=lanes[0].error_class,
            sample=samples[cause],
            message=messages.get(samples[cause], ""),
            diagnosis=suggested_diagnosis(lanes[0].category, lanes[0].code),
            hint=hints.about(lanes[0].pipeline, lanes[0].stage, lanes[0].code, lanes[0].category),
        )
        for cause, lanes in causes.items()
    ]


def _lanes(store: Store, ids: Iterable[int]) -> list[_Lane]:
    return [_Lane(*row) for row in store.query("letter_groups", _json(sorted(ids)))]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the columns have these types.


def _trends(store: Store, ids: Sequence[int]) -> dict[int, list[int]]:
    """Return the letters of each group in the last hours, oldest first."""
    last = int(CURRENT.get().clock.wall() // 3600)
    hours = {group: [0] * HOURS for group in ids}
    for group, hour, letters in cast(
        "list[tuple[int, int, int]]", store.query("group_trend", _json(ids), last - HOURS)
    ):
        # A letter of a clock that is ahead of ours belongs to the last hour we know.
        hours[group][min(hour, last) - last - 1] += letters
    return hours


def _is_seen(lane: _Lane, which: LetterFilter) -> bool:
    return (which.since is None or lane.last_at >= which.since) and (
        which.until is None or lane.first_at < which.until
    )


def _summed(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for state, letters in part.items():
            total[state] = total.get(state, 0) + letters
    return total


def _pending(states: dict[str, int]) -> int:
    return sum(letters for state, letters in states.items() if state in PENDING)


def _nearest(store: Store, start: str) -> list[str]:
    """Return groups that share as much of their beginning as any does."""
    for length in range(len(start), -1, -1):
        is_askable = not length or _is_prefix(start[:length])
        if is_askable and (near := _beginning(store, start[:length], NEAR_MAX)):
            return near
    return []


def _is_prefix(text: str) -> bool:
    return re.fullmatch(r"[a-z0-9:]+", text) is not None


def _beginning(store: Store, start: str, limit: int) -> list[str]:
    return [str(row[0]) for row in store.query("fingerprints", start, f"{start}\U0010ffff", limit)]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
