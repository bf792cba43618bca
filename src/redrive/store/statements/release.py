# SPDX-License-Identifier: Apache-2.0
"""Releasing failed jobs into a new round: the candidates, and the changes that queue them."""

from __future__ import annotations

from typing import NamedTuple

from redrive.store.statements.operations import Act
from redrive.store.statements.statement import statement


class CandidateRows(NamedTuple):
    candidates: bytes
    last_edit: int


class LiveLetter(NamedTuple):
    id: int
    state: str
    replay_id: int | None


@statement
def replay_batch(*, replay: int, from_start: bool, limit: int) -> CandidateRows: ...
@statement
def replay_candidates(*, ids: list[int], from_start: bool) -> CandidateRows: ...
@statement
def edited_value(*, edit: int) -> bytes | None: ...
@statement
def count_taken(*, ids: list[int], replay: int | None) -> None: ...
@statement
def take_letters(*, ids: list[int], replay: int | None, last_edit: int) -> None: ...
@statement
def replay_jobs(*, ids: list[int], now: float, first_lane: int | None) -> None: ...
@statement
def put_input(*, input: bytes | None, input_from: int, job: int) -> None: ...
@statement
def live_letter(*, job: int) -> LiveLetter: ...
@statement
def log_retry(*, act: Act, change: str, letter: int, state: str) -> None: ...
