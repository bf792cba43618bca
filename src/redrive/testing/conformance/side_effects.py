# SPDX-License-Identifier: Apache-2.0
"""What goes with a settlement, if and only if it is taken: children, notices for hooks, and the tally of what has ended.

A batch may be sent twice, and part of it may be refused: neither may leave anything behind that does not belong to what was taken.
"""

from __future__ import annotations

import pytest

from redrive.store.protocol import Store
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import outbox as outbox_sql
from redrive.store.statements import runs as run_sql
from redrive.testing.conformance import build
from redrive.testing.conformance.build import NOW, Scene, agree, holds, lanes_of
from redrive.testing.conformance.submissions import SIZES, text_of


def notices(store: Store, lane: int, now: float = NOW + 1) -> list[outbox_sql.Notice]:
    """Return the notices of a lane that are due."""
    return store.query(outbox_sql.notices_for(lane=lane, recipient="hook", now=now, limit=10))


class SideEffectTests(Scene):
    """What goes with a settlement."""

    def test_a_child_knows_its_id_once_it_is_committed(self, store: Store) -> None:
        """Not when its parent's settlement was refused; that of a duplicate is the job that was there."""
        one = build.taken(store)
        (there,) = store.submit([build.new(one.lane, key="k")], NOW)
        made, same, lost = build.child(), build.child(key="k"), build.child()

        build.exchange(store, "w1", [build.settlement(one, children=(made, same))])
        build.exchange(store, "w1", [build.settlement(one, children=(lost,))])

        agree([each.stored for each in (same, lost)], [[there.id], []])
        agree(store.query(job_sql.children(job=one.id)), made.stored)

    @pytest.mark.parametrize("is_known", [True, False])
    @pytest.mark.parametrize("size", SIZES)
    def test_children_are_there_when_the_settlement_is(
        self, store: Store, size: int, *, is_known: bool
    ) -> None:
        """In the first lane of their pipeline, which is made if nobody has seen it before, with their parent's id."""
        if is_known:
            lanes_of(store, "fetch", "review", pipeline="other")
        one = build.taken(store)
        made = build.child(text_of(size), pipeline="other", priority=3)

        build.exchange(store, "w1", [build.settlement(one, children=(made, made))])

        elsewhere, _ = lanes_of(store, "fetch", "review", pipeline="other")
        first, second = build.claim(store, elsewhere)
        agree((first.input, second.input), (text_of(size), text_of(size)))
        seen = build.facts(store, first.id)
        agree((seen.pipeline, seen.stage, seen.parent, seen.priority), ("other", "fetch", one.id, 3))

    def test_children_of_a_lost_settlement_never_exist(self, store: Store) -> None:
        """Nor those of one whose row the store could not take."""
        lost = build.taken(store)
        store.stop_worker("w1")
        store.start_worker("w1", NOW, 60)
        (broken,) = build.claim(store, lost.lane)

        done = [build.settlement(lost, children=(build.child(),))]
        agree(build.exchange(store, "w1", done).lost, (lost.id,))
        done = [build.settlement(broken, value=None, children=(build.child(),))]
        agree(build.exchange(store, "w1", done).broken, (broken.id,))

        agree(build.statuses(store), {"processing": 1})

    def test_children_are_not_made_twice_when_a_batch_is_sent_again(self, store: Store) -> None:
        """They belong to the settlement, which counts once."""
        one = build.taken(store)
        batch = [build.settlement(one, children=(build.child(),))]

        build.exchange(store, "w1", batch)
        build.exchange(store, "w1", batch)

        agree(build.statuses(store), {"complete": 1, "queued": 1})

    def test_a_child_whose_key_is_taken_is_a_duplicate(self, store: Store) -> None:
        """It is not made, and its parent is settled anyway."""
        one = build.taken(store)
        store.submit([build.new(one.lane, key="a")], NOW)

        answer = build.exchange(store, "w1", [build.settlement(one, children=(build.child(key="a"),))])

        agree((answer.lost, answer.broken), ((), ()))
        agree(build.statuses(store), {"complete": 1, "queued": 1})

    def test_a_notice_is_written_with_its_settlement(self, store: Store) -> None:
        """For hooks that want to hear of it, once, however often the batch is sent."""
        noticed, quiet = build.taken_many(store, 2)
        batch = [build.burial(noticed, recipients=("hook",)), build.burial(quiet)]

        build.exchange(store, "w1", batch)
        build.exchange(store, "w1", batch)

        ((_, job, dispatch, attempt, outcome, code, message, decision, *_, tries),) = notices(
            store, noticed.lane
        )
        agree((job, dispatch, attempt, outcome), (noticed.id, 1, 1, "dead"))
        agree((code, message, decision, tries), ("AUTH_DENIED", "denied", build.PERMANENT, 0))
        agree(notices(store, noticed.lane, NOW), [])

    def test_a_notice_is_about_its_attempt_although_the_job_has_moved_on(self, store: Store) -> None:
        """Each attempt has its own, the oldest first."""
        one = build.taken(store)
        build.exchange(store, "w1", [build.retry(one, at=NOW, recipients=("hook",))])
        (one,) = build.claim(store, one.lane)
        build.exchange(store, "w1", [build.burial(one, recipients=("hook",), ended_at=NOW + 2)])

        rows = notices(store, one.lane, NOW + 2)

        agree([(row[3], row[4]) for row in rows], [(1, "retry"), (2, "dead")])

    def test_a_notice_that_was_taken_is_hidden_until_it_is_dropped_or_due_again(self, store: Store) -> None:
        """Two who saw it at once cannot both take it."""
        one = build.taken(store)
        build.exchange(store, "w1", [build.burial(one, recipients=("hook",))])
        (notice,) = notices(store, one.lane)
        take = outbox_sql.take_notice(hidden_until=NOW + 60, notice=notice.id, tries=notice.tries).touching(1)

        holds(store.apply(take) is not None)
        agree(store.apply(take), None)
        agree(notices(store, one.lane), [])
        (again,) = notices(store, one.lane, NOW + 60)
        agree((again.id, again.tries), (notice.id, 1))
        store.apply(outbox_sql.drop_notice(notice=notice.id))
        agree(notices(store, one.lane, NOW + 60), [])

    def test_what_has_ended_is_tallied_by_run_and_status(self, store: Store) -> None:
        """Jobs of no run count for none; what is not over is not counted."""
        (lane,) = lanes_of(store)
        run = build.new_run(store)
        store.submit([build.new(lane)] + [build.new(lane, run=run, ordinal=place) for place in range(6)], NOW)
        none, one, two, three, four, five, _ = build.claim(store, lane)

        done = [build.settlement(each) for each in (none, one, two)]
        done += [build.burial(three), build.cancellation(four), build.skip(five)]
        build.exchange(store, "w1", done)

        others = {"failed": 1, "cancelled": 1, "skipped": 1}
        agree(build.tally(store, run), {"complete": 2, **others})
        agree(build.statuses(store), {"complete": 3, **others, "processing": 1})
        agree(build.statuses(store, from_rows=True), build.statuses(store))

    def test_a_skipped_job_is_out_of_the_way_and_its_children_are_there(self, store: Store) -> None:
        """It is neither complete nor failed, and its attempt says why."""
        one = build.taken(store)

        build.exchange(store, "w1", [build.skip(one, children=(build.child(pipeline="other"),))])

        agree(build.statuses(store), {"skipped": 1, "queued": 1})
        agree(build.claim(store, one.lane), ())
        agree(build.attempts(store, one.id, "outcome", "message", "code"), [("skipped", "empty", None)])

    def test_the_tally_counts_once_what_is_sent_twice_and_nothing_that_is_lost(self, store: Store) -> None:
        """It is written with the settlement."""
        one = build.taken(store)
        build.exchange(store, "w1", [build.settlement(one)])
        build.exchange(store, "w1", [build.settlement(one)])
        stale = build.taken(store)
        store.stop_worker("w1")
        build.exchange(store, "w1", [build.burial(stale)])

        agree(build.statuses(store), {"complete": 1, "queued": 1})

    def test_cancelling_what_is_queued_is_tallied_too(self, store: Store) -> None:
        """However a job ends, the tally hears of it."""
        (lane,) = lanes_of(store)
        run = build.new_run(store)
        store.submit([build.new(lane, run=run, ordinal=place) for place in range(3)], NOW)
        (one,) = build.claim(store, lane, 1)

        store.apply(run_sql.cancel_run(now=NOW, run=run, limit=10, ordinal=0))

        agree(build.tally(store, run), {"cancelled": 2})
        build.exchange(store, "w1", [build.advance(one, lane)])
        agree(build.statuses(store, from_rows=True), build.statuses(store))
