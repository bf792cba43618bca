# SPDX-License-Identifier: Apache-2.0
"""Dead letters by their cause: one group for each fingerprint, however many letters it has.

Counts by group and state alone come from the counters. A time span is counted in an index, and only in groups that reach beyond it.
What only letters have (owner, key, run, ids, assignee, escalation) takes a look at each of them. One letter of each group is read,
as a sample.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import msgspec

from redrive.core.diagnosis import suggested_diagnosis
from redrive.core.fingerprint import VERSION
from redrive.core.units import instant
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError, UnknownNameError
from redrive.ops.jobs.next_steps import Hints
from redrive.ops.letters.pages import EARLIEST, LATEST, Position, pairs_of, positions_of, span_of
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.statements import letters as letter_sql
from redrive.store.statements.letters import Pair

HOURS: Final = 24
RISING: Final = 1.5
"""A trend is rising if the later half of the hours has so many times the letters of the earlier half."""
NEAR_MAX: Final = 5
CLOCKS_SECONDS: Final = 86_400.0
"""With a slow clock, a letter may have failed before the first one that came; by at most this."""
PENDING: Final = frozenset({"open", "triaged", "ready"})
"""States of letters that still need an operator."""

Direction = Literal["rising", "falling", "steady", "quiet", "ended"]
"""Quiet: none of late. Ended: none of the group is pending any more."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How many letters came in each of the last hours, oldest first, and the trend."""

    hours: Sequence[int]
    word: Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterGroup:
    """The dead letters of one fingerprint that match the filter."""

    fingerprint: str
    states: dict[str, int]
    """How many letters are in each state."""
    pending: int
    """How many of them need an operator: open, triaged or ready."""
    taken: int
    """How many of those a live replay has marked."""
    first_at: datetime
    last_at: datetime
    """When the first and the last letter of the whole group failed."""
    trend: Trend
    pipelines: Sequence[str]
    stages: Sequence[str]
    code: str
    category: str
    exception: str
    sample: int
    """The newest letter."""
    message: str
    """The message of that one; redacted."""
    diagnosis: str
    """The suggested diagnosis; what an operator found is recorded with each letter."""
    hint: str

    @property
    def letters(self) -> int:
        """How many letters there are in all."""
        return sum(self.states.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage:
    """The first groups, and how many there are in all."""

    groups: Sequence[LetterGroup]
    total: int


class LetterCounts:
    """The letters that match a filter, counted by group and state."""

    def __init__(self, store: Reader, which: LetterFilter) -> None:
        self._store = store
        self._which = which
        self._is_by_counters = msgspec.structs.replace(which, since=None, until=None).is_by_group
        self.states: dict[int, dict[str, int]] = {}
        """For each group, how many of its matching letters are in each state."""
        self.heads: dict[int, Position] = {}
        """For each group whose newest letter was read, the position of that one."""
        self.taken: Counter[int] = Counter()
        """For each such group, how many of its matching letters a replay has marked."""
        for pair in self._by_pairs() if self._is_by_counters else self._by_letters():
            self.states.setdefault(pair.group, {})[pair.state] = pair.letters

    def read_newest(self, groups: Sequence[int]) -> None:
        """Read the newest letter and the taken ones of some groups, unless all were looked at; only for those shown."""
        if not self._is_by_counters:
            return
        pairs = [(group, state) for group in groups for state in self.states[group]]
        since, until = span_of(self._which)
        for group, at, letter in self._store.query(
            letter_sql.letter_heads(pairs=pairs, since=since, until=until)
        ):
            # It was pruned since it was counted.
            if at is not None and letter is not None:
                self.heads[group] = max(self.heads.get(group, (at, letter)), (at, letter))
        for group, letters in self._taken(groups):
            self.taken[group] += letters

    def _by_pairs(self) -> list[Pair]:
        pairs = pairs_of(self._store, self._which)
        if self._which.since is None and self._which.until is None:
            return pairs
        lower, upper = span_of(self._which)
        # Groups that lie in the span as a whole are counted already.
        rows = _lanes(self._store, {pair.group for pair in pairs})
        spans = {row.id: (row.first_at, row.last_at) for row in rows}
        counted: list[Pair] = []
        partly: list[tuple[int, str]] = []
        for pair in pairs:
            first, last = spans.get(pair.group, (EARLIEST, LATEST))
            if lower <= first - CLOCKS_SECONDS and last < upper:
                counted.append(pair)
            elif last >= lower:
                partly.append((pair.group, pair.state))
        if partly:
            counted += self._store.query(letter_sql.count_in_span(pairs=partly, since=lower, until=upper))
        return [pair for pair in counted if pair.letters]

    def _by_letters(self) -> list[Pair]:
        counts: Counter[tuple[int, str]] = Counter()
        for page in positions_of(self._store, self._which):
            rows = self._store.query(letter_sql.count_named_by_group(ids=[letter for _, letter in page]))
            for group, state, letters, taken, at, letter in rows:
                counts[group, state] += letters
                self.taken[group] += taken
                self.heads[group] = max(self.heads.get(group, (at, letter)), (at, letter))
        return [Pair(group, state, letters) for (group, state), letters in counts.items()]

    def _taken(self, groups: Sequence[int]) -> list[letter_sql.GroupCount]:
        which, named = self._which, list(groups)
        rows = self._store.query(letter_sql.taken_letters(groups=named, state=which.state))
        if not rows or (which.since is None and which.until is None):
            return rows
        since, until = span_of(self._which)
        return self._store.query(
            letter_sql.taken_in_span(groups=named, state=which.state, since=since, until=until)
        )


def list_groups(store: Store, which: LetterFilter, *, limit: int | None = None) -> GroupPage:
    """Return groups as they are at one moment, at most `limit`, those with the most pending letters first.

    Counts, the sample and the order are of the letters that match; when a group was first and last seen, and its trend, are of the
    whole group. By owner, key or ids, the cost grows with the number of their letters.
    """
    with store.reading() as moment:
        counts = LetterCounts(moment, which)
        by_cause: dict[str, list[letter_sql.GroupRow]] = {}
        counted: dict[str, Counter[str]] = {}
        for lane in _lanes(moment, counts.states):
            by_cause.setdefault(lane.fingerprint, []).append(lane)
            counted.setdefault(lane.fingerprint, Counter()).update(counts.states[lane.id])

        def rank(cause: str) -> tuple[float, float, str]:
            return -_pending(counted[cause]), -max(lane.last_at for lane in by_cause[cause]), cause

        order = sorted(by_cause, key=rank)[:limit]
        found = _described(moment, {cause: by_cause[cause] for cause in order}, counted, counts)
    return GroupPage(groups=found, total=len(by_cause))


def resolve_group(store: Reader, prefix: str) -> str:
    """Return the fingerprint with this prefix, with or without its version; refuse a prefix of none, or of several."""
    start = prefix.strip().lower()
    if start and ":" not in start and not (f"{VERSION}:").startswith(start):
        start = f"{VERSION}:{start}"
    found = fingerprints(store, start, 2) if _is_prefix(start) else []
    if start in found or len(found) == 1:
        return found[0]
    if found:
        several = fingerprints(store, start, NEAR_MAX)
        raise ConfigurationError(
            field="group",
            value=prefix,
            rule="is the prefix of several groups",
            fix=f"Give more of it: {', '.join(several)}.",
        )
    near = _nearest(store, start)
    raise UnknownNameError(
        field="group",
        value=prefix,
        rule="is not known here",
        fix=f"Close to it are: {', '.join(near)}." if near else "There are no dead letters in this database.",
    )


def known_codes(store: Reader) -> list[str]:
    """Return the codes of all dead letters."""
    return sorted(
        {lane.code for lane in _lanes(store, {pair.group for pair in pairs_of(store, LetterFilter())})}
    )


def fingerprints(store: Reader, start: str = "", limit: int = 500) -> list[str]:
    """Return the fingerprints with this prefix."""
    return store.query(letter_sql.fingerprints(first=start, end=f"{start}\U0010ffff", limit=limit))


def trend_of(hours: Sequence[int], *, is_ended: bool = False) -> Trend:
    """Return the trend of letters by hour, oldest first."""
    half = len(hours) // 2
    before, after = sum(hours[:half]), sum(hours[half:])
    word: Direction = "steady"
    if is_ended:
        word = "ended"
    elif not before + after:
        word = "quiet"
    elif after > RISING * before:
        word = "rising"
    elif before > RISING * after:
        word = "falling"
    return Trend(tuple(hours), word)


def _described(
    store: Reader,
    causes: dict[str, list[letter_sql.GroupRow]],
    counted: dict[str, Counter[str]],
    counts: LetterCounts,
) -> list[LetterGroup]:
    ids = [lane.id for lanes in causes.values() for lane in lanes]
    counts.read_newest(ids)
    trends = _trends(store, ids)
    ended: set[int] = set()
    if any(not _pending(counted[cause]) for cause in causes):
        # Those that have no pending letter, whatever the filter.
        pairs = pairs_of(store, LetterFilter())
        ended = set(ids) - {pair.group for pair in pairs if pair.state in PENDING}
    samples = {
        cause: max(counts.heads.get(lane.id, (0.0, 0)) for lane in lanes)[1]
        for cause, lanes in causes.items()
    }
    messages = dict(store.query(letter_sql.letter_messages(ids=list(samples.values()))))
    hints = Hints(store)
    return [
        LetterGroup(
            fingerprint=cause,
            states=dict(counted[cause]),
            pending=_pending(counted[cause]),
            taken=sum(counts.taken[lane.id] for lane in lanes),
            first_at=instant(min(lane.first_at for lane in lanes)),
            last_at=instant(max(lane.last_at for lane in lanes)),
            trend=trend_of(
                [*map(sum, zip(*(trends[lane.id] for lane in lanes), strict=True))],
                is_ended=all(lane.id in ended for lane in lanes),
            ),
            pipelines=sorted({lane.pipeline for lane in lanes}),
            stages=sorted({lane.stage for lane in lanes}),
            code=lanes[0].code,
            category=lanes[0].category,
            exception=lanes[0].exception,
            sample=samples[cause],
            message=messages.get(samples[cause], ""),
            diagnosis=suggested_diagnosis(lanes[0].category, lanes[0].code),
            hint=hints.about(lanes[0].pipeline, lanes[0].stage, lanes[0].code, lanes[0].category),
        )
        for cause, lanes in causes.items()
    ]


def _lanes(store: Reader, ids: Iterable[int]) -> list[letter_sql.GroupRow]:
    return store.query(letter_sql.letter_groups(ids=sorted(ids)))


def _trends(store: Reader, ids: Sequence[int]) -> dict[int, list[int]]:
    """Return the letters of each group in the last hours, oldest first."""
    last = int(CURRENT.get().clock.wall() // 3600)
    hours = {group: [0] * HOURS for group in ids}
    asked = letter_sql.group_trend(groups=list(ids), after=last - HOURS)
    for group, hour, letters in store.query(asked):
        # With a fast clock, a letter belongs to the last hour we know.
        hours[group][min(hour, last) - last - 1] += letters
    return hours


def _pending(states: Counter[str]) -> int:
    return sum(letters for state, letters in states.items() if state in PENDING)


def _nearest(store: Reader, start: str) -> list[str]:
    """Return the groups that share the longest prefix."""
    for length in range(len(start), -1, -1):
        is_askable = not length or _is_prefix(start[:length])
        if is_askable and (near := fingerprints(store, start[:length], NEAR_MAX)):
            return near
    return []


def _is_prefix(text: str) -> bool:
    return re.fullmatch(r"[a-z0-9:]+", text) is not None
