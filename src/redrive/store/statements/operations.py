# SPDX-License-Identifier: Apache-2.0
"""The operator log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from redrive.core.decoding import prepare
from redrive.store.statements.statement import statement


class Act(NamedTuple):
    at: float
    actor: str
    verb: str
    subject_kind: str
    subject_id: str
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One line of the operator log."""

    id: int
    at: datetime
    actor: str
    verb: str
    subject: str
    """What it was about, with its kind: `letter 7`."""
    subject_kind: str
    subject_id: str
    reason: str | None
    letters: int | None
    """How many dead letters it was about."""
    change: Mapping[str, object] | None
    """What was before and after, redacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationOnLetter(Operation):
    """One line of the operator log, and one of the letters that it is about."""

    letter: int


@statement
def log(*, act: Act) -> None: ...
@statement
def log_letters(*, act: Act, letters: int | None, change: str | None) -> None: ...
@statement
def operations(*, limit: int) -> Operation: ...
@statement
def operations_before(*, before: int, limit: int) -> Operation: ...
@statement
def operations_on(*, subject_kind: str, subject_id: str) -> Operation: ...
@statement
def acts_with_letter(*, letter: int, group: str, failed_at: float) -> Operation: ...
@statement
def acts_with_letters(*, ids: list[int], first: int, last: int) -> OperationOnLetter: ...


prepare(Operation, OperationOnLetter)
