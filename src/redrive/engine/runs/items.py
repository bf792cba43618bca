# SPDX-License-Identifier: Apache-2.0
"""Turn the items of a source into jobs of a run, and compare them with what the source yielded before.

Every item that can be stored becomes a job, even one of the wrong type: that job then fails, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.submission import check_size
from redrive.errors import SerializationError
from redrive.store.records import LaneId, NewJob, RunId
from redrive.store.statements import runs as run_sql


@dataclass(frozen=True, slots=True)
class JobBuilder:
    """Builds jobs from the items of one run."""

    pipeline: Pipeline
    lane: LaneId
    run: RunId

    def jobs(
        self, items: Sequence[object], *, first: int, now: float, limit: int
    ) -> tuple[list[NewJob], SerializationError | None]:
        """Return the items as jobs, up to the first that cannot be stored, and the error about that one."""
        jobs: list[NewJob] = []
        for place, item in enumerate(items, start=first):
            try:
                payload = self._encoded(item, limit)
            except SerializationError as error:
                return jobs, self._unstorable(place, error)
            jobs.append(NewJob(lane=self.lane, payload=payload, run_at=now, run=self.run, ordinal=place))
        return jobs, None

    def _encoded(self, item: object, limit: int) -> bytes:
        first = self.pipeline.stages[0]
        payload = first.input.encode(item)
        check_size(first.name, payload, limit)
        return payload

    def _unstorable(self, place: int, error: SerializationError) -> SerializationError:
        where = f"{self.pipeline.name} (item {place}, counting from 0): {error.where}"
        located = SerializationError(where=where, kind=error.kind, problem=error.problem)
        located.index = place
        located.hint = (
            "The items before it are submitted. Correct this item in the source,"
            f" and resume run {self.run} with it."
        )
        located.__cause__ = error
        return located


def first_difference(jobs: Iterable[NewJob], rows: Iterable[run_sql.ItemPayload]) -> int | None:
    """Return the first position at which an item differs from the stored one; pruned or erased ones are not compared."""
    stored = {row.ordinal: row.payload for row in rows if row.payload is not None}
    for job in jobs:
        ordinal = cast("int", job.ordinal)
        if stored.get(ordinal, job.payload) != job.payload:
            return ordinal
    return None
