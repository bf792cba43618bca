# SPDX-License-Identifier: Apache-2.0
"""The operator log.

Only what the statements take and return: their texts are in `operations.sql` of each dialect.
"""

from __future__ import annotations

from typing import NamedTuple

from redrive.store.statements.statement import statement


class Act(NamedTuple):
    at: float
    actor: str
    verb: str
    subject_kind: str
    subject_id: str
    reason: str | None


class OperationRow(NamedTuple):
    id: int
    at: float
    actor: str
    verb: str
    subject_kind: str
    subject_id: str
    reason: str | None
    letters: int | None
    change: str | None


class OperationOnLetter(NamedTuple):
    letter: int
    id: int
    at: float
    actor: str
    verb: str
    subject_kind: str
    subject_id: str
    reason: str | None
    letters: int | None
    change: str | None


@statement
def log(*, act: Act) -> None: ...
@statement
def log_letters(*, act: Act, letters: int | None, change: str | None) -> None: ...
@statement
def operations(*, limit: int) -> OperationRow: ...
@statement
def operations_before(*, before: int, limit: int) -> OperationRow: ...
@statement
def operations_on(*, subject_kind: str, subject_id: str) -> OperationRow: ...
@statement
def acts_with_letter(*, letter: int, group: str, failed_at: float) -> OperationRow: ...
@statement
def acts_with_letters(*, ids: list[int], first: int, last: int) -> OperationOnLetter: ...
