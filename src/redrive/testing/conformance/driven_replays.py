# SPDX-License-Identifier: Apache-2.0
"""Replays in use: from the start to the note that closes one, with everything that stops one or is skipped on the way."""

from __future__ import annotations

import pytest

from redrive.errors import ReplayNotFoundError
from redrive.ops.replay.progress import report_of
from redrive.store.protocol import Store
from redrive.store.records import WorkerFacts
from redrive.testing.conformance.build import LEASE, agree
from redrive.testing.conformance.shop import BY, ShopScene, ShopTests


class DrivenReplayTests(ShopTests):
    """Replays as a worker drives them."""

    def test_a_replay_recovers_what_it_can_and_skips_what_it_cannot(
        self, store: Store, shop: ShopScene
    ) -> None:
        """And is closed with a note."""
        shop.fail("a", "b")
        shop.fail("c", key="k")
        shop.rd.jobs.erase(2, **BY)
        shop.is_broken = False
        shop.rd.submit(shop.pipeline, "d", key="k")
        with pytest.raises(ReplayNotFoundError):
            shop.rd.replays.status(9)

        replay = shop.rd.replays.start(canary=(1,), **BY).id
        shop.work()

        report = report_of(store, replay, skipped_max=1)
        agree((report.status, report.recovered, report.verified), ("done", 1, 1))
        agree(sorted(report.skips), [("erased", 1), ("key", 1)])
        first = {kind: letters[0][0] for kind, letters in report.first_skipped.items()}
        agree(first, {"erased": 2, "key": 3})
        agree(shop.rd.replays.close(replay, note="the key works", **BY).note, "the key works")

    def test_a_replay_whose_failure_comes_back_stops_itself(self, shop: ShopScene) -> None:
        """Whoever resumes it pardons what was; the rest can be cancelled."""
        shop.fail("a", "b", "c")
        replay = shop.rd.replays.start(canary=(1,), **BY).id
        shop.work()

        stopped = shop.rd.replays.status(replay)
        agree((stopped.status, stopped.failed_again_same, stopped.waiting), ("stopped", 1, 2))
        agree([(again.code, again.letters) for again in stopped.failures], [("IO_DENIED", 1)])
        shop.rd.replays.resume(replay, **BY)
        shop.rd.replays.pause(replay, **BY)
        paused = shop.rd.replays.status(replay)
        agree((paused.status, "a test" in (paused.waits_for or "")), ("paused", True))
        agree(shop.rd.replays.cancel(replay, **BY).status, "cancelled")
        agree([each.status for each in shop.rd.replays.list(pipeline="shop")], ["cancelled"])

    def test_a_replay_that_is_under_way_reports_what_it_waits_for(
        self, store: Store, shop: ShopScene
    ) -> None:
        """A paused pipeline, or jobs that are held; and how long it will take."""
        shop.fail("a", "b")
        replay = shop.rd.replays.start(canary=(1,), rate=1.0, **BY).id
        store.start_worker("w9", shop.clock.wall(), LEASE, WorkerFacts(pipelines=("shop",)))
        shop.drive(2)

        agree(shop.rd.replays.status(replay).waits_for, "1 of this step to end")
        shop.rd.pipelines.pause("shop", **BY)
        waits_for = "somebody to resume the pipeline: redrive pipeline resume shop"
        agree(shop.rd.replays.status(replay).waits_for, waits_for)
