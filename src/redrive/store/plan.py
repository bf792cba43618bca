# SPDX-License-Identifier: Apache-2.0
"""The plan of a worker's commit, the same for every store: what it may claim, which jobs continue in place, and what it answers.

A job continues in place if the same worker leases it again in the commit that settles it: for its next stage, or for the next
attempt of the same one if that is due already. It skips the queue: one row is written instead of two. It counts against what the
worker wants, so that limits hold as for any other claim, and attempts take at most half of that: a job that fails at once again and
again must not keep others from their turn. How a plan is carried out is each store's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from redrive.errors import ConfigurationError
from redrive.store.records import (
    Child,
    ClaimedJob,
    ClaimRequest,
    Exchange,
    ExchangeRequest,
    JobId,
    LaneId,
    Row,
    Settlement,
)

Db = TypeVar("Db")
InsertChild = Callable[[Db, Child, float, JobId], JobId]
"""Stores a job that a stage submitted, in a transaction, at a time, for a parent; returns its id."""

IN_PLACE: Final = 1 << 39
"""A bit in the tokens of jobs that continue in place; the tokens of commits stay below it."""
NOTHING: Final = ClaimRequest((), 0)


class Continuation:
    """The jobs of one commit that continue in place."""

    def __init__(self, want: ClaimRequest, paused: Container[LaneId], *, token: int, now: float) -> None:
        self._want = want
        self._token = token
        self._now = now
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
        self._retries = {lane: room // 2 for lane, room in self._room.items()}
        self._retries_in_all = min(want.limit, self._slots) // 2

    def take(self, one: Settlement) -> bool:
        """Take this job if there is room, and return whether; if not, it has to queue."""
        lane, job = one.lane, one.job
        room = self._room.get(lane, 0)
        if room <= 0 or len(self.taken) >= self._want.limit or job.id in self.taken:
            # The last case is a settlement of an earlier dispatch, which the fence will refuse.
            return False
        if not self._may_continue(one):
            return False
        if lane not in self._want.batched:
            if self._slots <= 0:
                return False
            self._slots -= 1
        self._room[lane] = room - 1
        if one.outcome == "retry":
            self._retries[lane] -= 1
            self._retries_in_all -= 1
        self.taken[job.id] = self._leased_again(one)
        return True

    def _may_continue(self, one: Settlement) -> bool:
        """Return whether there is a next stage, or the next attempt is due; under suspicion it queues: it may have to run alone."""
        if one.outcome == "ok":
            return one.value is not None
        is_due = one.outcome == "retry" and one.run_at <= self._now and not (one.suspects or one.crashes)
        return is_due and min(self._retries[one.lane], self._retries_in_all) > 0

    def _leased_again(self, one: Settlement) -> ClaimedJob:
        job = one.job
        begun = (job.id, self._token, job.dispatch + 1, one.lane)
        if one.value is None:
            counts, codes, values = (one.attempt, job.round, one.snoozes), one.codes, (job.input, job.payload)
        else:
            # A new stage: nothing has failed in it yet.
            payload = job.input if job.payload is None else job.payload
            counts, codes, values = (1, job.round, 0), None, (one.value, payload)
        return ClaimedJob(*begun, *counts, 0, 0, job.restarts, 0, job.expires_at, codes, *values, job.about)

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


class ExchangePlan(Generic[Db]):
    """What a worker commits. It may be carried out again, and in another way."""

    def __init__(self, asked: ExchangeRequest) -> None:
        self.worker = asked.worker
        self.done = asked.done
        self.breakers = asked.breakers
        self.now = asked.now
        self.token = asked.token
        self.tokens = (asked.worker, asked.token, asked.token | IN_PLACE)
        """Whose leases, and the tokens of this commit: of what is claimed, and of what continues in place."""
        self._want = asked.want
        self._children: list[tuple[JobId, Child, JobId]] = []
        self._why: dict[JobId, ConfigurationError] = {}

    @property
    def children(self) -> list[JobId]:
        """The jobs that stages have submitted."""
        return [made for _, _, made in self._children]

    def continuation(self, paused: str, *, may_claim: bool = True) -> tuple[Continuation, frozenset[LaneId]]:
        """Return what continues in place, and the paused lanes, which are given as JSON."""
        lanes = frozenset(msgspec.json.decode(paused, type=list[LaneId]))
        want = self._want if may_claim else NOTHING
        return Continuation(want, lanes, token=self.token | IN_PLACE, now=self.now), lanes

    def inserting(self, insert: InsertChild[Db]) -> Callable[[Db, Child, float, JobId], None]:
        """Return what stores a job that a stage submitted, and remembers its id, or why it could not be stored."""
        self._children.clear()

        def inserted(db: Db, child: Child, now: float, parent: JobId) -> None:
            try:
                made = insert(db, child, now, parent)
            except ConfigurationError as error:
                self._why[parent] = error
                raise
            self._children.append((parent, child, made))

        return inserted

    def answer(
        self, in_place: Continuation, cancelled: str, jobs: Iterable[ClaimedJob], swapped: Sequence[str]
    ) -> Exchange:
        """Return the answer: what was claimed in the order of the wanted lanes; `cancelled` are jobs to cancel, as JSON."""
        cancel = msgspec.json.decode(cancelled, type=tuple[JobId, ...])
        in_place.mark_cancelled(cancel)
        claimed = in_order(self._want, (*in_place.taken.values(), *jobs))
        return Exchange(why=self._why, claimed=claimed, swapped=tuple(swapped), cancel=cancel)

    def report_children(self, answer: Exchange) -> None:
        """Give the children their ids; once it is committed, because a transaction that is rolled back has stored none of them."""
        for parent, child, made in self._children:
            if parent not in answer.broken:
                child.stored[:] = [made]


def in_order(want: ClaimRequest, jobs: Iterable[ClaimedJob]) -> tuple[ClaimedJob, ...]:
    """Return jobs in the order of the wanted lanes."""
    by_lane: dict[LaneId, list[ClaimedJob]] = {lane: [] for lane in want.lanes}
    for job in jobs:
        by_lane.setdefault(job.lane, []).append(job)
    return tuple(itertools.chain.from_iterable(by_lane.values()))
