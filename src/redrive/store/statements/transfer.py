# SPDX-License-Identifier: Apache-2.0
"""Export and import of dead letters.

Only what the statements take and return: their texts are in `transfer.sql`.
"""

from __future__ import annotations

from typing import NamedTuple

from redrive.store.records import Part
from redrive.store.statements.letters import DeadLetter
from redrive.store.statements.statement import statement


class InstallationRow(NamedTuple):
    id: str
    first_job: int
    first_letter: int


class JobOfLetter(NamedTuple):
    letter: int
    position: int
    status: str
    priority: int
    created_at: float
    erased_at: float | None
    origin: str | None
    restarts: int


class JobValues(NamedTuple):
    payload: bytes | None
    input: bytes | None


class EditRow(NamedTuple):
    part: Part
    before: bytes | None
    after: bytes
    at: float
    actor: str


class ImportRow(NamedTuple):
    origin: str
    letter: int
    at: float
    actor: str
    job: int
    attempts: str


class ImportedEdit(NamedTuple):
    part: Part
    before: bytes | None
    after: bytes | None
    at: float
    actor: str


class ImportMark(NamedTuple):
    origin: str
    letter: int


@statement
def installation() -> str: ...
@statement
def installations() -> InstallationRow: ...
@statement
def secret() -> bytes: ...
@statement
def exported_letters(*, ids: list[int]) -> DeadLetter: ...
@statement
def exported_jobs(*, ids: list[int]) -> JobOfLetter: ...
@statement
def exported_values(*, job: int) -> JobValues: ...
@statement
def exported_edits(*, job: int, letter: int) -> EditRow: ...
@statement
def pipelines_of_letters(*, ids: list[int]) -> str: ...
@statement
def known_imports(*, origin: str, ids: list[int]) -> int: ...
@statement
def import_of_job(*, job: int) -> ImportRow: ...
@statement
def import_lane(*, pipeline: str, stage: str, position: int) -> None: ...
@statement
def import_job(
    *,
    pipeline: str,
    stage: str,
    priority: int,
    run_at: float,
    key: str | None,
    owner: str | None,
    payload: bytes | None,
    input: bytes | None,
    input_from: int,
    created_at: float,
    erased_at: float | None,
    origin: str | None,
    restarts: int,
) -> None: ...
@statement
def import_mark(*, mark: ImportMark, now: float, actor: str, job: int, attempts: str) -> None: ...
@statement
def import_value(*, mark: ImportMark, dispatch: int, value: bytes) -> None: ...
@statement
def import_failure(*, mark: ImportMark, code: str, message: str, failed_at: float) -> None: ...
@statement
def import_group(
    *,
    pipeline: str,
    stage: str,
    fingerprint: str,
    code: str,
    category: str,
    exception: str,
    first_at: float,
    last_at: float,
) -> None: ...
@statement
def import_letter(*, mark: ImportMark, fingerprint: str, first_at: float, failed_at: float) -> None: ...
@statement
def import_facts(
    *,
    code: str,
    category: str,
    is_retryable: bool,
    exception: str,
    reason: str,
    message: str,
    context: bytes,
    stack: str,
) -> None: ...
@statement
def import_notices(*, mark: ImportMark) -> None: ...
@statement
def import_edit(*, mark: ImportMark, edit: ImportedEdit) -> None: ...
