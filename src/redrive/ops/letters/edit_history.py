# SPDX-License-Identifier: Apache-2.0
"""The edits of a letter's values: the original, and every edit since, redacted.

Only reads. An edit of the payload holds for every later restart, so those of earlier rounds are included; one of a stage's input
belongs to its letter. Erased edits are listed without their values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from redrive.core.units import instant
from redrive.ops.letters.details import get_letter
from redrive.ops.letters.document import difference, redacted_json
from redrive.store.reader import Reader
from redrive.store.records import Part
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.store.statements.transfer import EditRow


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEdit:
    """One edit: who, when, and the diff; redacted."""

    part: Part
    at: datetime
    actor: str
    diff: str | None
    """None if the values of the job were erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditHistory:
    """The edits of one letter, oldest first."""

    letter: int
    edits: Sequence[PastEdit]
    originals: Mapping[Part, str]
    """The edited parts before the first edit, as indented JSON, redacted; none for a part that came without values."""


def kept_edits(store: Reader, job: int, letter: int, part: Part | None = None) -> list[EditRow]:
    """Return the edits that apply to a letter, oldest first; none if they were erased."""
    found = store.query(transfer_sql.exported_edits(job=job, letter=letter))
    return [each for each in found if part in {None, each.part}]


def edit_history(store: Reader, letter: int) -> EditHistory:
    """Return the edits of a letter with their diffs; raises LetterNotFoundError."""
    known = get_letter(store, letter)
    kept = kept_edits(store, known.job, letter)
    # Erasing wipes all edits of a job at once, and none can be made after it.
    erased = [] if kept else store.query(letter_sql.edits_of_letter(letter=letter))
    edits = [
        PastEdit(
            part=each.part,
            at=instant(each.at),
            actor=each.actor,
            diff=difference(each.before, each.after, each.part),
        )
        for each in kept
    ]
    edits += [PastEdit(part=each.part, at=each.at, actor=each.actor, diff=None) for each in erased]
    firsts: dict[Part, bytes | None] = {each.part: each.before for each in reversed(kept)}
    originals: dict[Part, str] = {
        part: redacted_json(value) for part, value in firsts.items() if value is not None
    }
    return EditHistory(letter=letter, edits=edits, originals=originals)
