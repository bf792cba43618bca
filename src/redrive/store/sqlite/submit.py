# SPDX-License-Identifier: Apache-2.0
"""Storing new jobs in SQLite, inside a transaction that somebody else has begun and will commit.

A key is taken by at most one job of a pipeline that is queued, processing or complete: nobody else writes meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from redrive.store.records import INLINE_MAX, Child, JobId, LaneId, NewJob, Row, SubmittedJob, lanes_in_order
from redrive.store.statements.text import statements_of

NEVER: Final = -1e18
"""Stands for no time where None would be slow; no calendar reaches back that far."""

_SQL: Final = statements_of("sqlite")


class Submission:
    """Stores jobs in one transaction. `pipelines` are those of all lanes it knows."""

    def __init__(self, db: sqlite3.Connection | sqlite3.Cursor, pipelines: dict[LaneId, str]) -> None:
        self._db = db
        self._pipelines = pipelines

    def known_lanes(self, pipeline: str, stages: Sequence[str]) -> list[LaneId] | None:
        """Return the lanes of a pipeline if all are there, in this order; None if not. Only reads."""
        return lanes_in_order(self._known(pipeline), stages)

    def lanes(self, pipeline: str, stages: Sequence[str]) -> list[LaneId]:
        """Return the lanes of a pipeline, making those that are new."""
        found = [
            LaneId(self._db.execute(_SQL["add_lane"], (pipeline, stage, position)).fetchone()[0])
            for position, stage in enumerate(stages)
        ]
        self._pipelines.update(dict.fromkeys(found, pipeline))
        return found

    def submit(self, jobs: Sequence[NewJob], now: float) -> list[SubmittedJob]:
        """Store jobs, and count the items of their runs."""
        sizes = {job.run: job.ordinal + 1 for job in jobs if job.ordinal is not None}
        for run, size in sizes.items():
            self._db.execute(_SQL["count_items"], (size, run))
        if any(job.key or len(job.payload) > INLINE_MAX for job in jobs):
            return [self._insert(job, now) for job in jobs]
        return self._insert_many(jobs, now)

    def insert_child(self, child: Child, now: float, parent: JobId) -> JobId:
        """Store a job that a stage submitted; return its id."""
        lane = child.entry(self._known(child.pipeline)) or self.lanes(child.pipeline, child.stages)[0]
        job = msgspec.structs.replace(child.job, lane=lane, parent=parent)
        if not child.joins_run or self._duplicate(job) is not None:
            return self._insert(job, now).id
        run, ordinal, status = self._db.execute(_SQL["join_run"], (parent,)).fetchone() or (None, None, "")
        made = self._insert(msgspec.structs.replace(job, run=run, ordinal=ordinal), now).id
        if status in {"paused", "cancelled"}:
            self._db.execute(_SQL["stop_child"], (made, status, now))
        return made

    def _known(self, pipeline: str) -> dict[str, tuple[LaneId, int]]:
        """Return the lane and the position of every stage that a pipeline ever had."""
        rows = self._db.execute(_SQL["lanes_of"], (pipeline,)).fetchall()
        known = {str(stage): (LaneId(lane), int(position)) for lane, stage, position in rows}
        self._pipelines.update({lane: pipeline for lane, _ in known.values()})
        return known

    def _insert_many(self, jobs: Sequence[NewJob], now: float) -> list[SubmittedJob]:
        """Insert jobs without keys; ids are given in order, so that the last one implies all."""
        self._db.executemany(_SQL["insert_job"], (self._row_of(job, now) for job in jobs))
        asked = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'") if jobs else None
        first = 1 if asked is None else asked.fetchone()[0] - len(jobs) + 1
        traces = [(first + place, job.trace) for place, job in enumerate(jobs) if job.trace is not None]
        if traces:
            self._db.executemany(_SQL["insert_trace"], traces)
        return [SubmittedJob(JobId(first + place), is_duplicate=False) for place in range(len(jobs))]

    def _insert(self, job: NewJob, now: float) -> SubmittedJob:
        existing = self._duplicate(job)
        if existing is not None:
            return SubmittedJob(existing, is_duplicate=True)
        made = JobId(self._db.execute(_SQL["insert_job"], self._row_of(job, now)).lastrowid or 0)
        if len(job.payload) > INLINE_MAX:
            self._db.execute(_SQL["insert_value"], (made, 0, job.payload))
        if job.trace is not None:
            self._db.execute(_SQL["insert_trace"], (made, job.trace))
        return SubmittedJob(made, is_duplicate=False)

    def _duplicate(self, job: NewJob) -> JobId | None:
        """Return the job that has the key of this one already; None without one."""
        if not job.key:
            return None
        found = self._db.execute(_SQL["duplicate"], (self._pipelines[job.lane], job.key)).fetchone()
        return None if found is None else JobId(found[0])

    def _row_of(self, job: NewJob, now: float) -> Row:
        return (
            self._pipelines[job.lane],
            job.lane,
            job.priority,
            job.run_at,
            job.key or "",
            job.owner or "",
            job.run or 0,
            -1 if job.ordinal is None else job.ordinal,
            job.parent or 0,
            NEVER if job.expires_at is None else job.expires_at,
            bytearray(job.payload) if len(job.payload) <= INLINE_MAX else None,
            now,
        )
