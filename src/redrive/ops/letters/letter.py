# SPDX-License-Identifier: Apache-2.0
"""Looking at dead letters: one with its whole story, and, from the modules beside this one, pages and groups of them.

Only reads. Everything shown was redacted when it was written; values of jobs, and of edits, are never shown here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

import msgspec

from redrive.core.diagnosis import suggested_diagnosis
from redrive.engine.job import Job, JobFacts
from redrive.errors import JobNotFoundError, LetterNotFoundError
from redrive.ops.jobs.advice import Hints, gone_for_good
from redrive.ops.jobs.inspect import LAST_ID, NEAR, Operation, instant, operations_about
from redrive.ops.letters.groups import LetterGroup, Trend, groups, resolve_group
from redrive.ops.letters.pages import NAMES, LetterLine, Page, line_facts, list_letters
from redrive.ops.letters.stack import Stack, stack_of
from redrive.store.protocol import Row, Store

__all__ = [
    "Edit",
    "LetterDetails",
    "LetterFacts",
    "LetterGroup",
    "LetterLine",
    "Page",
    "Trend",
    "groups",
    "known_letter",
    "letter_details",
    "list_letters",
    "resolve_group",
]

_MORE: Final = (
    "verdict follows followed_by evidence is_safe closed_at is_retryable error_class reason context stack"
).split()


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts(LetterLine):
    """One dead letter with everything it holds; redacted."""

    verdict: str | None
    """What its replay came to: completed, cancelled, same, other; None while it has not ended."""
    follows: int | None
    """The letter of the round before."""
    followed_by: int | None
    """The letter of the round after, when its replay failed again."""
    evidence: str | None
    """What was done about the cause."""
    is_safe: bool
    """Somebody confirmed that a replay does no harm."""
    closed_at: datetime | None
    is_retryable: bool
    error_class: str
    reason: str
    """Why the policy gave up."""
    context: object
    stack: str

    @property
    def fingerprint(self) -> str:
        """Its group."""
        return self.group


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """That somebody changed a value; the values themselves are not told."""

    id: int
    part: str
    at: datetime
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterDetails:
    """Everything that is known about one dead letter."""

    letter: LetterFacts
    stack: Stack
    suggested_diagnosis: str
    hint: str
    facts: JobFacts | None
    """Its job; None when that was pruned."""
    attempts: Sequence[dict[str, object]]
    edits: Sequence[Edit]
    operations: Sequence[Operation]
    """What people did about the letter and its job, also by group or filter and in a replay of many, oldest first."""


def known_letter(store: Store, letter_id: int) -> LetterFacts:
    """Return a dead letter; raises LetterNotFoundError whose hint names ids that are near."""
    # An id beyond 64 bits cannot be asked for, let alone exist.
    rows = store.query("letter", letter_id) if 0 <= letter_id < LAST_ID else []
    if not rows:
        error = LetterNotFoundError(letter_id=letter_id)
        error.hint = _near(store, letter_id)
        raise error
    return _facts_of(rows[0])


def letter_details(store: Store, letter_id: int) -> LetterDetails:
    """Return the whole story of a dead letter; raises LetterNotFoundError with ids that are near."""
    letter = known_letter(store, letter_id)
    job = Job(store, letter.job)
    facts = _job_facts(job)
    operations = operations_about(store, letter.job, [letter])
    hint = Hints(store).about(letter.pipeline, letter.stage, letter.code, letter.category)
    if facts is not None and facts.erased_at is not None and any(done.verb == "erase" for done in operations):
        # What to do about the code would end with a replay.
        hint = gone_for_good(facts.erased_at)
    return LetterDetails(
        letter=letter,
        stack=stack_of(letter.stack),
        suggested_diagnosis=suggested_diagnosis(letter.category, letter.code),
        hint=hint,
        facts=facts,
        attempts=job.attempts(),
        edits=[_edit_of(row) for row in store.query("edits_of_letter", letter.id)],
        operations=operations,
    )


def _job_facts(job: Job) -> JobFacts | None:
    try:
        return job.facts
    except JobNotFoundError:
        return None


def _facts_of(row: Row) -> LetterFacts:
    more = dict(zip(_MORE, row[len(NAMES) :], strict=True))
    closed_at = more["closed_at"]
    told = {
        "is_safe": bool(more["is_safe"]),
        "is_retryable": bool(more["is_retryable"]),
        "closed_at": None if closed_at is None else instant(closed_at),
        "context": msgspec.json.decode(cast("bytes", more["context"])),
    }
    return msgspec.convert({**line_facts(row), **more, **told}, LetterFacts)


def _edit_of(row: Row) -> Edit:
    return Edit(id=cast("int", row[0]), part=str(row[1]), at=instant(row[2]), actor=str(row[3]))


def _near(store: Store, letter_id: int) -> str:
    last = cast("int", store.query("last_letter")[0][0])
    if not last:
        return "There is no dead letter in this database; check that it is the right one."
    near: list[Row] = []
    if letter_id < LAST_ID:
        near = store.query("nearest_letters", letter_id - NEAR, letter_id + NEAR)
    if near:
        return f"Near it are: {', '.join(str(row[0]) for row in near)}."
    return f"The last dead letter is {last}; it may have been pruned, or live in another database."
