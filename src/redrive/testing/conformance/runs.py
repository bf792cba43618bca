# SPDX-License-Identifier: Apache-2.0
"""Runs in a store: opened with all their items or not at all, ended once, live again while an item is replayed.

Which status a run gets is decided elsewhere; here is what the store takes of such a decision, and what it returns.
"""

from __future__ import annotations

from msgspec.structs import replace

from redrive.store.protocol import Store
from redrive.store.records import ClaimedJob, JobId, Step
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import outbox as outbox_sql
from redrive.store.statements import runs as run_sql
from redrive.testing.conformance import build
from redrive.testing.conformance.build import NOW, Scene, agree, holds, lanes_of
from redrive.testing.conformance.replays import released

ITEMS = '[["1", null, null, 5], ["\\"two\\"", "b", "ann", 0]]'


def opened(
    store: Store, items: str = ITEMS, count: int = 2, *, key: str | None = "k", trace: str | None = None
) -> object:
    """Open a run; return what the store answers."""
    (lane,) = lanes_of(store)
    return store.apply(
        run_sql.open_run(
            pipeline="shop", options=b"{}", now=NOW, items=count, key=key, label="label", owner="bob"
        ).touching(1),
        run_sql.open_items(lane=lane, now=NOW, items=items, inline_max=4).touching(count),
        run_sql.open_values(items=items, inline_max=4),
        *([] if trace is None else [run_sql.open_traces(trace=trace)]),
    )


def started(store: Store) -> tuple[ClaimedJob, ClaimedJob]:
    """Open a run of two items, and claim both."""
    opened(store)
    one, two = build.claim(store, lanes_of(store)[0])
    return one, two


def decided(
    store: Store, status: str, *, ended: int = 2, complete: int = 0, ended_at: float | None = NOW
) -> bool:
    """Decide about run 1, of two items, by how many of them are seen to have ended; return whether that fits."""
    decision = run_sql.decide_run(
        status=status,
        reason=None,
        ended_at=ended_at,
        run=1,
        before="running",
        total=2,
        ended=ended,
        complete=complete,
    )
    return store.apply(decision.touching(1)) is not None


def stop(status: str, ended_at: float | None) -> Step:
    """Return the step that stops run 1."""
    return run_sql.stop_run(status=status, reason="why", ended_at=ended_at, run=1).touching(1)


