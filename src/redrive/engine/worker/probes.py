# SPDX-License-Identifier: Apache-2.0
"""Breaker probes: the single jobs that a worker sends through breakers that are not closed.

    take      the breaker's row admits one token at a time, by compare-and-swap; only when its time has come and a job is due
    assign    one claimed job gets the token and runs as the probe; in `hold` mode the job is claimed for this alone
    end       what its attempt found is written to the breaker at once, and the token is free again
    drop      a job that does not run after all, or proves nothing about the dependency, frees its token with the next commit

No job is sent through a breaker that has a function of its own for it: `engine.health_probes` calls that, under the same token.
A worker that dies with a probe blocks nobody: the breaker forgets a token after a timeout.
A commit whose answer was lost is made again; `recover` first finds the probes that it had taken.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from redrive.core import breaker_state as step
from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import Admitted, BreakerState
from redrive.core.decide import BreakerStatus
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.breakers import SharedBreakers
from redrive.store.protocol import Store
from redrive.store.records import ClaimedJob, ClaimRequest, ExchangeRequest, JobId, LaneId
from redrive.store.statements import workers as worker_sql

LANE_SHIFT: Final = 40
"""Tokens of commits stay below this many bits; the bits above are the lane whose probe is claimed."""
GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0
"""Multiples of this, without their whole parts, fall everywhere between 0 and 1."""
NOTHING: Final = ClaimRequest((), 0)
"""A claim for nothing returns what was claimed under its token before, and claims nothing more."""


class Probes:
    """The probes of one worker. Jobs are dropped on the loop; everything else happens on the store's thread."""

    def __init__(self, store: Store, lanes: Mapping[LaneId, Lane], breakers: SharedBreakers) -> None:
        self._store = store
        self.breakers = breakers
        known = {id_: lane.stage.breaker for id_, lane in lanes.items() if lane.stage.breaker}
        self._by_lane = {id_: breaker for id_, breaker in known.items() if breaker.probe is None}
        self.own = tuple(
            {breaker.name: breaker for breaker in known.values() if breaker.probe is not None}.values()
        )
        """The breakers that bring their own probe."""
        # Later stages first, as in every claim.
        self._order = sorted(self._by_lane, reverse=True)
        self._tokens: dict[JobId, str] = {}
        self._dropped: deque[tuple[Breaker, str]] = deque()
        self._asked: set[LaneId] = set()
        """Lanes for which the commit of `_asked_by` has asked for a probe; what came of it is unknown if that is made again."""
        self._asked_by = 0
        self._turns: dict[str, int] = {}
        """The turn of the next probe of each breaker."""
        self._served: set[str] = set()
        """Breakers that need no other probe from the commit under way."""

    def take(self, breaker: Breaker, now: float, token: str) -> bool:
        """Try to take the probe of a breaker; return whether that worked. Safe to repeat with the same token."""
        is_admitted = False

        def admit(state: BreakerState) -> BreakerState:
            nonlocal is_admitted
            if state.probe is not None and state.probe.token == token:
                is_admitted = True
                return state
            after, answer = step.admit(breaker, state, now, token)
            is_admitted = isinstance(answer, Admitted)
            return after

        return self.breakers.change(breaker, admit) and is_admitted

    def take_alone(self, breaker: Breaker, now: float, token: str) -> bool:
        """Try to take the probe of a breaker for no job; return whether that worked. A closed breaker has none."""
        probe = self.standing(breaker).state.probe if self.take(breaker, now, token) else None
        return probe is not None and probe.token == token

    def standing(self, breaker: Breaker) -> BreakerStatus:
        """Return a breaker with its state as it is in the store now."""
        self.breakers.change(breaker, lambda state: state)
        return self.breakers.standing(breaker)

    def assign(self, job: JobId, breaker: Breaker, now: float, token: str) -> None:
        """Let a job run as the probe of a breaker, if the probe can be taken."""
        if self.take(breaker, now, token):
            self._tokens[job] = token

    def is_probe(self, job: JobId) -> bool:
        """Return whether a job runs as a probe."""
        return job in self._tokens

    def token_of(self, job: JobId) -> str | None:
        """Return the token of a job whose attempt has ended, and forget it; None when the job was no probe."""
        return self._tokens.pop(job, None)

    def end(
        self, breaker: Breaker, now: float, token: str, evidence: Evidence, code: str | None = None
    ) -> bool:
        """Write what a probe found; one that found nothing only frees its token. Return whether it could be written.

        `code` is that of the probe's failure.
        """
        ok, failed = int(evidence is Evidence.ALIVE), int(evidence is Evidence.DOWN)

        def record(state: BreakerState) -> BreakerState:
            if evidence is Evidence.NOTHING:
                return step.release(state, token)
            return step.record(breaker, state, now, ok=ok, failed=failed, token=token)

        return self.breakers.change(breaker, record, code=code)

    def drop(self, job: JobId, breaker: Breaker | None) -> None:
        """Free the token of a job that will not run, if it has one, with the next commit."""
        token = self._tokens.pop(job, None)
        if token is not None and (own := self.breakers.of(job, breaker)) is not None:
            self._dropped.append((own, token))

    def release_dropped(self, now: float) -> None:
        """Free the tokens of dropped jobs; meanwhile the loop may drop more."""
        while self._dropped:
            breaker, token = dropped = self._dropped.popleft()
            is_released = False
            try:
                is_released = self.end(breaker, now, token, Evidence.NOTHING)
            finally:
                if not is_released:
                    self._dropped.appendleft(dropped)
            if not is_released:
                return

    def recover(self, worker: str, *, now: float, token: int) -> list[ClaimedJob]:
        """Begin a commit: return the jobs that it claimed as probes when it was made before, and whose answers were lost.

        Since then all slots may have been filled, or the breaker closed by somebody: nobody would ask for them again. A job that is
        no probe any more is run, or refused, like every other job. A probe that found no job is freed.
        """
        self._served = set()
        if token != self._asked_by:
            self._asked_by, self._asked = token, set()
        found: list[ClaimedJob] = []
        for lane in sorted(self._asked, reverse=True):
            breaker, probe = self._by_lane[lane], _probe_token(worker, token, lane)
            claimed = self._store.exchange(
                ExchangeRequest(worker, [], NOTHING, now=now, token=_claim_token(token, lane))
            ).claimed
            if not claimed:
                self.end(breaker, now, probe, Evidence.NOTHING)
            for job in claimed:
                found.append(job)
                # In any case: under its token another probe would find this job again.
                self._served.add(breaker.name)
                if self.breakers.standing(breaker).is_closed:
                    self.breakers.count_start(breaker, job.id, token)
                else:
                    self.assign(job.id, breaker, now, probe)
        return found

    def claim(
        self, claimed: Sequence[ClaimedJob], want: ClaimRequest, worker: str, *, now: float, token: int
    ) -> list[ClaimedJob]:
        """Send probes where it is time for one; return the jobs that were claimed for this besides the claimed ones."""
        self._assign_claimed(claimed, worker, now=now, token=token)
        more: list[ClaimedJob] = []
        for lane in self._order:
            if len(claimed) + len(more) < want.limit and want.limits.get(lane, 1) > 0:
                more += self._claim_one(worker, lane, now=now, token=token)
        return more

    def _assign_claimed(self, claimed: Sequence[ClaimedJob], worker: str, *, now: float, token: int) -> None:
        """Assign one of the claimed jobs to each breaker that fails fast, or is of a key, and not closed; refuse the others."""
        for job in claimed:
            breaker = self.breakers.of(job.id, self._by_lane.get(job.lane))
            if breaker is None or breaker.name in self._served or self.breakers.standing(breaker).is_closed:
                continue
            self._served.add(breaker.name)
            self.assign(job.id, breaker, now, f"{worker}:{token}")

    def _claim_one(self, worker: str, lane: LaneId, *, now: float, token: int) -> tuple[ClaimedJob, ...]:
        """Claim one job of a lane as the probe of its breaker, if that is not closed and it is time.

        Its tokens follow from the commit's own and the lane, so that a commit that is made again finds the probe it took before,
        and no other lane of the breaker takes it for its own.
        """
        breaker = self._by_lane[lane]
        if breaker.name in self._served or not self._is_time_for(breaker, lane, now):
            return ()
        probe = _probe_token(worker, token, lane)
        self._asked.add(lane)
        if not self.take(breaker, now, probe):
            return ()
        keys = self._keys_of(lane, now)
        of_keys = {} if keys is None else {lane: dict.fromkeys(keys, 1)}
        want = ClaimRequest((lane,), 1, keys=of_keys, job=self._next_of(breaker, lane, now, keys))
        claimed = self._store.exchange(
            ExchangeRequest(worker, [], want, now=now, token=_claim_token(token, lane))
        ).claimed
        if not claimed:
            self.end(breaker, now, probe, Evidence.NOTHING)
        for job in claimed:
            self._tokens[job.id] = probe
        return claimed

    def _next_of(
        self, breaker: Breaker, lane: LaneId, now: float, keys: list[str] | None = None
    ) -> JobId | None:
        """Return the job whose turn it is to be the probe; None when there is none. In a lane with keys: of these.

        In the order of claims, whoever submits a few jobs that cannot succeed, with the first priority, would have every probe.
        """

        def due(since: float) -> list[worker_sql.ProbeCandidate]:
            if keys is None:
                return self._store.query(worker_sql.probe_candidates(lane=lane, now=now, since=since))
            return self._store.query(
                worker_sql.probe_candidates_of_keys(lane=lane, now=now, since=since, keys=keys)
            )

        # Begun where others are by now, so that a worker that is started often does not always begin with the same job.
        turn = self._turns.setdefault(breaker.name, self.breakers.standing(breaker).state.failures)
        self._turns[breaker.name] = turn + 1
        rows = due(0.0)
        if turn % 2 and rows:
            # Many jobs of one owner at the beginning must not hide those that follow: start somewhere else each time.
            first = min(row.run_at for row in rows)
            rows = due(first + (now - first) * (turn * GOLDEN % 1.0)) or rows
        return job_for_probe(rows, turn // 2)

    def _keys_of(self, lane: LaneId, now: float) -> list[str] | None:
        """Return the keys of which a probe may be claimed: with many, others each time; None in a lane without keys."""
        keys = self.breakers.keys
        if keys is None or lane not in keys.lanes:
            return None
        keys.mark(lane)
        found = keys.upcoming(lane, now)
        keys.pass_over(lane)
        return found

    def _is_time_for(self, breaker: Breaker, lane: LaneId, now: float) -> bool:
        """Return whether a probe may go out and a job is due for it; this only reads, because taking a probe is a change."""
        standing = self.breakers.standing(breaker)
        opens = step.opens_at(breaker, standing.state)
        if standing.is_closed or opens is None or opens - now > 0.01:
            return False
        upcoming = self._store.upcoming((lane,))
        return lane not in upcoming.paused and upcoming.due.get(lane, math.inf) <= now


def job_for_probe(rows: Sequence[worker_sql.ProbeCandidate], turn: int) -> JobId | None:
    """Return whose turn it is: first the priorities rotate, then the owners of each, then an owner's jobs by the time they wait."""
    levels: dict[int, dict[str | None, JobId]] = {}
    for row in rows:
        levels.setdefault(row.priority, {}).setdefault(row.owner, JobId(row.id))
    if not levels:
        return None
    round_, place = divmod(turn, len(levels))
    owners = list(levels[sorted(levels)[place]].values())
    return owners[round_ % len(owners)]


def _probe_token(worker: str, token: int, lane: LaneId) -> str:
    return f"{worker}:{token}:{lane}"


def _claim_token(token: int, lane: LaneId) -> int:
    return token + (lane << LANE_SHIFT)
