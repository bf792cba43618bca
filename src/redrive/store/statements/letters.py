# SPDX-License-Identifier: Apache-2.0
"""Reading dead letters; the filter over them.

Only what the statements take and return: their texts are in `letters.sql`, here and in each dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from redrive.core.decoding import prepare
from redrive.store.records import Part
from redrive.store.statements.statement import statement

PAST: Final = frozenset({"resolved", "returned"})
"""States of letters whose replay has ended."""


class GroupTerms(NamedTuple):
    pipeline: str | None
    stage: str | None
    code: str | None
    category: str | None
    fingerprint: str | None
    states: list[str]


class LetterTerms(NamedTuple):
    of_group: GroupTerms
    since: float | None
    until: float | None
    owner: str | None
    key: str | None
    ids: list[int] | None
    escalated: bool | None
    assignee: str | None
    run: int | None


class FrozenCount(NamedTuple):
    cutoff: int
    moves: int
    counted: str


class LetterCount(NamedTuple):
    pipeline: str
    state: str
    letters: int


class TakenCount(NamedTuple):
    pipeline: str
    state: str
    replay_id: int
    letters: int


class Pair(NamedTuple):
    group: int
    state: str
    letters: int


class LetterSpan(NamedTuple):
    """Letters before one position, down to another."""

    before_at: float
    before: int
    down_to_at: float
    down_to: int
    limit: int


class LetterWalk(NamedTuple):
    """The letter so many places before a position."""

    before_at: float
    before: int
    since: float
    offset: int


class LetterPlace(NamedTuple):
    last_failure_at: float
    id: int


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
    """The replay that has marked it."""
    first_failure_at: datetime
    last_failure_at: datetime
    receipts: Mapping[str, str]
    """What each sink answered when it received the letter, by the sink's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(LetterLine):
    """One dead letter in full."""

    outcome: str | None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """An edit, without its values."""

    id: int
    part: Part
    at: datetime
    actor: str


class GroupRow(NamedTuple):
    id: int
    fingerprint: str
    pipeline: str
    stage: str
    code: str
    category: str
    exception: str
    first_at: float
    last_at: float


class GroupCount(NamedTuple):
    group_id: int
    letters: int


class NamedCount(NamedTuple):
    group_id: int
    state: str
    letters: int
    taken: int
    last_failure_at: float
    id: int


class GroupHead(NamedTuple):
    of_group: int
    last_failure_at: float | None
    id: int | None


class LetterMessage(NamedTuple):
    id: int
    message: str


class GroupHour(NamedTuple):
    group_id: int
    hour: int
    letters: int


@statement
def freeze_by_group(*, which: GroupTerms) -> FrozenCount: ...
@statement
def count_by_group(*, which: LetterTerms, after: int, last: int) -> LetterCount: ...
@statement
def ids_by_group(*, which: LetterTerms, after: int, last: int) -> int: ...
@statement
def count_by_owner(*, which: LetterTerms, after: int, last: int) -> LetterCount: ...
@statement
def ids_by_owner(*, which: LetterTerms, after: int, last: int) -> int: ...
@statement
def count_by_key(*, which: LetterTerms, after: int, last: int) -> LetterCount: ...
@statement
def ids_by_key(*, which: LetterTerms, after: int, last: int) -> int: ...
@statement
def count_by_run(*, which: LetterTerms, after: int, last: int) -> LetterCount: ...
@statement
def ids_by_run(*, which: LetterTerms, after: int, last: int) -> int: ...
@statement
def count_by_assignee(*, which: LetterTerms, after: int, last: int) -> LetterCount: ...
@statement
def ids_by_assignee(*, which: LetterTerms, after: int, last: int) -> int: ...
@statement
def count_by_escalated(*, which: LetterTerms, after: int, last: int) -> LetterCount: ...
@statement
def ids_by_escalated(*, which: LetterTerms, after: int, last: int) -> int: ...
@statement
def count_by_id(*, which: LetterTerms, after: int, last: int) -> LetterCount: ...
@statement
def ids_by_id(*, which: LetterTerms, after: int, last: int) -> int: ...
@statement
def taken_by_group(*, which: GroupTerms) -> TakenCount: ...
@statement
def taken_by_letter(*, which: LetterTerms, after: int, last: int) -> TakenCount: ...
@statement
def letter_pairs(*, which: GroupTerms) -> Pair: ...
@statement
def letters_by_time(*, before: tuple[float, int], since: float, limit: int) -> LetterPlace: ...
@statement
def letters_by_groups(
    *, pairs: list[tuple[int, str]], before: tuple[float, int], since: float, limit: int
) -> LetterPlace: ...
@statement
def owner_floor(*, owner: str, down: LetterWalk) -> LetterPlace: ...
@statement
def key_floor(*, key: str, down: LetterWalk) -> LetterPlace: ...
@statement
def run_floor(*, run: int, down: LetterWalk) -> LetterPlace: ...
@statement
def assignee_floor(*, assignee: str, down: LetterWalk) -> LetterPlace: ...
@statement
def escalated_floor(*, escalated: bool, down: LetterWalk) -> LetterPlace: ...
@statement
def letters_by_owner(*, which: LetterTerms, span: LetterSpan) -> LetterPlace: ...
@statement
def letters_by_key(*, which: LetterTerms, span: LetterSpan) -> LetterPlace: ...
@statement
def letters_by_run(*, which: LetterTerms, span: LetterSpan) -> LetterPlace: ...
@statement
def letters_by_assignee(*, which: LetterTerms, span: LetterSpan) -> LetterPlace: ...
@statement
def letters_by_escalated(*, which: LetterTerms, span: LetterSpan) -> LetterPlace: ...
@statement
def letters_by_id(*, which: LetterTerms, span: LetterSpan) -> LetterPlace: ...
@statement
def letter_lines(*, ids: list[int]) -> LetterLine: ...
@statement
def letter_messages(*, ids: list[int]) -> LetterMessage: ...
@statement
def letter(*, letter: int) -> DeadLetter: ...
@statement
def letters_of_job(*, job: int) -> DeadLetter: ...
@statement
def nearest_letters(*, first: int, last: int) -> int: ...
@statement
def freed_later(*, ids: list[int], moves: int) -> int: ...
@statement
def edits_of_letter(*, letter: int) -> Edit: ...
@statement
def letter_groups(*, ids: list[int]) -> GroupRow: ...
@statement
def taken_letters(*, groups: list[int], state: str | None) -> GroupCount: ...
@statement
def taken_in_span(*, groups: list[int], state: str | None, since: float, until: float) -> GroupCount: ...
@statement
def count_in_span(*, pairs: list[tuple[int, str]], since: float, until: float) -> Pair: ...
@statement
def count_named_by_group(*, ids: list[int]) -> NamedCount: ...
@statement
def letter_heads(*, pairs: list[tuple[int, str]], since: float, until: float) -> GroupHead: ...
@statement
def group_trend(*, groups: list[int], after: int) -> GroupHour: ...
@statement
def fingerprints(*, first: str, end: str, limit: int) -> str: ...


prepare(DeadLetter, LetterLine, Edit)
