# SPDX-License-Identifier: Apache-2.0
"""Schedules: one job per tick over all workers, in the time zone that was meant, through changes of the clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from redrive import Pipeline, Redrive, connect, stage
from redrive.engine import schedules as module
from redrive.engine.schedules import Ticker, next_tick
from redrive.errors import ConfigurationError, SerializationError, StoreUnavailableError
from redrive.ops.audit import operations
from redrive.store.records import Step
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import runs as run_sql
from redrive.testing import VirtualClock
from tests.inline import T, at_once
from tests.unit.build import beside, bounded, jobs, one_stage, passing


@stage
def report(number: int) -> int:
    return number


DAILY = Pipeline("daily", [report])


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def ticker(store: SqliteStore, clock: VirtualClock) -> Ticker:
    return Ticker(store, clock, ask_store=at_once)


def go_to(clock: VirtualClock, text: str) -> None:
    clock.advance(instant(text) - clock.wall())


@pytest.mark.parametrize(
    ("cron", "zone", "after", "tick"),
    [
        ("30 6 * * *", "UTC", "2026-01-10T06:30:00+00:00", "2026-01-11T06:30:00+00:00"),
        ("30 6 * * *", "Europe/Berlin", "2026-01-10T06:00:00+00:00", "2026-01-11T05:30:00+00:00"),
        ("30 6 * * *", "Europe/Berlin", "2026-07-10T00:00:00+00:00", "2026-07-10T04:30:00+00:00"),
        ("*/15 * * * *", "Asia/Kolkata", "2026-01-10T06:01:00+00:00", "2026-01-10T06:15:00+00:00"),
        ("0 12 * * MON", "America/New_York", "2026-01-10T00:00:00+00:00", "2026-01-12T17:00:00+00:00"),
        # Half past two does not exist on that Sunday, and comes at the jump; on the other one it comes once.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+00:00", "2026-03-29T01:00:00+00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+00:00", "2026-10-25T00:30:00+00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00+00:00", "2026-10-26T01:30:00+00:00"),
        # What comes every hour comes every hour.
        ("0 * * * *", "Europe/Berlin", "2026-10-25T00:00:00+00:00", "2026-10-25T01:00:00+00:00"),
    ],
)
def test_the_next_tick_is_read_in_its_time_zone_also_when_the_clock_is_changed(
    cron: str, zone: str, after: str, tick: str
) -> None:
    got = datetime.fromtimestamp(next_tick(cron, zone, instant(after)), UTC)

    assert got == datetime.fromisoformat(tick)


@pytest.mark.parametrize(
    ("cron", "zone", "field"),
    [
        ("every day", "UTC", "cron"),
        ("0 0 30 2 *", "UTC", "cron"),
        ("61 * * * *", "UTC", "cron"),
        ("0 0 * * *", "Mars/Olympus", "zone"),
        ("0 0 * * *", "", "zone"),
        ("0 0 * * *", "/etc/passwd", "zone"),
    ],
)
def test_a_schedule_that_never_comes_is_refused_by_name(
    rd: Redrive, clock: VirtualClock, cron: str, zone: str, field: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        rd.schedules.add("report", DAILY, 1, cron=cron, zone=zone)

    assert field in refused.value.field
    assert rd.schedules.list() == []


def test_a_payload_or_a_name_that_does_not_fit_is_refused(rd: Redrive, clock: VirtualClock) -> None:
    with pytest.raises(SerializationError):
        rd.schedules.add("report", DAILY, "one", cron="0 0 * * *")
    with pytest.raises(ConfigurationError):
        rd.schedules.add(" ", DAILY, 1, cron="0 0 * * *")


def test_a_priority_that_does_not_fit_is_refused_when_the_schedule_is_made(
    rd: Redrive, clock: VirtualClock
) -> None:
    with pytest.raises(ConfigurationError, match="from 0 to 9"):
        rd.schedules.add("urgent", DAILY, 1, cron="* * * * *", priority=99)

    assert rd.schedules.list() == []


def test_a_tick_makes_one_job_whoever_looks_first(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    go_to(clock, "2026-01-10T06:00:00+00:00")
    rd.schedules.add("report", DAILY, 7, cron="30 6 * * *", priority=2)
    one, two = ticker(store, clock), ticker(store, clock)

    assert (one.tick(), two.tick()) == (0, 0)
    go_to(clock, "2026-01-10T06:30:00+00:00")
    assert (one.tick(), two.tick()) == (1, 0)

    assert jobs(store, "pipeline, status, priority, key, payload") == [
        ("daily", "queued", 2, "report@2026-01-10T06:30:00+00:00", b"7")
    ]
    (known,) = rd.schedules.list()
    assert (known.name, known.pipeline, known.cron, known.zone) == ("report", "daily", "30 6 * * *", "UTC")
    assert known.last_at == datetime(2026, 1, 10, 6, 30, tzinfo=UTC)
    assert known.next_at == datetime(2026, 1, 11, 6, 30, tzinfo=UTC)


def test_of_two_who_saw_the_same_tick_one_submits(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rd.schedules.add("report", DAILY, 7, cron="0 * * * *")
    clock.advance(3_600)
    due = store.query(run_sql.due_schedules(now=clock.wall()))
    assert ticker(store, clock).tick() == 1

    query = store.query
    monkeypatch.setattr(store, "query", lambda call: due if call.name == "due_schedules" else query(call))
    assert ticker(store, clock).tick() == 0

    assert len(jobs(store)) == 1


def test_a_job_of_an_old_schedule_enters_at_what_is_the_first_stage_now(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    rd.schedules.add("report", DAILY, 7, cron="0 * * * *")

    @stage
    def check(number: int) -> int:
        return number

    rd.work([Pipeline("daily", [check, report])], until_idle=True)
    clock.advance(3_600)

    assert ticker(store, clock).tick() == 1
    (entered,) = rd.jobs.list(pipeline="daily")
    assert entered.stage == "check"


def test_ticks_that_nobody_saw_are_made_up_for_by_one_job(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    rd.schedules.add("report", DAILY, 7, cron="0 * * * *")
    clock.advance(10 * 3_600)

    assert (ticker(store, clock).tick(), ticker(store, clock).tick()) == (1, 0)
    (known,) = rd.schedules.list()
    assert 0 < known.next_at.timestamp() - clock.wall() <= 3_600


def test_the_same_name_changes_a_schedule_and_what_did_not_change_keeps_its_turn(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    rd.schedules.add("report", DAILY, 7, cron="0 0 * * *")
    (first,) = rd.schedules.list()
    clock.advance(2 * 86_400)
    rd.schedules.add("report", DAILY, 8, cron="0 0 * * *")
    assert rd.schedules.list()[0].next_at == first.next_at

    rd.schedules.add("report", DAILY, 8, cron="30 * * * *", zone="Europe/Berlin")
    (changed,) = rd.schedules.list()
    assert 0 < changed.next_at.timestamp() - clock.wall() <= 3_600
    clock.advance(3_600)
    ticker(store, clock).tick()
    assert jobs(store, "payload") == [(b"8",)]


def test_a_dropped_schedule_ticks_no_more(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    rd.schedules.add("report", DAILY, 7, cron="0 * * * *")

    assert rd.schedules.drop("report")
    assert not rd.schedules.drop("report")
    clock.advance(86_400)
    assert ticker(store, clock).tick() == 0


def test_every_change_of_a_schedule_is_in_the_operator_log(rd: Redrive) -> None:
    for _ in range(2):
        rd.schedules.add("report", DAILY, 7, cron="0 * * * *", actor="ann", reason="month end")
    rd.schedules.add("report", DAILY, 7, cron="30 * * * *")
    rd.schedules.drop("report", actor="bob")
    rd.schedules.drop("report", actor="bob")

    log = [(each.actor, each.verb, each.reason, each.change) for each in operations(rd.store)]

    assert log == [
        (
            "ann",
            "schedule",
            "month end",
            {"after": {"pipeline": "daily", "cron": "0 * * * *", "zone": "UTC"}},
        ),
        ("api", "schedule", None, {"after": {"pipeline": "daily", "cron": "30 * * * *", "zone": "UTC"}}),
        ("bob", "drop", None, None),
    ]


@pytest.mark.parametrize("statement", ["put_schedule", "drop_schedule"])
def test_a_schedule_that_is_not_stored_is_not_logged(
    rd: Redrive, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """The change and its line are one transaction: whatever refuses one of them refuses both."""
    rd.schedules.add("kept", DAILY, 7, cron="0 * * * *")
    given: list[tuple[str, ...]] = []
    monkeypatch.setattr(rd.store, "apply", lambda *steps: given.append(tuple(step.name for step in steps)))

    rd.schedules.add("other", DAILY, 7, cron="0 * * * *")
    rd.schedules.drop("kept")

    assert [names for names in given if statement in names] == [(statement, "log_letters")]
    assert len(given) == 3, "a name may be that of a schedule that submits, and of one that prunes"


def test_a_schedule_that_cannot_go_on_never_keeps_the_others_from_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """A time zone that this machine does not know, written by one that does."""
    (lane,) = store.lanes("daily", ["report"])
    store.apply(Step("put_schedule", ("a bad one", lane, "0 * * * *", "Mars/Olympus", b"1", 5, 0.0)))
    rd.schedules.add("good", DAILY, 7, cron="0 * * * *")
    clock.advance(3_600)

    assert ticker(store, clock).tick() == 1
    assert str(jobs(store, "key")[0][0]).startswith("good@")


def test_the_ticker_sleeps_until_the_next_tick_and_looks_for_new_ones_in_between(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        async with beside(ticker(store, clock).run()):
            await passing(clock, lambda: len(clock.waits) > 8)
            rd.schedules.add("report", DAILY, 7, cron="*/30 * * * * *")
            await passing(clock, lambda: len(jobs(store)) == 3)

    bounded(scene())
    assert max(clock.waits) <= module.LOOK_SECONDS
    keys = [str(row[0]) for row in jobs(store, "key")]
    assert len(set(keys)) == 3


def test_the_ticker_waits_for_a_store_that_does_not_answer(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    outages = [StoreUnavailableError(database="x", cause="gone")] * 2

    async def ask(question: Callable[[], T]) -> T:
        if outages:
            raise outages.pop()
        return question()

    async def scene() -> None:
        rd.schedules.add("report", DAILY, 7, cron="* * * * *")
        async with beside(Ticker(store, clock, ask_store=ask).run()):
            await passing(clock, lambda: jobs(store))

    bounded(scene())
    assert "schedules: store unavailable" in caplog.text


def test_a_worker_submits_what_is_due_and_works_on_it(tmp_path: Path) -> None:
    with connect(tmp_path / "jobs.db") as rd:

        async def scene() -> None:
            loop, ran = asyncio.get_running_loop(), asyncio.Event()

            def run(number: int) -> int:
                loop.call_soon_threadsafe(ran.set)
                return number

            pipeline = one_stage(run, "daily")
            rd.schedules.add("report", pipeline, 7, cron="* * * * * *")
            async with connect(tmp_path / "jobs.db") as other:
                async with beside(other.work([pipeline])):
                    await ran.wait()

        # Other tests may have left theirs.
        before = threading.active_count()
        bounded(scene())
        assert threading.active_count() - before < 50
        assert sum(rd.jobs.counts().values()) >= 1
