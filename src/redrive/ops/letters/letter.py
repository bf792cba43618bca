# SPDX-License-Identifier: Apache-2.0
"""The record of a dead letter, as lists, details, acts and exports read it.

Texts were redacted when they were written; values of jobs are not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from redrive.core.decoding import prepare
from redrive.engine.clock import instant
from redrive.errors import LetterNotFoundError
from redrive.ops.suggest import LAST_ID, id_hint
from redrive.store.reader import Reader
from redrive.store.statements import letters as letter_sql

PAST: Final = frozenset({"resolved", "returned"})
"""States of letters whose replay has ended."""
_TIMES: Final = ("first_failure_at", "last_failure_at", "closed_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterLine:
    """One dead letter in a list."""

    id: int
    job: int
    pipeline: str
    stage: str
    code: str
    category: str
    state: str
    is_escalated: bool
    """True if a replay brought the same permanent failure back."""
    round: int
    group: str
    """The fingerprint."""
    message: str
    owner: str | None
    key: str | None
    diagnosis: str | None
    assignee: str | None
    replay: int | None
    """The replay that has taken it."""
    first_failure_at: datetime
    last_failure_at: datetime
    receipts: Mapping[str, str]
    """What each sink answered when it received the letter, by the sink's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(LetterLine):
    """One dead letter in full."""

    verdict: str | None
    """How its replay ended: completed, cancelled, same, other; None while it has not."""
    follows: int | None
    """The letter of the round before."""
    followed_by: int | None
    """The letter of the round after, if its replay failed again."""
    evidence: str | None
    """What was done about the cause."""
    is_safe: bool
    """Somebody confirmed that a replay does no harm."""
    closed_at: datetime | None
    """When its replay ended."""
    is_retryable: bool
    error_class: str
    """The stable identifier to group by: the code."""
    exception: str
    """The Python class."""
    reason: str
    """Why the policy gave up."""
    sanitized_context: object
    last_stack: str

    @property
    def is_live(self) -> bool:
        """Whether its replay has not ended: neither was it good, nor did a later letter take its place."""
        return self.state not in PAST


def get_letter(store: Reader, letter_id: int) -> DeadLetter:
    """Return a dead letter; raises LetterNotFoundError whose hint lists ids close to it."""
    # An id beyond 64 bits cannot be asked for, let alone exist.
    rows = store.query(letter_sql.letter(letter=letter_id)) if 0 <= letter_id < LAST_ID else []
    if not rows:
        error = LetterNotFoundError(letter_id=letter_id)
        error.hint = id_hint(store, "letter", letter_id)
        raise error
    return msgspec.convert(letter_facts(rows[0]), DeadLetter)


def letters_of_job(store: Reader, job: int) -> list[DeadLetter]:
    """Return the letters of a job, one for each round that failed, oldest first."""
    rows = store.query(letter_sql.letters_of_job(job=job))
    return [msgspec.convert(letter_facts(row), DeadLetter) for row in rows]


def lines_of(store: Reader, ids: Sequence[int]) -> list[LetterLine]:
    """Return the letters with these ids, in this order; those that are gone are left out."""
    rows = {row.id: row for row in store.query(letter_sql.letter_lines(ids=list(ids)))}
    found = [rows[letter] for letter in ids if letter in rows]
    return [msgspec.convert(letter_facts(row), LetterLine) for row in found]


def letter_facts(
    row: letter_sql.LetterLine | letter_sql.LetterRow,
) -> dict[str, object]:
    """Return the columns of a letter by name, as their Python types."""
    facts: dict[str, object] = row._asdict()
    facts |= {name: instant(facts[name]) for name in _TIMES if facts.get(name) is not None}
    facts["receipts"] = msgspec.json.decode(row.receipts, type=dict[str, str])
    if not isinstance(row, letter_sql.LetterLine):
        facts["sanitized_context"] = msgspec.json.decode(row.sanitized_context)
        facts["error_class"] = row.code
    return facts


prepare(DeadLetter, LetterLine)
