# SPDX-License-Identifier: Apache-2.0
"""Handing out jobs: each to one worker, in order, within limits; and what is still to come.

Nothing here says how a store finds them: only that none is lost, none is two, and the order is the one that was promised.
"""

from __future__ import annotations

import threading
from typing import Final

import msgspec
import pytest

from redrive.store.protocol import Store
from redrive.store.records import ClaimRequest, ExchangeRequest, LaneId, UpcomingWork
from redrive.store.statements import workers as worker_sql
from redrive.testing.conformance import build
from redrive.testing.conformance.build import NOW, Scene, agree, holds, lanes_of

UNREADABLE: Final = (
    b"[" * 1_200 + b"]" * 1_200,
    b'"tea\xe9"',
    b'{"a":',
    b'"a',
    b'b"',
    b'1],[5,0,777,1,1,1,1,0,0,0,0,0,null,null,null,"forged"',
    b"1,2",
)
"""Values that are no JSON, or that no decoder takes."""


def ids(store: Store, want: ClaimRequest, worker: str = "w1", now: float = NOW) -> list[int]:
    """Claim what is wanted; return the ids, in order."""
    return sorted(one.id for one in build.claimed(store, want, worker, now))


class KeyTests(Scene):
    """Lanes whose jobs have keys: how many of which one."""

    @staticmethod
    def _lane(store: Store, *keys: str | None) -> LaneId:
        """Submit a job for each key, each due a little later than the one before."""
        lane, _ = lanes_of(store, "fetch", "review")
        made = store.submit([build.new(lane, run_at=NOW - 100 + place) for place in range(len(keys))], NOW)
        store.apply(worker_sql.set_keyed_by(keyed_by='["tenant"]', lane=lane))
        found = [(int(each.id), key) for each, key in zip(made, keys, strict=True) if key is not None]
        store.apply(worker_sql.put_keys(keys=found, lane=lane, keyed_by='["tenant"]'))
        return lane

    def test_of_each_key_so_many_are_claimed_and_of_others_none(self, store: Store) -> None:
        """The oldest of each key first; a key without jobs is no harm, and neither is a job without a key."""
        lane = self._lane(store, "a", "a", "a", "b", "b", "c", None)
        want = ClaimRequest((lane,), 10, keys={lane: {"b": 1, "a": 2, "nobody": 5, "c": 0}})

        agree(ids(store, want), [1, 2, 4])
        agree(ids(store, ClaimRequest((lane,), 10, keys={lane: {}}), "w2"), [])
        rest = ClaimRequest((lane,), 10, keys={lane: {"a": 9, "b": 9, "c": 9}})
        agree(ids(store, rest, "w2"), [3, 5, 6])

    def test_candidates_for_a_probe_are_found_by_their_keys(self, store: Store) -> None:
        """By the time they wait, and only those of the keys that are asked for."""
        lane = self._lane(store, "b", "a", "c", None, "a")

        for now, since, wanted in ((NOW - 97, 0.0, [NOW - 100, NOW - 99]), (NOW, NOW - 98, [NOW - 96])):
            asked = worker_sql.probe_candidates_of_keys(lane=lane, now=now, since=since, keys=["a", "b"])
            agree([row.run_at for row in store.query(asked)], wanted)

    def test_the_first_keys_come_first_within_the_other_limits(self, store: Store) -> None:
        """Of the whole claim, and of the lane; a lane without keys gets what is left."""
        lane = self._lane(store, "a", "a", "b", "b")
        (plain,) = lanes_of(store, pipeline="other")
        store.submit([build.new(plain), build.new(plain)], NOW)
        keys = {lane: {"b": 2, "a": 2}}

        agree(ids(store, ClaimRequest((lane, plain), 4, {lane: 3}, keys=keys)), [1, 3, 4, 5])
        agree(ids(store, ClaimRequest((lane,), 0, keys=keys)), [])

    def test_what_is_not_due_or_in_a_paused_pipeline_is_not_claimed_by_its_key(self, store: Store) -> None:
        """As without keys."""
        lane = self._lane(store, "a", "a")
        (one,) = build.claimed(store, ClaimRequest((lane,), 1, keys={lane: {"a": 1}}))
        build.exchange(store, "w1", [build.retry(one, at=NOW + 60)])
        want = ClaimRequest((lane,), 10, keys={lane: {"a": 9}})
        store.apply(worker_sql.pause_lanes(now=NOW, pipeline="shop"))
        agree(ids(store, want), [])

        store.apply(worker_sql.resume_lanes(pipeline="shop"))
        agree(ids(store, want), [2])
        agree(ids(store, want, now=NOW + 60), [1])

    def test_a_job_that_moves_on_has_no_key_in_its_next_lane(self, store: Store) -> None:
        """One that is retried keeps it."""
        lane, after = self._lane(store, "a", "a"), lanes_of(store, "fetch", "review")[1]
        one, two = build.claimed(store, ClaimRequest((lane,), 2, keys={lane: {"a": 2}}))
        build.exchange(store, "w1", [build.advance(one, after), build.retry(two, at=NOW)])

        agree(store.query(worker_sql.keys_of_jobs(ids=[one.id, two.id])), [(two.id, "a")])
        agree([each.id for each in build.claim(store, after)], [one.id])

    def test_keys_are_found_by_lane_in_their_order_with_whether_one_is_due(self, store: Store) -> None:
        """From a key on, so many of them."""
        lane = self._lane(store, "a", "b", "c", "d", None)
        for after, limit, wanted in (("a", 2, [("b", True), ("c", True)]), ("c", 9, [("d", False)])):
            rows = store.query(worker_sql.keys_of_lane(lane=lane, after=after, now=NOW - 98, limit=limit))
            agree([(key, bool(is_due)) for key, is_due in rows], wanted)
        agree([row[0] for row in store.query(worker_sql.jobs_without_key(lane=lane, limit=10))], [5])


