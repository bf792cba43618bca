# SPDX-License-Identifier: Apache-2.0
"""Acts on dead letters: diagnosis, evidence of the fix, assignee, note, discard and restore.

An act changes a frozen set, a few thousand letters per transaction, and moves only what the lifecycle allows: the rest is left
alone and counted by reason. Every transaction includes its lines of the operator log. Stopping in the middle leaves whole steps
behind; the same act again does the rest. What people write about a few letters is stored without the values of their jobs; about
many, it is redacted by patterns alone (`job_values`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import msgspec

from redrive.core.arguments import one_of, stored, text
from redrive.core.diagnosis import Diagnosis
from redrive.core.lifecycle import LetterState
from redrive.engine.pipeline.codec import storable
from redrive.errors import ConfigurationError, LetterNotFoundError, StoreUnavailableError
from redrive.ops.audit import Actor, safe_text
from redrive.ops.letters.details import get_letter
from redrive.ops.letters.freeze import FrozenSet, frozen_steps
from redrive.ops.letters.job_values import values_of_set
from redrive.ops.letters.preview import Reason, Refusal, Verb, freed_later, refusal
from redrive.store.protocol import Store
from redrive.store.records import Call, Step
from redrive.store.statements import triage as triage_sql
from redrive.store.statements.triage import LetterToTriage

TRIES_MAX: Final = 20
"""How often a step is tried again if somebody else moved one of its letters meanwhile."""
TEXT_MAX: Final = 8_192
"""Characters of evidence or of a note."""
_LOGGED: Final = "id state replay diagnosis evidence is_safe assignee exception stage code reason".split()
"""What the log keeps of a single letter before an act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActResult:
    """What an act has changed."""

    changed: int
    left: Mapping[Reason, int]
    """Letters that were left alone, by the reason why."""


class _Act(msgspec.Struct, frozen=True, kw_only=True):
    """One act: its verb, the step that changes letters, and what it sets."""

    verb: Verb
    change: Callable[..., Call[None]] | None = None
    """Returns the step for letters that are in a state; None if it changes no letter."""
    after: Mapping[str, object]


def triage(store: Store, frozen: FrozenSet, by: Actor, *, diagnosis: Diagnosis | str) -> ActResult:
    """Record what is wrong. Earlier evidence is dropped; letters a live replay has marked are left alone."""
    return _carry_out(store, frozen, by, [_triaging(diagnosis)])


def remediate(
    store: Store,
    frozen: FrozenSet,
    by: Actor,
    *,
    evidence: str,
    is_safe: bool,
    diagnosis: Diagnosis | str | None = None,
) -> ActResult:
    """Record what was done about the cause, and that running again does no harm: then the letters are ready.

    Only triaged letters; with `diagnosis`, open ones too, and both moves are logged.

    Raises:
        ConfigurationError: there is no evidence, or no confirmation that a replay does no harm.
    """
    given = check_remedy(evidence, is_safe=is_safe)
    kept = safe_text(given, values_of_set(store, frozen, given))
    act = _Act(
        verb="remediate",
        change=partial(triage_sql.remediate_letters, evidence=kept),
        after={"state": "ready", "evidence": kept, "is_safe": True},
    )
    return _carry_out(store, frozen, by, [act] if diagnosis is None else [_triaging(diagnosis), act])


def check_remedy(evidence: str, *, is_safe: bool) -> str:
    """Return checked evidence; raises as `remediate` would, so that nobody is asked about what will be refused."""
    checked = _text("evidence", evidence, fix='What was done about the cause: "rotated the key, see OPS-12".')
    if is_safe is not True:
        raise ConfigurationError(
            field="is_safe",
            value=is_safe,
            rule="must be confirmed: running again has to be idempotent, or harmless",
            fix="Check what a second run would do, then confirm it (on the command line: --safe).",
        )
    return checked


def discard(store: Store, frozen: FrozenSet, by: Actor) -> ActResult:
    """Decide that nothing is to be done; a replay that has marked a letter continues without it."""
    act = _Act(verb="discard", change=triage_sql.discard_letters, after={"state": "discarded"})
    return _carry_out(store, frozen, by, [act])


def restore(store: Store, frozen: FrozenSet, by: Actor) -> ActResult:
    """Undo a discard: the letters are open again, and have to be triaged again."""
    act = _Act(verb="restore", change=triage_sql.restore_letters, after={"state": "open"})
    return _carry_out(store, frozen, by, [act])


def assign(store: Store, frozen: FrozenSet, by: Actor, *, assignee: str | None) -> ActResult:
    """Set the assignee of letters; None for nobody. Closed letters are left alone."""
    name: str | None = None
    if assignee is not None:
        given = _text("assignee", assignee, fix="A name, or nobody at all.")
        # Letters are found by it.
        text("assignee", given, fix="A name, or nobody at all.")
        # Redacted by patterns alone: an assignee may well be named in a payload.
        name = safe_text(given)
    change = partial(triage_sql.assign_letters, assignee=name)
    act = _Act(verb="assign", change=change, after={"assignee": name})
    return _carry_out(store, frozen, by, [act])


def note(store: Store, frozen: FrozenSet, by: Actor, *, text: str) -> ActResult:
    """Add a note about letters in any state; it is the reason of its line in the operator log."""
    given = _text("note", text, fix='"asked the supplier on Monday", for example.')
    kept = safe_text(given, values_of_set(store, frozen, given))
    act = _Act(verb="note", after={"note": kept})
    return _carry_out(store, frozen, Actor(by.name, kept, by.user), [act])


