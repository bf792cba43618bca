# SPDX-License-Identifier: Apache-2.0
"""A frozen set of dead letters: which are meant, up to which one, and exactly how many. Made before every act on letters.

Freezing is a filter and a cut-off, the last letter there is at that moment. Ids only rise, so that whatever fails later lies beyond
the cut-off and is never touched, however long somebody thinks about the count that was shown. What the filter looks at never
changes, but for `state`: a letter that has left the state asked for by the time it is its turn, or came into it later, is left
alone and counted as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from redrive.core.lifecycle import LetterState
from redrive.engine.replay.filter import LATEST, LetterFilter
from redrive.errors import ConfigurationError
from redrive.ops.letters.letter import known_letter
from redrive.store.protocol import Row, Store, listed

STEP: Final = 5_000
"""Letters per transaction of an act."""
WINDOW: Final = 200_000
"""Ids looked at per read; a bound on memory, not on what can be selected."""
LAST_ID: Final = 2**62
_STATES: Final = tuple(str(state) for state in LetterState)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenSet:
    """A frozen set: the letters a filter means, none of them newer than `cutoff`."""

    which: LetterFilter
    cutoff: int
    """The id of the last letter that can belong to it."""
    count: int
    """How many there were when it was frozen; exact."""
    by_state: Mapping[str, int]
    """The same count, by the state they were in."""
    moves: int = LATEST
    """The last act that moved letters before it; what came into the state asked for by a later one is left alone."""
    only: frozenset[str] | None = None
    """The states from which letters may be changed, and only if they were in them already; None for any (`preview`)."""

    @property
    def subject(self) -> str:
        """What it is called in the operator log: `letter 7`, `group v1:...`, or `filter code=...`."""
        only = self.which.ids
        if only is not None and len(only) == 1:
            return f"letter {only[0]}"
        parts = msgspec.structs.asdict(self.which)
        given = {name: value for name, value in parts.items() if value is not None}
        if set(given) == {"group"}:
            return f"group {self.which.group}"
        if only is not None:
            given["ids"] = f"{len(only)} named"
        told = " ".join(f"{name}={value}" for name, value in given.items())
        return f"filter {told or 'all'}"


def freeze(store: Store, which: LetterFilter) -> FrozenSet:
    """Freeze the letters a filter means, and count them; changes nothing.

    A filter by group, pipeline, stage, code, category or state is answered from the tallies of the groups and costs the same
    however many letters there are; any other one is counted in the index of its narrowest column. What is frozen is nothing but
    the filter and the cut-off: keep both, and `frozen_steps` finds the same letters later, in this process or in another one.

    Raises:
        ConfigurationError: a state that does not exist.
        LetterNotFoundError: an id no letter has; the hint names those that are near.
    """
    _check(store, which)
    if which.is_by_group:
        by_group = (which.pipeline, which.stage, which.code, which.category, which.group, which.state)
        ((cutoff, moves, counted),) = store.query("freeze_by_group", *by_group)
        by_state = msgspec.json.decode(cast("str", counted), type=dict[str, int])
    else:
        cutoff, moves = store.query("last_letter")[0]
        rows = store.query(_statement(which, "count"), *_row_of(which, 0, cast("int", cutoff)))
        by_state = {str(state): cast("int", letters) for state, letters in rows}
    # In the order of a letter's life, so that whoever reads it finds `open` first.
    ordered = {state: by_state[state] for state in _STATES if by_state.get(state)}
    return FrozenSet(
        which=which,
        cutoff=cast("int", cutoff),
        count=sum(ordered.values()),
        by_state=ordered,
        moves=cast("int", moves),
    )


def frozen_steps(store: Store, frozen: FrozenSet, *, step: int = STEP) -> Iterator[list[int]]:
    """Yield the ids of a frozen set in rising order, at most `step` at a time.

    The ids of a window are read before the first of them is given out: an act that moves letters cannot make the walk see them
    twice.
    """
    low = 0
    while low < frozen.cutoff:
        high = min(low + WINDOW, frozen.cutoff)
        rows = store.query(_statement(frozen.which, "letters"), *_row_of(frozen.which, low, high))
        ids = [cast("int", row[0]) for row in rows]
        for start in range(0, len(ids), step):
            yield ids[start : start + step]
        low = high


def known_letters(store: Store, ids: tuple[int, ...]) -> None:
    """Refuse ids that no letter has; raises LetterNotFoundError whose hint names some that are near."""
    possible = [each for each in ids if 0 < each < LAST_ID]
    there = {row[0] for row in store.query("letters_there", listed(possible))}
    for each in ids:
        if each not in there:
            known_letter(store, each)


def _check(store: Store, which: LetterFilter) -> None:
    if which.state is not None and which.state not in _STATES:
        raise ConfigurationError(
            field="state",
            value=which.state,
            rule="is no state of a dead letter",
            fix=f"{', '.join(_STATES)}.",
        )
    if which.ids is not None:
        known_letters(store, which.ids)


def _statement(which: LetterFilter, what: str) -> str:
    """Return the statement whose index suits the filter best."""
    if which.ids is not None:
        return f"{what}_named"
    if which.owner is not None:
        return f"{what}_of_owner"
    return f"{what}_in_groups" if which.key is None else f"{what}_of_key"


def _row_of(which: LetterFilter, low: int, high: int) -> Row:
    states = _STATES if which.state is None else (which.state,)
    by_group = (which.pipeline, which.stage, which.code, which.category, which.group)
    by_letter = (which.since, which.until, which.owner, which.key, which.named_ids())
    return (*by_group, listed(states), *by_letter, low, high)
