# SPDX-License-Identifier: Apache-2.0
"""One edit of many letters: a frozen set, changed by a JSON Patch, by a function, or back to the originals.

Every letter has an edit of its own, as if it were the only one: checked, with the original kept and a line of the operator log, in
one transaction per letter. Stopping in the middle leaves whole letters behind; the same edit again does the rest, because what
it has changed already is unchanged by it. A patch or a function that adds something each time is not such an edit: begin it with a
test of the old value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, Unpack

from redrive.core.arguments import one_of
from redrive.core.lifecycle import LetterState
from redrive.engine.replay.filter import FREE
from redrive.errors import ConfigurationError, LetterNotFoundError, ReplayRefusedError, SerializationError
from redrive.ops.audit import Actor
from redrive.ops.letters.edit import PARTS, Change, commit, possible_draft
from redrive.ops.letters.freeze import FrozenSet, frozen_steps
from redrive.ops.letters.new_value import checked_patch
from redrive.ops.letters.preview import Reason
from redrive.ops.letters.triage import able_letters
from redrive.store.protocol import Store

STEP: Final = 100
"""Letters whose states are read at once."""
SAMPLE: Final = 3
"""Diffs that are kept to be shown."""
KINDS_MAX: Final = 20
"""Different problems that are counted each for itself; a function may raise another message for every letter."""
_OTHER: Final = Reason("unfit", problem="other problems")

K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkEdit:
    """What an edit of many letters has changed, or would."""

    changed: int
    unchanged: int
    """Letters whose value is already as the edit makes it."""
    left: Mapping[Reason, int]
    """Letters that were left alone, by the reason why: their state, or a new value that does not fit."""
    sample: Mapping[int, str]
    """Diffs of the first letters that change, by letter; redacted."""
    unknown_fields: Mapping[str, int]
    """Places that the types of the stages ignore, and in how many letters; only known with the code of the pipeline."""


def edit_many(store: Store, frozen: FrozenSet, by: Actor | None, **change: Unpack[Change]) -> BulkEdit:
    """Edit every letter of a frozen set; those that cannot be edited, or whose new value does not fit, are left alone and counted.

    With `by=None`, nothing is changed: the result is what an edit would change.

    Raises:
        ConfigurationError: not exactly one of patch, function and original; what has not the form of a patch.
        SerializationError: the patch is not JSON.
    """
    _check(change)
    changed = unchanged = seen = 0
    left: Counter[Reason] = Counter()
    ignored: Counter[str] = Counter()
    sample: dict[int, str] = {}
    for ids in frozen_steps(store, frozen, step=STEP):
        seen += len(ids)
        able, reasons = able_letters(store, frozen, ids, _refuses)
        left += reasons
        for letter in able:
            try:
                made = possible_draft(store, letter.id, **change)
                if made is not None and by is not None:
                    commit(store, made, by)
            except (SerializationError, ConfigurationError, ReplayRefusedError, LetterNotFoundError) as error:
                _count(left, _reason(error), _OTHER)
                continue
            if made is None:
                unchanged += 1
                continue
            changed += 1
            for place in made.unknown_fields:
                _count(ignored, place, "others")
            if len(sample) < SAMPLE:
                sample[letter.id] = made.diff
    if seen < frozen.count:
        left[Reason("gone")] += frozen.count - seen
    return BulkEdit(
        changed=changed,
        unchanged=unchanged,
        left=dict(left.most_common()),
        sample=sample,
        unknown_fields=dict(ignored.most_common()),
    )


def _check(change: Change) -> None:
    """Refuse an edit that is wrong whatever the letter."""
    one_of("part", change.get("part", "input"), PARTS)
    patch, function = change.get("patch"), change.get("function")
    ways = (patch is not None, function is not None, bool(change.get("original")))
    if change.get("value") is not None or sum(ways) != 1:
        raise ConfigurationError(
            field="edit of many letters",
            value="a whole value" if change.get("value") is not None else "several" if any(ways) else "none",
            rule="takes a JSON Patch, a function or the original",
            fix="Give one of them; a whole value is for one letter.",
        )
    if patch is not None:
        checked_patch(patch)


def _refuses(state: LetterState, _: int | None) -> Reason | None:
    return None if state in FREE else Reason("state", str(state))


def _reason(error: Exception) -> Reason:
    """Return why a letter is left alone, without its id: equal problems are counted together."""
    match error:
        case LetterNotFoundError():
            return Reason("pruned")
        case ReplayRefusedError():
            return Reason("unfit", problem=error.problem)
        case ConfigurationError():
            return Reason("unfit", problem=f"{error.field} {error.rule}, got {error.got}")
        case _:
            return Reason("unfit", problem=str(error))


def _count(counted: Counter[K], each: K, other: K) -> None:
    counted[each if each in counted or len(counted) < KINDS_MAX else other] += 1
