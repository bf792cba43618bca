# SPDX-License-Identifier: Apache-2.0
"""Upkeep in use: schedules, retention, runs with their ends, and what a check of the whole database finds.

Nothing that is younger than its age is deleted, and no count is wrong afterwards.
"""

from __future__ import annotations

from redrive.engine.replay.record import counts_of
from redrive.engine.retention import Retention
from redrive.engine.runs.runs import RunOptions
from redrive.ops.audit import Actor
from redrive.ops.checkup.doctor import examine, has_problems
from redrive.ops.upkeep.prune import prune
from redrive.store.protocol import Store
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import replays as replay_sql
from redrive.store.statements import runs as run_sql
from redrive.store.statements import upkeep as upkeep_sql
from redrive.testing.conformance.build import agree, holds, lanes_of, new, statuses
from redrive.testing.conformance.shop import BY, LARGE, ShopScene, ShopTests


class UpkeepTests(ShopTests):
    """Schedules, retention, runs and checks."""

    def test_what_has_ended_is_pruned_with_everything_that_belongs_to_it(
        self, store: Store, shop: ShopScene
    ) -> None:
        """Jobs, letters, edits, values and runs; nothing that is younger."""
        shop.fail("a", LARGE)
        shop.rd.letters.edit(1, value=b'"edited"', **BY)
        run = shop.rd.run(shop.pipeline, ["b"], failure_budget=None).id
        shop.clock.advance(100)
        shop.fail("c")

        pruned = prune(store, Retention(failed=50, runs=1_000), Actor("ann", "a test"), with_undelivered=True)
        agree(pruned, {"failed": 3, "runs": 0})

        agree(store.apply(upkeep_sql.tend_attempts(now=shop.clock.wall())), [[0]])
        folds = (upkeep_sql.fold_tallies, upkeep_sql.fold_letter_tallies, upkeep_sql.fold_letter_trend)
        agree(store.apply(*(fold() for fold in folds)), [[], [], []])
        agree(statuses(store), {"failed": 1})
        agree([letter.job for letter in shop.rd.letters.list().letters], [4])
        agree(shop.rd.runs.report(run).total, 1)
        holds(not has_problems(examine(store, is_deep=True)))

    def test_a_run_is_pruned_and_what_is_left_of_it_stays_without_it(
        self, store: Store, shop: ShopScene
    ) -> None:
        """The jobs are older than their run may be."""
        shop.rd.run(shop.pipeline, ["a", "b"], failure_budget=None)
        shop.clock.advance(100)

        agree(shop.rd.prune(runs=50), {"runs": 1})

        holds(not shop.rd.runs.latest())
        agree([shop.rd.jobs.show(job).facts.run for job in (1, 2)], [None, None])
        holds(not has_problems(examine(store, is_deep=True)))

    def test_the_trace_of_a_job_is_pruned_with_it(self, store: Store, shop: ShopScene) -> None:
        """And no other one."""
        (lane,) = lanes_of(store)
        now = shop.clock.wall()
        old, young = store.submit([new(lane, trace="00-1-2-01"), new(lane, trace="00-3-4-01")], now)
        for at, job in ((now - 100, old), (now, young)):
            store.apply(job_sql.cancel_queued(now=at, job=job.id).touching(1))

        agree(prune(store, Retention(cancelled=50), Actor("ann", "a test")), {"cancelled": 1})

        agree(store.query(job_sql.traces(ids=[old.id, young.id])), [(young.id, "00-3-4-01")])

    def test_letters_that_are_pruned_leave_the_replay_in_which_they_wait(
        self, store: Store, shop: ShopScene
    ) -> None:
        """It would never come to its end."""
        shop.fail("a", "b")
        replay = shop.rd.replays.start(**BY).id
        shop.drive()
        agree(counts_of(store, replay).waiting, 2)
        shop.clock.advance(100)

        agree(prune(store, Retention(failed=50), Actor("ann", "a test")), {"failed": 2})

        agree(counts_of(store, replay).waiting, 0)
        agree(store.query(replay_sql.wrong_replay_tallies(limit=5)), [])

    def test_a_run_is_opened_labelled_cancelled_and_read(self, store: Store, shop: ShopScene) -> None:
        """Its items end without those that were cancelled; a run that has lost its process is continued with its source."""
        shop.is_broken = False
        run = shop.rd.runs.open(shop.pipeline, ["a", "b"], label="first").id
        shop.rd.runs.label(run, "nightly", **BY)
        shop.work()
        agree([(item.item, item.value) for item in shop.rd.runs.results(run)], [(0, "a"), (1, "b")])
        agree((shop.rd.runs.report(run).label, shop.rd.runs.report(run).status), ("nightly", "completed"))
        log = store.query(run_sql.run_log(run=run, after=0, limit=9))
        agree(sorted(line.stage for line in log), ["fetch", "fetch", "pay", "pay"])

        other = shop.rd.runs.open(shop.pipeline, ["c"]).id
        agree(shop.rd.runs.cancel(other, **BY).cancelled, 1)

        fed = shop.rd.runs.add("shop", RunOptions(), shop.clock.wall())
        shop.is_broken = True
        report = shop.rd.run(shop.pipeline, ["d"], resume=fed, failure_budget=None, hold_max=1)
        agree((report.id, report.total, report.dead), (fed, 1, 1))
        agree(store.query(run_sql.run_codes(run=fed)), [("IO_DENIED", 1)])

    def test_a_check_finds_work_that_nobody_does(self, store: Store, shop: ShopScene) -> None:
        """And knows which database it is about."""
        shop.rd.submit(shop.pipeline, "a")
        shop.clock.advance(100)

        found = [finding.sentence for finding in examine(store) if finding.level == "problem"]

        agree(found, ["no live worker serves shop: 1 job due, the oldest for 1.67 min"])
        holds(store.query(upkeep_sql.database_name())[0])

    def test_schedules_submit_and_prune_when_they_are_due(self, store: Store, shop: ShopScene) -> None:
        """Once for each tick; what is dropped does neither."""
        shop.is_broken = False
        shop.rd.schedules.add("hourly", shop.pipeline, "a", cron="0 * * * *", **BY)
        shop.rd.schedules.prune("clean", cron="0 * * * *", complete=1, **BY)
        shop.rd.schedules.prune("clean", cron="0 * * * *", complete=1, **BY)
        agree([each.name for each in shop.rd.schedules.list()], ["clean", "hourly"])

        shop.clock.advance(3_600)
        shop.work()

        agree(statuses(store), {"complete": 1})
        dropped = [shop.rd.schedules.drop(name, **BY) for name in ("clean", "hourly", "hourly")]
        agree(dropped, [True, True, False])
        agree(list(shop.rd.schedules.list()), [])
        agree(store.query(upkeep_sql.due_retentions(now=1e12)), [])
