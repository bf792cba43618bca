# SPDX-License-Identifier: Apache-2.0
"""Reading dead letters; the filter over them.

Only what the statements take and return: their texts are in `letters.sql` of each dialect.
"""

from __future__ import annotations

from typing import NamedTuple

from redrive.store.records import Part
from redrive.store.statements.statement import statement


class GroupTerms(NamedTuple):
    pipeline: str | None
    stage: str | None
    code: str | None
    category: str | None
    fingerprint: str | None
    states: list[str]


class LetterTerms(NamedTuple):
    pipeline: str | None
    stage: str | None
    code: str | None
    category: str | None
    fingerprint: str | None
    states: list[str]
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


class LetterPlace(NamedTuple):
    last_failure_at: float
    id: int


class LetterLine(NamedTuple):
    id: int
    job: int
    pipeline: str
    stage: str
    code: str
    category: str
    state: str
    is_escalated: bool
    round: int
    group: str
    message: str
    owner: str | None
    key: str | None
    diagnosis: str | None
    assignee: str | None
    replay: int | None
    first_failure_at: float
    last_failure_at: float
    receipts: str


class LetterRow(NamedTuple):
    id: int
    state: str
    round: int
    code: str
    category: str
    message: str
    exception: str
    last_stack: str
    group: str
    sanitized_context: bytes
    reason: str
    first_failure_at: float
    last_failure_at: float
    job: int
    is_escalated: bool
    verdict: str | None
    replay: int | None
    follows: int | None
    diagnosis: str | None
    assignee: str | None
    closed_at: float | None
    pipeline: str
    stage: str
    owner: str | None
    key: str | None
    followed_by: int | None
    evidence: str | None
    is_safe: bool
    is_retryable: bool
    receipts: str


class EditLine(NamedTuple):
    id: int
    part: Part
    at: float
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
def owner_floor(*, owner: str, before: tuple[float, int], since: float, offset: int) -> LetterPlace: ...
@statement
def key_floor(*, key: str, before: tuple[float, int], since: float, offset: int) -> LetterPlace: ...
@statement
def run_floor(*, run: int, before: tuple[float, int], since: float, offset: int) -> LetterPlace: ...
@statement
def assignee_floor(*, assignee: str, before: tuple[float, int], since: float, offset: int) -> LetterPlace: ...
@statement
def escalated_floor(
    *, escalated: bool, before: tuple[float, int], since: float, offset: int
) -> LetterPlace: ...
@statement
def letters_by_owner(
    *, which: LetterTerms, before: tuple[float, int], down_to: tuple[float, int], limit: int
) -> LetterPlace: ...
@statement
def letters_by_key(
    *, which: LetterTerms, before: tuple[float, int], down_to: tuple[float, int], limit: int
) -> LetterPlace: ...
@statement
def letters_by_run(
    *, which: LetterTerms, before: tuple[float, int], down_to: tuple[float, int], limit: int
) -> LetterPlace: ...
@statement
def letters_by_assignee(
    *, which: LetterTerms, before: tuple[float, int], down_to: tuple[float, int], limit: int
) -> LetterPlace: ...
@statement
def letters_by_escalated(
    *, which: LetterTerms, before: tuple[float, int], down_to: tuple[float, int], limit: int
) -> LetterPlace: ...
@statement
def letters_by_id(
    *, which: LetterTerms, before: tuple[float, int], down_to: tuple[float, int], limit: int
) -> LetterPlace: ...
@statement
def letter_lines(*, ids: list[int]) -> LetterLine: ...
@statement
def letter(*, letter: int) -> LetterRow: ...
@statement
def letters_of_job(*, job: int) -> LetterRow: ...
@statement
def nearest_letters(*, first: int, last: int) -> int: ...
@statement
def freed_later(*, ids: list[int], moves: int) -> int: ...
@statement
def edits_of_letter(*, letter: int) -> EditLine: ...
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
