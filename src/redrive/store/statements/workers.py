# SPDX-License-Identifier: Apache-2.0
"""Workers, lanes, keys, limits and breakers.

Only what the statements take and return: their texts are in `workers.sql`, here and in each dialect.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from redrive.core.decoding import prepare
from redrive.store.statements.operations import Act
from redrive.store.statements.statement import statement


class WorkerRow(NamedTuple):
    id: str
    host: str
    process: int
    pipelines: str
    concurrency: int
    started_at: float
    expires_at: float
    leased: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFacts:
    """One stage of a pipeline, and what waits there."""

    id: int
    pipeline: str
    stage: str
    position: int
    paused_at: datetime | None
    queued: int
    processing: int


class LaneName(NamedTuple):
    pipeline: str
    stage: str


class StrandedJobs(NamedTuple):
    pipeline: str
    stage: str
    jobs: int


class ProbeCandidate(NamedTuple):
    priority: int
    owner: str | None
    id: int
    run_at: float


class LaneKey(NamedTuple):
    lane_key: str
    is_due: bool


class JobWithoutKey(NamedTuple):
    id: int
    key: str | None
    owner: str | None
    priority: int
    run_id: int | None
    input: bytes | None


class KeyOfJob(NamedTuple):
    id: int
    lane_key: str


class KeyedJob(NamedTuple):
    lane_key: str | None
    keyed_by: str | None


class LimitRow(NamedTuple):
    name: str
    key: str
    state: bytes


class BreakerRow(NamedTuple):
    name: str
    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChange:
    """One change of a breaker's phase."""

    id: int
    at: datetime
    breaker: str
    before: str
    after: str
    cause: str
    """`failures`, `probe` or `operator`."""
    code: str | None
    """The code of the failure that caused it."""
    actor: str
    """The worker that made it, or the operator."""
    reason: str | None
    """The operator's."""


@statement
def progress(*, progress: str, job: int, worker: str, dispatch: int) -> None: ...
@statement
def return_job(*, job: int, token: int, dispatch: int) -> None: ...
@statement
def workers() -> WorkerRow: ...
@statement
def lanes() -> LaneFacts: ...
@statement
def lane_names() -> LaneName: ...
@statement
def stranded(*, pipelines: list[str], lanes: list[int]) -> StrandedJobs: ...
@statement
def probe_candidates(*, lane: int, now: float, since: float) -> ProbeCandidate: ...
@statement
def probe_candidates_of_keys(*, lane: int, now: float, since: float, keys: list[str]) -> ProbeCandidate: ...
@statement
def large_value(*, job: int, dispatch: int) -> bytes: ...
@statement
def keys_of_lane(*, lane: int, after: str, now: float, limit: int) -> LaneKey: ...
@statement
def is_all_held(*, lane: int) -> bool: ...
@statement
def jobs_without_key(*, lane: int, limit: int) -> JobWithoutKey: ...
@statement
def last_jobs_without_key(*, lane: int, limit: int) -> JobWithoutKey: ...
@statement
def put_keys(*, keys: list[tuple[int, str]], lane: int, keyed_by: str) -> None: ...
@statement
def keys_of_jobs(*, ids: list[int]) -> KeyOfJob: ...
@statement
def key_of_job(*, job: int) -> KeyedJob: ...
@statement
def keyed_by(*, lane: int) -> str | None: ...
@statement
def set_keyed_by(*, keyed_by: str | None, lane: int) -> None: ...
@statement
def drop_keys(*, lane: int) -> None: ...
@statement
def drop_leased_keys(*, lane: int) -> None: ...
@statement
def limit(*, name: str, key: str) -> bytes: ...
@statement
def limits() -> LimitRow: ...
@statement
def add_limit(*, name: str, key: str, state: bytes, now: float) -> None: ...
@statement
def swap_limit(*, name: str, key: str, state: bytes, now: float, before: bytes) -> None: ...
@statement
def drop_old_limits(*, before: float) -> None: ...
@statement
def worker_ids() -> str: ...
@statement
def breaker(*, name: str) -> bytes: ...
@statement
def add_breaker(*, name: str, state: bytes) -> None: ...
@statement
def swap_breaker(*, state: bytes, name: str, before: bytes) -> None: ...
@statement
def breakers() -> BreakerRow: ...
@statement
def lease_time(*, now: float) -> float: ...
@statement
def breakers_named(*, names: list[str]) -> BreakerRow: ...
@statement
def breakers_of_keys(*, first: str, end: str) -> BreakerRow: ...
@statement
def drop_breaker(*, name: str, state: bytes) -> None: ...
@statement
def add_breaker_change(
    *,
    at: float,
    breaker: str,
    before: str,
    after: str,
    cause: str,
    code: str | None,
    actor: str,
    reason: str | None,
) -> None: ...
@statement
def breaker_change(*, change: int) -> StoredChange: ...
@statement
def breaker_changes(*, after: int, pipeline: str | None, limit: int) -> StoredChange: ...
@statement
def latest_breaker_changes(*, pipeline: str | None, limit: int) -> StoredChange: ...
@statement
def last_breaker_change() -> int: ...
@statement
def log_pipeline(*, act: Act, after: str, pipeline: str) -> None: ...
@statement
def release_held(*, now: float, breaker: str) -> int: ...
@statement
def pause_lanes(*, now: float, pipeline: str) -> int: ...
@statement
def resume_lanes(*, pipeline: str) -> int: ...


prepare(LaneFacts, StoredChange)
