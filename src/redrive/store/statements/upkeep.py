# SPDX-License-Identifier: Apache-2.0
"""Upkeep: health of the database and of the work, and pruning.

Only what the statements take and return: their texts are in `upkeep.sql`, here and in each dialect.
"""

from __future__ import annotations

from typing import NamedTuple

from redrive.store.statements.runs import Schedule
from redrive.store.statements.statement import statement


class BrokenReference(NamedTuple):
    table: str
    parent: str
    rows: int


class LongRunning(NamedTuple):
    id: int
    pipeline: str
    stage: str
    last_attempt_at: float


class DueJobs(NamedTuple):
    jobs: int
    first_at: float | None


class OpenLetters(NamedTuple):
    letters: int
    first_at: float | None


class WrongLetterTally(NamedTuple):
    group_id: int
    state: str
    counted: int | None
    found: int | None


class PrunableJob(NamedTuple):
    id: int
    status: str
    finished_at: float | None
    created_at: float
    is_noticed: bool


class RetentionPlan(NamedTuple):
    ages: bytes
    cron: str
    zone: str


class DueRetention(NamedTuple):
    name: str
    ages: bytes
    cron: str
    zone: str
    next_at: float


@statement
def database_name() -> str: ...
@statement
def database_file() -> str | None: ...
@statement
def database_size() -> int: ...
@statement
def schema_version() -> int: ...
@statement
def integrity() -> str: ...
@statement
def broken_references() -> BrokenReference: ...
@statement
def latest_instant() -> float | None: ...
@statement
def ownerless_jobs(*, limit: int) -> int: ...
@statement
def long_running(*, before: float, limit: int) -> LongRunning: ...
@statement
def due_of_lane(*, lane: int, now: float) -> DueJobs: ...
@statement
def open_letters() -> OpenLetters: ...
@statement
def wrong_letter_tallies(*, limit: int) -> WrongLetterTally: ...
@statement
def jobs_without_letter(*, limit: int) -> int: ...
@statement
def prune_window(*, after: int, limit: int) -> PrunableJob: ...
@statement
def prune_values(*, ids: list[int], status: str, before: float) -> None: ...
@statement
def prune_edits(*, ids: list[int], status: str, before: float) -> None: ...
@statement
def prune_notices(*, ids: list[int], status: str, before: float) -> None: ...
@statement
def prune_letters(*, ids: list[int], status: str, before: float) -> None: ...
@statement
def prune_attempts(*, ids: list[int], status: str, before: float) -> None: ...
@statement
def tend_attempts(*, now: float) -> int: ...
@statement
def fold_tallies() -> None: ...
@statement
def fold_letter_tallies() -> None: ...
@statement
def fold_letter_trend() -> None: ...
@statement
def prune_jobs(*, ids: list[int], status: str, before: float) -> int: ...
@statement
def prunable_runs(*, before: float) -> int: ...
@statement
def prune_run(*, run: int, before: float) -> None: ...
@statement
def keep_run_tallies(*, run: int) -> None: ...
@statement
def prune_run_tallies(*, run: int) -> None: ...
@statement
def leave_run(*, run: int) -> None: ...
@statement
def leave_run_letters(*, run: int) -> None: ...
@statement
def put_retention(*, name: str, plan: RetentionPlan, next_at: float) -> None: ...
@statement
def retention(*, name: str) -> RetentionPlan: ...
@statement
def retentions() -> Schedule: ...
@statement
def due_retentions(*, now: float) -> DueRetention: ...
@statement
def drive_retention(*, driver: str, until: float, name: str, due_at: float, now: float) -> None: ...
@statement
def end_retention(*, next_at: float, last_at: float, deleted: str, name: str, driver: str) -> None: ...
@statement
def drop_retention(*, name: str) -> None: ...
