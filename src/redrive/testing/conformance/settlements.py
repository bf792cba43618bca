# SPDX-License-Identifier: Apache-2.0
"""Settling: what becomes of jobs whose stage has ended, behind the fence of (job, token, dispatch).

What is written beside the job (children, notices, tallies) is the subject of `side_effects`.
"""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from redrive.core.lifecycle import JobState
from redrive.core.units import instant
from redrive.store.protocol import Store
from redrive.store.records import ClaimedJob, ClaimRequest, ExchangeRequest, Settlement
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import workers as worker_sql
from redrive.testing.conformance import build
from redrive.testing.conformance.build import NOW, Scene, Settle, agree, facts, holds, lanes_of
from redrive.testing.conformance.submissions import SIZES, text_of


def again_later(of: ClaimedJob) -> Settlement:
    """Return the settlement of an attempt that is tried again at once."""
    return build.retry(of, at=NOW)


def large(of: ClaimedJob) -> Settlement:
    """Return the settlement of a job that is complete, with a value that has a row of its own."""
    return build.settlement(of, value=text_of(SIZES[-1]))


def continued(of: ClaimedJob) -> Settlement:
    """Return the settlement of an attempt after which the job continues, with a different value than usual."""
    return build.settlement(of, status=JobState.QUEUED, value=b'"continued"')


class FenceTests(Scene):
    """What becomes of a job whose earlier run speaks up beside its present one."""

    @pytest.mark.parametrize(
        "settle", [build.settlement, build.burial, build.cancellation, again_later, continued]
    )
    def test_a_stale_settlement_behind_a_good_one_of_the_same_job_changes_nothing(
        self, store: Store, settle: Settle
    ) -> None:
        """It counts as done or as lost. The job continues, and its worker is informed: no other would ever end it."""
        fetch, review = lanes_of(store, "fetch", "review")
        stale = build.taken(store)
        store.stop_worker("w1")
        (one,) = build.claim(store, fetch, worker="w2")

        done = [build.advance(one, review), settle(stale)]
        answer = build.exchange(store, "w2", done, ClaimRequest((review, fetch), 5))

        holds(answer.lost in {(), (stale.id,)})
        agree(answer.broken, ())
        agree(build.statuses(store), {"processing": 1})
        agree([(each.id, each.lane, each.input) for each in answer.claimed], [(one.id, review, b'"done"')])
        agree(build.attempts(store, one.id, "outcome"), [("ok",)])
        agree(build.exchange(store, "w2", [build.settlement(*answer.claimed)]).lost, ())

    @pytest.mark.parametrize("fence", ["token", "dispatch"])
    @pytest.mark.parametrize(
        "settle", [build.settlement, large, build.burial, build.cancellation, again_later, continued]
    )
    def test_the_token_and_the_dispatch_of_a_settlement_must_both_be_those_of_the_lease(
        self, store: Store, settle: Settle, fence: str
    ) -> None:
        """A job that is queued again has no token but the same dispatch; two workers may use the same token."""
        fetch, review = lanes_of(store, "fetch", "review")
        stale = build.taken(store)
        store.stop_worker("w1")
        if fence == "dispatch":
            store.exchange(ExchangeRequest("w2", [], ClaimRequest((fetch,), 1), now=NOW, token=stale.token))
        status = facts(store, stale.id).status
        done = replace(settle(stale), lane=review if settle is continued else fetch)

        for want in (ClaimRequest((review,), 1), build.NOTHING):
            answer = build.exchange(store, "w2", [done], want)
            agree((answer.lost, answer.broken, answer.claimed), ((stale.id,), (), ()))

        agree(build.statuses(store), {status: 1})
        agree(build.attempts(store, stale.id, "outcome"), [])
        store.apply(worker_sql.return_job(job=stale.id, token=stale.token, dispatch=stale.dispatch))
        agree(facts(store, stale.id).status, status)

    @pytest.mark.parametrize("fence", ["token", "dispatch"])
    def test_a_retry_continues_in_place_only_behind_the_token_and_the_dispatch_of_the_lease(
        self, store: Store, fence: str
    ) -> None:
        """A job that is queued again meanwhile is claimed like any other, and one that another worker leases is left alone."""
        stale = build.taken(store)
        store.stop_worker("w1")
        want = ClaimRequest((stale.lane,), 2)
        if fence == "dispatch":
            store.exchange(ExchangeRequest("w2", [], want, now=NOW, token=stale.token))

        answer = build.exchange(store, "w2", [again_later(stale)], want)

        agree((answer.lost, answer.broken), ((stale.id,), ()))
        claimed = [(one.attempt, one.dispatch) for one in answer.claimed]
        agree(claimed, [] if fence == "dispatch" else [(1, 2)])
        agree(build.attempts(store, stale.id, "outcome"), [])

    @pytest.mark.parametrize("settle", [build.settlement, build.burial, build.cancellation, again_later])
    def test_a_job_that_was_settled_cannot_be_returned(self, store: Store, settle: Settle) -> None:
        """Its dispatch is still the same, but it has no lease any more."""
        one = build.taken(store)
        build.exchange(store, "w1", [settle(one)])
        before = facts(store, one.id)

        store.apply(worker_sql.return_job(job=one.id, token=one.token, dispatch=one.dispatch))

        agree(facts(store, one.id), before)

    @pytest.mark.parametrize("settle", [build.settlement, build.burial, build.cancellation, again_later])
    def test_a_settlement_behind_a_lost_lease_is_refused_for_that_job_alone(
        self, store: Store, settle: Settle
    ) -> None:
        """The job belongs to its new holder, who is not disturbed; the rest of the batch is taken."""
        stale, _ = build.taken_many(store, 2)
        store.stop_worker("w1")
        again, other = build.claim(store, stale.lane, worker="w2")

        answer = build.exchange(store, "w2", [settle(stale), build.settlement(other)])

        agree((answer.lost, answer.broken), ((stale.id,), ()))
        agree(build.statuses(store), {"processing": 1, "complete": 1})
        agree(build.attempts(store, stale.id, "outcome"), [])
        agree(build.exchange(store, "w2", [build.settlement(again)]).lost, ())


