# SPDX-License-Identifier: Apache-2.0
"""Jobs in use: lists, histories and reports of what has happened to them, and what people do about a single one.

Only what the store answers counts here; how a report or a history is shown is tested elsewhere.
"""

from __future__ import annotations

import pytest

from redrive.engine.classifier import classify
from redrive.errors import JobNotFoundError
from redrive.ops.jobs.inspect import events_after
from redrive.store.protocol import Store
from redrive.store.statements import reports as report_sql
from redrive.testing.conformance.build import agree
from redrive.testing.conformance.shop import BY, LARGE, ShopScene, ShopTests


class HistoryTests(ShopTests):
    """Lists, histories, reports, and acts on one job."""

    def test_jobs_are_listed_by_state_run_owner_and_key(self, shop: ShopScene) -> None:
        """Newest first, and from any place on."""
        jobs = shop.rd.jobs
        shop.fail("a", key="k", owner="ann")
        shop.is_broken = False
        run = shop.rd.run(shop.pipeline, ["b"]).id
        shop.rd.submit(shop.pipeline, "c", key="k")

        agree([job.id for job in jobs.list()], [3, 2, 1])
        agree([job.id for job in jobs.list(before=3, limit=1)], [2])
        for status, job in (("queued", [3]), ("failed", [1]), ("complete", [2]), ("processing", [])):
            agree((status, [each.id for each in jobs.list(status=status)]), (status, job))
        agree([job.id for job in jobs.list(run=run)], [2])
        agree([job.id for job in jobs.of_owner("ann", "shop")], [1])
        agree([job.id for job in jobs.list(key="k", owner="ann")], [1])
        found = jobs.find(shop.pipeline, "k")
        agree(found is not None and found.id, 3)
        with pytest.raises(JobNotFoundError) as unknown:
            jobs.show(5)
        agree(unknown.value.hint, "Close to it are: 1, 2, 3.")

    def test_what_has_happened_is_listed_followed_and_reported(self, store: Store, shop: ShopScene) -> None:
        """For a job, a pipeline, and a run, and for measurements."""
        shop.fail("ra", "b")
        run = shop.rd.run(shop.pipeline, ["c"], failure_budget=None).id
        events = shop.rd.events.list(job=1)
        agree([getattr(event, "outcome", None) for event in events], ["ok", "retry", "dead"])
        agree(len(shop.rd.events.list()), 7)
        agree([event.job for event in events_after(store, 3, pipeline="shop")], [2, 2, 3, 3])
        agree([entry.what for entry in shop.rd.jobs.timeline(1)][:1], ["queued"])

        reports = shop.rd.reports
        of_shop, of_run = reports.errors(pipeline="shop"), reports.errors(run=run)
        agree({each.code: each.failures for each in of_shop}, {"NETWORK_RESET": 2, "IO_DENIED": 2})
        agree({each.code: each.failures for each in of_run}, {"IO_DENIED": 1})
        accounts = reports.account(pipeline="shop"), reports.account(run=run)
        agree([(each.total, each.adds_up) for each in accounts], [(3, True), (1, True)])
        retries = reports.retries(pipeline="shop"), reports.retries(run=run)
        agree([sum(bucket.jobs for bucket in each) for each in retries], [3, 1])
        stages = reports.stages(pipeline="shop"), reports.stages(run=run)
        agree([[part.stage for part in each] for each in stages], [["fetch", "pay"]] * 2)
        lanes = store.query(report_sql.pipeline_lanes(pipeline="shop"))
        burned = store.query(report_sql.attempts_of_stages(pipeline="shop", stage="pay"))
        agree((len(lanes), [row.outcome for row in burned]), (2, ["retry", "dead", "dead", "dead"]))

    def test_a_job_is_retried_by_hand_and_measured(self, store: Store, shop: ShopScene) -> None:
        """The attempts, the failures and the retry are added up."""
        shop.fail("a")
        shop.is_broken = False

        shop.rd.jobs.retry(1, **BY)
        shop.work()

        agree((shop.rd.job(1).status, shop.rd.letters.show(1).letter.state), ("complete", "resolved"))
        agree(store.query(report_sql.retries_by_hand(after=0)), [(1, 1)])
        agree(store.query(report_sql.released_letters()), [0])
        (newest,) = store.query(report_sql.newest_attempt())
        agree((newest.seq, newest.job_id), (3, 1))
        agree(store.query(report_sql.is_attempt(seq=3, job=1, dispatch=newest.dispatch)), [True])
        limits = tuple(float(second) for second in range(13))
        attempts = store.query(report_sql.attempt_tally(after=0, last=3, since=0.0, limits=limits))
        agree(sum(each.attempts for each in attempts), 3)
        failures = store.query(report_sql.failure_tally(after=0, last=3, since=0.0))
        agree([(each.outcome, each.code, each.attempts) for each in failures], [("dead", "IO_DENIED", 1)])

    def test_a_job_that_fails_before_it_is_queued_gets_a_letter(self, shop: ShopScene) -> None:
        """Which is like any other one."""
        buried = shop.rd.jobs.bury(shop.pipeline, "a", classify(PermissionError("denied")), owner="ann")

        agree((buried.status, buried.owner), ("failed", "ann"))
        line = shop.rd.letters.list(owner="ann").letters[0]
        agree((line.job, line.state, line.stage), (buried.id, "open", "fetch"))
        agree(shop.rd.jobs.value(buried.id, part="payload", **BY), b'"a"')

    def test_the_key_of_a_complete_job_is_freed_and_its_values_are_erased(self, shop: ShopScene) -> None:
        """Once; what is not a value stays."""
        shop.is_broken = False
        shop.fail(LARGE, key="k")

        agree([shop.rd.jobs.free_key(1, **BY) for _ in range(2)], [True, False])
        agree([shop.rd.jobs.erase(1, **BY).is_new for _ in range(2)], [True, False])

        agree((shop.rd.job(1).status, shop.rd.jobs.find(shop.pipeline, "k")), ("complete", None))
        agree([done.verb for done in shop.rd.events.operations(job=1)], ["free-key", "erase"])
