# SPDX-License-Identifier: Apache-2.0
"""Workers: their leases, what a heartbeat carries in both directions, and what becomes of the jobs of one that is gone.

Only reaping voids a lease. Time is an argument everywhere, so nobody waits for a lease to end.
"""

from __future__ import annotations

import pytest

from redrive.core.lifecycle import JobState
from redrive.core.units import instant
from redrive.store.protocol import Store
from redrive.store.records import ClaimRequest, Renewal, WorkerFacts
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import workers as worker_sql
from redrive.testing.conformance import build
from redrive.testing.conformance.build import LEASE, NOW, Scene, agree, holds, lanes_of


class RowTests(Scene):
    """What the row of a job says about its lease."""

    @pytest.mark.parametrize("way", ["advance", "retry", "stop", "reap"])
    def test_a_job_that_somebody_asked_to_cancel_ends_wherever_it_would_have_been_queued(
        self, store: Store, way: str
    ) -> None:
        """With the time at which it ended; it waits for nothing any more."""
        _, review = lanes_of(store, "fetch", "review")
        one = build.taken(store)
        store.apply(job_sql.ask_to_cancel(job=one.id).touching(1))

        if way == "advance":
            build.exchange(store, "w1", [build.advance(one, review)])
        elif way == "retry":
            build.exchange(store, "w1", [build.retry(one, at=NOW + LEASE)])
        elif way == "stop":
            store.stop_worker("w1")
        else:
            store.reap(NOW + LEASE + 1)

        seen = build.facts(store, one.id)
        agree((seen.status, seen.waiting, seen.worker), ("cancelled", None, None))
        holds(seen.finished_at is not None and instant(NOW) <= seen.finished_at <= instant(NOW + 1))

    def test_a_job_that_continues_in_place_is_known_to_be_cancelled(self, store: Store) -> None:
        """The heartbeat reported it for the stage that has ended."""
        _, review = lanes_of(store, "fetch", "review")
        one = build.taken(store)
        store.apply(job_sql.ask_to_cancel(job=one.id).touching(1))

        answer = build.exchange(store, "w1", [build.advance(one, review)], ClaimRequest((review,), 1))

        agree([each.cancel_asked for each in answer.claimed], [1])

    def test_a_commit_brings_back_which_jobs_somebody_asked_to_cancel(self, store: Store) -> None:
        """Sooner than a heartbeat, where there is much to commit; of the worker's own jobs."""
        (lane,) = build.lanes_of(store)
        store.submit([build.new(lane)] * 3, NOW)
        one, other = build.claim(store, lane, 2)
        (foreign,) = build.claim(store, lane, worker="w2")
        for each in (other, foreign):
            store.apply(job_sql.ask_to_cancel(job=each.id).touching(1))

        agree(build.exchange(store, "w1", [build.settlement(one)]).cancel, (other.id,))

    def test_a_retry_that_is_due_continues_in_place(self, store: Store) -> None:
        """With what it has spent, and with its values, however large they are."""
        one = build.taken(store, payload=b'"x"' * 5_000)
        failed = build.retry(one, at=NOW, codes=b'{"NETWORK_RESET":1}', snoozes=2)

        (again,) = build.exchange(store, "w1", [failed], ClaimRequest((one.lane,), 2)).claimed

        agree((again.id, again.attempt, again.dispatch, again.snoozes), (one.id, 2, 2, 2))
        agree((again.input, again.payload, again.codes), (one.input, None, b'{"NETWORK_RESET":1}'))
        seen = build.facts(store, one.id)
        agree((seen.status, seen.attempt, seen.dispatch, seen.waiting), ("processing", 2, 2, None))
        agree(build.attempts(store, one.id, "dispatch", "outcome"), [(1, "retry")])
        build.exchange(store, "w1", [build.settlement(again)])
        agree(build.facts(store, one.id).status, "complete")

    @pytest.mark.parametrize(("limit", "of_lane", "fresh"), [(1, 1, 1), (2, 2, 1), (4, 2, 1), (5, 5, 3)])
    def test_retries_leave_half_of_the_room_to_others(
        self, store: Store, limit: int, of_lane: int, fresh: int
    ) -> None:
        """Of a lane and in all: one that fails at once again and again keeps nobody from its turn."""
        (lane,) = lanes_of(store)
        store.submit([build.new(lane, run_at=NOW - 9) for _ in range(9)], NOW)
        failed = [build.retry(one, at=NOW) for one in build.claim(store, lane, 5)]

        claimed = build.exchange(store, "w1", failed, ClaimRequest((lane,), limit, {lane: of_lane})).claimed

        agree(sorted(one.attempt for one in claimed), [1] * fresh + [2] * (of_lane - fresh))

    @pytest.mark.parametrize(("at", "room"), [(NOW + 1, 2), (NOW, 0)])
    def test_a_retry_queues_that_is_not_due_or_has_no_room(self, store: Store, at: float, room: int) -> None:
        """As all that waits."""
        one = build.taken(store)

        answer = build.exchange(store, "w1", [build.retry(one, at=at)], ClaimRequest((one.lane,), room))

        seen = build.facts(store, one.id)
        agree((answer.claimed, seen.status, seen.waiting, seen.attempt), ((), "queued", "retry", 2))

    @pytest.mark.parametrize(("suspects", "crashes"), [(1, 0), (0, 1)])
    def test_a_retry_under_suspicion_stays_under_it(self, store: Store, suspects: int, crashes: int) -> None:
        """It is claimed from the queue, because it may have to run alone."""
        one = build.taken(store)
        failed = build.retry(one, at=NOW, suspects=suspects, crashes=crashes)

        (again,) = build.exchange(store, "w1", [failed], ClaimRequest((one.lane,), 1)).claimed

        agree((again.attempt, again.suspects, again.crashes), (2, suspects, crashes))

    def test_a_job_has_its_first_start_and_no_reason_to_wait_while_it_runs(self, store: Store) -> None:
        """However often it is started."""
        one = build.taken(store)
        build.exchange(store, "w1", [build.retry(one, at=NOW + 5)])
        began = build.facts(store, one.id).started_at
        agree(len(build.claim(store, one.lane, now=NOW + 5)), 1)

        seen = build.facts(store, one.id)
        agree((seen.status, seen.waiting, seen.started_at), ("processing", None, began))


