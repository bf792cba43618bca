# SPDX-License-Identifier: Apache-2.0
"""Replays of many dead letters.

Only what the statements take and return: their texts are in `replays.sql`, here and in each dialect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from redrive.core.decoding import prepare
from redrive.store.statements.letters import LetterTerms
from redrive.store.statements.operations import Act
from redrive.store.statements.statement import statement


class LastLetter(NamedTuple):
    cutoff: int
    moves: int


class Recovered(NamedTuple):
    letters: int
    complete: int | None
    stages: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedFailure:
    """Replays that failed with one failure."""

    code: str
    group: str
    letters: int
    sample: int
    """One of the new letters."""
    escalated: int


class LastConfig(NamedTuple):
    id: int
    config: str | None
    replay_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFacts:
    """A replay as it is stored, without what is stored as JSON."""

    id: int
    pipeline: str
    status: str
    cutoff: int
    marked_to: int
    expected: int
    next_at: float
    reason: str | None
    note: str | None
    driver: str | None
    driven_until: float
    actor: str
    created_at: float
    ended_at: float | None
    closed_at: float | None
    moves: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReplay(ReplayFacts):
    """A replay as it is stored, with its filter, options and pardoned failures as JSON."""

    filter: bytes
    options: bytes
    pardoned: bytes


class StandingCount(NamedTuple):
    standing: str
    letters: int


class SkipCount(NamedTuple):
    kind: str
    letters: int


class SkippedLetter(NamedTuple):
    letter_id: int
    kind: str
    job_id: int | None
    stage: str | None
    detail: str | None


class RulesRow(NamedTuple):
    rules: bytes
    pipeline: str


class WrongReplayTally(NamedTuple):
    replay_id: int
    counted: int | None
    found: int | None


@statement
def last_letter() -> LastLetter: ...
@statement
def add_replay(
    *,
    pipeline: str,
    filter: bytes,
    options: bytes,
    cutoff: int,
    marked_to: int,
    expected: int,
    pardoned: bytes,
    actor: str,
    now: float,
    moves: int,
) -> int: ...
@statement
def log_replay_start(
    *, at: float, actor: str, verb: str, reason: str | None, letters: int | None, change: str
) -> None: ...
@statement
def log_replay(*, act: Act, after: str, replay: int) -> None: ...
@statement
def first_letter_of(
    *,
    pipeline: str | None,
    stage: str | None,
    code: str | None,
    category: str | None,
    fingerprint: str | None,
) -> int | None: ...
@statement
def is_pipeline_paused(*, pipeline: str) -> bool: ...
@statement
def held_of_pipeline(*, pipeline: str) -> int: ...
@statement
def recovered_of(*, replay: int) -> Recovered: ...
@statement
def returned_of(*, replay: int) -> RepeatedFailure: ...
@statement
def last_configs(*, ids: list[int]) -> LastConfig: ...
@statement
def replay(*, replay: int) -> StoredReplay: ...
@statement
def replays(*, before: int, pipeline: str | None, limit: int) -> StoredReplay: ...
@statement
def live_replays() -> StoredReplay: ...
@statement
def replay_counts(*, replay: int) -> StandingCount: ...
@statement
def replay_skips(*, replay: int) -> SkipCount: ...
@statement
def skipped_letters(*, replay: int, limit: int) -> SkippedLetter: ...
@statement
def skipped_for(*, replay: int, kind: str, limit: int) -> SkippedLetter: ...
@statement
def nearest_replays(*, replay: int) -> int: ...
@statement
def drive_replay(*, driver: str, until: float, replay: int, now: float) -> None: ...
@statement
def mark_letters(
    *, which: LetterTerms, after: int, last: int, replay: int, freed: int, moved: int
) -> None: ...
@statement
def count_marked(*, replay: int, after: int, last: int) -> None: ...
@statement
def set_marked_to(*, marked_to: int, replay: int, driver: str, before: int) -> None: ...
@statement
def set_next_release(*, next_at: float, replay: int, driver: str) -> None: ...
@statement
def stop_replay(*, reason: str, replay: int, driver: str) -> None: ...
@statement
def finish_replay(*, now: float, replay: int, driver: str) -> None: ...
@statement
def pause_replay(*, reason: str, replay: int) -> None: ...
@statement
def resume_replay(*, pardoned: bytes, now: float, replay: int) -> None: ...
@statement
def cancel_replay(*, reason: str, replay: int) -> None: ...
@statement
def unmark_letters(*, replay: int, limit: int) -> int: ...
@statement
def end_cancelled(*, now: float, replay: int) -> None: ...
@statement
def close_replay(*, note: str | None, now: float, replay: int) -> None: ...
@statement
def skip_letter(
    *, replay: int, letter: int, kind: str, job: int | None, stage: str | None, detail: str | None, now: float
) -> None: ...
@statement
def drop_skipped(*, letter: int, replay: int) -> None: ...
@statement
def put_rules(*, pipeline: str, rules: bytes) -> None: ...
@statement
def all_rules() -> RulesRow: ...
@statement
def rules(*, pipeline: str) -> bytes: ...
@statement
def wrong_replay_tallies(*, limit: int) -> WrongReplayTally: ...
@statement
def last_pause_of(*, replay: int) -> str | None: ...
@statement
def last_ended_of(*, replay: int, limit: int) -> float: ...


prepare(RepeatedFailure, StoredReplay)
