# SPDX-License-Identifier: Apache-2.0
"""Acts on dead letters: choosing them, changing their state, editing values."""

from __future__ import annotations

from typing import NamedTuple

from redrive.store.records import Part
from redrive.store.statements.statement import statement


class LetterToTriage(NamedTuple):
    id: int
    state: str
    replay_id: int | None
    moved: int


class LetterValue(NamedTuple):
    state: str
    job: int
    status: str
    erased_at: float | None
    pipeline: str
    stage: str
    original: bytes | None
    edit: int | None
    edited: bytes | None
    may_be_supplied: bool

    @property
    def present(self) -> bytes | None:
        """The value a replay would start with."""
        return self.original if self.edited is None else self.edited


class EditedValue(NamedTuple):
    before: bytes | None
    after: bytes | None


@statement
def existing_letters(*, ids: list[int]) -> int: ...
@statement
def letters_to_triage(*, ids: list[int]) -> LetterToTriage: ...
@statement
def next_move() -> None: ...
@statement
def triage_letters(*, ids: list[int], state: str, diagnosis: str) -> None: ...
@statement
def remediate_letters(*, ids: list[int], state: str, evidence: str) -> None: ...
@statement
def discard_letters(*, ids: list[int], state: str) -> None: ...
@statement
def restore_letters(*, ids: list[int], state: str) -> None: ...
@statement
def assign_letters(*, ids: list[int], state: str, assignee: str | None) -> None: ...
@statement
def letter_values(*, letter: int, part: Part) -> LetterValue: ...
@statement
def lock_letter(*, letter: int) -> int: ...
@statement
def add_edit(
    *,
    letter: int,
    part: Part,
    before: bytes | None,
    after: bytes,
    at: float,
    actor: str,
    erased_at: float | None,
    last_edit: int | None,
) -> int: ...
@statement
def supply_payload(*, job: int, payload: bytes | None) -> None: ...
@statement
def supply_input(*, job: int, input: bytes | None, input_from: int) -> None: ...
@statement
def supply_value(*, job: int, dispatch: int, value: bytes) -> None: ...
@statement
def edits_of_job(*, job: int) -> EditedValue: ...
