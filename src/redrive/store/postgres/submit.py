# SPDX-License-Identifier: Apache-2.0
"""Storing new jobs in PostgreSQL: a batch is one statement, with keys or without; a large one without keys is a COPY.

A job whose key somebody else is just storing waits for that: it is a duplicate if the other commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from redrive.store.postgres.arrays import CopyWriter
from redrive.store.postgres.session import Session, columns_of
from redrive.store.records import INLINE_MAX, Child, JobId, LaneId, NewJob, Row, SubmittedJob, lanes_in_order

TRIES: Final = 100
"""How often a key may become free between the insertion that found it taken and the look at who has it."""
COPY_MIN: Final = 100
"""With fewer jobs the additional round trips cost more than they save."""

Made = dict[int, SubmittedJob]


def is_copied(jobs: Sequence[NewJob]) -> bool:
    """Return whether jobs are stored by COPY, which cannot be sent together with other statements."""
    return len(jobs) >= COPY_MIN and not any(job.key for job in jobs)


class Submission:
    """Stores jobs in one transaction. `pipelines` are those of all lanes it knows."""

    def __init__(self, db: Session, pipelines: dict[LaneId, str]) -> None:
        self._db = db
        self._pipelines = pipelines

    def known_lanes(self, pipeline: str, stages: Sequence[str]) -> list[LaneId] | None:
        """Return the lanes of a pipeline if all are there, in this order; None if not. Only reads."""
        return lanes_in_order(self._known(pipeline), stages)

    def lanes(self, pipeline: str, stages: Sequence[str]) -> list[LaneId]:
        """Return the lanes of a pipeline, making those that are new."""
        rows = [
            self._db.execute("add_lane", (pipeline, stage, position)) for position, stage in enumerate(stages)
        ]
        found = [LaneId((row.fetchone() or (0,))[0]) for row in rows]
        self._pipelines.update(dict.fromkeys(found, pipeline))
        return found

    def submit(self, jobs: Sequence[NewJob], now: float) -> list[SubmittedJob]:
        """Store jobs, and count the items of their runs."""
        sizes = {job.run: job.ordinal + 1 for job in jobs if job.ordinal is not None}
        for run, size in sizes.items():
            self._db.execute("count_items", (size, run))
        return self.insert(jobs, now)

    def insert(self, jobs: Sequence[NewJob], now: float) -> list[SubmittedJob]:
        """Store jobs; one whose key is taken is the job that has it."""
        made: Made = {}
        left = dict(enumerate(jobs))
        if self._db.can_copy and is_copied(jobs):
            made, left = self._copy(left, now), {}
        for _ in range(TRIES):
            if not left:
                break
            made |= self._insert(left, now)
            left = {place: job for place, job in left.items() if place not in made}
            made |= self._duplicates(left)
            left = {place: job for place, job in left.items() if place not in made}
        new = {place: one.id for place, one in made.items() if not one.is_duplicate}
        values = [(id_, 0, jobs[place].payload) for place, id_ in new.items() if is_beside(jobs[place])]
        if values:
            self._db.execute_rows("insert_values", values)
        traces = [(id_, jobs[place].trace) for place, id_ in new.items() if jobs[place].trace is not None]
        if traces:
            self._db.execute_rows("insert_traces", traces)
        return [made[place] for place in range(len(jobs))]

    def insert_child(self, child: Child, now: float, parent: JobId) -> JobId:
        """Store a job that a stage submitted; return its id."""
        lane = child.entry(self._known(child.pipeline)) or self.lanes(child.pipeline, child.stages)[0]
        job = msgspec.structs.replace(child.job, lane=lane, parent=parent)
        if not child.joins_run or self._duplicates({0: job}):
            return self.insert([job], now)[0].id
        run, ordinal, status = self._db.execute("join_run", (parent,)).fetchone() or (None, None, "")
        made = self.insert([msgspec.structs.replace(job, run=run, ordinal=ordinal)], now)[0].id
        if status in {"paused", "cancelled"}:
            self._db.execute("stop_child", (made, status, now))
        return made

    def _known(self, pipeline: str) -> dict[str, tuple[LaneId, int]]:
        """Return the lane and the position of every stage that a pipeline ever had."""
        rows = self._db.execute("lanes_of", (pipeline,)).fetchall()
        known = {str(stage): (LaneId(lane), int(position)) for lane, stage, position in rows}
        self._pipelines.update({lane: pipeline for lane, _ in known.values()})
        return known

    def _copy(self, jobs: Mapping[int, NewJob], now: float) -> Made:
        """Copy jobs without keys, under ids that were taken before."""
        ids = [row[0] for row in self._db.execute("take_ids", (len(jobs),)).fetchall()]
        rows = CopyWriter()
        for id_, job in zip(ids, jobs.values(), strict=True):
            alike = (
                self._pipelines[job.lane],
                job.lane,
                "queued",
                job.owner or None,
                job.run,
                job.parent,
                job.expires_at,
                now,
            )
            turn = (id_, job.run_at, job.priority)
            rows.add(turn, alike, job.ordinal, None if is_beside(job) else job.payload)
        self._db.copy("copy_jobs", rows)
        return {
            place: SubmittedJob(JobId(id_), is_duplicate=False) for place, id_ in zip(jobs, ids, strict=True)
        }

    def _insert(self, jobs: Mapping[int, NewJob], now: float) -> Made:
        """Insert jobs; those whose key is taken are left out."""
        rows = [self._row_of(job) for job in jobs.values()]
        found = self._db.execute("insert_jobs", (now, *columns_of("insert_jobs", rows))).fetchall()
        keyed = {(pipeline, key): id_ for id_, pipeline, key in found if key is not None}
        plain = (id_ for id_, _, key in found if key is None)
        made: Made = {}
        for place, job in jobs.items():
            id_ = keyed.pop((self._pipelines[job.lane], job.key), None) if job.key else next(plain)
            if id_ is not None:
                made[place] = SubmittedJob(JobId(id_), is_duplicate=False)
        return made

    def _duplicates(self, jobs: Mapping[int, NewJob]) -> Made:
        """Return the jobs that have the keys of these."""
        keys = [(self._pipelines[job.lane], job.key) for job in jobs.values() if job.key]
        if not keys:
            return {}
        rows = self._db.execute("duplicates", tuple(columns_of("duplicates", keys))).fetchall()
        held = {(pipeline, key): id_ for id_, pipeline, key in rows}
        found = {place: held.get((self._pipelines[job.lane], job.key)) for place, job in jobs.items()}
        return {
            place: SubmittedJob(JobId(id_), is_duplicate=True)
            for place, id_ in found.items()
            if id_ is not None
        }

    def _row_of(self, job: NewJob) -> Row:
        return (
            self._pipelines[job.lane],
            job.lane,
            job.priority,
            job.run_at,
            job.key or None,
            job.owner or None,
            job.run,
            job.ordinal,
            job.parent,
            job.expires_at,
            None if is_beside(job) else job.payload,
        )


def is_beside(job: NewJob) -> bool:
    """Return whether a job's payload is kept in job_values."""
    return len(job.payload) > INLINE_MAX