class OrderTests(Scene):
    """In which order, how many, and to whom."""

    def test_one_job_can_be_claimed_if_it_is_due(self, store: Store) -> None:
        """Whatever its priority; another one is not claimed instead, nor this one from another lane."""
        (lane,) = lanes_of(store)
        first, later, last = store.submit(
            [build.new(lane), build.new(lane, run_at=NOW + 1), build.new(lane, priority=9)], NOW
        )

        found = store.query(worker_sql.probe_candidates(lane=lane, now=NOW, since=0.0))
        (other,) = lanes_of(store, pipeline="other")
        store.submit([build.new(other)], NOW)
        elsewhere = ids(store, ClaimRequest((other,), 1, job=last.id))
        unwanted = [
            ids(store, ClaimRequest((lane,), limit, {lane: most}, job=last.id))
            for limit, most in ((0, 1), (1, 0))
        ]
        claimed = [ids(store, ClaimRequest((lane,), 1, job=job.id)) for job in (later, last, last)]

        agree([row[2] for row in found], [first.id, last.id])
        agree((elsewhere, unwanted), ([], [[], []]))
        agree(claimed, [[], [last.id], []])

    def test_a_claim_brings_key_owner_and_run(self, store: Store) -> None:
        """As JSON, whatever characters they have; nothing for a job without them."""
        (lane,) = lanes_of(store)
        run = build.new_run(store)
        store.submit(
            [build.new(lane), build.new(lane, key='a "b"', owner="o"), build.new(lane, run=run, ordinal=0)],
            NOW,
        )

        about = [one.about and msgspec.json.decode(one.about) for one in build.claim(store, lane)]

        agree(about, [None, ['a "b"', "o", None, None], [None, None, run, None]])

    @pytest.mark.parametrize("priority", range(10))
    def test_of_every_priority_what_is_due_is_handed_out_one_by_one_in_its_order(
        self, store: Store, priority: int
    ) -> None:
        """And what is not due is not, although it was submitted first."""
        (lane,) = lanes_of(store)
        store.submit(
            [build.new(lane, str(n).encode(), run_at=NOW - n, priority=priority) for n in (-5, 1, 2)], NOW
        )

        agree([one.input for limit in (1, 5) for one in build.claim(store, lane, limit)], [b"2", b"1"])
        agree(store.upcoming([lane]).due, {lane: NOW + 5})
        agree([one.input for one in build.claim(store, lane, 1, now=NOW + 5)], [b"-5"])

    def test_no_more_is_handed_out_than_was_asked_for_of_all_lanes_together(self, store: Store) -> None:
        """Whether jobs are queued or continue in place."""
        fetch, parse, review = lanes_of(store, "fetch", "parse", "review")
        store.submit([build.new(lane) for lane in (fetch, parse) for _ in range(3)], NOW)

        held = build.claimed(store, ClaimRequest((parse, fetch), 4, {fetch: 3}))
        agree([one.lane for one in held], [parse, parse, parse, fetch])

        done = [build.advance(one, review if one.lane == parse else parse) for one in held]
        agree(len(build.exchange(store, "w1", done, ClaimRequest((review, parse), 2)).claimed), 2)

    def test_jobs_that_share_slots_take_none_and_count_against_everything_else(self, store: Store) -> None:
        """Whether jobs are queued or continue in place; the limit of all lanes together holds for them, too."""
        fetch, embed, notify = lanes_of(store, "fetch", "embed", "notify")
        store.submit([build.new(lane) for lane in (fetch, embed, notify) for _ in range(4)], NOW)
        batched = frozenset([embed])

        want = ClaimRequest((notify, embed, fetch), 6, {embed: 3}, slots=2, batched=batched)
        held = build.claimed(store, want)
        agree([one.lane for one in held], [notify, notify, embed, embed, embed])

        done = [build.advance(one, notify) for one in held if one.lane == embed]
        again = ClaimRequest((notify, embed, fetch), 9, {embed: 9}, slots=1, batched=batched)
        agree([one.lane for one in build.exchange(store, "w1", done, again).claimed], [notify, embed])

        done = [build.advance(held[0], embed)]
        few = ClaimRequest((embed, fetch), 2, {embed: 1}, slots=1, batched=batched)
        agree([one.lane for one in build.exchange(store, "w1", done, few).claimed], [embed, fetch])

    @pytest.mark.parametrize(("limit", "slots"), [(9, 1), (3, 2)])
    def test_a_lane_that_shares_slots_leaves_them_to_the_lanes_behind_it(
        self, store: Store, limit: int, slots: int
    ) -> None:
        """However many of its jobs are claimed; but not more than are wanted in all."""
        embed, fetch = lanes_of(store, "embed", "fetch")
        store.submit([build.new(lane) for lane in (embed, fetch) for _ in range(2)], NOW)

        want = ClaimRequest(
            (embed, fetch), limit, {embed: 9, fetch: 9}, slots=slots, batched=frozenset([embed])
        )
        held = build.claimed(store, want)

        agree([one.lane for one in held], [embed, embed, fetch])

    @pytest.mark.parametrize(("limit", "slots"), [(9, 2), (2, 9)])
    def test_where_no_jobs_share_slots_both_numbers_hold(self, store: Store, limit: int, slots: int) -> None:
        """The lower of them is how many are handed out."""
        (lane,) = lanes_of(store)
        store.submit([build.new(lane)] * 5, NOW)

        agree(len(build.claimed(store, ClaimRequest((lane,), limit, slots=slots))), 2)

    def test_workers_that_use_the_same_token_get_their_own_jobs(self, store: Store) -> None:
        """Each worker counts its tokens by itself."""
        (lane,) = lanes_of(store)
        store.submit([build.new(lane), build.new(lane)], NOW)
        want = ClaimRequest((lane,), 1)

        claimed = [
            store.exchange(ExchangeRequest(worker, [], want, now=NOW, token=7_000)).claimed
            for worker in ("w1", "w2")
        ]

        agree([len(each) for each in claimed], [1, 1])
        holds(claimed[0][0].id != claimed[1][0].id)

    def test_a_new_stage_of_a_paused_pipeline_is_paused(self, store: Store) -> None:
        """As those it had when it was paused."""
        lanes_of(store, "fetch")
        store.apply(worker_sql.pause_lanes(now=NOW, pipeline="shop"))
        fetch, review = lanes_of(store, "fetch", "review")

        agree(store.upcoming([fetch, review]).paused, frozenset({fetch, review}))

    def test_no_job_continues_in_place_in_a_paused_lane(self, store: Store) -> None:
        """It queues for its next stage, or for its next attempt, until the lane is resumed."""
        fetch, review = lanes_of(store, "fetch", "review")
        one, two = build.taken_many(store, 2)
        store.apply(worker_sql.pause_lanes(now=NOW, pipeline="shop"))

        done = [build.advance(one, review), build.retry(two, at=NOW)]
        agree(build.exchange(store, "w1", done, ClaimRequest((review, fetch), 4)).claimed, ())

        agree(build.statuses(store), {"queued": 2})


