# SPDX-License-Identifier: Apache-2.0
"""Replays over dead letters, driven by a worker: canaries, stopping, pausing, cancelling, and what they leave out."""

from __future__ import annotations

import json

import pytest

from redrive.core.replay import ReplayRules, Stop, Turn, next_turn, plan_of
from redrive.engine.replay import driver
from redrive.engine.replay.driver import WAIT_SECONDS, ReplayDriver
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.release import Obstacle
from redrive.errors import EvidenceMissingError, ReplayNotFoundError, ReplayRefusedError
from redrive.ops import pipelines
from redrive.ops.jobs.retry import retry_job
from redrive.ops.replay import replays
from redrive.ops.replay.progress import report_of
from redrive.store.protocol import Store
from redrive.store.records import NewJob, WorkerFacts
from redrive.store.statements import replays as replay_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.store.statements import workers as worker_sql
from redrive.testing import VirtualClock
from tests.embedded import changing, read_rows
from tests.inline import at_once
from tests.unit.engine.replay.shop import BY, Shop

SHOP = LetterFilter(pipeline="shop")


@pytest.fixture
def shop(store: Store, clock: VirtualClock) -> Shop:
    made = Shop(store, clock)
    made.store.apply(replay_sql.put_rules(pipeline="shop", rules=b'{"evidence":"optional"}'))
    return made


def test_a_replay_starts_at_the_stage_that_failed_and_ends_with_everything_recovered(shop: Shop) -> None:
    shop.fail(30)
    shop.fix()

    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    assert shop.work() == "idle"

    report = report_of(shop.store, begun.id)
    assert (report.status, report.recovered, report.letters) == ("done", 30, 30)
    assert (report.verified, report.stages_done, report.waits_for) == (30, 30, None)
    assert {stage for stage, _ in shop.seen} == {"pay"}
    assert shop.counts() == {"resolved": 30}
    assert read_rows(shop.store, "SELECT DISTINCT round, attempt FROM jobs") == [(2, 1)]


def test_the_canary_meets_the_old_failure_and_the_rest_is_spared(shop: Shop) -> None:
    shop.fail(30)

    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    shop.work()

    report = report_of(shop.store, begun.id)
    assert report.status == "stopped"
    assert (report.failed_again_same, report.waiting, len(shop.seen)) == (1, 29, 1)
    assert report.waits_for == "an operator to resume or cancel it: 1 of 1 failed again with the same failure"
    assert [(each.code, each.letters, each.escalated) for each in report.failures] == [("IO_DENIED", 1, 1)]
    assert shop.counts() == {"open": 30, "returned": 1}


def test_a_replay_that_stops_itself_is_in_the_log_by_the_worker_that_stopped_it(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.fail(30)
    replays.start(shop.store, SHOP, BY, plan=plan_of())
    shop.work()

    ((actor, subject, reason, letters, change),) = read_rows(
        shop.store,
        "SELECT actor, subject_kind || ' ' || subject_id, reason, letters, change FROM operations WHERE verb = 'stop'",
    )

    assert actor == read_rows(shop.store, "SELECT driver FROM replays")[0][0]
    assert (subject, letters) == ("replay 1", 29)
    assert reason == '{"kind":"same_failures","same":1,"ended":1}'
    assert json.loads(change) == {"before": {"status": "running"}, "after": {"status": "stopped"}}
    assert "replay 1 stopped itself: 1 of 1 failed again" in caplog.text


def test_a_stop_that_comes_too_late_is_not_on_record(
    shop: Shop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fail(30)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())

    def stop_late(*given: object, **more: object) -> Turn:
        turn = next_turn(*given, **more)  # type: ignore[arg-type]
        if isinstance(turn, Stop):
            replays.pause(shop.store, begun.id, BY)
        return turn

    monkeypatch.setattr(driver, "next_turn", stop_late)
    shop.work()

    assert report_of(shop.store, begun.id).status == "paused"
    assert read_rows(shop.store, "SELECT verb FROM operations ORDER BY id") == [("replay",), ("pause",)]
    assert "stopped itself" not in caplog.text


def test_a_replay_that_fails_again_with_the_same_permanent_code_is_escalated(shop: Shop) -> None:
    shop.fail(1)

    retry_job(shop.store, 1, BY)
    shop.work()

    letters = read_rows(
        shop.store, "SELECT id, state, outcome, is_escalated, follows, round FROM dead_letters ORDER BY id"
    )
    assert letters == [(1, "returned", "same", 0, None, 1), (2, "open", None, 1, 1, 2)]


def test_a_stopped_replay_goes_on_when_somebody_resumes_it(shop: Shop) -> None:
    shop.fail(30)
    shop.fix(0)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of((1, 5)))
    shop.work()
    assert report_of(shop.store, begun.id).status == "stopped"

    replays.resume(shop.store, begun.id, BY)
    shop.work()

    report = report_of(shop.store, begun.id)
    assert (report.status, report.recovered, report.failed_again_same) == ("done", 29, 1)


