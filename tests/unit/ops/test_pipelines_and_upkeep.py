# SPDX-License-Identifier: Apache-2.0
"""What operators do: pausing, breakers, pruning, backups; each on record, and whole or not at all."""

from __future__ import annotations

import os
import pwd
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from redrive import Breaker, ConfigurationError, Event, Pipeline, Redrive, Snooze, connect, stage
from redrive.engine import retention as pruning
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.rules import record_rules
from redrive.engine.retention import Retention
from redrive.errors import JobNotFoundError, StoreUnavailableError
from redrive.ops import audit, breakers
from redrive.ops.audit import Actor, Subject, present_user
from redrive.ops.jobs import inspect
from redrive.ops.jobs.inspect import JobFilter
from redrive.ops.letters.freeze import check_filter
from redrive.ops.pipelines import known_pipeline, pause, pipelines, resume, stale_lanes
from redrive.ops.suggest import unknown
from redrive.ops.upkeep.backup import backup
from redrive.ops.upkeep.prune import prunable, prune
from redrive.store import location
from redrive.store.records import Call
from redrive.store.sqlite import backup as backups
from redrive.testing import VirtualClock
from tests.embedded import change_rows, table_rows
from tests.unit.build import work

ANN = Actor("ann", "a test")
DAY = 86_400.0


@stage
def fetch(number: int) -> int:
    return 10 // number


@stage
def store(number: int) -> int:
    return number


SHOP = Pipeline("shop", [fetch, store])


def log(rd: Redrive) -> list[tuple[str, str, str, str | None]]:
    return [(each.actor, each.verb, each.subject, each.reason) for each in audit.operations(rd.store)]


def test_pausing_and_resuming_are_on_record(rd: Redrive) -> None:
    rd.submit(SHOP, 1)

    assert pause(rd.store, "shop", ANN)
    assert not pause(rd.store, "shop", ANN)
    (paused,) = pipelines(rd.store)
    assert resume(rd.store, "shop", Actor("bob"))

    assert paused.paused_at is not None
    assert (paused.queued, paused.processing, paused.workers) == (1, 0, 0)
    assert log(rd)[-1] == ("bob", "resume", "pipeline shop", None)
    assert rd.work([SHOP], until_idle=True) == "idle"


def test_a_stage_that_the_code_no_longer_has_is_found_by_its_waiting_jobs(rd: Redrive) -> None:
    rd.submit(SHOP, 1)
    renamed = Pipeline("shop", [store])

    assert [(lane.stage, lane.queued) for lane in stale_lanes(rd.store, [renamed])] == [("fetch", 1)]
    assert stale_lanes(rd.store, [SHOP]) == []
    assert stale_lanes(rd.store, []) == []


def test_a_worker_does_not_end_as_idle_while_jobs_wait_in_a_stage_that_is_gone(
    rd: Redrive, caplog: pytest.LogCaptureFixture
) -> None:
    rd.submit(SHOP, 1)
    rd.submit(SHOP, 2)

    assert rd.work([Pipeline("shop", [store])], until_idle=True) == "held"

    assert "2 jobs queued in shop.fetch, a stage the pipeline no longer has" in caplog.text
    assert rd.work([SHOP], until_idle=True) == "idle"


def test_only_stages_that_exist_or_have_jobs_are_listed(rd: Redrive) -> None:
    rd.submit(SHOP, 1)
    rd.work([Pipeline("shop", [store])], until_idle=True)
    assert [[lane.stage for lane in each.lanes] for each in pipelines(rd.store)] == [["fetch", "store"]]

    rd.work([SHOP], until_idle=True)
    rd.work([Pipeline("shop", [store])], until_idle=True)

    assert [[lane.stage for lane in each.lanes] for each in pipelines(rd.store)] == [["store"]]