class StatusTests(Scene):
    """Runs: how they are opened, paused and ended."""

    def test_a_run_is_opened_with_its_items_and_their_values(self, store: Store) -> None:
        """Small payloads are in the job, large ones beside it."""
        holds(opened(store))
        (lane,) = lanes_of(store)

        one, two = sorted(build.claim(store, lane), key=lambda job: job.id)
        agree((one.input, two.input), (b"1", b'"two"'))
        agree((build.facts(store, two.id).key, build.facts(store, two.id).owner), ("b", "ann"))
        agree((build.facts(store, one.id).run, build.facts(store, two.id).priority), (1, 0))

    def test_a_key_opens_one_run_and_nothing_of_the_second_is_stored(self, store: Store) -> None:
        """Runs without a key are as many as are opened."""
        holds(opened(store))

        agree(opened(store, '[["1", null, null, 5]]', 1), None)
        agree(build.statuses(store), {"queued": 2})
        holds(opened(store, '[["1", null, null, 5]]', 1, key=None))
        agree(store.query(run_sql.run_with_key(pipeline="shop", key="k")), [1])

    def test_an_item_whose_key_is_taken_keeps_the_whole_run_out(self, store: Store) -> None:
        """All or nothing."""
        build.taken(store, key="b")

        agree(opened(store), None)
        agree(store.query(run_sql.runs(limit=10)), [])
        agree(store.query(run_sql.taken_item(pipeline="shop", items=ITEMS)), [(1, "b", 1)])

    def test_a_run_ends_once_and_only_as_it_was_seen(self, store: Store) -> None:
        """What has changed meanwhile has to be decided anew."""
        one, two = started(store)
        build.exchange(store, "w1", [build.settlement(one)])
        holds(not decided(store, "completed", complete=2))
        build.exchange(store, "w1", [build.settlement(two)])
        agree([row[0] for row in store.query(run_sql.live_runs(now=NOW))], [1])

        agree([decided(store, "completed", complete=2) for _ in range(2)], [True, False])
        agree(store.query(run_sql.live_runs(now=NOW)), [])

    def test_a_run_is_not_decided_by_successes_that_are_none(self, store: Store) -> None:
        """As many have ended as were seen, but one of them otherwise."""
        one, two = started(store)
        build.exchange(store, "w1", [build.settlement(one), build.burial(two)])

        agree([decided(store, "completed", complete=count) for count in (2, 0, 1)], [False, False, True])

    def test_a_run_that_was_stopped_meanwhile_is_not_decided_as_if_it_ran(self, store: Store) -> None:
        """And it is stopped once: the reason is that of the first time."""
        build.exchange(store, "w1", [build.settlement(one) for one in started(store)])

        agree([store.apply(stop("paused", None)) is None for _ in range(2)], [False, True])

        holds(not decided(store, "completed", complete=2))
        agree(store.query(run_sql.run(run=1))[0].status, "paused")

    def test_a_permanent_failure_is_seen_while_other_items_are_open(self, store: Store) -> None:
        """And for ever."""
        one, _ = started(store)
        build.exchange(store, "w1", [build.burial(one)])

        ((run, status, *_, is_free),) = store.query(run_sql.live_runs(now=NOW))
        agree((run, status, is_free), (1, "running", 1))
        agree(store.query(run_sql.has_permanent(run=1)), [True])

    def test_an_item_that_runs_again_makes_its_run_live(self, store: Store) -> None:
        """Until it has ended again."""
        build.exchange(store, "w1", [build.burial(each) for each in started(store)])
        decided(store, "failed")
        agree(store.query(run_sql.has_live_runs()), [False])

        holds(released(store, 1))
        agree(store.query(run_sql.has_live_runs()), [True])
        agree(store.query(run_sql.live_runs(now=NOW)), [])

    def test_one_that_failed_before_its_end_can_be_stopped_and_one_that_ended_cannot(
        self, store: Store
    ) -> None:
        """And no items are added to one that ended."""
        opened(store)
        decided(store, "failed", ended=0, ended_at=None)
        for status, ended_at in (("paused", NOW), ("cancelled", None)):
            holds(store.apply(stop(status, ended_at)) is not None)
            holds(store.apply(run_sql.open_source(run=1).touching(1)) is not None)
            ended = run_sql.end_run(status="completed", reason=None, ended_at=NOW, run=1)
            agree(store.apply(ended.touching(1)), None)

        store.apply(run_sql.end_run(status="cancelled", reason=None, ended_at=NOW, run=1).touching(1))
        # The reason for which it was stopped stays.
        agree(store.query(run_sql.run(run=1))[0].reason, "why")
        agree(store.apply(stop("paused", NOW)), None)
        holds(store.apply(run_sql.open_source(run=1).touching(1)) is None)

    def test_an_abort_is_continued_when_nobody_keeps_it_any_more(self, store: Store) -> None:
        """And left alone when its items were all cancelled, and one runs again."""
        opened(store)
        store.apply(stop("aborted", None), run_sql.keep_run(until=NOW + 5, run=1))
        agree(store.query(run_sql.live_runs(now=NOW)), [])
        agree([row[:2] for row in store.query(run_sql.live_runs(now=NOW + 5))], [(1, "aborted")])

        store.apply(run_sql.keep_run(until=0.0, run=1))
        agree(store.query(run_sql.live_runs(now=NOW + 5)), [])

    def test_items_are_paused_only_while_their_run_is(self, store: Store) -> None:
        """Those that were in a stage one by one, and all of them at once."""
        one, two = started(store)
        store.apply(stop("paused", NOW))
        agree(sorted(store.query(run_sql.paused_at_work())), sorted([(one.id, 1), (two.id, 1)]))
        build.exchange(store, "w1", [build.retry(one, at=NOW), build.retry(two, at=NOW)])
        store.apply(run_sql.pause_jobs(ids=[one.id]))
        agree([each.id for each in build.claim(store, one.lane)], [two.id])

        store.apply(run_sql.continue_run(options=b"{}", run=1).touching(1), run_sql.unpause_run(run=1))
        store.apply(run_sql.pause_jobs(ids=[one.id]), run_sql.pause_run(run=1))
        agree([each.id for each in build.claim(store, one.lane)], [one.id])


