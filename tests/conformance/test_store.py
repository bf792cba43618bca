# SPDX-License-Identifier: Apache-2.0
"""What every store must do: keep jobs, hand each out once, settle behind the fence, give back what a dead worker held."""

from __future__ import annotations

import pytest

from redrive.core.lifecycle import JobState
from redrive.store.protocol import Outlook, Store, Want

from .build import NOW, burial, claim, exchange, job, lanes_of, retry, settlement, statuses


@pytest.fixture(autouse=True)
def workers(store: Store) -> None:
    store.start_worker("w1", NOW, 60)
    store.start_worker("w2", NOW, 60)


def test_lanes_keep_their_ids_and_new_stages_get_new_ones(store: Store) -> None:
    fetch, review = lanes_of(store, "fetch", "review")

    assert lanes_of(store, "fetch", "check", "review")[::2] == [fetch, review]
    assert lanes_of(store, "fetch", pipeline="other") != [fetch]


def test_submitted_jobs_get_ids_in_order_and_are_queued(store: Store) -> None:
    (lane,) = lanes_of(store)
    first = store.submit([job(lane), job(lane)], NOW)
    second = store.submit([job(lane)], NOW)

    ids = [made.id for made in first + second]
    assert ids == sorted(set(ids))
    assert statuses(store) == {"queued": 3}
    assert store.submit([], NOW) == []


@pytest.mark.parametrize("end", ["queued", "processing", "complete"])
def test_a_key_belongs_to_one_queued_processing_or_complete_job(store: Store, end: str) -> None:
    (lane,) = lanes_of(store)
    (made,) = store.submit([job(lane, key="a")], NOW)
    if end != "queued":
        (taken,) = claim(store, lane)
        if end == "complete":
            exchange(store, "w1", [settlement(taken)])

    (twin, other) = store.submit([job(lane, key="a"), job(lane, key="b")], NOW)

    assert (twin.id, twin.is_twin) == (made.id, True)
    assert not other.is_twin


def test_the_key_of_a_failed_job_is_free_and_keys_are_per_pipeline(store: Store) -> None:
    (lane,) = lanes_of(store)
    (elsewhere,) = lanes_of(store, pipeline="other")
    store.submit([job(lane, key="a")], NOW)
    (taken,) = claim(store, lane)
    exchange(store, "w1", [burial(taken)])

    made = store.submit([job(lane, key="a"), job(elsewhere, key="a")], NOW)

    assert [one.is_twin for one in made] == [False, False]


def test_twins_within_one_batch_are_one_job(store: Store) -> None:
    (lane,) = lanes_of(store)

    first, second = store.submit([job(lane, key="a"), job(lane, key="a")], NOW)

    assert (second.id, second.is_twin) == (first.id, True)


def test_a_job_is_handed_out_once_with_its_dispatch_counted(store: Store) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane, b'"x"')], NOW)

    (taken,) = claim(store, lane)

    assert (taken.dispatch, taken.attempt, taken.round, taken.input) == (1, 1, 1, b'"x"')
    assert claim(store, lane, worker="w2") == ()
    assert statuses(store) == {"processing": 1}


def test_jobs_are_handed_out_by_priority_then_by_time_then_in_order(store: Store) -> None:
    (lane,) = lanes_of(store)
    jobs = [
        job(lane, b"5", priority=9),
        job(lane, b"3", run_at=NOW - 1),
        job(lane, b"4"),
        job(lane, b"1", priority=0),
        job(lane, b"2", priority=1),
    ]
    store.submit(jobs, NOW)

    assert [taken.input for taken in claim(store, lane)] == [b"1", b"2", b"3", b"4", b"5"]


def test_a_job_that_is_not_due_is_not_handed_out_and_does_not_stand_in_the_way(store: Store) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane, b"late", run_at=NOW + 10, priority=0), job(lane, b"due")], NOW)

    assert [taken.input for taken in claim(store, lane)] == [b"due"]
    assert store.outlook([lane]) == Outlook(due={lane: NOW + 10}, held=1, paused=frozenset())
    assert [taken.input for taken in claim(store, lane, now=NOW + 10)] == [b"late"]
    assert store.outlook([lane]) == Outlook(due={}, held=2, paused=frozenset())


def test_no_more_is_handed_out_than_wanted_and_only_from_wanted_lanes(store: Store) -> None:
    one, two = lanes_of(store, "one", "two")
    store.submit([job(one)] * 5 + [job(two)] * 5, NOW)

    taken = exchange(store, "w1", [], Want((two, one), 6), NOW).claimed

    assert [each.lane for each in taken] == [two] * 5 + [one]


def test_a_finished_stage_hands_its_output_to_the_next_lane_with_a_fresh_budget(store: Store) -> None:
    fetch, review = lanes_of(store, "fetch", "review")
    store.submit([job(fetch, b'"payload"')], NOW)
    (taken,) = claim(store, fetch)
    exchange(store, "w1", [retry(taken, at=NOW, codes=b'{"NETWORK_RESET":1}', snoozes=2)])
    (taken,) = claim(store, fetch)
    assert (taken.dispatch, taken.attempt, taken.snoozes, taken.codes) == (2, 2, 2, b'{"NETWORK_RESET":1}')

    advance = settlement(taken, status=JobState.QUEUED, lane=review, value=b'"output"')
    (next_up,) = exchange(store, "w1", [advance], Want((review,), 1), NOW).claimed

    assert (next_up.lane, next_up.input, next_up.dispatch) == (review, b'"output"', 3)
    assert (next_up.attempt, next_up.snoozes, next_up.codes) == (1, 0, None)


