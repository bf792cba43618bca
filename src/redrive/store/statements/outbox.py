# SPDX-License-Identifier: Apache-2.0
"""Notices for hooks and sinks: which are due, and the records they are about.

Only what the statements take and return: their texts are in `outbox.sql`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from redrive.core.decoding import prepare
from redrive.store.statements.jobs import AttemptLine
from redrive.store.statements.statement import statement


class Notice(NamedTuple):
    id: int
    job: int | None
    dispatch: int | None
    attempt: int | None
    outcome: str | None
    code: str | None
    message: str | None
    decision: str | None
    ended_at: float | None
    round: int | None
    run_at: float | None
    http_status: int | None
    notes: str | None
    key: str | None
    exception: str | None
    letter: int | None
    event: str | None
    state: str | None
    at: float
    change: int | None
    run: int | None
    tries: int


class Listener(NamedTuple):
    topic: str
    recipient: str


class LaneBreaker(NamedTuple):
    lane_id: int
    breaker: str


class UndeliveredNotices(NamedTuple):
    pipeline: str
    recipient: str
    notices: int
    late: int
    first_due_at: float
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SunkAttempt(AttemptLine):
    """One run of a stage, in short."""

    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptForSink(SunkAttempt):
    """One of the last runs of a job, and how many there were."""

    in_all: int


@statement
def notices_for(*, lane: int, recipient: str, now: float, limit: int) -> Notice: ...
@statement
def listeners_of(*, pipeline: str) -> Listener: ...
@statement
def drop_listeners(*, pipeline: str) -> None: ...
@statement
def add_listener(*, pipeline: str, topic: str, recipient: str) -> None: ...
@statement
def breakers_of_pipeline(*, pipeline: str) -> LaneBreaker: ...
@statement
def drop_lane_breakers(*, pipeline: str) -> None: ...
@statement
def add_lane_breaker(*, lane: int, breaker: str) -> None: ...
@statement
def take_notice(*, hidden_until: float, notice: int, tries: int) -> None: ...
@statement
def postpone_notice(*, due_at: float, tries: int, notice: int, tries_before: int) -> None: ...
@statement
def drop_notice(*, notice: int) -> None: ...
@statement
def put_receipt(*, letter: int, sink: str, receipt: str, now: float) -> None: ...
@statement
def undelivered(*, before: float) -> UndeliveredNotices: ...
@statement
def attempts_for_sink(*, job: int, dispatch: int, limit: int) -> AttemptForSink: ...
@statement
def input_for_sink(*, job: int, lane: int, round: int) -> bytes | None: ...
@statement
def payload_for_sink(*, job: int) -> bytes | None: ...


prepare(AttemptForSink, SunkAttempt)