@pytest.mark.parametrize("verb", ["open", "isolate"])
def test_closing_a_breaker_by_hand_releases_what_is_held_for_it_at_once(
    rd: Redrive, clock: VirtualClock, verb: breakers.Verb
) -> None:
    is_down = True
    asked: list[str] = []

    @stage(breaker=Breaker("api", consecutive=1, open_for=120, ramp=0))
    async def call(what: str) -> str:
        if what == "later" and what not in asked:
            asked.append(what)
            raise Snooze(1_000)
        if is_down:
            raise ConnectionRefusedError(111, "refused")
        return what

    flow = Pipeline("calls", [call])
    record_rules(rd.store, [flow])
    snoozed, job = rd.submit(flow, "later"), rd.submit(flow, "now")
    assert work(rd.store, flow, hold_max=0) == "held"
    held_until = job.facts.run_at
    assert (held_until - clock_now(clock)).total_seconds() > 100
    (facts,) = breakers.breakers(rd.store)
    assert (facts.phase, facts.failures, facts.next_probe_at) == ("open", 1, held_until)

    breakers.move(rd.store, "api", verb, ANN)
    assert work(rd.store, flow, hold_max=0) == "held"
    is_down = False
    closed = breakers.move(rd.store, "api", "close", ANN)

    assert (closed.phase, closed.next_probe_at) == ("closed", None)
    assert job.facts.run_at <= clock_now(clock)
    # A stage that asked to wait is not released.
    assert (snoozed.facts.run_at - clock_now(clock)).total_seconds() > 500
    assert work(rd.store, flow) == "idle"
    assert job.result() == "now"


def clock_now(clock: VirtualClock) -> datetime:
    return datetime.fromtimestamp(clock.wall(), UTC)


