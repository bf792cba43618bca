# SPDX-License-Identifier: Apache-2.0
"""Frozen sets of dead letters: a filter, the last letter that can belong to it, and exact counts. Every act on letters takes one.

Ids only rise, so whatever fails later lies beyond the cut-off and is never touched. What the filter looks at never changes, except
`state`: a letter that has left the state of the filter by the time it is its turn, or came into it later, is left alone. The
letters of an assignee are frozen by their ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from redrive.core.arguments import one_of
from redrive.engine.replay.filter import LATEST, STATES, LetterFilter
from redrive.ops.audit import Subject
from redrive.ops.letters.details import get_letter
from redrive.ops.suggest import LAST_ID
from redrive.store.protocol import Store
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import replays as replay_sql
from redrive.store.statements import triage as triage_sql
from redrive.store.statements.statement import Statement

STEP: Final = 5_000
"""Letters per transaction of an act."""
WINDOW: Final = 200_000
"""Ids per read; a bound on memory, not on the size of a set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenSet:
    """The letters that match a filter, none of them newer than `cutoff`."""

    which: LetterFilter
    cutoff: int
    """The id of the last letter that can belong to it."""
    counts: Mapping[tuple[str, str], int]
    """How many letters there were when it was frozen, by pipeline and state; exact."""
    moves: int = LATEST
    """The last act that moved letters before it; what came into the state of the filter by a later one is left alone."""
    only: frozenset[str] | None = None
    """The states from which letters may be changed, and only if they were in them already; None for any (see `preview`)."""

    @property
    def count(self) -> int:
        """How many letters there were when it was frozen."""
        return sum(self.counts.values())

    @property
    def by_state(self) -> dict[str, int]:
        """The count by state, in the order of a letter's life."""
        counted: Counter[str] = Counter()
        for (_, state), letters in self.counts.items():
            counted[state] += letters
        return {state: counted[state] for state in STATES if counted[state]}

    @property
    def subject(self) -> Subject:
        """The name of the set in the operator log: `letter 7`, `group v1:...`, or `filter code=...`."""
        ids = self.which.ids
        if ids is not None and len(ids) == 1:
            return Subject("letter", ids[0])
        parts = msgspec.structs.asdict(self.which)
        given = {name: value for name, value in parts.items() if value is not None}
        if set(given) == {"group"}:
            return Subject("group", str(self.which.group))
        if ids is not None:
            given["ids"] = f"{len(ids)} named"
        return Subject("filter", " ".join(f"{name}={value}" for name, value in given.items()) or "all")


def freeze(store: Store, which: LetterFilter) -> FrozenSet:
    """Freeze and count the letters that match a filter; changes nothing.

    A filter by group, pipeline, stage, code, category or state is answered from the counters of the groups and costs the same
    however many letters there are; any other one is counted in the index of its narrowest column. Keep the filter and the cut-off,
    and `id_steps` finds the same letters later, in this process or in another one.

    Raises:
        ConfigurationError: a state that does not exist.
        LetterNotFoundError: an id no letter has; the hint lists ids close to it.
    """
    if which.state is not None:
        one_of("state", which.state, STATES)
    check_ids(store, which.ids or ())
    if which.assignee is not None and which.ids is None:
        # Unlike the rest of a filter an assignee changes: what is assigned later does not belong to the set.
        last = store.query(replay_sql.last_letter())[0].cutoff
        named = tuple(letter for ids in id_steps(store, which, last) for letter in ids)
        which = msgspec.structs.replace(which, ids=named)
    if which.is_by_group:
        (now,) = store.query(letter_sql.freeze_by_group(which=which.group_terms()))
        cutoff, moves = now.cutoff, now.moves
        rows = msgspec.json.decode(now.counted, type=list[letter_sql.LetterCount])
    else:
        cutoff, moves = store.query(replay_sql.last_letter())[0]
        count, _ = _statements_for(which)
        rows = store.query(count(which=which.terms(), after=0, last=cutoff))
    counts = {(pipeline, state): letters for pipeline, state, letters in rows}
    return FrozenSet(which=which, cutoff=cutoff, counts=counts, moves=moves)


def frozen_steps(store: Store, frozen: FrozenSet, *, step: int = STEP) -> Iterator[list[int]]:
    """Yield the ids of a frozen set in rising order, at most `step` at a time."""
    return id_steps(store, frozen.which, frozen.cutoff, step=step)


def id_steps(store: Store, which: LetterFilter, cutoff: int, *, step: int = STEP) -> Iterator[list[int]]:
    """Yield the ids that match a filter up to the cut-off, in rising order.

    The ids of a window are read before the first of them is yielded: an act that moves letters cannot make the walk see them twice.
    """
    _, find = _statements_for(which)
    for low in range(0, cutoff, WINDOW):
        ids = store.query(find(which=which.terms(), after=low, last=min(low + WINDOW, cutoff)))
        for start in range(0, len(ids), step):
            yield ids[start : start + step]


def check_ids(store: Store, ids: tuple[int, ...]) -> None:
    """Refuse ids that no letter has; raises LetterNotFoundError whose hint lists ids close to it."""
    if not ids:
        return
    possible = [each for each in ids if 0 < each < LAST_ID]
    found = set(store.query(triage_sql.existing_letters(ids=possible)))
    for each in ids:
        if each not in found:
            get_letter(store, each)


_Count = Statement[..., letter_sql.LetterCount]
_Find = Statement[..., int]


def _statements_for(which: LetterFilter) -> tuple[_Count, _Find]:
    """Return what counts and what finds the letters of a filter in the index that suits it best."""
    ways: list[tuple[object, _Count, _Find]] = [
        (which.ids, letter_sql.count_by_id, letter_sql.ids_by_id),
        (which.run, letter_sql.count_by_run, letter_sql.ids_by_run),
        (which.owner, letter_sql.count_by_owner, letter_sql.ids_by_owner),
        (which.key, letter_sql.count_by_key, letter_sql.ids_by_key),
        (which.assignee, letter_sql.count_by_assignee, letter_sql.ids_by_assignee),
        (which.escalated, letter_sql.count_by_escalated, letter_sql.ids_by_escalated),
        (True, letter_sql.count_by_group, letter_sql.ids_by_group),
    ]
    return next((count, find) for value, count, find in ways if value is not None)