def test_newcomers_are_not_part_of_it(shop: Shop) -> None:
    shop.fail(3)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of(()))
    shop.fail(0)
    shop.store.apply(worker_sql.pause_lanes(now=1.0, pipeline="shop"))
    lane = shop.store.lanes("shop", ["fetch", "pay"])[0]
    shop.store.submit([NewJob(lane=lane, payload=b"9", run_at=0.0)], 0.0)
    shop.store.apply(worker_sql.resume_lanes(pipeline="shop"))
    shop.is_broken = True
    shop.work()

    report = report_of(shop.store, begun.id)
    assert report.letters == 3
    assert read_rows(shop.store, "SELECT count(*) FROM dead_letters WHERE replay_id IS NOT NULL") == [(3,)]


def test_a_replay_that_is_paused_before_it_has_its_letters_takes_them_when_it_is_resumed(shop: Shop) -> None:
    shop.fail(5)
    shop.fix()
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())

    assert replays.pause(shop.store, begun.id, BY).status == "paused"
    with pytest.raises(ReplayRefusedError, match="still marking its letters") as refused:
        replays.start(shop.store, SHOP, BY, plan=plan_of())
    assert "paused replay has to be resumed or cancelled first" in str(refused.value.hint)
    shop.seen.clear()
    shop.work()
    assert shop.seen == []
    assert replays.resume(shop.store, begun.id, BY).status == "marking"
    shop.work()

    assert report_of(shop.store, begun.id).recovered == 5


def test_a_replay_says_that_its_pipeline_is_paused(shop: Shop) -> None:
    shop.fail(1)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    driver = ReplayDriver(shop.store, [shop.pipeline], shop.clock, name=lambda: "w", ask_store=at_once)
    shop.store.start_worker("w", shop.clock.wall(), 60, WorkerFacts(pipelines=("shop",)))
    pipelines.pause(shop.store, "shop", BY)
    driver.drive()
    driver.drive()

    assert (
        report_of(shop.store, begun.id).waits_for
        == "an operator to resume the pipeline: redrive pipeline resume shop"
    )


def test_a_paused_replay_releases_nothing_until_it_is_resumed(shop: Shop) -> None:
    shop.fail(5)
    shop.fix()
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of((1, 2)))
    shop.store.apply(replay_sql.drive_replay(driver="nobody", until=0.0, replay=begun.id, now=1e12))
    shop.store.apply(
        replay_sql.set_marked_to(
            marked_to=begun.cutoff, replay=begun.id, driver="nobody", before=begun.marked_to
        )
    )

    replays.pause(shop.store, begun.id, BY)
    assert shop.work() == "idle"
    assert (shop.seen, report_of(shop.store, begun.id).status) == ([], "paused")
    replays.resume(shop.store, begun.id, BY)
    shop.work()

    assert report_of(shop.store, begun.id).status == "done"


def test_cancelling_frees_what_was_not_released(shop: Shop) -> None:
    shop.fail(30)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    shop.work()

    cancelled = replays.cancel(shop.store, begun.id, BY)

    assert cancelled.status == "cancelled"
    assert read_rows(
        shop.store, "SELECT count(*) FROM dead_letters WHERE replay_id IS NOT NULL AND state = 'open'"
    ) == [(0,)]
    assert report_of(shop.store, begun.id).left_out == 29
    shop.fix()
    again = replays.start(shop.store, SHOP, BY, plan=plan_of(()))
    shop.work()
    assert report_of(shop.store, again.id).recovered == 30