def _triaging(diagnosis: Diagnosis | str) -> _Act:
    named = Diagnosis(one_of("diagnosis", diagnosis, tuple(Diagnosis)))
    return _Act(
        verb="triage",
        change=partial(triage_sql.triage_letters, diagnosis=named.value),
        after={"state": "triaged", "diagnosis": named.value},
    )


def _carry_out(store: Store, frozen: FrozenSet, by: Actor, acts: Sequence[_Act]) -> ActResult:
    """Apply the acts to a frozen set, step by step; all acts on a step are one transaction."""
    by = by.hiding(values_of_set(store, frozen, by.reason))
    changed = seen = 0
    left: Counter[Reason] = Counter()
    for ids in frozen_steps(store, frozen):
        seen += len(ids)
        for _ in range(TRIES_MAX):
            # Only a triage leaves letters alone that a replay has marked.
            freed = freed_later(store, frozen, ids) if acts[0].verb == "triage" else frozenset[int]()
            able, reasons = able_letters(store, frozen, ids, partial(refusal, acts[0].verb), freed)
            if not able or store.apply(*_steps(store, frozen, by, able, acts)) is not None:
                break
        else:
            raise StoreUnavailableError(
                database=str(frozen.subject),
                cause=f"somebody else moved its letters {TRIES_MAX} times in a row",
            )
        changed += len(able)
        left += reasons
    if seen < frozen.count:
        left[Reason("gone")] += frozen.count - seen
    return ActResult(changed=changed, left=dict(left.most_common()))


def able_letters(
    store: Store, frozen: FrozenSet, ids: list[int], refuses: Refusal, freed: frozenset[int] = frozenset()
) -> tuple[list[LetterToTriage], Counter[Reason]]:
    """Read letters; return those an act can change, and count the others by reason. `freed` were released only later."""
    rows = store.query(triage_sql.letters_to_triage(ids=ids))
    able: list[LetterToTriage] = []
    reasons: Counter[Reason] = Counter(
        {Reason("pruned"): len(ids) - len(rows)} if len(rows) < len(ids) else {}
    )
    for letter in rows:
        why = (
            _left_state(letter, frozen)
            or refuses(LetterState(letter.state), letter.replay_id)
            or _newly_able(letter, frozen, freed)
        )
        if why is None:
            able.append(letter)
        else:
            reasons[why] += 1
    return able, reasons


def _left_state(letter: LetterToTriage, frozen: FrozenSet) -> Reason | None:
    """Return that a letter is not in the state of the filter, or came into it after the set was frozen."""
    wanted = frozen.which.state
    if wanted is None or (letter.state == wanted and letter.moved <= frozen.moves):
        return None
    return Reason("came_later" if letter.state == wanted else "left_state", letter.state)


def _newly_able(letter: LetterToTriage, frozen: FrozenSet, freed: frozenset[int]) -> Reason | None:
    """Return that a letter became able only after the preview had counted it as left alone."""
    only = frozen.only
    if only is not None and (letter.state not in only or letter.moved > frozen.moves):
        return Reason("came_later", letter.state)
    return Reason("released_later") if letter.id in freed else None


def _steps(
    store: Store, frozen: FrozenSet, by: Actor, able: Sequence[LetterToTriage], acts: Sequence[_Act]
) -> list[Step]:
    """Return the steps of one transaction and their lines of the log; it fails if a letter has moved since it was read."""
    by_state: dict[str, list[int]] = {}
    for letter in able:
        by_state.setdefault(letter.state, []).append(letter.id)
    steps: list[Step] = [triage_sql.next_move()]
    before = _before(store, able)
    for act in acts:
        change = {"before": before, "after": act.after}
        logged = () if frozen.which.ids == (able[0].id,) else [letter.id for letter in able]
        # Before the change: notices of it have the time of this line.
        steps.append(by.log(act.verb, frozen.subject, letters=len(able), change=change, ids=logged))
        if act.change is not None:
            steps += [act.change(ids=ids, state=state).touching(len(ids)) for state, ids in by_state.items()]
        # The next act of the same transaction finds all of them in the state set by this one.
        target = cast("str | None", act.after.get("state"))
        if target is not None:
            by_state = {target: [letter.id for letter in able]}
            before = {"states": {target: len(able)}} if len(able) > 1 else {**before, **act.after}
    return steps


def _before(store: Store, able: Sequence[LetterToTriage]) -> dict[str, object]:
    """Return what letters were like: one with what failed and how, many by their states."""
    states: dict[str, object] = {"states": dict(Counter(letter.state for letter in able))}
    if len(able) > 1:
        return states
    try:
        letter = get_letter(store, able[0].id)
    except LetterNotFoundError:
        # It was pruned just now, and the transaction will fail.
        return states
    facts = {name: getattr(letter, name) for name in _LOGGED} | {"state": able[0].state}
    return {name: value for name, value in facts.items() if value is not None}


def _text(field: str, given: str, *, fix: str) -> str:
    """Return a text without surrounding blanks; refuse an empty or a very long one, and one that cannot be stored."""
    if not isinstance(given, str) or not given.strip() or len(given) > TEXT_MAX:
        raise ConfigurationError(
            field=field,
            value=given,
            rule=f"must be a text of at most {TEXT_MAX:,} characters, and not empty",
            fix=fix,
        )
    stored(field, storable(given))
    return given.strip()
