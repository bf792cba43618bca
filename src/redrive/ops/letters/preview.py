# SPDX-License-Identifier: Apache-2.0
"""What an act on dead letters would come to: how many it changes, and how many stay as they are and why. Told before it is done.

Answered from the counts of the frozen set, so that it costs the same however many letters there are; only who asks about letters
that replays have taken, chosen by owner, key or time, has them looked at. The act is then held to it: letters that become able
only after they were counted are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from redrive.core.lifecycle import LetterState, move_letter
from redrive.errors import IllegalTransitionError
from redrive.ops.letters.freeze import FrozenSet, frozen_steps
from redrive.store.protocol import Store, listed

Verb = Literal["triage", "remediate", "discard", "restore", "assign", "note"]
Refusal = Callable[[LetterState, int | None], str | None]
"""Says why a letter in a state, and in the hands of a replay, is left alone; None when it is not."""
ENDED: Final = frozenset({LetterState.RESOLVED, LetterState.RETURNED})
"""States that no letter leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an act would come to."""

    frozen: FrozenSet
    """The frozen set, held to what is told here."""
    changes: Mapping[str, int]
    """Letters that will be changed, by the state they are in."""
    stays: Mapping[str, int]
    """Letters that will be left as they are, by the reason why."""

    @property
    def changing(self) -> int:
        """How many letters will be changed."""
        return sum(self.changes.values())


def preview(store: Store, frozen: FrozenSet, verb: Verb) -> Preview:
    """Say what an act would come to; changes nothing. Evidence with a diagnosis begins as a triage: ask for that."""
    refuses = refusal_of(verb)
    free = Counter({LetterState(state): letters for state, letters in frozen.by_state.items()})
    changes: dict[str, int] = {}
    stays: Counter[str] = Counter()
    is_final = True
    for state, replay, letters in _taken(store, frozen) if verb == "triage" else ():
        # Somebody may have taken more of them since they were counted.
        among = min(letters, free[state])
        if why := refuses(state, replay):
            free[state] -= among
            stays[why] += among
            is_final = False
    for state, letters in free.items():
        why = refuses(state, None)
        if why is None and letters:
            changes[state] = letters
        elif why is not None and letters:
            stays[why] += letters
            is_final &= state in ENDED
    held = frozen if is_final else replace(frozen, only=frozenset(changes))
    return Preview(frozen=held, changes=changes, stays=dict(stays.most_common()))


def refusal_of(verb: Verb) -> Refusal:
    """Return what says why an act leaves a letter alone; of moves, the lifecycle is the only judge."""

    def refuses_move(state: LetterState, replay: int | None) -> str | None:
        if verb == "triage" and replay is not None and state not in ENDED:
            return f"replay {replay} has taken it"
        try:
            move_letter(state, verb)
        except IllegalTransitionError:
            is_early = verb == "remediate" and state is LetterState.OPEN
            return f"it is {state}" + (": triage it first, or give a diagnosis as well" if is_early else "")
        return None

    def refuses_ended(state: LetterState, _: int | None) -> str | None:
        return f"it is {state}" if state in ENDED else None

    if verb == "note":
        return lambda _state, _replay: None
    return refuses_ended if verb == "assign" else refuses_move


def freed_later(store: Store, frozen: FrozenSet, ids: list[int]) -> frozenset[int]:
    """Return those of some letters that a replay let go of only after the set was frozen."""
    if frozen.only is None:
        return frozenset()
    return frozenset(cast("int", row[0]) for row in store.query("freed_later", listed(ids), frozen.moves))


def _taken(store: Store, frozen: FrozenSet) -> Iterator[tuple[LetterState, int, int]]:
    """Yield how many letters of a frozen set which replay has taken, by state."""
    which = frozen.which
    if which.is_by_group:
        rows = store.query("taken_by_group", *which.census_row())
    else:
        steps = frozen_steps(store, frozen)
        rows = [row for ids in steps for row in store.query("taken_among", listed(ids))]
    for state, replay, letters in rows:
        yield LetterState(cast("str", state)), cast("int", replay), cast("int", letters)