def test_checking_a_name_counts_no_jobs(rd: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    rd.submit(SHOP, 1)
    asked: list[str] = []
    query = rd.store.query

    def noted(call: Call[object]) -> object:
        asked.append(call.name)
        return query(call)

    monkeypatch.setattr(rd.store, "query", noted)

    known_pipeline(rd.store, "shop")
    check_filter(rd.store, LetterFilter(pipeline="shop", stage="fetch"))
    with pytest.raises(ConfigurationError, match="Did you mean shop"):
        known_pipeline(rd.store, "shpo")

    assert set(asked) == {"lane_names"}


def test_a_breaker_that_others_change_all_the_time_is_left_alone(
    rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    breakers.move(rd.store, "model", "open", ANN, is_new=True)
    monkeypatch.setattr(rd.store, "apply", lambda *_: None)

    with pytest.raises(StoreUnavailableError, match="100 times in a row"):
        breakers.move(rd.store, "model", "close", ANN)


def test_a_breaker_is_moved_against_what_a_worker_wrote_meanwhile(rd: Redrive) -> None:
    breakers.move(rd.store, "model", "open", ANN, is_new=True)
    asked = rd.store.breaker
    seen: list[bytes | None] = []

    def interrupted(name: str) -> bytes | None:
        before = asked(name)
        if not seen:
            rd.store.swap_breaker(name, before, b'{"failures": 3}')
        seen.append(before)
        return before

    rd.store.breaker = interrupted  # type: ignore[method-assign]  # a worker between our two questions
    moved = breakers.move(rd.store, "model", "isolate", ANN)

    assert len(seen) == 2
    assert moved.phase == "isolated"
    assert [each.phase for each in breakers.breakers(rd.store)] == ["isolated"]
    assert [verb for _, verb, _, _ in log(rd)] == ["open", "isolate"]


def test_an_unknown_id_is_refused_with_ids_that_are_near(rd: Redrive) -> None:
    rd.submit_many(SHOP, range(1, 4))

    for wrong, words in (
        (5, "Close to it are: 1, 2, 3"),
        (-1, "Close to it are: 1, 2, 3"),
        (900, "The last job is 3"),
    ):
        with pytest.raises(JobNotFoundError) as refused:
            inspect.job_details(rd.store, wrong)
        assert words in refused.value.hint


def test_pages_of_jobs_join_without_gap_or_overlap(rd: Redrive) -> None:
    rd.submit_many(SHOP, range(1, 24))
    seen: list[int] = []
    before = None
    while page := inspect.list_jobs(rd.store, JobFilter(status="queued"), before=before, limit=5):
        seen += [line.id for line in page]
        before = page[-1].id

    assert seen == list(range(23, 0, -1))


def test_events_go_on_where_they_were_left(rd: Redrive) -> None:
    rd.submit_many(SHOP, [1, 2])
    rd.work([SHOP], until_idle=True)
    first = inspect.events_after(rd.store, 0, limit=3)
    rest = inspect.events_after(rd.store, first[-1].seq)

    assert [event.seq for event in (*first, *rest)] == [1, 2, 3, 4]
    assert inspect.last_event(rd.store) == 4


def ended(rd: Redrive, count: int) -> None:
    rd.submit_many(SHOP, range(1, count + 1))
    rd.work([SHOP], until_idle=True)


def rows(rd: Redrive, table: str) -> int:
    return len(table_rows(rd, table))


def test_pruning_takes_bounded_steps_and_leaves_nothing_behind(
    rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "STEP", 4)
    monkeypatch.setattr(pruning, "WINDOW", 7)
    ended(rd, 20)
    rd.submit(SHOP, 0)
    rd.work([SHOP], until_idle=True)
    clock.advance(2 * DAY)
    ended(rd, 3)
    steps: list[int] = []

    would = prunable(rd.store, Retention(complete=DAY))
    done = prune(rd.store, Retention(complete=DAY), ANN, on_step=steps.append)

    assert (would.jobs, would.undelivered) == (done, 0) == ({"complete": 20}, 0)
    assert max(steps) <= 4
    assert sum(steps) == 20
    assert rd.jobs.counts() == {"complete": 3, "failed": 1}
    assert (rows(rd, "jobs"), rows(rd, "dead_letters")) == (4, 1)
    assert rows(rd, "attempts") == 3 * 2 + 1
    assert log(rd) == [("ann", "prune", "jobs complete > 86400 s", "a test")]


def test_pruning_stops_looking_where_everything_is_young(
    rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "WINDOW", 2)
    ended(rd, 2)
    clock.advance(2 * DAY)
    ended(rd, 10)
    asked: list[str] = []
    query = rd.store.query

    def noted(call: Call[object]) -> object:
        asked.append(call.name)
        return query(call)

    monkeypatch.setattr(rd.store, "query", noted)

    assert prunable(rd.store, Retention(complete=DAY)).jobs == {"complete": 2}
    assert len(asked) == 2


def test_large_values_go_with_their_job_and_its_key_is_free_again(rd: Redrive, clock: VirtualClock) -> None:
    @stage
    def copy(text: str) -> str:
        return text

    letters = Pipeline("letters", [copy])
    rd.submit(letters, "x" * 10_000, key="one")
    rd.work([letters], until_idle=True)
    clock.advance(2 * DAY)

    prune(rd.store, Retention(complete=DAY), ANN)

    assert rows(rd, "job_values") == 0
    assert not rd.submit(letters, "y", key="one").is_duplicate


def test_a_job_that_a_hook_was_not_told_of_yet_is_not_pruned(rd: Redrive, clock: VirtualClock) -> None:
    told: list[int] = []
    is_deaf = True

    def on_dead(event: Event) -> None:
        if is_deaf:
            raise ConnectionError("nobody listens")
        told.append(event.job_id)

    shop = Pipeline("shop", SHOP.stages, on_dead=on_dead)
    rd.submit_many(shop, [0, 1])
    rd.work([shop], until_idle=True)
    clock.advance(2 * DAY)
    everything = Retention(complete=DAY, failed=DAY)

    would = prunable(rd.store, everything)
    assert (would.jobs, would.undelivered) == ({"complete": 1, "failed": 0}, 1)
    assert prune(rd.store, everything, ANN) == {"complete": 1, "failed": 0}
    assert (rows(rd, "outbox"), rd.job(1).status) == (1, "failed")

    is_deaf = False
    rd.work([shop], until_idle=True)
    assert told == [1]
    assert prune(rd.store, everything, ANN) == {"complete": 0, "failed": 1}


def test_what_nobody_will_ever_be_told_goes_only_when_that_is_asked_for(
    rd: Redrive, clock: VirtualClock
) -> None:
    def on_dead(_event: Event) -> None:
        raise ConnectionError("nobody listens")

    shop = Pipeline("shop", SHOP.stages, on_dead=on_dead)
    rd.submit(shop, 0)
    rd.work([shop], until_idle=True)
    clock.advance(2 * DAY)

    would = prunable(rd.store, Retention(failed=DAY), with_undelivered=True)
    done = prune(rd.store, Retention(failed=DAY), ANN, with_undelivered=True)

    assert (would.jobs, would.undelivered) == (done, 0) == ({"failed": 1}, 0)
    assert (rows(rd, "outbox"), rows(rd, "jobs"), rows(rd, "dead_letters")) == (0, 0, 0)
    assert log(rd)[-1] == ("ann", "prune", "jobs failed > 86400 s with undelivered ones", "a test")


def test_a_run_keeps_its_account_after_pruning(rd: Redrive, clock: VirtualClock) -> None:
    rd.run(SHOP, range(1, 11))
    clock.advance(2 * DAY)

    prune(rd.store, Retention(complete=DAY), ANN)

    report = rd.runs.report(1)
    assert (report.total, report.succeeded, report.open) == (10, 10, 0)


def test_a_job_that_was_brought_back_between_looking_and_deleting_stays(
    rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(rd, 2)
    clock.advance(2 * DAY)
    query = rd.store.query

    def late(call: Call[object]) -> list[object]:
        answer = query(call)
        if call.name == "prune_window" and answer:
            change_rows(
                rd, "UPDATE jobs SET status = 'queued', finished_at = NULL, result = NULL WHERE id = 1"
            )
        return answer

    monkeypatch.setattr(rd.store, "query", late)

    assert prune(rd.store, Retention(complete=DAY), ANN) == {"complete": 1}
    assert rd.job(1).status == "queued"
    assert len(rd.job(1).attempts()) == 2


@pytest.mark.sqlite
def test_a_backup_that_is_not_sound_gets_no_name(
    filed: Redrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damage(_source: Path, partial: Path, _on_pages: object) -> None:
        partial.write_text("this is no database, and long enough to be told so", encoding="utf-8")

    monkeypatch.setattr(backups, "_copy", damage)

    with pytest.raises(StoreUnavailableError, match="not a database"):
        backup(filed.store, tmp_path / "copy.db", ANN)
    assert sorted(path.name for path in tmp_path.glob("copy*")) == []
    assert log(filed) == []


@pytest.mark.sqlite
def test_a_backup_whose_check_fails_gets_no_name(
    filed: Redrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unsound:
        def execute(self, _sql: str) -> Unsound:
            return self

        def fetchone(self) -> tuple[str]:
            return ("page 3 is missing",)

        def close(self) -> None:
            pass

    filed.submit(SHOP, 1)
    monkeypatch.setattr(backups, "_copy", lambda *_: None)
    monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: Unsound())

    with pytest.raises(StoreUnavailableError, match="page 3 is missing"):
        backup(filed.store, tmp_path / "copy.db", ANN)
    assert sorted(path.name for path in tmp_path.glob("copy*")) == []


@pytest.mark.sqlite
def test_a_backup_does_not_replace_a_file_that_appears_meanwhile(
    filed: Redrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy.db"
    link = os.link

    def slow(source: Path, to: Path) -> None:
        to.write_text("precious", encoding="utf-8")
        link(source, to)

    monkeypatch.setattr(os, "link", slow)

    with pytest.raises(ConfigurationError, match="never overwrites"):
        backup(filed.store, target, ANN)
    assert target.read_text(encoding="utf-8") == "precious"


@pytest.mark.sqlite
def test_two_backups_to_one_name_do_not_mix(filed: Redrive, tmp_path: Path) -> None:
    (tmp_path / "copy.db.partial").write_text("another one at work", encoding="utf-8")

    with pytest.raises(ConfigurationError, match="partial"):
        backup(filed.store, tmp_path / "copy.db", ANN)
    assert (tmp_path / "copy.db.partial").exists()


@pytest.mark.sqlite
def test_a_backup_tells_how_far_it_is_and_needs_a_file(filed: Redrive, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    report = backup(filed.store, tmp_path / "copy.db", ANN, on_pages=lambda *pages: told.append(pages))

    assert told[-1][0] == told[-1][1] > 0
    assert report.bytes == (tmp_path / "copy.db").stat().st_size
    with connect(":memory:") as memory, pytest.raises(ConfigurationError, match="database in a file"):
        backup(memory.store, tmp_path / "other.db", ANN)


def test_a_name_nobody_knows_is_answered_with_near_ones_or_all() -> None:
    many = [f"name-{place}" for place in range(12)]

    assert "Did you mean orders?" in str(unknown("orderz", ["orders"], kind="pipeline", otherwise="None."))
    assert "and 2 more" in str(unknown("zzz", many, kind="pipeline", otherwise="None."))
    assert "None at all." in str(unknown("zzz", [], kind="pipeline", otherwise="None at all."))


def test_a_user_without_a_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_uid: int) -> str:
        raise KeyError("uid not found")

    known = present_user()
    monkeypatch.setenv("LOGNAME", "alice")
    assert present_user() == known != "alice"
    monkeypatch.setattr(pwd, "getpwuid", refuse)
    assert present_user() == "unknown"


def test_the_user_is_recorded_beside_what_was_claimed() -> None:
    assert Actor("alice", None, "mallory").line("prune", Subject("jobs", "all"))[1] == "alice (user mallory)"
    assert Actor("alice", "why", "mallory").hiding({}).text == "alice (user mallory)"
    assert [Actor("ann", None, user).text for user in (None, "ann")] == ["ann", "ann"]


def test_the_version_of_a_database_is_read_without_changing_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    assert location.version_of(path) == 0
    connect(path).close()
    before = path.read_bytes()

    assert location.version_of(path) >= 1
    assert path.read_bytes() == before
