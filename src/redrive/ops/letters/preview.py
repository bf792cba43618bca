# SPDX-License-Identifier: Apache-2.0
"""What an act on dead letters would do: how many it changes, and how many it leaves alone and why. Shown before it is done.

Answered from the counts of the frozen set, so it costs the same however many letters there are; only letters with the mark of a
replay, chosen by owner, key or time, are read. The act is then held to its preview: letters that become able later are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from redrive.core.lifecycle import LetterState, can_move
from redrive.core.replay import ReplayRules
from redrive.engine.replay.filter import FREE, LetterFilter
from redrive.engine.replay.rules import rules_of
from redrive.errors import ReplayRefusedError
from redrive.ops.letters.freeze import FrozenSet, freeze
from redrive.store.protocol import Store
from redrive.store.statements import letters as letter_sql

Verb = Literal["triage", "remediate", "discard", "restore", "assign", "note", "replay"]
Refusal = Callable[[LetterState, int | None], "Reason | None"]
"""Returns why a letter in this state, marked by this replay, is left alone; None if it is not."""
FOR_FREE_LETTERS: Final = frozenset({"triage", "replay"})
"""Acts that leave letters alone which wait in a replay."""
_Kind = Literal[
    "taken", "state", "untriaged", "left_state", "came_later", "released_later", "gone", "pruned", "unfit"
]
_TEXTS: Final[dict[_Kind, tuple[str, str]]] = {
    "taken": ("replay {replay} has marked it", "replay {replay} has marked them"),
    "state": ("it is {state}", "they are {state}"),
    "untriaged": (
        "it is {state}: triage it first, or give a diagnosis as well",
        "they are {state}: triage them first, or give a diagnosis as well",
    ),
    "left_state": ("it is {state} by now", "they are {state} by now"),
    "came_later": ("it became {state} after the preview", "they became {state} after the preview"),
    "released_later": (
        "a replay released it after the preview",
        "a replay released them after the preview",
    ),
    "gone": ("it was moved or pruned meanwhile", "they were moved or pruned meanwhile"),
    "pruned": ("it was pruned", "they were pruned"),
    "unfit": ("{problem}", "{problem}"),
}
"""The sentence about one letter, and about several."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an act leaves a letter alone."""

    kind: _Kind
    state: str | None = None
    """The state the letter is in, where that is why."""
    replay: int | None = None
    """The replay that has marked it, where that is why."""
    problem: str | None = None
    """What is wrong with its new value, where that is why."""

    def __str__(self) -> str:
        """Return the sentence about one letter."""
        return self.text(1)

    def text(self, letters: int) -> str:
        """Return the sentence about so many letters."""
        one, many = _TEXTS[self.kind]
        return (one if letters == 1 else many).format(
            state=self.state, replay=self.replay, problem=self.problem
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an act would do."""

    frozen: FrozenSet
    """The frozen set; the act is held to what this preview says about it."""
    changes: Mapping[str, int]
    """Letters that will be changed, by the state they are in."""
    stays: Mapping[Reason, int]
    """Letters that will be left as they are, by the reason why."""
    pipelines: frozenset[str]
    """The pipelines of the letters that will be changed."""

    @property
    def changing(self) -> int:
        """How many letters will be changed."""
        return sum(self.changes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPreview:
    """What a replay would take."""

    pipeline: str
    letters: int
    by_state: Mapping[str, int]
    taken: int
    """How many more wait in another replay."""
    lacking: int
    """How many of `letters` have no evidence although the rules ask for it."""
    rules: ReplayRules
    frozen: FrozenSet
    """What the letters are chosen from."""


def preview(store: Store, frozen: FrozenSet, verb: Verb) -> Preview:
    """Return what an act would do; changes nothing. Evidence with a diagnosis begins as a triage: ask for that."""
    free = Counter(frozen.counts)
    changes: Counter[str] = Counter()
    stays: Counter[Reason] = Counter()
    pipelines: set[str] = set()
    is_final = True
    for pipeline, state, taken_by, letters in _taken(store, frozen) if verb in FOR_FREE_LETTERS else ():
        # Somebody may have taken more of them since they were counted.
        among = min(letters, free[pipeline, state])
        free[pipeline, state] -= among
        stays[Reason("taken", replay=taken_by)] += among
        is_final = False
    for (pipeline, state), letters in free.items():
        why = refusal(verb, LetterState(state), None)
        if why is None and letters:
            changes[state] += letters
            pipelines.add(pipeline)
        elif why is not None and letters:
            stays[why] += letters
            is_final &= state in letter_sql.PAST
    return Preview(
        frozen=frozen if is_final else replace(frozen, only=frozenset(changes)),
        changes={state: changes[state] for state in frozen.by_state if changes[state]},
        stays=dict((+stays).most_common()),
        pipelines=frozenset(pipelines),
    )


def preview_replay(store: Store, which: LetterFilter) -> ReplayPreview:
    """Count what a replay would take; raises ReplayRefusedError if that is nothing, or belongs to several pipelines."""
    found = preview(store, freeze(store, which), "replay")
    if not found.changes:
        raise _nothing_to_replay(found)
    if len(found.pipelines) > 1:
        raise ReplayRefusedError(
            subject="replay",
            problem=f"these letters belong to several pipelines: {', '.join(sorted(found.pipelines))}",
            fix="A replay is about one pipeline; name it with --pipeline.",
        )
    (pipeline,) = found.pipelines
    rules = rules_of(store, pipeline)
    unproved = found.changing - found.changes.get(LetterState.READY, 0)
    return ReplayPreview(
        pipeline=pipeline,
        letters=found.changing,
        by_state=found.changes,
        taken=sum(letters for why, letters in found.stays.items() if why.kind == "taken"),
        lacking=unproved if rules.evidence == "required" else 0,
        rules=rules,
        frozen=found.frozen,
    )


def refusal(verb: Verb, state: LetterState, taken_by: int | None) -> Reason | None:
    """Return why an act leaves a letter alone; None if it does not. Moves are decided by the lifecycle alone."""
    if verb in FOR_FREE_LETTERS and taken_by is not None and state in FREE:
        return Reason("taken", replay=taken_by)
    match verb:
        case "note":
            is_able = True
        case "assign":
            is_able = state not in letter_sql.PAST
        case "replay":
            # Whether it needs evidence first is up to the rules of the pipeline.
            is_able = state in FREE
        case _:
            is_able = can_move(state, verb)
    is_early = verb == "remediate" and state is LetterState.OPEN
    return None if is_able else Reason("untriaged" if is_early else "state", str(state))


def freed_later(store: Store, frozen: FrozenSet, ids: list[int]) -> frozenset[int]:
    """Return those of some letters that a replay released only after the set was frozen."""
    if frozen.only is None:
        return frozenset()
    return frozenset(store.query(letter_sql.freed_later(ids=ids, moves=frozen.moves)))


def _taken(store: Store, frozen: FrozenSet) -> list[letter_sql.TakenCount]:
    """Return how many letters of a frozen set wait in which replay, by pipeline and state."""
    which = frozen.which
    if which.is_by_group:
        return store.query(letter_sql.taken_by_group(which=which.group_terms()))
    return store.query(letter_sql.taken_by_letter(which=which.terms(), after=0, last=frozen.cutoff))


def _nothing_to_replay(found: Preview) -> ReplayRefusedError:
    reasons = [f"{letters} left as they are: {why.text(letters)}" for why, letters in found.stays.items()]
    return ReplayRefusedError(
        subject="replay",
        problem=f"there is nothing to replay: {'; '.join(reasons) or 'no dead letters match'}",
        fix="redrive replay list shows replays and their letters; redrive dlq list shows what there is.",
    )
