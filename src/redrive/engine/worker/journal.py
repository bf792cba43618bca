# SPDX-License-Identifier: Apache-2.0
"""The journal of a worker: collects outcomes and commits them together with the next claim.

One commit carries the outcomes of everything that ended since the last one, and brings the next jobs; the next commit starts when
the last one ended, so that the batch grows with the load and nobody waits for a timer. The journal is bounded by the worker's
places: while the store does not answer, nothing new is claimed.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from redrive.core.breaker import Breaker, Evidence
from redrive.engine.clock import Chance
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.runner import Runner
from redrive.engine.worker.settlements import settled_alone
from redrive.engine.worker.slots import Slots
from redrive.store.protocol import Claimed, Exchange, JobId, LaneId, Settlement, Step, Store, Want

logger = logging.getLogger("redrive.worker")

COMMIT_MAX: Final = 512
"""Outcomes, and claims, of one commit. When very many stages end at once, the first places are filled again all the sooner."""
LANE_SHIFT: Final = 40
"""Tokens of commits stay below this many bits; above stands the lane whose probe a token claims."""
FIRST_TOKENS: Final = 1 << 38
"""Tokens begin anywhere below this, so that hardly any two workers hold leases under the same one."""
LET_GO_SECONDS: Final = 60.0
"""How long a job is kept whose outcome the store cannot take in any form, before it goes back to the queue."""
NOTHING: Final = Want((), 0)
"""Asked with its token, a claim brings what it had taken already, and takes nothing more."""


class Journal:
    """What one worker has to say to the store, and what it asks for."""

    def __init__(
        self,
        store: Store,
        lanes: Mapping[LaneId, Lane],
        breakers: SharedBreakers,
        runner: Runner,
        chance: Chance,
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._breakers = breakers
        self._runner = runner
        # Later stages first: what is nearly done is finished before more is begun.
        self.order = tuple(sorted(lanes, reverse=True))
        self._behind: dict[Breaker, list[LaneId]] = {}
        for lane in lanes.values():
            if lane.stage.breaker is not None:
                self._behind.setdefault(lane.stage.breaker, []).append(lane.id)
        self._turn = 0
        self._tokens = itertools.count(1 + int(chance.random() * FIRST_TOKENS))
        self._done: list[Settlement] = []
        self._refused: dict[JobId, int] = {}
        """How often the store could not take the outcome of a run that is not settled yet."""
        self._let_go: dict[JobId, tuple[float, Claimed]] = {}
        """What goes back to the queue, and when."""
        self._asked: set[LaneId] = set()
        """Lanes for whose probe the commit under way has asked: what came of it is not known before all of it is answered."""
        self._counted_for = 0
        self._counted: set[JobId] = set()
        """Jobs of the commit with this token whose start is counted already: that commit may have to be made again."""

    def add(self, settled: Settlement) -> None:
        """Remember an outcome for the next commit."""
        self._done.append(settled)

    @property
    def is_empty(self) -> bool:
        """Whether everything has been committed."""
        return not self._done

    def take(self) -> tuple[list[Settlement], int]:
        """Return what is to be committed now, the oldest first, and the token of the commit."""
        done, self._done = self._done[:COMMIT_MAX], self._done[COMMIT_MAX:]
        return done, next(self._tokens)

    def put_back(self, done: list[Settlement]) -> None:
        """Take back what could not be committed."""
        self._done = done + self._done

    def drop(self) -> None:
        """Forget what was not committed: it belongs to a life that is over."""
        self._done = []
        self._refused = {}
        self._let_go = {}
        self._asked = set()

    def blocked(self) -> set[LaneId]:
        """Return the lanes that are not claimed because their breaker holds them."""
        return {lane.id for lane in self._lanes.values() if not self._may_claim(lane.stage.breaker)}

    def want(self, slots: Slots, room: int, now: float) -> Want:
        """Say what this worker can take: nothing of held lanes, and of some lanes only so many."""
        limits: dict[LaneId, int] = {}
        for lane in self._lanes.values():
            most = [lane.stage.concurrency] if lane.stage.concurrency is not None else []
            if lane.stage.is_process:
                most.append(slots.places_in_processes)
            if most:
                limits[lane.id] = max(0, min(most) - slots.in_use(lane.id))
        for breaker, lanes in self._behind.items():
            left = self._breakers.starts_left(breaker, now)
            if left < room:
                self._share(lanes, max(0, int(left)), limits)
        open_lanes = tuple(lane for lane in self.order if self._may_claim(self._lanes[lane].stage.breaker))
        return Want(open_lanes, room, limits)

    def _share(self, lanes: list[LaneId], starts: int, limits: dict[LaneId, int]) -> None:
        """Divide the starts a breaker allows among its lanes; what cannot be divided goes to another one each time."""
        self._turn += 1
        for place, lane in enumerate(lanes):
            share = starts // len(lanes) + ((place + self._turn) % len(lanes) < starts % len(lanes))
            limits[lane] = min(share, limits.get(lane, share))

    def commit(self, worker: str, done: list[Settlement], want: Want, *, now: float, token: int) -> Exchange:
        """Settle and claim in one transaction, then send probes where it is time for one. Safe to repeat."""
        self._give_back(now)
        probed: set[str] = set()
        held = self._taken_before(worker, probed, now=now, token=token)
        want = _beside(held, want)
        answer = self._store.exchange(worker, done, want, now=now, token=token)
        if not self._behind:
            return answer
        claimed = list(answer.claimed)
        for job in claimed:
            self._count_start(job, token)
        self._probe_fast(claimed, worker, probed, now=now, token=token)
        for lane in self.order:
            if len(claimed) < want.limit and want.limits.get(lane, 1) > 0:
                claimed += self._probe(worker, self._lanes[lane], probed, now=now, token=token)
        self._asked.clear()
        return msgspec.structs.replace(answer, claimed=(*held, *claimed))

    def _taken_before(self, worker: str, probed: set[str], *, now: float, token: int) -> list[Claimed]:
        """Return the jobs that this commit took as probes when it was made before, and whose answers were lost.

        Since then all places may have been filled, or the breaker closed by somebody: nobody would ask for them again. One that is
        no probe any more is run, or refused, like every other job. A probe that had taken no job is given back.
        """
        found: list[Claimed] = []
        for lane in sorted(self._asked, reverse=True):
            breaker, probe = self._lanes[lane].stage.breaker, _probe_name(worker, token, lane)
            if breaker is None:
                continue
            taken = self._store.exchange(
                worker, [], NOTHING, now=now, token=_probe_token(token, lane)
            ).claimed
            if not taken:
                self._breakers.end_probe(breaker, now, probe, Evidence.NOTHING)
            for job in taken:
                found.append(job)
                # In any case: under its token another probe would find this job again.
                probed.add(breaker.name)
                if self._breakers.is_closed(breaker):
                    self._count_start(job, token)
                elif self._breakers.take_probe(breaker, now, probe):
                    self._runner.expect_probe(job.id, probe)
        return found

    def _count_start(self, job: Claimed, token: int) -> None:
        """Let its breaker know that a claimed job starts; once, however often the commit with this token is made."""
        if token != self._counted_for:
            self._counted_for, self._counted = token, set()
        breaker = self._lanes[job.lane].stage.breaker
        if breaker is not None and job.id not in self._counted:
            self._counted.add(job.id)
            self._breakers.count_start(breaker)

    def again(self, broken: Exchange, done: list[Settlement]) -> None:
        """Put back, as failures of their attempts, the outcomes whose rows the store could not take.

        The second time whatever is written beside the job is left out. What does not fit then either is let go after a pause: it
        would be put to the store again and again, as fast as that can refuse it.
        """
        if not (broken.broken or self._refused):
            return
        by_id = {settled.job.id: settled for settled in done}
        for job in by_id.keys() - set(broken.broken):
            self._refused.pop(job, None)
        for job in broken.broken:
            settled = by_id[job]
            times = self._refused[job] = self._refused.get(job, 0) + 1
            if times == 1:
                self.add(self._runner.unstorable(settled, self._lanes[settled.job.lane]))
            elif times == 2:
                logger.error(
                    "job %s: the store cannot take what goes with its outcome; it is settled without", job
                )
                self.add(settled_alone(settled))
            else:
                self._keep_for_now(settled)

    def _keep_for_now(self, settled: Settlement) -> None:
        """Keep a job that cannot be settled, and let it go later; the worker that ends before that lets go of it at once."""
        logger.error(
            "job %s: the store cannot take any outcome of its run; it is queued again in %g s."
            " Look at the database with `redrive doctor --deep`.",
            settled.job.id,
            LET_GO_SECONDS,
        )
        del self._refused[settled.job.id]
        self._let_go[settled.job.id] = (settled.ended_at + LET_GO_SECONDS, settled.job)

    def give_back(self, jobs: Iterable[Claimed], now: float) -> None:
        """Give back jobs that were not started, with their probes; safe to repeat."""
        self._return(jobs)
        self._breakers.flush(now)

    def _return(self, jobs: Iterable[Claimed]) -> None:
        """Put jobs back into the queue; fenced, so that it may be repeated."""
        self._store.apply(*(Step("give_back_one", (job.id, job.token, job.dispatch)) for job in jobs))

    def _give_back(self, now: float) -> None:
        """Give back the jobs whose pause is over."""
        over = [job for at, job in self._let_go.values() if at <= now]
        if over:
            self._return(over)
        for job in over:
            del self._let_go[job.id]

    def _may_claim(self, breaker: Breaker | None) -> bool:
        """A closed breaker lets everything through; so does a fail-fast one, whose jobs are refused one by one."""
        return breaker is None or breaker.mode == "fail_fast" or self._breakers.is_closed(breaker)

    def _probe_fast(
        self, claimed: list[Claimed], worker: str, probed: set[str], *, now: float, token: int
    ) -> None:
        """Send one of the claimed jobs as the probe of each fail-fast breaker that is not closed; the others are refused.

        Adds to `probed` the breakers that need no other probe from this commit.
        """
        for job in claimed:
            breaker = self._lanes[job.lane].stage.breaker
            if breaker is None or breaker.name in probed or self._breakers.is_closed(breaker):
                continue
            probed.add(breaker.name)
            probe = f"{worker}:{token}"
            if self._breakers.take_probe(breaker, now, probe):
                self._runner.expect_probe(job.id, probe)

    def _probe(
        self, worker: str, lane: Lane, probed: set[str], *, now: float, token: int
    ) -> tuple[Claimed, ...]:
        """Claim one job of a lane as the probe of its breaker, if that is not closed and it is time.

        Its tokens follow from the commit's own and the lane, so that a commit that is made again finds the probe it took before,
        and no other lane of the breaker takes it for its own.
        """
        breaker = lane.stage.breaker
        if breaker is None or breaker.name in probed or not self._is_time_for(breaker, lane.id, now):
            return ()
        probe = _probe_name(worker, token, lane.id)
        self._asked.add(lane.id)
        if not self._breakers.take_probe(breaker, now, probe):
            return ()
        want = Want((lane.id,), 1)
        claimed = self._store.exchange(worker, [], want, now=now, token=_probe_token(token, lane.id)).claimed
        if not claimed:
            self._breakers.end_probe(breaker, now, probe, Evidence.NOTHING)
        for job in claimed:
            probed.add(breaker.name)
            self._runner.expect_probe(job.id, probe)
        return claimed

    def _is_time_for(self, breaker: Breaker, lane: LaneId, now: float) -> bool:
        """Say whether a probe may go out and there is a job for it; only looked at, because asking for a probe is a change."""
        if self._breakers.is_closed(breaker) or self._breakers.opens_in(now, math.inf, only=breaker) > 0.01:
            return False
        outlook = self._store.outlook((lane,))
        return lane not in outlook.paused and outlook.due.get(lane, math.inf) <= now


def _probe_name(worker: str, token: int, lane: LaneId) -> str:
    return f"{worker}:{token}:{lane}"


def _probe_token(token: int, lane: LaneId) -> int:
    return token + (lane << LANE_SHIFT)


def _beside(held: list[Claimed], want: Want) -> Want:
    """Return what can be taken besides jobs that are held already."""
    if not held:
        return want
    limits = dict(want.limits)
    for job in held:
        if job.lane in limits:
            limits[job.lane] = max(0, limits[job.lane] - 1)
    return Want(want.lanes, max(0, want.limit - len(held)), limits)