def test_a_retry_waits_until_it_is_due_with_its_input_kept(store: Store) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane, b'"in"')], NOW)
    (taken,) = claim(store, lane)

    exchange(store, "w1", [retry(taken, at=NOW + 5)])

    assert claim(store, lane) == ()
    (again,) = claim(store, lane, now=NOW + 5)
    assert (again.input, again.attempt) == (b'"in"', 2)


@pytest.mark.parametrize("build", [settlement, burial])
def test_a_settlement_behind_a_lost_lease_is_refused_for_that_job_alone(store: Store, build: object) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane), job(lane)], NOW)
    stale, fine = claim(store, lane, worker="w1")
    store.stop_worker("w1")
    store.start_worker("w3", NOW, 60)
    (again, other) = claim(store, lane, worker="w2")

    answer = exchange(store, "w2", [build(stale), settlement(other)])  # type: ignore[operator]

    assert answer.lost == (stale.id,)
    assert statuses(store) == {"processing": 1, "complete": 1}
    assert exchange(store, "w2", [settlement(again)]).lost == ()
    assert fine.id == other.id


def test_the_same_batch_sent_again_counts_as_done(store: Store) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane), job(lane)], NOW)
    first, second = claim(store, lane)
    batch = [settlement(first), burial(second)]

    exchange(store, "w1", batch)
    again = exchange(store, "w1", batch)

    assert (again.lost, again.broken) == ((), ())
    assert statuses(store) == {"complete": 1, "failed": 1}


def test_a_row_that_breaks_a_constraint_is_taken_out_and_the_rest_commits(store: Store) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane), job(lane)], NOW)
    bad, good = claim(store, lane)

    answer = exchange(store, "w1", [settlement(bad, value=None), settlement(good)])

    assert answer.broken == (bad.id,)
    assert statuses(store) == {"complete": 1, "processing": 1}
    assert exchange(store, "w1", [burial(bad)]).broken == ()


def test_a_cancelled_job_is_out_of_the_way(store: Store) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane)], NOW)
    (taken,) = claim(store, lane)

    exchange(store, "w1", [settlement(taken, status=JobState.CANCELLED, value=None, outcome="cancelled")])

    assert statuses(store) == {"cancelled": 1}
    assert claim(store, lane) == ()


def test_a_worker_that_stops_gives_back_what_it_holds_unburned(store: Store) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane)], NOW)
    claim(store, lane, worker="w1")

    store.stop_worker("w1")

    (taken,) = claim(store, lane, worker="w2")
    assert (taken.attempt, taken.dispatch) == (1, 2)


def test_a_dead_workers_jobs_go_back_unburned_and_its_settlements_are_refused(store: Store) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane)], NOW)
    (held,) = claim(store, lane, worker="w1")
    assert store.renew("w2", NOW + 50, 60).is_known

    assert store.reap(NOW + 60) == 0
    assert store.reap(NOW + 61) == 1
    assert store.reap(NOW + 61) == 0

    assert not store.renew("w1", NOW + 62, 60).is_known
    assert exchange(store, "w1", [settlement(held)], now=NOW + 62).lost == (held.id,)
    (taken,) = claim(store, lane, worker="w2", now=NOW + 62)
    assert (taken.attempt, taken.dispatch) == (1, 2)


def test_a_worker_that_was_declared_dead_is_told_so_and_claims_nothing(store: Store) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane)], NOW)
    store.reap(NOW + 1_000)

    answer = exchange(store, "w1", [], Want((lane,), 1))

    assert (answer.is_known, answer.claimed) == (False, ())


def test_a_call_made_again_with_its_token_returns_what_it_had_claimed(store: Store) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane), job(lane)], NOW)

    first = store.exchange("w1", [], Want((lane,), 1), now=NOW, token=77)
    again = store.exchange("w1", [], Want((lane,), 1), now=NOW, token=77)

    assert again == first
    assert statuses(store) == {"queued": 1, "processing": 1}


def test_a_lease_that_has_ended_but_was_not_reaped_still_settles(store: Store) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane)], NOW)
    (held,) = claim(store, lane, worker="w1")

    assert exchange(store, "w1", [settlement(held)], now=NOW + 1_000).lost == ()


def test_every_job_is_accounted_for_after_any_mixture(store: Store) -> None:
    fetch, review = lanes_of(store, "fetch", "review")
    store.submit([job(fetch) for _ in range(50)], NOW)
    for turn in range(40):
        taken = exchange(store, "w1", [], Want((review, fetch), 6), NOW + turn).claimed
        done = [
            (settlement(each), burial(each), retry(each, at=NOW + turn + 1))[(turn + place) % 3]
            for place, each in enumerate(taken)
        ]
        exchange(store, "w1", done, now=NOW + turn)
        assert sum(statuses(store).values()) == 50