class OriginTests(FenceTests):
    """What a job keeps of its beginning."""

    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("payload_size", SIZES)
    def test_a_later_stage_knows_what_its_job_was_submitted_with(
        self, store: Store, payload_size: int, size: int
    ) -> None:
        """Whatever the size of either, and whether the job queued in between or went straight on."""
        _, review = lanes_of(store, "fetch", "review")
        payload = text_of(payload_size)
        taken = build.taken_many(store, 2, payload=payload)
        done = [build.advance(one, review, value=text_of(size)) for one in taken]

        straight = build.exchange(store, "w1", done, ClaimRequest((review,), 1)).claimed
        queued = build.claim(store, review, worker="w2")

        agree([len(straight), len(queued)], [1, 1])
        agree([(one.input, one.payload) for one in (*straight, *queued)], [(text_of(size), payload)] * 2)

    def test_every_later_stage_knows_what_its_job_was_submitted_with(self, store: Store) -> None:
        """However many stages it went through without queueing."""
        _, review, bill = lanes_of(store, "fetch", "review", "bill")
        one = build.taken(store, payload=b'"order"')

        for lane in (review, bill):
            done = [build.advance(one, lane, value=b'"output"')]
            (one,) = build.exchange(store, "w1", done, ClaimRequest((lane,), 1)).claimed

        agree((one.lane, one.input, one.payload), (bill, b'"output"', b'"order"'))


class BrokenRowTests(OriginTests):
    """What becomes of a settlement that does not fit."""

    def test_a_row_that_breaks_a_constraint_is_taken_out_and_the_rest_commits(self, store: Store) -> None:
        """It still belongs to the worker, who settles it as a failure of its attempt."""
        bad, good = build.taken_many(store, 2)

        answer = build.exchange(store, "w1", [build.settlement(bad, value=None), build.settlement(good)])

        agree((answer.lost, answer.broken), ((), (bad.id,)))
        agree(build.statuses(store), {"complete": 1, "processing": 1})
        agree(build.exchange(store, "w1", [build.burial(bad)]).broken, ())

    def test_nothing_is_kept_of_a_settlement_whose_letter_breaks_a_constraint(self, store: Store) -> None:
        """Neither the end of its job nor the attempt, which were written before."""
        (one,) = build.taken_many(store, 1)
        letter = replace(build.LETTER, reason=None)

        agree(build.exchange(store, "w1", [build.burial(one, letter=letter)]).broken, (one.id,))

        agree(build.statuses(store), {"processing": 1})
        agree(build.attempts(store, one.id, "outcome"), [])
        agree(build.exchange(store, "w1", [build.settlement(one)]).lost, ())

    def test_a_job_whose_child_breaks_a_constraint_does_not_continue_in_place(self, store: Store) -> None:
        """Its own row fits, and is written before."""
        one = build.taken(store)
        _, review = lanes_of(store, "fetch", "review")
        want = ClaimRequest((review,), 1)

        refused = build.advance(one, review, children=(build.child(priority=99),))
        answer = build.exchange(store, "w1", [refused], want)

        agree((answer.broken, answer.claimed), ((one.id,), ()))
        (again,) = build.exchange(store, "w1", [build.advance(one, review)], want).claimed
        agree((again.id, again.lane), (one.id, review))


