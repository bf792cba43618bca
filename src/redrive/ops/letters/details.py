# SPDX-License-Identifier: Apache-2.0
"""One dead letter with everything known about it: its job, attempts, edits, operator log, and its stack sorted for reading.

Only reads. Of the values of a job only the history of its edits shows any: redacted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from redrive.core.diagnosis import suggested_diagnosis
from redrive.core.units import instant
from redrive.errors import LetterNotFoundError
from redrive.ops.audit import operations_about
from redrive.ops.jobs.facts import Attempt, job_attempts
from redrive.ops.jobs.next_steps import Hints, gone_for_good
from redrive.ops.letters.document import difference, redacted_json
from redrive.ops.suggest import LAST_ID, id_hint
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.records import Part
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.store.statements.jobs import JobFacts
from redrive.store.statements.letters import DeadLetter, Edit
from redrive.store.statements.operations import Operation
from redrive.store.statements.transfer import EditRow

_FRAME: Final = re.compile(r'^[ |+-]*File "(?P<path>[^"]*)", line \d+')
_LIBRARY: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\](?:python|pypy)\d|[/\\]python\d+\.zip[/\\]|\\Lib\\|^<frozen "
    r"|[/\\]redrive[/\\](?:core|engine|rules|store|ops|cli|testing)[/\\]"
)
"""Frames that are not the user's: libraries and redrive itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack in parts, each outermost first."""

    messages: Sequence[str]
    """The messages of the exceptions, and how one led to the other."""
    own: Sequence[str]
    """Frames of the user's code, each with its line of source."""
    library: Sequence[str]
    """Frames of libraries, the standard library and redrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterDetails:
    """Everything that is known about one dead letter."""

    letter: DeadLetter
    stack: Stack
    suggested_diagnosis: str
    hint: str
    facts: JobFacts | None
    """Its job; None if that was pruned."""
    attempts: Sequence[Attempt]
    edits: Sequence[Edit]
    operations: Sequence[Operation]
    """Acts on the letter and its job, also by group or filter and in a replay of many, oldest first."""


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
    """The edited parts before the first edit, as indented JSON, redacted; none for a part that was imported without values."""


def get_letter(store: Reader, letter_id: int) -> DeadLetter:
    """Return a dead letter; raises LetterNotFoundError whose hint lists ids close to it."""
    # An id beyond 64 bits cannot be asked for, let alone exist.
    rows = store.query(letter_sql.letter(letter=letter_id)) if 0 <= letter_id < LAST_ID else []
    if not rows:
        error = LetterNotFoundError(letter_id=letter_id)
        error.hint = id_hint(store, "letter", letter_id)
        raise error
    return rows[0]


def letter_details(store: Store, letter_id: int) -> LetterDetails:
    """Return everything about a dead letter at one moment; raises LetterNotFoundError."""
    with store.reading() as moment:
        letter = get_letter(moment, letter_id)
        facts = next(iter(moment.query(job_sql.job(job=letter.job))), None)
        operations = operations_about(moment, letter.job, [letter])
        hint = Hints(moment).about(letter.pipeline, letter.stage, letter.code, letter.category)
        attempts = job_attempts(moment, letter.job)
        edits = moment.query(letter_sql.edits_of_letter(letter=letter.id))
    if facts is not None and facts.erased_at is not None and any(done.verb == "erase" for done in operations):
        # A hint about the code would end with a replay.
        hint = gone_for_good(facts.erased_at)
    return LetterDetails(
        letter=letter,
        stack=stack_of(letter.last_stack),
        suggested_diagnosis=suggested_diagnosis(letter.category, letter.code),
        hint=hint,
        facts=facts,
        attempts=attempts,
        edits=edits,
        operations=operations,
    )


def kept_edits(store: Reader, job: int, letter: int, part: Part | None = None) -> list[EditRow]:
    """Return the edits that apply to a letter, oldest first; none if they were erased.

    An edit of the payload holds for every later restart, so those of earlier rounds are included; one of an input is of its letter.
    """
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


def stack_of(text: str) -> Stack:
    """Return a traceback in parts; any other text is a message."""
    messages: list[str] = []
    own: list[list[str]] = []
    library: list[list[str]] = []
    frame: list[str] | None = None
    for line in text.splitlines():
        if (found := _FRAME.match(line)) is not None:
            frame = [line]
            (library if _LIBRARY.search(found["path"]) else own).append(frame)
        elif frame is not None and line.startswith(("    ", "  |  ", "  [Previous line")):
            frame.append(line)
        else:
            frame = None
            if line.strip() and not line.startswith("Traceback (most recent call last)"):
                messages.append(line)
    return Stack(
        messages=messages,
        own=["\n".join(each) for each in own],
        library=["\n".join(each) for each in library],
    )