def test_cancelling_goes_in_windows_to_its_end(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MARK_WINDOW", 7)
    shop.fail(15)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    shop.work()

    assert report_of(shop.store, begun.id).waiting == 14
    assert replays.cancel(shop.store, begun.id, BY).status == "cancelled"


def test_a_letter_is_in_one_replay_at_a_time(shop: Shop) -> None:
    shop.fail(3)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    with pytest.raises(ReplayRefusedError, match="still marking its letters"):
        replays.start(shop.store, SHOP, BY, plan=plan_of())
    shop.work()

    assert report_of(shop.store, begun.id).status == "stopped"
    with pytest.raises(ReplayRefusedError, match=f"belongs to replay {begun.id}"):
        retry_job(shop.store, 2, BY)
    taken = LetterFilter(ids=(2, 3))
    with pytest.raises(ReplayRefusedError, match=f"2 left as they are: replay {begun.id} has marked them"):
        replays.start(shop.store, taken, BY, plan=plan_of())


def test_a_full_restart_begins_at_the_first_stage_under_a_new_idempotency_key(shop: Shop) -> None:
    shop.fail(1)
    shop.fix()

    replays.start(shop.store, SHOP, BY, plan=plan_of(from_start=True))
    shop.work()

    assert shop.seen == [("fetch", 0), ("pay", 0)]
    assert shop.keys == [f"shop:{shop.store.query(transfer_sql.installation())[0]}-1:pay:1"]


def test_an_ordinary_replay_keeps_the_idempotency_key(shop: Shop) -> None:
    shop.fail(1)
    shop.fix()
    retry_job(shop.store, 1, BY)
    shop.work()

    assert shop.keys == [f"shop:{shop.store.query(transfer_sql.installation())[0]}-1:pay"]


def test_a_key_that_a_newer_job_has_is_left_out_by_name(shop: Shop) -> None:
    shop.fail(1, key="order-1")
    shop.fix()
    lane = shop.store.lanes("shop", ["fetch", "pay"])[0]
    shop.store.submit([NewJob(lane=lane, payload=b"7", run_at=0.0, key="order-1")], shop.clock.wall())

    with pytest.raises(ReplayRefusedError, match="a newer job has its key"):
        retry_job(shop.store, 1, BY)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    shop.work()

    report = report_of(shop.store, begun.id)
    assert (report.status, report.skipped) == ("done", 1)
    assert report.skips == [("key", 1)]
    assert read_rows(shop.store, "SELECT state, replay_id FROM dead_letters") == [("open", None)]


def test_of_two_failed_jobs_with_one_key_only_one_comes_back(shop: Shop) -> None:
    shop.fail(1, key="twice")
    shop.fail(1, key="twice")
    shop.fix()

    begun = replays.start(shop.store, SHOP, BY, plan=plan_of(()))
    shop.work()

    report = report_of(shop.store, begun.id)
    assert (report.status, report.recovered, report.skipped) == ("done", 1, 1)


def test_a_value_that_no_longer_fits_its_stage_is_left_out_without_being_told(shop: Shop) -> None:
    shop.fail(1)
    with changing(shop.store) as db:
        db.execute("UPDATE jobs SET input = ?", (b'"hunter2hunter2"',))
    shop.fix()

    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    shop.work()

    report = report_of(shop.store, begun.id)
    assert report.skipped == 1
    ((_, obstacle),) = report.skipped_letters
    assert (obstacle.kind, obstacle.stage) == ("type", "pay")
    assert "its value does not fit its stage (pay: " in obstacle.text
    assert "hunter2" not in str(report)


def test_a_discarded_letter_leaves_its_replay(shop: Shop) -> None:
    shop.fail(30)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    shop.work()
    with changing(shop.store) as db:
        db.execute("UPDATE dead_letters SET state = 'discarded', replay_id = NULL WHERE id = 9")
    shop.fix()
    replays.resume(shop.store, begun.id, BY)
    shop.work()

    report = report_of(shop.store, begun.id)
    assert (report.status, report.recovered, report.skipped) == ("done", 28, 1)
    assert report.skipped_letters == [(9, Obstacle("discarded"))]


@pytest.mark.sqlite
def test_why_a_replay_stopped_is_not_touched_while_it_releases_letters(shop: Shop) -> None:
    shop.fail(3)
    shop.fix()
    with changing(shop.store) as db:
        db.execute(
            "CREATE TRIGGER touched AFTER UPDATE OF why ON replays WHEN NEW.status = 'running'"
            " BEGIN SELECT RAISE(ABORT, 'touched'); END"
        )

    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    shop.work()

    assert report_of(shop.store, begun.id).recovered == 3


def test_a_rate_spreads_the_releases(shop: Shop) -> None:
    shop.fail(20)
    shop.fix()
    before = shop.clock.wall()

    replays.start(shop.store, SHOP, BY, plan=plan_of((), 2.0))
    shop.work()

    assert shop.counts() == {"resolved": 20}
    assert 9.0 <= shop.clock.wall() - before <= 15.0


def test_a_replay_that_is_resumed_does_not_make_up_for_its_pause(shop: Shop) -> None:
    shop.fail(20)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of((), 2.0))
    replays.pause(shop.store, begun.id, BY)
    shop.clock.advance(100)

    assert replays.resume(shop.store, begun.id, BY).next_at == shop.clock.wall()


