# SPDX-License-Identifier: Apache-2.0
"""The way back of failed jobs: a letter and its job move together, once, and the end of the job closes the letter.

How a replay goes about it is the matter of the engine; here is what a store must hold whoever asks, and replays in use: from the
start to the note that closes one, with everything that stops one or is skipped on the way.
"""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from redrive.core.units import instant
from redrive.engine.replay.driver import mark_steps
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.record import counts_of
from redrive.engine.replay.release import batch_of, release_steps
from redrive.errors import ReplayNotFoundError
from redrive.ops.replay.progress import report_of
from redrive.store.protocol import Store
from redrive.store.records import Call, ClaimedJob, ClaimRequest, JobId, LaneId, Settlement, WorkerFacts
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import release as release_sql
from redrive.store.statements import replays as replay_sql
from redrive.store.statements import triage as triage_sql
from redrive.store.statements import upkeep as upkeep_sql
from redrive.store.statements import workers as worker_sql
from redrive.testing.conformance import build
from redrive.testing.conformance.build import LEASE, NOW, Scene, agree, holds, lanes_of
from redrive.testing.conformance.shop import BY, ShopScene, ShopTests


def failed(store: Store, **changes: object) -> tuple[JobId, LaneId]:
    """Return a job that has failed, and its lane."""
    one = build.taken(store, **changes)
    build.exchange(store, "w1", [build.burial(one)])
    return one.id, one.lane


def another_failure(of: ClaimedJob) -> Settlement:
    """Return the settlement of a job that is given up for another reason than before."""
    other = msgspec.structs.replace(build.LETTER, fingerprint="v1:ffff", code="BUG_CODE")
    return build.burial(of, letter=other)


def retryable_failure(of: ClaimedJob) -> Settlement:
    """Return the settlement of a job that is given up for the same reason as before, which is retryable."""
    return build.burial(of, letter=msgspec.structs.replace(build.LETTER, is_retryable=True))


def letters(store: Store, job: JobId) -> list[tuple[object, ...]]:
    """Return the state, outcome, mark of escalation and predecessor of a job's letters."""
    rows = store.query(letter_sql.letters_of_job(job=job))
    return [(row.state, row.outcome, row.is_escalated, row.follows) for row in rows]


def released(store: Store, letter: int, *, replay: int | None = None, first: LaneId | None = None) -> bool:
    """Release a letter; return whether that was possible."""
    rows = store.query(release_sql.replay_candidates(ids=[letter], from_start=first is not None))
    steps = release_steps(store, batch_of(rows), replay=replay, first_lane=first, now=NOW + 10)
    return store.apply(*steps) is not None


def begin_replay(store: Store, *, cutoff: int) -> None:
    """Add the first replay, and let w1 drive it."""
    store.apply(
        replay_sql.add_replay(
            pipeline="shop",
            filter=b"{}",
            options=b"{}",
            cutoff=cutoff,
            marked_to=0,
            expected=2,
            pardoned=b"{}",
            actor="me",
            now=NOW,
            moves=0,
        ).touching(1),
        replay_sql.drive_replay(driver="w1", until=NOW, replay=1, now=NOW).touching(1),
    )


