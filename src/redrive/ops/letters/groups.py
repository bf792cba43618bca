# SPDX-License-Identifier: Apache-2.0
"""Dead letters by their cause: one group for each fingerprint, however many letters it has.

Which letters of them are meant, and how many, is told by `letter_counts`; one of each group is looked at, as a sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, cast

from redrive.core.diagnosis import suggested_diagnosis
from redrive.core.fingerprint import VERSION
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError
from redrive.ops.jobs.advice import Hints
from redrive.ops.jobs.inspect import instant
from redrive.ops.letters.counts import LetterCounts
from redrive.ops.letters.pages import lines_of, pairs_of
from redrive.store.protocol import Store, listed

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
    """The dead letters of one fingerprint, as far as they were asked for."""

    fingerprint: str
    states: dict[str, int]
    """How many letters are in each state."""
    pending: int
    """How many of them wait for somebody: open, triaged or ready."""
    taken: int
    """How many of those a live replay has taken."""
    first_at: datetime
    last_at: datetime
    """When the first and the last letter of the whole group failed."""
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

    Counts, the sample and the order are of the letters that the filter means; when a group was first and last seen, and its
    trend, are of the whole group. By owner, key or ids, it costs as much as there are letters of theirs.
    """
    counts = LetterCounts(store, which)
    by_cause: dict[str, list[_Lane]] = {}
    for lane in _lanes(store, counts.states):
        by_cause.setdefault(lane.fingerprint, []).append(lane)
    counted = {cause: _summed(counts.states[lane.id] for lane in same) for cause, same in by_cause.items()}
    order = sorted(
        by_cause,
        key=lambda cause: (-_pending(counted[cause]), -max(lane.last_at for lane in by_cause[cause]), cause),
    )[:limit]
    return _told(store, {cause: by_cause[cause] for cause in order}, counted, counts)


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
    store: Store, causes: dict[str, list[_Lane]], counted: dict[str, dict[str, int]], counts: LetterCounts
) -> list[LetterGroup]:
    """Return the groups with all that is known about them."""
    ids = [lane.id for lanes in causes.values() for lane in lanes]
    newest = counts.newest(ids)
    trends = _trends(store, ids)
    samples = {
        cause: max(newest.heads.get(lane.id, (0.0, 0)) for lane in lanes)[1]
        for cause, lanes in causes.items()
    }
    messages = {line.id: line.message for line in lines_of(store, list(samples.values()))}
    hints = Hints(store)
    return [
        LetterGroup(
            fingerprint=cause,
            states=counted[cause],
            pending=_pending(counted[cause]),
            taken=sum(newest.taken[lane.id] for lane in lanes),
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
    return [_Lane(*row) for row in store.query("letter_groups", listed(sorted(ids)))]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the columns have these types.


def _trends(store: Store, ids: Sequence[int]) -> dict[int, list[int]]:
    """Return the letters of each group in the last hours, oldest first."""
    last = int(CURRENT.get().clock.wall() // 3600)
    hours = {group: [0] * HOURS for group in ids}
    for group, hour, letters in cast(
        "list[tuple[int, int, int]]", store.query("group_trend", listed(ids), last - HOURS)
    ):
        # A letter of a clock that is ahead of ours belongs to the last hour we know.
        hours[group][min(hour, last) - last - 1] += letters
    return hours


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
