# SPDX-License-Identifier: Apache-2.0
"""Which jobs of a commit continue in place, and what is still claimed beside them."""

from __future__ import annotations

from redrive.store.plan import NOTHING, Continuation, ExchangePlan
from redrive.store.records import ClaimedJob, ClaimRequest, Exchange, ExchangeRequest, JobId, LaneId
from redrive.testing.conformance.build import advance, child, retry

FETCH, EMBED = LaneId(1), LaneId(2)
NOW = 100.0


def leased(number: int, lane: LaneId = FETCH) -> ClaimedJob:
    return ClaimedJob(
        JobId(number), 7, 1, lane, 1, 1, 0, 0, 0, 0, 0, expires_at=None, codes=None, input=b"1", payload=None
    )


def continuation(want: ClaimRequest) -> Continuation:
    return Continuation(want, (), token=9, now=NOW)


def test_retries_of_several_lanes_leave_half_of_the_room_to_others() -> None:
    in_place = continuation(ClaimRequest((FETCH, EMBED), 4))

    failed = [retry(leased(number, lane), at=NOW) for number, lane in enumerate([FETCH, EMBED] * 2)]

    assert [in_place.take(one) for one in failed] == [True, True, False, False]


def test_a_job_that_is_dropped_leaves_its_room_and_its_slot_to_another() -> None:
    in_place = continuation(ClaimRequest((FETCH,), 2, {FETCH: 1}, slots=1))
    assert in_place.take(advance(leased(1), FETCH))
    assert not in_place.take(advance(leased(2), FETCH))

    in_place.drop(JobId(1))

    assert in_place.rest() == ClaimRequest((FETCH,), 2, {FETCH: 1}, slots=1)
    assert in_place.take(advance(leased(2), FETCH))
    assert in_place.rest() == ClaimRequest((FETCH,), 1, {FETCH: 0}, slots=0)


def test_a_job_of_a_batch_takes_no_slot_and_returns_none() -> None:
    in_place = continuation(ClaimRequest((EMBED,), 3, slots=1, batched=frozenset([EMBED])))

    assert [in_place.take(advance(leased(number), EMBED)) for number in (1, 2)] == [True, True]
    assert in_place.rest().slots == 1
    in_place.drop(JobId(1))

    assert in_place.rest().slots == 1


def test_what_queues_first_is_not_taken() -> None:
    in_place = continuation(ClaimRequest((FETCH, EMBED), 9, keys={EMBED: {"a": 9}}))

    assert not in_place.take(advance(leased(1), EMBED))
    assert not in_place.take(retry(leased(2), at=NOW, suspects=1))
    assert not in_place.take(retry(leased(3), at=NOW, crashes=1))
    assert not in_place.take(retry(leased(4), at=NOW + 1))
    assert in_place.take(retry(leased(5), at=NOW))


def test_a_child_whose_parent_was_taken_out_of_the_commit_has_no_id() -> None:
    plan = ExchangePlan[None](ExchangeRequest("w1", [], NOTHING, now=NOW, token=3))
    insert = plan.inserting(lambda _db, _child, _now, parent: JobId(parent + 10))
    kept, gone = child(), child()
    insert(None, kept, NOW, JobId(1))
    insert(None, gone, NOW, JobId(2))

    plan.report_children(Exchange(lost=(), broken=(JobId(2),), claimed=()))

    assert (kept.stored, gone.stored) == ([JobId(11)], [])
