# SPDX-License-Identifier: Apache-2.0
"""How many letters of each group a filter means, by state; and of those, the newest one and how many a replay has taken.

By group and state alone, it is read off the tallies. A span of time is counted in an index, and only in groups that reach beyond
it. What only letters know (owner, key, ids) takes a look at each of theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from redrive.engine.replay.filter import LetterFilter
from redrive.ops.letters.pages import EARLIEST, LATEST, Pair, Position, pairs_of, positions_of
from redrive.store.protocol import Store, listed

CLOCKS_SECONDS: Final = 86_400.0
"""A letter of a clock that is behind may have failed before the first one that came; by so much at most."""


@dataclass(frozen=True, slots=True)
class Newest:
    """Of the letters that are meant, by group: the position of the newest one, and how many a replay has taken."""

    heads: dict[int, Position] = field(default_factory=dict[int, Position])
    taken: Counter[int] = field(default_factory=Counter[int])


class LetterCounts:
    """The letters that a filter means, counted by group and state."""

    def __init__(self, store: Store, which: LetterFilter) -> None:
        self._store = store
        self._which = which
        self._newest: Newest | None = None
        is_told_by_groups = which.owner is None and which.key is None and which.ids is None
        self.states: dict[int, dict[str, int]] = {}
        """For each group, how many of its letters that are meant are in each state."""
        for pair in self._by_pairs() if is_told_by_groups else self._by_letters():
            self.states.setdefault(pair.group, {})[pair.state] = pair.letters

    def newest(self, groups: Sequence[int]) -> Newest:
        """Return what else is known about some groups; those that are shown, because it takes a look at letters."""
        if self._newest is not None:
            return self._newest
        found = Newest()
        pairs = [(group, state) for group in groups for state in self.states[group]]
        for group, at, letter in self._store.query("letter_heads", listed(pairs), *self._span()):
            # One that is gone since it was counted.
            if at is not None:
                position = (cast("float", at), cast("int", letter))
                found.heads[cast("int", group)] = max(found.heads.get(cast("int", group), position), position)
        for group, letters in self._taken(groups):
            found.taken[group] += letters
        return found

    def _by_pairs(self) -> list[Pair]:
        pairs = pairs_of(self._store, self._which)
        if self._which.since is None and self._which.until is None:
            return pairs
        lower, upper = self._span()
        # Groups that lie in the span as a whole are counted already.
        groups = sorted({pair.group for pair in pairs})
        spans = {row[0]: (row[7], row[8]) for row in self._store.query("letter_groups", listed(groups))}
        counted: list[Pair] = []
        partly: list[tuple[int, str]] = []
        for pair in pairs:
            first, last = cast("tuple[float, float]", spans.get(pair.group, (EARLIEST, LATEST)))
            if lower <= first - CLOCKS_SECONDS and last < upper:
                counted.append(pair)
            elif last >= lower:
                partly.append((pair.group, pair.state))
        rows = self._store.query("count_in_span", listed(partly), lower, upper) if partly else []
        counted += [
            Pair(cast("int", group), str(state), cast("int", letters)) for group, state, letters in rows
        ]
        return [pair for pair in counted if pair.letters]

    def _by_letters(self) -> list[Pair]:
        self._newest = found = Newest()
        counts: Counter[tuple[int, str]] = Counter()
        for page in positions_of(self._store, self._which):
            rows = self._store.query("count_named_by_group", listed([letter for _, letter in page]))
            for group, state, letters, taken, at, letter in cast(
                "list[tuple[int, str, int, int, float, int]]", rows
            ):
                counts[group, state] += letters
                found.taken[group] += taken
                found.heads[group] = max(found.heads.get(group, (at, letter)), (at, letter))
        return [Pair(group, state, letters) for (group, state), letters in counts.items()]

    def _taken(self, groups: Sequence[int]) -> list[tuple[int, int]]:
        which, named = self._which, listed(groups)
        rows = self._store.query("taken_letters", named, which.state)
        if rows and (which.since is not None or which.until is not None):
            rows = self._store.query("taken_in_span", named, which.state, *self._span())
        return cast("list[tuple[int, int]]", rows)

    def _span(self) -> tuple[float, float]:
        since, until = self._which.since, self._which.until
        return EARLIEST if since is None else since, LATEST if until is None else until
