# SPDX-License-Identifier: Apache-2.0
"""Turn the items of a source into jobs of a run, and compare them with what the source yielded before.

Every item that can be stored becomes a job, even one of the wrong type: that job then fails, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.submission import check_size
from redrive.errors import SerializationError
from redrive.store.records import LaneId, NewJob, RunId
from redrive.store.statements import runs as run_sql


def jobs_of(
    items: Sequence[object], pipeline: Pipeline, lane: LaneId, run: RunId, *, first: int, now: float
) -> tuple[list[NewJob], SerializationError | None]:
    """Return the items of a run as jobs, up to the first that cannot be stored, and the error about that one."""
    jobs: list[NewJob] = []
    entry = pipeline.stages[0]
    for place, item in enumerate(items, start=first):
        try:
            payload = entry.input.encode(item)
            check_size(entry.name, payload)
        except SerializationError as error:
            where = f"{pipeline.name} (item {place}, counting from 0): {error.where}"
            located = SerializationError(where=where, kind=error.kind, problem=error.problem)
            located.index, located.__cause__ = place, error
            fix = f"Correct this item in the source, and resume run {run} with it."
            located.hint = f"The items before it are submitted. {fix}"
            return jobs, located
        jobs.append(NewJob(lane=lane, payload=payload, run_at=now, run=run, ordinal=place))
    return jobs, None


def first_difference(jobs: Iterable[NewJob], rows: Iterable[run_sql.ItemPayload]) -> int | None:
    """Return the first position at which an item differs from the stored one; pruned or erased ones are not compared."""
    stored = {row.ordinal: row.payload for row in rows if row.payload is not None}
    for job in jobs:
        ordinal = cast("int", job.ordinal)
        if stored.get(ordinal, job.payload) != job.payload:
            return ordinal
    return None