class RoundTests(Scene):
    """Rounds: what a job and its letters begin anew with each replay."""

    def test_a_release_queues_the_job_at_the_stage_that_failed_in_a_new_round(self, store: Store) -> None:
        """And its letter is replaying from the same moment on."""
        job, _ = failed(store)

        holds(released(store, 1))

        seen = build.facts(store, job)
        agree((seen.status, seen.stage, seen.round, seen.attempt), ("queued", "fetch", 2, 1))
        agree((seen.error_code, seen.finished_at, seen.waiting), (None, None, "replay"))
        agree(letters(store, job), [("replaying", None, 0, None)])

    @pytest.mark.parametrize(("expires_at", "kept"), [(NOW + 5, None), (NOW + 100, NOW + 100)])
    def test_a_job_begins_its_new_round_with_nothing_of_the_one_before(
        self, store: Store, expires_at: float, kept: float | None
    ) -> None:
        """But the time at which it expires, unless that has passed."""
        (lane,) = lanes_of(store)
        store.submit([build.new(lane, expires_at=expires_at)], NOW)
        store.apply(
            worker_sql.set_keyed_by(keyed_by='["tenant"]', lane=lane),
            worker_sql.put_keys(keys=[(1, '["ann"]')], lane=lane, keyed_by='["tenant"]'),
        )
        of_key = ClaimRequest((lane,), 1, keys={lane: {'["ann"]': 1}})
        (one,) = build.claimed(store, of_key)
        spent = {"snoozes": 1, "suspects": 1, "crashes": 1, "codes": b'{"NETWORK_RESET":1}'}
        build.exchange(store, "w1", [build.retry(one, at=NOW, **spent)])
        (one,) = build.claimed(store, of_key)
        store.apply(job_sql.ask_to_cancel(job=one.id).touching(1))
        build.exchange(store, "w1", [build.burial(one, codes=b'{"NETWORK_RESET":2}')])

        holds(released(store, 1))

        (again,) = build.claim(store, lane, now=NOW + 20)
        agree((again.round, again.attempt, again.expires_at), (2, 1, kept))
        agree((again.snoozes, again.suspects, again.crashes, again.codes), (0, 0, 0, None))
        agree(again.cancel_asked, 0)

    def test_a_letter_is_released_once(self, store: Store) -> None:
        """The second one does not fit."""
        failed(store)
        holds(released(store, 1))

        holds(not released(store, 1))

    @pytest.mark.parametrize(
        ("settle", "wanted"),
        [
            (build.settlement, [("resolved", "completed", 0, None)]),
            (build.skip, [("resolved", "completed", 0, None)]),
            (build.cancellation, [("resolved", "cancelled", 0, None)]),
            (build.burial, [("returned", "same", 0, None), ("open", None, 1, 1)]),
            (another_failure, [("returned", "other", 0, None), ("open", None, 0, 1)]),
            (retryable_failure, [("returned", "same", 0, None), ("open", None, 0, 1)]),
        ],
    )
    def test_the_end_of_a_job_closes_its_letter_and_a_failure_opens_a_new_one(
        self, store: Store, settle: build.Settle, wanted: list[tuple[object, ...]]
    ) -> None:
        """Which is escalated if the permanent code came back; another failure is distinguished, and no reason to escalate."""
        job, lane = failed(store)
        released(store, 1)
        (one,) = build.claim(store, lane, now=NOW + 20)
        build.exchange(store, "w1", [settle(one)])

        agree(letters(store, job), wanted)

    def test_the_end_of_a_job_closes_none_of_its_letters_of_earlier_rounds(self, store: Store) -> None:
        """They keep what became of their own round."""
        job, lane = failed(store)
        for letter, settle in ((1, build.burial), (2, build.settlement)):
            holds(released(store, letter))
            (one,) = build.claim(store, lane, now=NOW + 20)
            build.exchange(store, "w1", [settle(one)])

        agree([each[:2] for each in letters(store, job)], [("returned", "same"), ("resolved", "completed")])
        agree(store.query(upkeep_sql.wrong_letter_tallies(limit=5)), [])

    def test_the_letter_of_a_new_round_has_the_failures_of_that_round(self, store: Store) -> None:
        """The first one as well as the last one."""
        job, lane = failed(store)
        released(store, 1)
        (one,) = build.claim(store, lane, now=NOW + 20)
        build.exchange(store, "w1", [build.retry(one, at=NOW + 20, ended_at=NOW + 21)])
        (one,) = build.claim(store, lane, now=NOW + 22)
        build.exchange(store, "w1", [build.burial(one, ended_at=NOW + 23)])

        times = [
            (row.first_failure_at, row.last_failure_at)
            for row in store.query(letter_sql.letters_of_job(job=job))
        ]
        agree(times[1], (instant(NOW + 21), instant(NOW + 23)))

    def test_the_letter_of_a_stage_has_the_failures_of_that_stage(self, store: Store) -> None:
        """Not those of an earlier one, which has succeeded since."""
        _, review = lanes_of(store, "fetch", "review")
        one = build.taken(store)
        build.exchange(store, "w1", [build.retry(one, at=NOW)])
        (one,) = build.claim(store, one.lane)
        build.exchange(store, "w1", [build.advance(one, review)])
        (one,) = build.claim(store, review)
        build.exchange(store, "w1", [build.burial(one, ended_at=NOW + 5)])

        (row,) = store.query(letter_sql.letters_of_job(job=one.id))
        agree(row.first_failure_at, instant(NOW + 5))

    def test_no_letter_is_closed_before_its_job_has_ended(self, store: Store) -> None:
        """However many end in one commit."""
        _, lane = failed(store)
        failed(store)
        holds(released(store, 1) and released(store, 2))
        claimed = build.claim(store, lane, now=NOW + 20)
        build.exchange(store, "w1", [build.settlement(one, ended_at=NOW + 20 + one.id) for one in claimed])

        for one in claimed:
            (row,) = store.query(letter_sql.letters_of_job(job=one.id))
            holds(row.closed_at is not None and row.closed_at >= instant(NOW + 20 + one.id))