class ClaimTests(KeyTests, OrderTests):
    """Handing out jobs."""

    def test_a_job_is_handed_out_once_with_its_dispatch_counted(self, store: Store) -> None:
        """Nobody else gets it while it is held."""
        (lane,) = lanes_of(store)
        store.submit([build.new(lane, b'"x"')], NOW)

        (one,) = build.claim(store, lane)

        agree((one.dispatch, one.attempt, one.round, one.input), (1, 1, 1, b'"x"'))
        agree((one.snoozes, one.suspects, one.crashes, one.cancel_asked, one.codes), (0, 0, 0, 0, None))
        agree(build.claim(store, lane, worker="w2"), ())
        agree(build.statuses(store), {"processing": 1})

    def test_jobs_are_handed_out_by_priority_then_by_time_then_in_order(self, store: Store) -> None:
        """Priority 0 goes first; among equals, what was due earlier, then what was submitted earlier; however few are wanted."""
        (lane,) = lanes_of(store)
        jobs = [
            build.new(lane, b"6", priority=9),
            build.new(lane, b"3", run_at=NOW - 1),
            build.new(lane, b"4"),
            build.new(lane, b"5"),
            build.new(lane, b"1", priority=0),
            build.new(lane, b"2", priority=1),
        ]
        store.submit(jobs, NOW)

        agree(
            [one.input for limit in (1, 1, 2, 9) for one in build.claim(store, lane, limit)],
            [b"1", b"2", b"3", b"4", b"5", b"6"],
        )

    def test_a_job_that_is_not_due_is_not_handed_out_and_does_not_stand_in_the_way(
        self, store: Store
    ) -> None:
        """However urgent it is."""
        (lane,) = lanes_of(store)
        store.submit(
            [build.new(lane, b'"late"', run_at=NOW + 10, priority=0), build.new(lane, b'"due"')], NOW
        )

        agree([one.input for one in build.claim(store, lane)], [b'"due"'])
        agree(store.upcoming([lane]), UpcomingWork(due={lane: NOW + 10}, leased=1, paused=frozenset()))
        agree([one.input for one in build.claim(store, lane, now=NOW + 10)], [b'"late"'])
        agree(store.upcoming([lane]), UpcomingWork(due={}, leased=2, paused=frozenset()))

    def test_upcoming_work_is_of_the_lanes_that_are_asked_for(self, store: Store) -> None:
        """The next job of each lane, whatever its priority."""
        one, two, three = lanes_of(store, "one", "two", "three")
        store.submit(
            [
                build.new(one, run_at=NOW + 7),
                build.new(one, run_at=NOW + 5, priority=9),
                build.new(two),
                build.new(three),
            ],
            NOW,
        )
        build.claim(store, three)

        due = {one: NOW + 5, two: NOW}
        agree(store.upcoming([one, two]), UpcomingWork(due=due, leased=0, paused=frozenset()))

    def test_no_more_is_handed_out_than_wanted_and_only_from_wanted_lanes(self, store: Store) -> None:
        """The first lane of the list goes first."""
        one, two, three = lanes_of(store, "one", "two", "three")
        store.submit([build.new(one)] * 5 + [build.new(two)] * 5 + [build.new(three)] * 5, NOW)

        got = build.claimed(store, ClaimRequest((two, one), 6))

        agree([each.lane for each in got], [two] * 5 + [one])
        agree(build.claimed(store, ClaimRequest((two, one), 0)), ())

    def test_of_some_lanes_fewer_are_handed_out(self, store: Store) -> None:
        """A lane's own limit leaves the rest to the others; 0 is none."""
        one, two, three = lanes_of(store, "one", "two", "three")
        store.submit([build.new(one)] * 5 + [build.new(two)] * 5 + [build.new(three)] * 5, NOW)

        got = build.claimed(store, ClaimRequest((one, two, three), 6, {one: 2, two: 0}))

        agree([each.lane for each in got], [one] * 2 + [three] * 4)

    def test_nothing_is_handed_out_from_a_paused_lane(self, store: Store) -> None:
        """Until it is resumed; what is held already may be settled."""
        (shop,) = lanes_of(store)
        (other,) = lanes_of(store, pipeline="other")
        held = build.taken(store)
        store.submit([build.new(shop), build.new(other)], NOW)
        pauses = [store.apply(worker_sql.pause_lanes(now=NOW + turn, pipeline="shop")) for turn in range(2)]
        paused: list[list[list[int]]] = [[[shop]], [[]]]
        agree(pauses, paused)

        got = build.exchange(store, "w1", [build.settlement(held)], ClaimRequest((shop, other), 10))

        agree((got.lost, [each.lane for each in got.claimed]), ((), [other]))
        agree(store.upcoming([shop, other]).paused, frozenset({shop}))
        store.apply(worker_sql.resume_lanes(pipeline="shop"))
        agree(store.upcoming([shop, other]).paused, frozenset[int]())
        agree(len(build.claim(store, shop)), 1)

    def test_a_call_made_again_with_its_token_returns_what_it_had_claimed(self, store: Store) -> None:
        """So that nothing is lost when the answer was, and nothing more is claimed."""
        fetch, review = lanes_of(store, "fetch", "review")
        store.submit(
            [build.new(fetch), build.new(fetch), build.new(fetch), build.new(review, priority=9)], NOW
        )
        want = ClaimRequest((review, fetch), 3)

        first = store.exchange(ExchangeRequest("w1", [], want, now=NOW, token=77))
        again = store.exchange(ExchangeRequest("w1", [], want, now=NOW + 1, token=77))

        agree({one.id: one for one in again.claimed}, {one.id: one for one in first.claimed})
        agree(build.statuses(store), {"queued": 1, "processing": 3})

    def test_a_call_made_again_settles_nothing_twice(self, store: Store) -> None:
        """Outcomes and claims of one lost answer are both found again."""
        done = build.taken(store)
        store.submit([build.new(done.lane)], NOW)
        want = ClaimRequest((done.lane,), 1)

        first = store.exchange(ExchangeRequest("w1", [build.settlement(done)], want, now=NOW, token=78))
        again = store.exchange(ExchangeRequest("w1", [build.settlement(done)], want, now=NOW, token=78))

        agree(again, first)
        agree(build.statuses(store), {"complete": 1, "processing": 1})

    def test_what_the_last_attempt_left_is_handed_out_with_the_job(self, store: Store) -> None:
        """Attempt, snoozes and the count of codes."""
        one = build.taken(store)
        build.exchange(store, "w1", [build.retry(one, at=NOW, codes=b'{"NETWORK_RESET":1}', snoozes=2)])

        (again,) = build.claim(store, one.lane)

        agree((again.dispatch, again.attempt, again.snoozes), (2, 2, 2))
        agree(again.codes, b'{"NETWORK_RESET":1}')

    def test_a_value_that_nobody_can_read_is_handed_out_as_it_is(self, store: Store) -> None:
        """A store does not look into values: what is wrong with one is between its job and its stage."""
        fetch, review = lanes_of(store, "fetch", "review")
        store.submit([build.new(fetch, each) for each in (b"1", *UNREADABLE, b'"last"')], NOW)

        got = build.claim(store, fetch)

        agree([one.input for one in got], [b"1", *UNREADABLE, b'"last"'])
        continued = zip(got, reversed(UNREADABLE), strict=False)
        build.exchange(store, "w1", [build.advance(one, review, value=value) for one, value in continued])
        moved = build.claim(store, review, worker="w2")
        agree([one.input for one in moved], list(reversed(UNREADABLE)))
        agree([one.payload for one in moved], [b"1", *UNREADABLE[:-1]])

    def test_threads_share_a_store_and_no_job_is_lost_or_handed_out_twice(self, store: Store) -> None:
        """Every method may be called from any thread."""
        (lane,) = lanes_of(store)
        made = store.submit([build.new(lane)] * 200, NOW)
        seen: list[int] = []

        def drain(worker: str) -> None:
            while got := build.claim(store, lane, 7, worker=worker):
                seen.extend(one.id for one in got)
                build.exchange(store, worker, [build.settlement(one) for one in got])

        threads = [threading.Thread(target=drain, args=(name,)) for name in ("w1", "w2", "w1")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        agree(sorted(seen), [one.id for one in made])
        agree(build.statuses(store), {"complete": 200})