class EndedRunTests(StatusTests):
    """What becomes of a run that was stopped or has ended."""

    def test_a_paused_run_stays_as_it_is_while_an_item_runs_again(self, store: Store) -> None:
        """With the time at which it was paused."""
        one, _ = started(store)
        build.exchange(store, "w1", [build.burial(one)])
        store.apply(stop("paused", NOW))

        holds(released(store, 1))

        (row,) = store.query(run_sql.run(run=1))
        agree((row.status, row.ended_at), ("paused", NOW))

    def test_an_item_that_is_erased_after_its_end_does_not_make_its_run_live(self, store: Store) -> None:
        """The run ended once, and nobody hears of it again."""
        one, two = started(store)
        build.exchange(store, "w1", [build.settlement(one), build.burial(two)])
        decided(store, "failed", complete=1)

        for each in (one, two):
            holds(store.apply(job_sql.erase_job(job=each.id, now=NOW).touching(1)) is not None)

        (row,) = store.query(run_sql.run(run=1))
        agree((row.status, row.ended_at), ("failed", NOW))

    def test_the_end_of_a_run_is_reported_once_to_those_of_its_pipeline_and_a_pause_is_not(
        self, store: Store
    ) -> None:
        """A run that is paused has not ended, and one that has does not end again."""
        lanes = (*lanes_of(store), *lanes_of(store, pipeline="other"))
        for pipeline in ("shop", "other"):
            store.apply(outbox_sql.add_listener(pipeline=pipeline, topic="runs", recipient=pipeline))
        opened(store)

        def reported() -> list[tuple[str, int | None]]:
            return [
                (recipient, notice.run)
                for lane in lanes
                for recipient in ("shop", "other")
                for notice in store.query(
                    outbox_sql.notices_for(lane=lane, recipient=recipient, now=NOW, limit=10)
                )
            ]

        store.apply(stop("paused", NOW))
        agree(reported(), [])
        store.apply(stop("cancelled", None))
        for _ in range(2):
            ended = run_sql.end_run(status="cancelled", reason=None, ended_at=NOW, run=1)
            holds(store.apply(ended.touching(1)) is not None)
        agree(reported(), [("shop", 1)])

    def test_a_run_that_is_aborted_while_it_is_fed_ends_with_the_items_that_it_has(
        self, store: Store
    ) -> None:
        """One that is not waits for more of them."""
        run = build.new_run(store)
        one = build.taken(store, run=run, ordinal=0)
        build.exchange(store, "w1", [build.settlement(one)])
        agree(store.query(run_sql.live_runs(now=NOW)), [])

        store.apply(stop("aborted", None))

        agree([row[:2] for row in store.query(run_sql.live_runs(now=NOW))], [(run, "aborted")])


class RunTests(EndedRunTests):
    """What a store keeps about runs."""

    def test_the_items_of_a_run_have_the_trace_of_who_opened_it(self, store: Store) -> None:
        """Of that run alone."""
        build.taken(store)
        opened(store, trace="00-1-2-01")

        agree(sorted(store.query(job_sql.traces(ids=[1, 2, 3]))), [(2, "00-1-2-01"), (3, "00-1-2-01")])

    def test_a_child_joins_the_run_of_its_parent_by_choice(self, store: Store) -> None:
        """After all items; a child of a job without a run has none."""
        one, _ = started(store)
        alone = build.taken(store)
        other = build.child(pipeline="other")
        joining = replace(other, joins_run=True)
        build.exchange(store, "w1", [build.settlement(one, children=(joining, other))])
        build.exchange(store, "w1", [build.settlement(alone, children=(joining,))])

        agree([build.facts(store, JobId(job)).run for job in (4, 5, 6)], [1, None, None])
        (row,) = store.query(run_sql.run(run=1))
        agree((row[8], row[-1]), (3, 1))

    def test_a_child_whose_key_is_taken_joins_no_run(self, store: Store) -> None:
        """There is no new job that could end in it."""
        run = build.new_run(store)
        one = build.taken(store, run=run, ordinal=0)
        joining = replace(build.child(pipeline="other", key="k"), joins_run=True)
        again = replace(build.child(pipeline="other", key="k"), joins_run=True)

        build.exchange(store, "w1", [build.settlement(one, children=(joining, again))])

        agree(again.stored, joining.stored)
        (row,) = store.query(run_sql.run(run=run))
        agree((row.total, row.children), (2, 1))

    def test_a_child_that_joins_a_stopped_run_is_stopped_as_well(self, store: Store) -> None:
        """It waits with the items of a paused run, and is cancelled with those of a cancelled one."""
        one, two = started(store)
        joining = replace(build.child(pipeline="other"), joins_run=True)
        (other,) = lanes_of(store, pipeline="other")
        store.apply(stop("paused", NOW), run_sql.pause_run(run=1))
        build.exchange(store, "w1", [build.settlement(one, children=(joining,))])
        agree(build.statuses(store, from_rows=True), {"complete": 1, "processing": 1, "queued": 1})
        agree(build.claim(store, other), ())
        agree(build.facts(store, JobId(3)).waiting, "paused")
        store.apply(run_sql.continue_run(options=b"{}", run=1).touching(1), run_sql.unpause_run(run=1))
        (waited,) = build.claim(store, other)

        store.apply(stop("cancelled", None))
        build.exchange(store, "w1", [build.settlement(two, children=(joining,)), build.settlement(waited)])
        agree(build.statuses(store, from_rows=True), {"complete": 3, "cancelled": 1})
        agree([row[0] for row in store.query(run_sql.live_runs(now=NOW))], [1])
        agree(store.query(run_sql.run(run=1))[0][8:12], (4, 3, 0, 1))