class SettlementTests(BrokenRowTests):
    """What becomes of jobs."""

    @pytest.mark.parametrize("room", [1, 0])
    @pytest.mark.parametrize("size", SIZES)
    def test_a_finished_stage_passes_its_output_to_the_next_lane_with_a_fresh_budget(
        self, store: Store, size: int, room: int
    ) -> None:
        """Whatever its size, and whether it queues in between; attempts, snoozes, codes, suspects and crashes start anew."""
        fetch, review = lanes_of(store, "fetch", "review")
        one = build.taken(store)
        moved = {"codes": b'{"NETWORK_RESET":1}', "snoozes": 2, "suspects": 3, "crashes": 1}
        build.exchange(store, "w1", [build.retry(one, at=NOW, **moved)])
        (one,) = build.claim(store, fetch)

        advance = build.advance(one, review, value=text_of(size))
        answer = build.exchange(store, "w1", [advance], ClaimRequest((review,), room))
        agree(len(answer.claimed), room)
        # As they are written, and not only as they are returned.
        store.stop_worker("w1")
        (following,) = build.claim(store, review, worker="w2")

        agree((following.lane, following.input, following.dispatch), (review, text_of(size), 3 + room))
        for each in (*answer.claimed, following):
            agree((each.attempt, each.snoozes, each.codes), (1, 0, None))
            agree((each.suspects, each.crashes), (0, 0))

    @pytest.mark.parametrize("size", SIZES)
    def test_a_result_of_any_size_is_kept(self, store: Store, size: int) -> None:
        """And nothing is left of the lease."""
        one = build.taken(store)

        build.exchange(store, "w1", [build.settlement(one, value=text_of(size), ended_at=NOW + 3)])

        agree(store.query(job_sql.result(job=one.id)), [("complete", text_of(size))])
        seen = facts(store, one.id)
        agree((seen.worker, seen.finished_at and seen.finished_at.timestamp()), (None, NOW + 3))

    @pytest.mark.parametrize("size", SIZES)
    def test_a_retry_waits_until_it_is_due_with_its_input_kept(self, store: Store, size: int) -> None:
        """And says why it waits."""
        one = build.taken(store, payload=text_of(size))

        build.exchange(store, "w1", [build.retry(one, at=NOW + 5)])

        agree(facts(store, one.id).waiting, "retry")
        agree(build.claim(store, one.lane), ())
        (again,) = build.claim(store, one.lane, now=NOW + 5)
        agree((again.input, again.attempt), (text_of(size), 2))

    def test_a_hold_burns_nothing(self, store: Store) -> None:
        """The attempt's number is repeated."""
        one = build.taken(store)
        hold = build.advance(one, one.lane, value=None, outcome="hold", burned=False, snoozes=1)

        (again,) = build.exchange(store, "w1", [hold], ClaimRequest((one.lane,), 1)).claimed

        agree((again.attempt, again.dispatch, again.snoozes), (1, 2, 1))
        agree(build.attempts(store, one.id, "outcome", "burned"), [("hold", False)])

    def test_a_cancelled_job_is_out_of_the_way(self, store: Store) -> None:
        """Nobody gets it any more."""
        one = build.taken(store)

        build.exchange(store, "w1", [build.cancellation(one)])

        agree(build.statuses(store), {"cancelled": 1})
        agree(build.claim(store, one.lane), ())

    def test_a_dead_letter_is_on_record_with_its_first_and_last_failure(self, store: Store) -> None:
        """And the job says what it died of."""
        one = build.taken(store)
        held = build.retry(one, at=NOW, outcome="hold", burned=False, ended_at=NOW + 1)
        build.exchange(store, "w1", [held])
        (one,) = build.claim(store, one.lane)
        build.exchange(store, "w1", [build.retry(one, at=NOW, ended_at=NOW + 1.5)])
        (one,) = build.claim(store, one.lane)
        build.exchange(store, "w1", [build.burial(one, ended_at=NOW + 2)])

        (row,) = store.query(letter_sql.letters_of_job(job=one.id))
        agree((row.state, row.round, row.code), ("open", 1, "AUTH_DENIED"))
        agree((row.message, row.reason), ("denied", "permanent"))
        agree((row.first_failure_at, row.last_failure_at), (instant(NOW + 1), instant(NOW + 2)))
        seen = facts(store, one.id)
        agree((seen.status, seen.error_code, seen.error_message), ("failed", "AUTH_DENIED", "denied"))

    @pytest.mark.parametrize("commits", [1, 2])
    def test_a_group_has_its_first_and_last_failure_in_whatever_order_they_come(
        self, store: Store, commits: int
    ) -> None:
        """A worker that was slow to commit brings an earlier one later."""
        late, early = build.taken_many(store, 2)
        done = [build.burial(late, ended_at=NOW + 9), build.burial(early, ended_at=NOW + 3)]
        for number in range(commits):
            build.exchange(store, "w1", done[number::commits])

        (group,) = store.query(letter_sql.letter_groups(ids=[1]))
        agree((group.first_at, group.last_at), (NOW + 3, NOW + 9))

    def test_every_attempt_is_on_record(self, store: Store) -> None:
        """With all that was said about it."""
        one = build.taken(store)
        facts = {"http_status": 503, "config": "c0ffee"}
        failed = build.retry(one, at=NOW, notes='{"request":"r1"}', decision=build.OVERRAN, **facts)
        build.exchange(store, "w1", [failed])
        (one,) = build.claim(store, one.lane, worker="w2")
        build.exchange(store, "w2", [build.settlement(one)])

        agree(
            build.attempts(store, one.id, "dispatch", "stage", "attempt", "outcome", "code", "worker"),
            [(1, "fetch", 1, "retry", "NETWORK_RESET", "w1"), (2, "fetch", 2, "ok", None, "w2")],
        )
        (first, _) = build.attempts(store, one.id, *facts, "reason", "notes", "duration")
        agree(first, (*facts.values(), "overran", {"request": "r1"}, 1.0))

    @pytest.mark.parametrize("size", [1, 3, 100, 700])
    def test_of_a_batch_of_any_size_only_the_lost_are_refused(self, store: Store, size: int) -> None:
        """Wherever in the batch they stand."""
        (lane,) = lanes_of(store)
        store.submit([build.new(lane)] * size, NOW)
        (stale,) = build.claim(store, lane, 1, worker="w2")
        store.stop_worker("w2")
        held = build.claim(store, lane, size)

        done = [build.settlement(one) for one in held if one.id != stale.id]
        done.insert(size // 2, build.burial(stale))
        answer = build.exchange(store, "w1", done)

        agree((answer.lost, answer.broken), ((stale.id,), ()))
        agree(build.statuses(store), {"processing": 1} | ({"complete": size - 1} if size > 1 else {}))

    def test_the_same_batch_sent_again_counts_as_done(self, store: Store) -> None:
        """When the answer was lost, the caller cannot know that it was taken."""
        first, second, third = build.taken_many(store, 3)
        batch = [build.settlement(first), build.burial(second), build.retry(third, at=NOW + 5)]

        build.exchange(store, "w1", batch)
        again = build.exchange(store, "w1", batch)

        agree((again.lost, again.broken), ((), ()))
        agree(build.statuses(store), {"complete": 1, "failed": 1, "queued": 1})
        agree(len(build.attempts(store, third.id)), 1)

    def test_every_job_is_accounted_for_after_any_mixture(self, store: Store) -> None:
        """Whatever becomes of them, none is lost and none is two."""
        fetch, review = lanes_of(store, "fetch", "review")
        store.submit([build.new(fetch)] * 50, NOW)
        for turn in range(40):
            later = partial(build.retry, at=NOW + turn + 1)
            ways = (build.settlement, build.burial, later, build.cancellation)
            held = build.claimed(store, ClaimRequest((review, fetch), 6), now=NOW + turn)
            done = [ways[(turn + place) % 4](each) for place, each in enumerate(held)]
            build.exchange(store, "w1", done, now=NOW + turn)
            agree(sum(build.statuses(store).values()), 50)
        agree(build.statuses(store, from_rows=True), build.statuses(store))
