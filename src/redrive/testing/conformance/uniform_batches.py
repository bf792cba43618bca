# SPDX-License-Identifier: Apache-2.0
"""Uniform batches: many jobs that end in the same way at the same time, which a store may settle together but must not mix up.

How a store settles them is its own affair; what becomes of a single job is the subject of `settlements`.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.core.lifecycle import JobState
from redrive.core.units import instant
from redrive.store.protocol import Store
from redrive.store.records import ClaimedJob, ClaimRequest, ExchangeRequest, LaneId, Settlement
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import workers as worker_sql
from redrive.testing.conformance import build
from redrive.testing.conformance.build import NOW, Scene, agree, lanes_of

SIZE = 300


def batch_of(store: Store, lane: LaneId) -> tuple[ClaimedJob, ...]:
    """Submit a uniform batch, each with a payload of its own, and claim it."""
    store.submit([build.new(lane, str(number).encode()) for number in range(SIZE)], NOW)
    return build.claim(store, lane, SIZE)


def ended(of: ClaimedJob, **changes: object) -> Settlement:
    """Return a settlement whose value and times are the job's own."""
    own = {"value": b'"of %d"' % of.id, "started_at": NOW + of.id, "ended_at": NOW + 2 * of.id}
    return build.settlement(of, **{**own, **changes})


