# SPDX-License-Identifier: Apache-2.0
"""Runs and schedules.

Only what the statements take and return: their texts are in `runs.sql`, here and in each dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from redrive.core.decoding import prepare
from redrive.store.statements.statement import statement


class LiveRun(NamedTuple):
    id: int
    status: str
    options: bytes
    total: int
    complete: int
    failed: int
    cancelled: int
    skipped: int
    is_free: bool


class StoredRun(NamedTuple):
    id: int
    pipeline: str
    status: str
    options: bytes
    reason: str | None
    is_fed: bool
    created_at: float
    ended_at: float | None
    total: int
    complete: int
    failed: int
    cancelled: int
    skipped: int
    key: str | None
    label: str | None
    owner: str | None
    children: int


class TakenItem(NamedTuple):
    place: int
    key: str
    job: int


class JobOfRun(NamedTuple):
    id: int
    run_id: int


class ItemPayload(NamedTuple):
    ordinal: int
    payload: bytes | None


class ItemResult(NamedTuple):
    ordinal: int
    id: int
    status: str
    value: bytes | None


class CodeCount(NamedTuple):
    error_code: str
    jobs: int


class RunOfPipeline(NamedTuple):
    id: int
    pipeline: str


class LogLine(NamedTuple):
    seq: int
    started_at: float
    ended_at: float
    stage: str
    attempt: int
    outcome: str
    code: str | None
    http_status: int | None
    notes: str | None
    payload: bytes | None


class Planned(NamedTuple):
    lane_id: int
    cron: str
    zone: str
    payload: bytes
    priority: int


class DueSchedule(NamedTuple):
    name: str
    lane_id: int
    pipeline: str
    cron: str
    zone: str
    payload: bytes
    priority: int
    next_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The current state of a schedule."""

    name: str
    pipeline: str | None
    """None for one that prunes."""
    cron: str
    zone: str
    next_at: datetime
    last_at: datetime | None
    prunes: Mapping[str, float] | None
    """How long each kind is kept, in seconds; None for a schedule that submits jobs."""
    deleted: Mapping[str, int] | None
    """How many of each kind the last tick deleted."""


@statement
def add_run(*, pipeline: str, options: bytes, now: float) -> int: ...
@statement
def open_run(
    *,
    pipeline: str,
    options: bytes,
    now: float,
    items: int,
    key: str | None,
    label: str | None,
    owner: str | None,
) -> int: ...
@statement
def open_items(*, lane: int, now: float, items: str, inline_max: int) -> None: ...
@statement
def open_values(*, items: str, inline_max: int) -> None: ...
@statement
def open_traces(*, trace: str) -> None: ...
@statement
def run_with_key(*, pipeline: str, key: str) -> int: ...
@statement
def taken_item(*, pipeline: str, items: str) -> TakenItem: ...
@statement
def end_source(*, run: int) -> None: ...
@statement
def open_source(*, run: int) -> None: ...
@statement
def keep_run(*, until: float, run: int) -> None: ...
@statement
def end_run(*, status: str, reason: str | None, ended_at: float, run: int) -> None: ...
@statement
def live_runs(*, now: float) -> LiveRun: ...
@statement
def has_permanent(*, run: int) -> bool: ...
@statement
def has_live_runs() -> bool: ...
@statement
def lock_run(*, run: int) -> int: ...
@statement
def decide_run(
    *,
    status: str,
    reason: str | None,
    ended_at: float | None,
    run: int,
    before: str,
    total: int,
    ended: int,
    complete: int,
) -> None: ...
@statement
def restart_run(*, options: bytes, run: int) -> None: ...
@statement
def stop_run(*, status: str, reason: str, ended_at: float | None, run: int) -> None: ...
@statement
def continue_run(*, options: bytes, run: int) -> None: ...
@statement
def label_run(*, label: str, run: int) -> None: ...
@statement
def paused_at_work() -> JobOfRun: ...
@statement
def pause_jobs(*, ids: list[int]) -> None: ...
@statement
def cancel_run(*, now: float, run: int, limit: int, ordinal: int) -> int: ...
@statement
def ask_to_cancel_run(*, run: int) -> None: ...
@statement
def pause_run(*, run: int) -> None: ...
@statement
def unpause_run(*, run: int) -> None: ...
@statement
def run(*, run: int) -> StoredRun: ...
@statement
def runs(*, limit: int) -> int: ...
@statement
def run_payloads(*, run: int, first: int, end: int) -> ItemPayload: ...
@statement
def run_results(*, run: int, first: int, limit: int) -> ItemResult: ...
@statement
def run_codes(*, run: int) -> CodeCount: ...
@statement
def running_runs(*, limit: int) -> RunOfPipeline: ...
@statement
def run_log(*, run: int, after: int, limit: int) -> LogLine: ...
@statement
def put_schedule(*, name: str, planned: Planned, next_at: float) -> None: ...
@statement
def schedule(*, name: str) -> Planned: ...
@statement
def tick(*, next_at: float, now: float, name: str, due_at: float) -> None: ...
@statement
def drop_schedule(*, name: str) -> None: ...
@statement
def submit_tick(*, lane: int, priority: int, run_at: float, key: str, payload: bytes, now: float) -> None: ...
@statement
def schedules() -> Schedule: ...
@statement
def due_schedules(*, now: float) -> DueSchedule: ...
@statement
def next_schedule_at() -> float | None: ...


prepare(Schedule)