class ReplayTests(RoundTests):
    """Releases, outcomes, and the counters that follow."""

    def test_a_queued_job_that_is_cancelled_resolves_its_letter(self, store: Store) -> None:
        """As one that runs."""
        job, _ = failed(store)
        released(store, 1)
        store.apply(job_sql.cancel_queued(now=NOW + 30, job=job).touching(1))

        agree(letters(store, job), [("resolved", "cancelled", 0, None)])
        agree(store.query(upkeep_sql.wrong_letter_tallies(limit=5)), [])

    def test_a_full_restart_begins_with_the_payload(self, store: Store) -> None:
        """At the first stage, and counts as a restart."""
        _, lane = failed(store)
        holds(released(store, 1, first=lane))

        (one,) = build.claim(store, lane, now=NOW + 20)
        agree((one.restarts, one.round, one.input), (1, 2, b"{}"))

    def test_a_key_that_was_taken_meanwhile_keeps_the_release_out(self, store: Store) -> None:
        """The candidate says which job has it."""
        _, lane = failed(store, key="k")
        (newer,) = store.submit([build.new(lane, key="k")], NOW)

        rows = store.query(release_sql.replay_candidates(ids=[1], from_start=False))
        agree([each.key_owner for each in batch_of(rows).candidates], [newer.id])

    def test_the_settings_of_a_letter_are_those_of_its_own_round(self, store: Store) -> None:
        """Of the attempt that was the last one, while its job runs again with others."""
        one = build.taken(store)
        build.exchange(store, "w1", [build.retry(one, at=NOW, config="before")])
        (one,) = build.claim(store, one.lane)
        build.exchange(store, "w1", [build.burial(one, config="then")])
        released(store, 1)
        (one,) = build.claim(store, one.lane, now=NOW + 20)
        build.exchange(store, "w1", [build.retry(one, at=NOW + 30, config="now")])

        agree(store.query(replay_sql.last_configs(ids=[1])), [(1, "then", None)])

    def test_an_edited_payload_is_no_input_of_a_later_stage_however_large_that_is(self, store: Store) -> None:
        """Only a full restart begins with it."""
        _, review = lanes_of(store, "fetch", "review")
        build.exchange(
            store, "w1", [build.advance(build.taken(store), review, value=b'"%b"' % (b"x" * 5_000))]
        )
        (one,) = build.claim(store, review)
        build.exchange(store, "w1", [build.burial(one)])
        edit = triage_sql.add_edit(
            letter=1,
            part="payload",
            before=b"{}",
            after=b"1",
            at=NOW,
            actor="me",
            erased_at=None,
            last_edit=None,
        )
        store.apply(edit.touching(1))

        def begins_with(*, from_start: bool) -> int | None:
            rows = store.query(release_sql.replay_candidates(ids=[1], from_start=from_start))
            return batch_of(rows).candidates[0].edit

        agree((begins_with(from_start=False), begins_with(from_start=True)), (None, 1))

    def test_a_job_that_was_erased_with_its_edits_since_it_was_read_is_not_released(
        self, store: Store
    ) -> None:
        """There is nothing that it could start with."""
        job, _ = failed(store)
        edit = triage_sql.add_edit(
            letter=1,
            part="input",
            before=b"{}",
            after=b"1",
            at=NOW,
            actor="me",
            erased_at=None,
            last_edit=None,
        )
        store.apply(edit.touching(1))
        rows = store.query(release_sql.replay_candidates(ids=[1], from_start=False))
        steps = release_steps(store, batch_of(rows), replay=None, first_lane=None, now=NOW + 10)

        store.apply(job_sql.erase_job(job=job, now=NOW).touching(1), job_sql.erase_edits(job=job))

        agree(store.apply(*steps), None)
        agree(letters(store, job), [("open", None, 0, None)])

    def test_a_value_that_is_no_text_is_released_as_it_is(self, store: Store) -> None:
        """Nobody reads it on the way."""
        (lane,) = lanes_of(store)
        store.submit([build.new(lane, b'"tea\xe9"')], NOW)
        (one,) = build.claim(store, lane)
        build.exchange(store, "w1", [build.burial(one)])

        holds(released(store, 1))

        (again,) = build.claim(store, lane, now=NOW + 20)
        agree(again.input, b'"tea\xe9"')

    def test_a_value_is_supplied_only_where_there_is_none(self, store: Store) -> None:
        """What one has supplied is not replaced by what another supplies."""
        job, _ = failed(store)
        payload = triage_sql.supply_payload(job=job, payload=b"1").touching(1)
        agree(store.apply(payload), None)
        store.apply(job_sql.erase_job(job=job, now=NOW).touching(1))
        steps = (payload, triage_sql.supply_input(job=job, input=b"2", input_from=0).touching(1))

        for step in steps:
            agree([store.apply(step) is not None for _ in range(2)], [True, False])

    def test_replays_count_their_letters(self, store: Store) -> None:
        """From the mark to the outcome."""
        _, lane = failed(store)
        failed(store)
        begin_replay(store, cutoff=2)
        store.apply(*mark_steps(1, (0, 2), LetterFilter(pipeline="shop"), is_evidence_optional=True))
        agree((counts_of(store, 1).waiting, counts_of(store, 1).released), (2, 0))

        holds(not released(store, 1))
        holds(released(store, 1, replay=1))
        # Too late to skip it.
        store.apply(replay_sql.drop_skipped(letter=1, replay=1))
        for settle in (partial(build.retry, at=NOW), build.settlement):
            (one,) = build.claim(store, lane, now=NOW + 20)
            build.exchange(store, "w1", [settle(one)])

        agree(store.query(replay_sql.recovered_of(replay=1)), [(1, 1, 1)])
        counts = counts_of(store, 1)
        agree((counts.waiting, counts.replaying, counts.completed), (1, 0, 1))
        agree(store.query(upkeep_sql.wrong_letter_tallies(limit=5)), [])
        agree(store.query(replay_sql.wrong_replay_tallies(limit=5)), [])

    def test_a_step_of_a_replay_needs_its_driver_and_what_that_has_read(self, store: Store) -> None:
        """While it is marked, and while it runs."""

        def is_taken(step: Call[None]) -> bool:
            return store.apply(step.touching(1)) is not None

        def marks(last: int, *, before: int, driver: str = "w1") -> bool:
            return is_taken(replay_sql.set_marked_to(marked_to=last, replay=1, driver=driver, before=before))

        def moves(driver: str) -> list[bool]:
            return [
                is_taken(replay_sql.set_next_release(next_at=NOW, replay=1, driver=driver)),
                is_taken(replay_sql.stop_replay(reason="it failed", replay=1, driver=driver)),
                is_taken(replay_sql.finish_replay(now=NOW, replay=1, driver=driver)),
            ]

        begin_replay(store, cutoff=9)
        agree([marks(4, before=0), marks(4, before=0), marks(9, before=4, driver="w2")], [True, False, False])
        agree(moves("w1"), [False, False, False])
        holds(marks(9, before=4))
        agree(moves("w2"), [False, False, False])
        agree(moves("w1"), [True, True, False])


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
        waits_for = "an operator to resume the pipeline: redrive pipeline resume shop"
        agree(shop.rd.replays.status(replay).waits_for, waits_for)
