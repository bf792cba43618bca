# SPDX-License-Identifier: Apache-2.0
"""Settling a crowd: outcomes that differ in nothing but their job, its value and when it ran.

Stages that went well without a word, of jobs that were claimed together, are most of what a busy worker has to settle. What they
share is named once: a parameter of a row costs as much as writing a column of it. And what such a job has never had, it need not
lose: failures, holds and suspicions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from redrive.core.lifecycle import JobState
from redrive.store.plan import Onward
from redrive.store.protocol import INLINE_MAX, LaneId, Settlement
from redrive.store.sqlite.rows import execute_rows

CROWD_MIN = 16
"""For fewer, a statement of their own is not worth it."""

Likeness = tuple[int, int, LaneId, int, LaneId, JobState, str | None]
"""What a crowd shares: token, dispatch, lane and round of its jobs, and lane, status and settings of their outcomes."""

# Looked up once: every use of a member by its name goes through a hook of the enumeration.
_COMPLETE: Final = JobState.COMPLETE
_QUEUED: Final = JobState.QUEUED


def crowds_of(done: Iterable[Settlement]) -> tuple[dict[Likeness, list[Settlement]], list[Settlement]]:
    """Divide outcomes into crowds and the others."""
    crowds: dict[Likeness, list[Settlement]] = {}
    others: list[Settlement] = []
    for one in done:
        if not _is_plain(one):
            others.append(one)
            continue
        job = one.job
        likeness = (job.token, job.dispatch, job.lane, job.round, one.lane, one.status, one.config)
        if likeness in crowds:
            crowds[likeness].append(one)
        else:
            crowds[likeness] = [one]
    for likeness in [each for each, crowd in crowds.items() if len(crowd) < CROWD_MIN]:
        others += crowds.pop(likeness)
    return crowds, others


def settle_crowd(
    db: sqlite3.Connection, worker: str, likeness: Likeness, crowd: Sequence[Settlement], onward: Onward
) -> tuple[list[Settlement], bool]:
    """Settle a crowd; return those who have to be settled one by one, and whether all the others were still fenced."""
    token, dispatch, lane, round_, following, status, config = likeness
    settled: list[Settlement] = []
    left: list[Settlement] = []
    if status is _COMPLETE:
        settled += crowd
        ended = [(one.job.id, one.ended_at, bytearray(one.value or b"")) for one in settled]
        touched = execute_rows(db, "complete_uniform", ended, (token, dispatch))
    else:
        for one in crowd:
            (settled if onward.takes(one) else left).append(one)
        inputs = [(one.job.id, bytearray(one.value or b"")) for one in settled]
        touched = execute_rows(db, "continue_uniform", inputs, (*onward.terms, following, token, dispatch))
    attempts = [(one.job.id, one.started_at, one.ended_at) for one in settled]
    execute_rows(db, "insert_uniform_attempts", attempts, (worker, dispatch, lane, round_, config))
    return left, touched == len(settled)


def _is_plain(one: Settlement) -> bool:
    """Say whether a stage went well without a word, and its job well before it."""
    if one.outcome != "ok" or one.value is None or len(one.value) > INLINE_MAX:
        return False
    if one.status is not _COMPLETE and one.status is not _QUEUED:
        return False
    if one.decision is not None or one.notes is not None or one.children or one.recipients or not one.burned:
        return False
    job = one.job
    return job.attempt == 1 and not (job.snoozes or job.suspects or job.crashes) and job.codes is None
