# SPDX-License-Identifier: Apache-2.0
"""Continue in place: jobs whose stage is done and that the same worker leases for their next stage in the same commit.

They skip the queue: one row is written instead of two. They count against what the worker wants, so that limits hold as for any
other claim.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable
from typing import Final

import msgspec

from redrive.store.records import ClaimedJob, ClaimRequest, JobId, LaneId, Row, Settlement

IN_PLACE: Final = 1 << 39
"""A bit in the tokens of jobs that continue in place; the tokens of commits stay below it."""
NOTHING: Final = ClaimRequest((), 0)


class Continuation:
    """The jobs of one commit that continue in place."""

    def __init__(self, want: ClaimRequest, paused: Container[LaneId], *, token: int, now: float) -> None:
        self._want = want
        self._token = token
        self.terms: Row = (token, now)
        """Their new lease token, and since when."""
        self.taken: dict[JobId, ClaimedJob] = {}
        self._room = {
            lane: want.limits.get(lane, want.limit)
            for lane in want.lanes
            # In a lane with keys a job queues first: its key is not known yet.
            if lane not in paused and lane not in want.keys
        }
        self._slots = want.limit if want.slots is None else want.slots

    def take(self, one: Settlement) -> bool:
        """Take this job if there is room, and return whether; if not, it has to queue."""
        lane, job = one.lane, one.job
        room = self._room.get(lane, 0)
        if room <= 0 or one.value is None or len(self.taken) >= self._want.limit or job.id in self.taken:
            # The last case is a settlement of an earlier dispatch, which the fence will refuse.
            return False
        if lane not in self._want.batched:
            if self._slots <= 0:
                return False
            self._slots -= 1
        self._room[lane] = room - 1
        payload = job.input if job.payload is None else job.payload
        begun = (job.id, self._token, job.dispatch + 1, lane, 1, job.round)
        self.taken[job.id] = ClaimedJob(
            *begun, 0, 0, 0, job.restarts, 0, job.expires_at, None, one.value, payload, job.about
        )
        return True

    def mark_cancelled(self, jobs: Iterable[JobId]) -> None:
        """Mark the jobs that somebody asked to cancel while their stage ran."""
        for job in jobs:
            if job in self.taken:
                self.taken[job] = msgspec.structs.replace(self.taken[job], cancel_asked=1)

    def drop(self, job: JobId) -> None:
        """Release a job whose settlement was refused after all."""
        if (claimed := self.taken.pop(job, None)) is not None:
            self._room[claimed.lane] += 1
            self._slots += claimed.lane not in self._want.batched

    def rest(self) -> ClaimRequest:
        """Return what is still wanted."""
        want = self._want
        limits = {lane: self._room.get(lane, limit) for lane, limit in want.limits.items()}
        limit = want.limit - len(self.taken)
        return msgspec.structs.replace(want, limit=limit, limits=limits, slots=self._slots)


def in_order(want: ClaimRequest, jobs: Iterable[ClaimedJob]) -> tuple[ClaimedJob, ...]:
    """Return jobs in the order of the wanted lanes."""
    by_lane: dict[LaneId, list[ClaimedJob]] = {lane: [] for lane in want.lanes}
    for job in jobs:
        by_lane.setdefault(job.lane, []).append(job)
    return tuple(itertools.chain.from_iterable(by_lane.values()))
