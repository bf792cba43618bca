# SPDX-License-Identifier: Apache-2.0
"""The journal of a worker: collects settlements and commits them together with the next claim.

One commit carries the settlements of everything that ended since the last one, and claims the next jobs; the next commit starts
when the last one ended, so that a batch grows with the load and nobody waits for a timer. The journal is bounded by the worker's
slots: while the store does not answer, nothing new is claimed.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from redrive.core.breaker import Breaker
from redrive.engine.limits.limits import divide
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.runner import Runner
from redrive.engine.worker.settlements import reduced_settlement
from redrive.store.protocol import Store
from redrive.store.records import (
    ClaimedJob,
    ClaimRequest,
    Exchange,
    ExchangeRequest,
    JobId,
    LaneId,
    Settlement,
    StateChange,
)
from redrive.store.statements import workers as worker_sql

logger = logging.getLogger("redrive.worker")

COMMIT_MAX: Final = 1_024
"""Settlements, and claims, of one commit. When very many stages end at once, the first slots are filled again all the sooner."""
FIRST_TOKENS: Final = 1 << 38
"""The first token of a worker is drawn from below this, so that hardly any two workers hold leases under the same one."""
RELEASE_SECONDS: Final = 60.0
"""How long a job is kept whose settlement the store refuses in every form, before it is queued again."""


class Journal:
    """What one worker has to commit, and what it claims."""

    def __init__(self, store: Store, lanes: Mapping[LaneId, Lane], runner: Runner) -> None:
        self._store = store
        self._lanes = lanes
        self._breakers = runner.probes.breakers
        self._probes = runner.probes
        self._runner = runner
        # Later stages first: what is nearly done is finished before more is begun.
        self.order = tuple(sorted(lanes, reverse=True))
        self._by_breaker: dict[Breaker, list[LaneId]] = {}
        for lane in lanes.values():
            if lane.stage.breaker is not None:
                self._by_breaker.setdefault(lane.stage.breaker, []).append(lane.id)
        self._turn = 0
        self._tokens = itertools.count(1 + int(runner.runtime.chance.random() * FIRST_TOKENS))
        self._settlements: list[Settlement] = []
        self._changes: list[StateChange] = []
        """What goes with the next commit about breakers."""
        self._refusals: dict[JobId, int] = {}
        """How often the store refused the settlement of a job that is not settled yet."""
        self._unsettled: dict[JobId, tuple[float, ClaimedJob]] = {}
        """Jobs that cannot be settled, and when they are queued again."""

    def __len__(self) -> int:
        """Return how many settlements have not been committed."""
        return len(self._settlements)

    def add(self, settlement: Settlement) -> None:
        """Keep a settlement for the next commit."""
        self._settlements.append(settlement)

    def take(self) -> tuple[list[Settlement], int]:
        """Return what is to be committed now, the oldest first, and the token of the commit."""
        batch, self._settlements = self._settlements[:COMMIT_MAX], self._settlements[COMMIT_MAX:]
        return batch, next(self._tokens)

    def put_back(self, batch: list[Settlement]) -> None:
        """Put back what could not be committed."""
        self._settlements = batch + self._settlements

    def clear(self) -> None:
        """Forget what was not committed: it belongs to leases that are void."""
        self._settlements = []
        self._refusals = {}
        self._unsettled = {}

    def blocked(self) -> set[LaneId]:
        """Return the lanes that are not claimed because their breaker holds them."""
        return {lane.id for lane in self._lanes.values() if not self._may_claim(lane.stage.breaker)}

    def want(self, room: int, limits: dict[LaneId, int], now: float) -> ClaimRequest:
        """Return what to claim: at most `room` jobs, none of held lanes, and of some lanes only so many. Changes `limits`."""
        for breaker, lanes in self._by_breaker.items():
            left = self._breakers.starts_left(breaker, now)
            if left < room:
                self._turn += 1
                divide(lanes, max(0, int(left)), limits, self._turn)
        open_lanes = tuple(lane for lane in self.order if self._may_claim(self._lanes[lane].stage.breaker))
        return ClaimRequest(open_lanes, room, limits)

    def flush_breakers(self, now: float, *, with_commit: bool = False) -> None:
        """Write what attempts have found about their dependencies, or keep it for a commit; free probes of jobs that never ran."""
        self._probes.release_dropped(now)
        self._changes = self._breakers.flush(now, with_commit=with_commit)

    def commit(
        self, worker: str, batch: list[Settlement], want: ClaimRequest, *, now: float, token: int
    ) -> Exchange:
        """Settle and claim in one transaction, then send probes where it is time for one. Safe to repeat."""
        self._release_unsettled(now)
        if not self._by_breaker:
            answer = self._store.exchange(ExchangeRequest(worker, batch, want, now=now, token=token))
            self._remember_keys(answer.claimed)
            return answer
        recovered = self._probes.recover(worker, now=now, token=token)
        want = _reduced_by(recovered, want)
        for settlement in batch:
            breaker = self._breaker_of(settlement.job) if settlement.outcome == "hold" else None
            if breaker is not None:
                self._breakers.holding.add(breaker.name)
        answer = self._store.exchange(
            ExchangeRequest(worker, batch, want, now=now, token=token, breakers=self._changes)
        )
        self._breakers.written(answer.swapped)
        self._remember_keys(answer.claimed)
        for job in answer.claimed:
            breaker = self._breaker_of(job)
            if breaker is not None:
                self._breakers.count_start(breaker, job.id, token)
        probes = self._probes.claim(answer.claimed, want, worker, now=now, token=token)
        self._remember_keys((*recovered, *probes))
        return msgspec.structs.replace(answer, claimed=(*recovered, *answer.claimed, *probes))

    def _breaker_of(self, job: ClaimedJob) -> Breaker | None:
        return self._breakers.of(job.id, self._lanes[job.lane].stage.breaker)

    def add_refused(self, answer: Exchange, batch: list[Settlement]) -> None:
        """Settle again, as failures of their attempts, the jobs whose rows the store refused in this commit.

        The second time whatever is written beside the job is left out. A job that is refused again is queued after a pause:
        otherwise it would be sent again and again, as fast as the store can refuse it.
        """
        if not (answer.broken or self._refusals):
            return
        by_id = {settlement.job.id: settlement for settlement in batch}
        for job in by_id.keys() - set(answer.broken):
            self._refusals.pop(job, None)
        for job in answer.broken:
            settlement = by_id[job]
            times = self._refusals[job] = self._refusals.get(job, 0) + 1
            if times == 1:
                lane = self._lanes[settlement.job.lane]
                self.add(self._runner.decide_refused(settlement, lane, answer.why.get(job)))
            elif times == 2:
                logger.error(
                    "job %s: the store refuses details of its outcome; committed without notes, children and notices",
                    job,
                )
                self.add(reduced_settlement(settlement))
            else:
                self._release_later(settlement)

    def release(self, jobs: Iterable[ClaimedJob], now: float) -> None:
        """Release jobs that were not started, with their probes. Safe to repeat."""
        self._release(jobs)
        self.flush_breakers(now)

    def _release(self, jobs: Iterable[ClaimedJob]) -> None:
        """Put jobs back into the queue; fenced, so that it may be repeated."""
        self._store.apply(
            *(worker_sql.return_job(job=job.id, token=job.token, dispatch=job.dispatch) for job in jobs)
        )

    def _release_later(self, settlement: Settlement) -> None:
        """Keep a job that cannot be settled for a while; a worker that ends before releases it at once."""
        logger.error(
            "job %s: the store refuses every outcome of its attempt; it is queued again in %g s."
            " Check the database with `redrive doctor --deep`.",
            settlement.job.id,
            RELEASE_SECONDS,
        )
        del self._refusals[settlement.job.id]
        self._unsettled[settlement.job.id] = (settlement.ended_at + RELEASE_SECONDS, settlement.job)

    def _release_unsettled(self, now: float) -> None:
        """Release the jobs whose pause is over."""
        over = [job for at, job in self._unsettled.values() if at <= now]
        if over:
            self._release(over)
        for job in over:
            del self._unsettled[job.id]

    def _may_claim(self, breaker: Breaker | None) -> bool:
        """Return whether jobs behind a breaker are claimed; one that fails fast refuses each, and one with keys is asked by key."""
        if breaker is None or breaker.mode == "fail_fast" or breaker.key is not None:
            return True
        return self._breakers.standing(breaker).is_closed

    def _remember_keys(self, claimed: Iterable[ClaimedJob]) -> None:
        if self._breakers.keys is not None and self._breakers.keys.lanes:
            self._breakers.keys.remember(claimed)


def _reduced_by(jobs: list[ClaimedJob], want: ClaimRequest) -> ClaimRequest:
    """Return what can be claimed besides jobs that are leased already."""
    if not jobs:
        return want
    limits = dict(want.limits)
    for job in jobs:
        if job.lane in limits:
            limits[job.lane] = max(0, limits[job.lane] - 1)
    slots = max(0, (want.limit if want.slots is None else want.slots) - len(jobs))
    limit = max(0, want.limit - len(jobs))
    return msgspec.structs.replace(want, limit=limit, limits=limits, slots=slots)