def test_marking_goes_in_windows(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MARK_WINDOW", 7)
    monkeypatch.setattr(driver, "RELEASE_MAX", 3)
    shop.fail(30)
    shop.fix()

    begun = replays.start(shop.store, LetterFilter(ids=(*range(2, 30, 2),)), BY, plan=plan_of(()))
    shop.work()

    assert report_of(shop.store, begun.id).recovered == 14


def test_without_evidence_a_strict_pipeline_is_not_replayed(store: Store, clock: VirtualClock) -> None:
    shop = Shop(store, clock, rules=ReplayRules())
    shop.fail(2)

    with pytest.raises(EvidenceMissingError, match="2 of 2 letters have no evidence") as refused:
        replays.start(shop.store, SHOP, BY, plan=plan_of())
    assert "redrive dlq remediate --pipeline shop" in str(refused.value.hint)
    with pytest.raises(EvidenceMissingError, match="no evidence") as single:
        retry_job(shop.store, 1, BY)
    assert "redrive dlq triage 1" in str(single.value.hint)
    assert shop.counts() == {"open": 2}


def test_there_must_be_something_to_replay(shop: Shop) -> None:
    with pytest.raises(ReplayRefusedError, match="nothing to replay"):
        replays.start(shop.store, SHOP, BY, plan=plan_of())
    shop.fail(1)
    shop.fix()
    retry_job(shop.store, 1, BY)
    with pytest.raises(ReplayRefusedError, match="1 left as they are: it is replaying"):
        replays.start(shop.store, SHOP, BY, plan=plan_of())


def test_an_unknown_replay_names_those_there_are(shop: Shop) -> None:
    with pytest.raises(ReplayNotFoundError, match="there is no replay 9"):
        replays.pause(shop.store, 9, BY)
    shop.fail(1)
    replays.start(shop.store, SHOP, BY, plan=plan_of())
    with pytest.raises(ReplayNotFoundError) as missing:
        report_of(shop.store, 10**30)
    assert missing.value.hint == "There are: 1."


def test_a_replay_is_closed_once_and_with_a_note(shop: Shop) -> None:
    shop.fail(1)
    shop.fix()
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    with pytest.raises(ReplayRefusedError, match="it is marking and cannot be closed"):
        replays.close(shop.store, begun.id, BY, note="too early")
    shop.work()
    with pytest.raises(ReplayRefusedError, match="note is empty"):
        replays.close(shop.store, begun.id, BY, note="  ")

    closed = replays.close(shop.store, begun.id, BY, note="new key, password=hunter2hunter2")

    assert closed.note == "new key, password=<redacted:password>"
    with pytest.raises(ReplayRefusedError, match="cannot be closed"):
        replays.close(shop.store, begun.id, BY, note="again")
    with pytest.raises(ReplayRefusedError, match="cannot be cancelled"):
        replays.cancel(shop.store, begun.id, BY)
    with pytest.raises(ReplayRefusedError, match="cannot be resumed"):
        replays.resume(shop.store, begun.id, BY)


def test_without_a_worker_it_says_what_it_waits_for(shop: Shop) -> None:
    shop.fail(1)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())

    report = report_of(shop.store, begun.id)
    assert report.waits_for == "a worker that serves shop"
    assert (report.letters, report.waiting, report.left_out) == (1, 1, 0)


def test_only_a_failed_job_can_be_retried(shop: Shop) -> None:
    shop.fail(2)
    shop.fix()
    retry_job(shop.store, 1, BY)
    with pytest.raises(ReplayRefusedError, match="it is queued"):
        retry_job(shop.store, 1, BY)
    with changing(shop.store) as db:
        db.execute("UPDATE dead_letters SET state = 'discarded' WHERE job_id = 2")
    with pytest.raises(ReplayRefusedError, match="was discarded"):
        retry_job(shop.store, 2, BY)


def test_counters_that_tell_of_letters_nobody_finds_do_not_make_it_spin(shop: Shop) -> None:
    shop.fail(2)
    shop.fix()
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of(()))
    driver = ReplayDriver(shop.store, [shop.pipeline], shop.clock, name=lambda: "w1", ask_store=at_once)
    driver.drive()
    with changing(shop.store) as db:
        db.execute("UPDATE letter_tallies SET letters = letters + 5 WHERE replay_id = ?", (begun.id,))

    waits = [driver.drive() for _ in range(8)]

    assert waits[0] == 0.0, "the two that are there go"
    assert waits[-1] == WAIT_SECONDS


def test_a_replay_has_one_driver_until_its_lease_ends_or_it_is_gone(shop: Shop) -> None:
    shop.fail(3)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    for worker in ("w1", "w2", "w3"):
        shop.store.start_worker(worker, 1_000.0, 60.0)

    def drives(worker: str, now: float) -> bool:
        step = replay_sql.drive_replay(driver=worker, until=now + 30.0, replay=begun.id, now=now).touching(1)
        return shop.store.apply(step) is not None

    assert drives("w1", 1_000.0)
    assert drives("w1", 1_010.0)
    assert not drives("w2", 1_040.0)
    assert drives("w2", 1_041.0)
    shop.store.stop_worker("w2")
    assert drives("w3", 1_042.0)