class UniformBatchTests(Scene):
    """What becomes of many jobs at once."""

    def test_each_of_a_uniform_batch_has_its_own_result_and_its_own_attempt(self, store: Store) -> None:
        """Nobody gets what belongs to a neighbour."""
        (fetch,) = lanes_of(store)
        batch = batch_of(store, fetch)

        answer = build.exchange(store, "w1", [ended(one, config="abc") for one in batch])

        agree((answer.lost, answer.broken), ((), ()))
        agree(build.statuses(store), {"complete": SIZE})
        for one in (batch[0], batch[137], batch[-1]):
            began, over = instant(NOW + one.id), instant(NOW + 2 * one.id)
            agree(store.query(job_sql.result(job=one.id)), [("complete", b'"of %d"' % one.id)])
            agree(build.facts(store, one.id).finished_at, over)
            recorded = build.attempts(
                store, one.id, "outcome", "attempt", "config", "started_at", "ended_at", "worker"
            )
            agree(recorded, [("ok", 1, "abc", began, over, "w1")])

    def test_two_uniform_batches_of_one_commit_are_not_mixed(self, store: Store) -> None:
        """Each has its own stage and settings."""
        fetch, review = lanes_of(store, "fetch", "review")
        store.submit([build.new(lane) for lane in (fetch, review) for _ in range(20)], NOW)
        configs = {fetch: "of fetch", review: "of review"}
        held = build.claimed(store, ClaimRequest((review, fetch), 40))

        build.exchange(store, "w1", [ended(one, config=configs[one.lane]) for one in held])

        seen = [build.attempts(store, one.id, "stage", "config") for one in held]
        agree(seen, [[("review", "of review")]] * 20 + [[("fetch", "of fetch")]] * 20)

    def test_of_a_uniform_batch_as_many_continue_as_there_is_room_for_and_the_others_queue(
        self, store: Store
    ) -> None:
        """And all of them have their own output as their next input."""
        fetch, review = lanes_of(store, "fetch", "review")
        batch = batch_of(store, fetch)
        done = [ended(one, status=JobState.QUEUED, lane=review) for one in batch]
        first = batch[0]
        store.apply(
            worker_sql.progress(progress="1 of 2", job=first.id, worker="w1", dispatch=first.dispatch)
        )

        answer = build.exchange(store, "w1", done, ClaimRequest((review, fetch), 100), NOW + 5)

        agree((len(answer.claimed), answer.claimed[0].id), (100, first.id))
        seen = build.facts(store, first.id)
        agree((seen.progress, seen.last_attempt_at), (None, instant(NOW + 5)))
        agree(build.statuses(store), {"processing": 100, "queued": SIZE - 100})
        agree({(one.lane, one.attempt, one.dispatch) for one in answer.claimed}, {(review, 1, 2)})
        rest = build.claim(store, review, SIZE, worker="w2", now=NOW + 10 * SIZE)
        inputs = {one.id: (one.lane, one.input) for one in (*answer.claimed, *rest)}
        agree(inputs, {one.id: (review, b'"of %d"' % one.id) for one in batch})

    @pytest.mark.parametrize(
        "spent",
        [{"attempt": 2}, {"snoozes": 2}, {"suspects": 1}, {"crashes": 1}, {"codes": b'{"NETWORK_RESET":1}'}],
    )
    def test_each_of_a_uniform_batch_begins_its_next_stage_with_a_fresh_budget(
        self, store: Store, spent: dict[str, object]
    ) -> None:
        """Whatever it has spent in the one before."""
        fetch, review = lanes_of(store, "fetch", "review")
        held = {"status": JobState.QUEUED, "value": None, "outcome": "hold", "burned": False, **spent}
        build.exchange(store, "w1", [build.settlement(one, **held) for one in batch_of(store, fetch)])
        done = [build.advance(one, review) for one in build.claim(store, fetch, SIZE)]

        agree(len(build.exchange(store, "w1", done, ClaimRequest((review,), SIZE)).claimed), SIZE)

        store.stop_worker("w1")
        again = build.claim(store, review, SIZE, worker="w2")
        seen = {(one.attempt, one.snoozes, one.suspects, one.crashes, one.codes) for one in again}
        agree((len(again), seen), (SIZE, {(1, 0, 0, 0, None)}))

    @pytest.mark.parametrize("fence", ["own", "token", "dispatch"])
    @pytest.mark.parametrize("status", [JobState.COMPLETE, JobState.QUEUED])
    def test_one_of_a_uniform_batch_that_lost_its_lease_is_left_alone_and_the_others_are_settled(
        self, store: Store, status: JobState, fence: str
    ) -> None:
        """By what it says itself, or as another worker has it: its lease has another token, or only another dispatch."""
        fetch, review = lanes_of(store, "fetch", "review")
        batch = batch_of(store, fetch)
        lane = fetch if status is JobState.COMPLETE else review
        done = [ended(one, status=status, lane=lane) for one in batch]
        lost = batch[7]
        if fence == "own":
            done[7] = replace(done[7], job=replace(lost, dispatch=lost.dispatch + 1))
        else:
            back = worker_sql.return_job(job=lost.id, token=lost.token, dispatch=lost.dispatch)
            store.apply(back.touching(1))
        if fence == "dispatch":
            store.exchange(ExchangeRequest("w2", [], ClaimRequest((fetch,), 1), now=NOW, token=lost.token))
        before = build.facts(store, lost.id).status

        answer = build.exchange(store, "w1", done, ClaimRequest((review,), SIZE))

        agree((answer.lost, answer.broken), ((lost.id,), ()))
        agree((build.facts(store, lost.id).status, build.facts(store, lost.id).stage), (before, "fetch"))
        agree([build.attempts(store, one.id, "outcome") for one in batch[7:9]], [[], [("ok",)]])
        agree(len(answer.claimed), 0 if status is JobState.COMPLETE else SIZE - 1)

    def test_a_uniform_batch_that_is_sent_again_counts_once(self, store: Store) -> None:
        """As when the answer to its commit was lost."""
        fetch, review = lanes_of(store, "fetch", "review")
        done = [ended(one, status=JobState.QUEUED, lane=review) for one in batch_of(store, fetch)]
        want = ClaimRequest((review, fetch), SIZE)

        first = store.exchange(ExchangeRequest("w1", done, want, now=NOW, token=7_000))
        again = store.exchange(ExchangeRequest("w1", done, want, now=NOW, token=7_000))

        agree((again.lost, again.broken), ((), ()))
        agree({one.id: one.input for one in again.claimed}, {one.id: one.input for one in first.claimed})
        agree(build.attempts(store, done[0].job.id, "outcome"), [("ok",)])

    def test_those_who_stand_out_of_a_uniform_batch_are_settled_as_they_are(self, store: Store) -> None:
        """One that failed, one with a note, one that was too slow."""
        (fetch,) = lanes_of(store)
        batch = batch_of(store, fetch)
        done = [ended(one) for one in batch]
        done[1] = build.burial(batch[1])
        done[2] = ended(batch[2], notes='{"request":"r-1"}')
        done[3] = ended(batch[3], decision=build.OVERRAN)

        build.exchange(store, "w1", done)

        agree(build.statuses(store), {"complete": SIZE - 1, "failed": 1})
        agree(build.attempts(store, batch[1].id, "outcome"), [("dead",)])
        agree(build.attempts(store, batch[2].id, "notes"), [({"request": "r-1"},)])
        agree(build.attempts(store, batch[3].id, "reason"), [("overran",)])