class LeaseTests(RowTests):
    """Workers and their leases."""

    def test_a_worker_that_stops_gives_back_what_it_holds_unburned(self, store: Store) -> None:
        """At once, and without suspicion; stopping again changes nothing."""
        one = build.taken(store)

        store.stop_worker("w1")
        store.stop_worker("w1")

        (again,) = build.claim(store, one.lane, worker="w2")
        agree((again.attempt, again.dispatch, again.suspects), (1, 2, 0))
        holds(not store.renew("w1", NOW, LEASE).is_known)

    def test_a_dead_workers_jobs_go_back_unburned_and_its_settlements_are_refused(self, store: Store) -> None:
        """Death is declared once, by whoever looks first."""
        one = build.taken(store)
        holds(store.renew("w2", NOW + 50, LEASE).is_known)

        agree(store.reap(NOW + LEASE), 0)
        agree(store.reap(NOW + LEASE + 1), 1)
        agree(store.reap(NOW + LEASE + 1), 0)

        now = NOW + LEASE + 2
        holds(not store.renew("w1", now, LEASE).is_known)
        agree(build.exchange(store, "w1", [build.settlement(one)], now=now).lost, (one.id,))
        (again,) = build.claim(store, one.lane, worker="w2", now=now)
        agree((again.attempt, again.dispatch), (1, 2))

    def test_a_crash_is_on_record_and_raises_suspicion_until_a_stage_completes(self, store: Store) -> None:
        """It burns nothing; a failure in between does not clear it."""
        fetch, review = lanes_of(store, "fetch", "review")
        one = build.taken(store)
        store.renew("w2", NOW, 10 * LEASE)
        store.reap(NOW + LEASE + 1)
        agree(build.attempts(store, one.id, "outcome", "burned", "worker"), [("crashed", False, "w1")])
        agree(build.facts(store, one.id).waiting, "crashed")

        (one,) = build.claim(store, fetch, worker="w2", now=NOW + LEASE + 1)
        agree((one.suspects, one.crashes), (1, 0))
        build.exchange(store, "w2", [build.retry(one, at=NOW, suspects=2, crashes=1)])
        (one,) = build.claim(store, fetch, worker="w2")
        agree((one.suspects, one.crashes), (2, 1))
        build.exchange(store, "w2", [build.advance(one, review)])

        (one,) = build.claim(store, review, worker="w2")
        agree((one.suspects, one.crashes), (0, 0))

    def test_a_worker_that_was_declared_dead_learns_so_and_claims_nothing(self, store: Store) -> None:
        """Whatever it asks for."""
        (lane,) = lanes_of(store)
        store.submit([build.new(lane)], NOW)
        store.reap(NOW + LEASE + 1)

        answer = build.exchange(store, "w1", [], ClaimRequest((lane,), 1))

        agree((answer.is_known, answer.claimed), (False, ()))

    def test_a_lease_that_has_ended_but_was_not_reaped_still_settles(self, store: Store) -> None:
        """Expiry alone voids nothing."""
        one = build.taken(store)

        agree(build.exchange(store, "w1", [build.settlement(one)], now=NOW + 1_000).lost, ())

    def test_a_heartbeat_extends_the_lease(self, store: Store) -> None:
        """From when it is sent, and for as long as it says."""
        build.taken(store)
        store.renew("w1", NOW + 50, 100)

        agree(store.reap(NOW + 150), 0)
        agree(store.reap(NOW + 151), 1)

    def test_a_worker_may_introduce_itself_again(self, store: Store) -> None:
        """When the answer to the first time was lost; it keeps what it holds."""
        one = build.taken(store)
        store.start_worker("w1", NOW + 50, LEASE)

        agree(store.reap(NOW + LEASE + 1), 0)
        agree(build.exchange(store, "w1", [build.settlement(one)]).lost, ())

    def test_a_worker_is_listed_with_its_own_facts(self, store: Store) -> None:
        """With how many jobs it holds."""
        about = WorkerFacts(host="h", process=7, pipelines=("a", "b"), concurrency=9)
        store.start_worker("w3", NOW, LEASE, about)
        (lane,) = lanes_of(store)
        store.submit([build.new(lane)] * 2, NOW)
        build.claim(store, lane, worker="w3")

        (row,) = [row for row in store.query(worker_sql.workers()) if row[0] == "w3"]

        agree(row, ("w3", "h", 7, '["a","b"]', 9, NOW, NOW + LEASE, 2))

    @pytest.mark.parametrize("room", [0, 1])
    @pytest.mark.parametrize("status", [JobState.QUEUED, JobState.COMPLETE])
    def test_progress_is_visible_while_the_stage_runs(
        self, store: Store, status: JobState, room: int
    ) -> None:
        """Which is gone when the stage has completed."""
        _, review = lanes_of(store, "fetch", "review")
        one = build.taken(store)

        store.apply(worker_sql.progress(progress="3 of 7", job=one.id, worker="w1", dispatch=one.dispatch))
        agree(build.facts(store, one.id).progress, "3 of 7")
        done = [build.settlement(one, status=status, lane=review)]
        build.exchange(store, "w1", done, ClaimRequest((review,), room))
        agree(build.facts(store, one.id).progress, None)

    @pytest.mark.parametrize("stale", ["dispatch", "worker"])
    def test_progress_behind_a_lost_lease_is_not_written(self, store: Store, stale: str) -> None:
        """The job says what its present holder said."""
        one = build.taken(store)
        worker = "w2" if stale == "worker" else "w1"
        dispatch = one.dispatch - 1 if stale == "dispatch" else one.dispatch

        store.apply(worker_sql.progress(progress="3 of 7", job=one.id, worker=worker, dispatch=dispatch))

        agree(build.facts(store, one.id).progress, None)

    def test_a_heartbeat_brings_back_which_jobs_somebody_asked_to_cancel(self, store: Store) -> None:
        """Those this worker holds, until they are settled; a job that would go back to the queue ends there and then."""
        one = build.taken(store)
        build.taken(store)
        store.apply(job_sql.ask_to_cancel(job=one.id).touching(1))

        agree(store.renew("w1", NOW, LEASE), Renewal(is_known=True, cancel=(one.id,)))
        agree(store.renew("w1", NOW, LEASE).cancel, (one.id,))
        agree(store.renew("w2", NOW, LEASE).cancel, ())
        build.exchange(store, "w1", [build.retry(one, at=NOW)])
        agree(store.renew("w1", NOW, LEASE).cancel, ())
        agree(build.claim(store, one.lane, worker="w2"), ())
        agree(build.statuses(store), {"cancelled": 1, "processing": 1})

    def test_time_is_what_the_caller_says_it_is(self, store: Store) -> None:
        """The store looks at no clock of its own, however far from it the caller's is."""
        now = 1_000_000 * NOW
        store.start_worker("w3", now, LEASE)

        store.reap(now + LEASE)

        holds(store.renew("w3", now + LEASE, LEASE).is_known)
        holds(not store.renew("w1", now + LEASE, LEASE).is_known)
