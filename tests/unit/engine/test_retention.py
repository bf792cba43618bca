# SPDX-License-Identifier: Apache-2.0
"""Retention by a schedule: what ended long ago is deleted once per tick, by one worker at a time, counted and on record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest

from redrive import ConfigurationError, Pipeline, Redrive, ReplayRules, connect, stage
from redrive.engine import retention as module
from redrive.engine.retention import DRIVE_SECONDS, LOOK_SECONDS, TEND_SECONDS, RetentionDriver
from redrive.engine.schedules import next_tick
from redrive.errors import RunError, StoreUnavailableError
from redrive.ops.audit import operations
from redrive.ops.checkup.doctor import examine, has_problems
from redrive.store.postgres.store import PostgresStore
from redrive.store.records import Step
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import runs as run_sql
from redrive.store.statements import upkeep as upkeep_sql
from redrive.testing import VirtualClock
from tests.databases import Schemas
from tests.inline import T, at_once
from tests.unit.build import ONCE, beside, bounded, passing, rows, until

DAY = 86_400.0


class Ages(TypedDict, total=False):
    complete: float
    failed: float
    runs: float


KEPT: Ages = {"complete": 7 * DAY, "failed": 90 * DAY, "runs": 30 * DAY}


@stage(retry=ONCE)
def divide(number: int) -> int:
    return 10 // number


SHOP = Pipeline("shop", [divide], replay=ReplayRules(evidence="optional"))


def driver(store: SqliteStore, clock: VirtualClock, name: str = "w1") -> RetentionDriver:
    return RetentionDriver(store, clock, name=lambda: name, ask_store=at_once)


def pruned(store: SqliteStore, clock: VirtualClock, name: str = "w1") -> int:
    return bounded(driver(store, clock, name).prune_due())


def test_each_kind_goes_at_its_own_age_and_is_counted(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    run = rd.run(SHOP, [1, 2, 0], failure_budget=None)
    rd.schedules.prune("retention", **KEPT, cron="0 3 * * *")
    counted: list[object] = []

    for days in (6, 8, 31, 91):
        clock.advance(days * DAY + 1 - (clock.wall() - VirtualClock().wall()))
        pruned(store, clock)
        counted.append(next(each.deleted for each in rd.schedules.list()))

    none = {"complete": 0, "failed": 0, "runs": 0}
    assert counted == [none, {**none, "complete": 2}, {**none, "runs": 1}, {**none, "failed": 1}]
    assert rows(store, "count(*)", "jobs") == rows(store, "count(*)", "dead_letters") == [(0,)]
    with pytest.raises(RunError, match="no such run"):
        rd.runs.report(run.id)
    # Pruned jobs stay counted, also those whose run is gone.
    assert rows(store, "status, sum(jobs), sum(pruned)", "tallies GROUP BY status") == [
        ("complete", 2, 2),
        ("failed", 1, 1),
    ]
    assert not has_problems(examine(store, is_deep=True))


def test_a_tick_is_on_record_with_its_counts(rd: Redrive, store: SqliteStore, clock: VirtualClock) -> None:
    rd.run(SHOP, [1, 2])
    rd.schedules.prune("retention", **KEPT, cron="0 3 * * *", actor="ann", reason="the law")
    clock.advance(8 * DAY)

    pruned(store, clock)

    made, done = operations(store)
    assert (made.actor, made.verb, made.subject, made.reason) == (
        "ann",
        "schedule",
        "schedule retention",
        "the law",
    )
    assert made.change == {
        "after": {
            "prune": {"complete": 604_800.0, "failed": 7_776_000.0, "runs": 2_592_000.0},
            "cron": "0 3 * * *",
            "zone": "UTC",
        }
    }
    assert (done.actor, done.verb, done.subject, done.reason) == (
        "w1",
        "prune",
        "schedule retention",
        "2 complete, 0 failed, 0 runs",
    )
    assert done.change == {"after": {"deleted": {"complete": 2, "failed": 0, "runs": 0}}}


def test_a_letter_of_a_pruned_run_stays_and_can_be_replayed(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    run = rd.run(SHOP, [0, 0], failure_budget=None)
    rd.schedules.prune("retention", runs=DAY, cron="0 * * * *")
    clock.advance(2 * DAY)

    assert pruned(store, clock) == 1

    assert rows(store, "run_id, ordinal, status") == [(None, None, "failed"), (None, None, "failed")]
    assert rd.jobs.counts() == {"failed": 2}
    assert store.query(run_sql.run(run=run.id)) == []
    assert rows(store, "run_id", "dead_letters") == [(None,), (None,)]
    assert not has_problems(examine(store, is_deep=True))


def test_a_run_that_is_paused_or_replayed_is_kept(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    rd.run(SHOP, [1])
    replayed = rd.run(SHOP, [0], failure_budget=None)
    rd.jobs.retry(2)
    paused = rd.runs.add("shop", rd.runs.options(replayed.id), clock.wall())
    store.apply(run_sql.end_run(status="paused", reason=None, ended_at=clock.wall(), run=paused))
    rd.schedules.prune("retention", runs=DAY, cron="0 * * * *")
    clock.advance(2 * DAY)

    assert pruned(store, clock) == 1

    assert rows(store, "id", "runs") == [(replayed.id,), (paused,)]


def test_one_worker_prunes_at_a_time_and_another_takes_over_from_a_dead_one(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    rd.run(SHOP, [1, 2, 3])
    rd.schedules.prune("retention", complete=DAY, cron="0 * * * *")
    clock.advance(2 * DAY)
    (row,) = store.query(upkeep_sql.due_retentions(now=clock.wall()))
    dead = ("dead", clock.wall() + DRIVE_SECONDS, "retention", row[4], clock.wall())
    store.apply(Step("drive_retention", dead, rows=1))

    first = pruned(store, clock, "w2")
    clock.advance(DRIVE_SECONDS + 1)
    second = pruned(store, clock, "w2")

    assert (first, second) == (0, 3)


def test_a_worker_that_lost_its_lease_stops_and_ends_no_tick(
    rd: Redrive, store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP", 1)
    rd.run(SHOP, [1, 2, 3])
    rd.schedules.prune("retention", complete=DAY, cron="0 * * * *")
    clock.advance(2 * DAY)
    asked = 0

    async def slow(question: Callable[[], T]) -> T:
        nonlocal asked
        asked += 1
        if asked == 3:
            # Between two steps the worker stands still for longer than its lease.
            clock.advance(DRIVE_SECONDS + 1)
            (row,) = store.query(upkeep_sql.due_retentions(now=clock.wall()))
            other = ("w2", clock.wall() + DRIVE_SECONDS, "retention", row[4], clock.wall())
            store.apply(Step("drive_retention", other, rows=1))
        return question()

    stalled = RetentionDriver(store, clock, name=lambda: "w1", ask_store=slow)

    assert bounded(stalled.prune_due()) == 1
    assert rows(store, "driver, last_at", "retentions") == [("w2", None)]


def test_a_long_prune_renews_its_lease(
    rd: Redrive, store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP", 1)
    rd.run(SHOP, [1, 2, 3])
    rd.schedules.prune("retention", complete=DAY, cron="0 * * * *")
    clock.advance(2 * DAY)

    async def slow(question: Callable[[], T]) -> T:
        clock.advance(DRIVE_SECONDS / 2)
        return question()

    steady = RetentionDriver(store, clock, name=lambda: "w1", ask_store=slow)

    assert bounded(steady.prune_due()) == 3
    assert rows(store, "driver, deleted", "retentions") == [(None, '{"complete":3}')]


def test_a_worker_prunes_at_the_tick_and_survives_a_store_that_is_away(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    rd.run(SHOP, [1])
    rd.schedules.prune("retention", complete=60, cron="0 * * * *")
    asked = 0

    async def away_at_first(question: Callable[[], T]) -> T:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise StoreUnavailableError(database="x", cause="gone")
        return question()

    async def scene() -> None:
        async with beside(RetentionDriver(store, clock, name=lambda: "w1", ask_store=away_at_first).run()):
            await passing(clock, lambda: rows(store, "count(*)", "jobs") == [(0,)], step=LOOK_SECONDS)

    bounded(scene())


def test_a_worker_tends_the_partitions_at_once_every_hour_and_after_pruning(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    rd.run(SHOP, [1])
    rd.schedules.prune("retention", complete=60, cron="30 * * * *")
    tended: list[float] = []
    apply, began = store.apply, clock.wall()

    def noting(*steps: Any) -> Any:
        tended.extend(step.parameters[0] for step in steps if step.name == "tend_attempts")
        return apply(*steps)

    store.apply = noting  # type: ignore[method-assign]

    async def scene() -> None:
        async with beside(driver(store, clock, "w1").run()):
            await passing(clock, lambda: len(tended) == 3, step=LOOK_SECONDS)

    bounded(scene())

    pruned = next_tick("30 * * * *", "UTC", began)
    assert tended[0] == began
    assert pruned <= tended[1] <= pruned + LOOK_SECONDS
    assert tended[1] + TEND_SECONDS <= tended[2] <= tended[1] + TEND_SECONDS + LOOK_SECONDS


def test_what_a_client_that_has_gone_has_counted_is_added_up_by_a_worker_that_runs(
    schemas: Schemas, clock: VirtualClock
) -> None:
    """On a server every connection counts in rows of its own; nobody has to start a worker for them to be added up."""
    url = schemas.address("folds")
    with Redrive(PostgresStore(url, clock="caller")) as rd:
        rd.run(SHOP, [1, 0], failure_budget=None)
        before = parts(rd)
        with Redrive(PostgresStore(url, clock="caller")) as client:
            client.submit(SHOP, 2).cancel(actor="ann", reason="a test")
            client.letters.discard(client.letters.choose(), actor="ann", reason="a test")
        theirs = parts(rd) - before
        assert {table for table, _ in theirs} == {"tallies", "letter_tallies"}

        async def scene() -> None:
            driving = RetentionDriver(rd.store, clock, name=lambda: "w1", ask_store=at_once)
            async with beside(driving.run()):
                await passing(clock, lambda: not theirs & parts(rd), step=LOOK_SECONDS)

        bounded(scene())

        assert rd.jobs.counts() == {"complete": 1, "failed": 1, "cancelled": 1}
        assert not has_problems(examine(rd.store, is_deep=True))


def parts(rd: Redrive) -> set[tuple[str, object]]:
    """The tables of counters, and the connections whose rows they have."""
    tables = ("tallies", "letter_tallies", "letter_trend")
    return {(table, part) for table in tables for (part,) in rows(rd.store, "DISTINCT part", table)}


def test_a_schedule_that_is_the_same_is_left_alone_and_one_that_changed_keeps_its_tick(
    rd: Redrive, store: SqliteStore
) -> None:
    for kept in (7 * DAY, 7 * DAY, 8 * DAY):
        rd.schedules.prune("retention", complete=kept, cron="0 3 * * *")

    (made,) = rd.schedules.list()
    assert (made.pipeline, made.prunes, made.deleted, made.last_at) == (
        None,
        {"complete": 8 * DAY},
        None,
        None,
    )
    assert len(operations(store)) == 2
    assert rd.schedules.drop("retention")
    assert not rd.schedules.drop("retention")
    assert rd.schedules.list() == []


@pytest.mark.parametrize(
    ("ages", "cron"),
    [({}, "0 3 * * *"), ({"complete": -1.0}, "0 3 * * *"), (KEPT, "daily")],
)
def test_a_schedule_that_prunes_nothing_or_never_is_refused(rd: Redrive, ages: Ages, cron: str) -> None:
    with pytest.raises(ConfigurationError):
        rd.schedules.prune("retention", **ages, cron=cron)

    assert rd.schedules.list() == []


def test_a_program_prunes_at_once(rd: Redrive, clock: VirtualClock, store: SqliteStore) -> None:
    rd.run(SHOP, [1, 0], failure_budget=None)
    clock.advance(2 * DAY)

    assert rd.prune(complete=DAY, runs=DAY, actor="ann") == {"complete": 1, "runs": 1}
    assert [(each.actor, each.verb) for each in operations(store)] == [("ann", "prune")]


def test_a_real_worker_prunes(tmp_path: Path) -> None:
    with connect(tmp_path / "jobs.db") as rd:
        rd.run(SHOP, [1, 2])
        rd.schedules.prune("retention", complete=0, cron="* * * * *")
        rd.store.apply(upkeep_sql.drop_retention(name="retention"))
        rd.store.apply(Step("put_retention", ("retention", b'{"complete":0}', "* * * * *", "UTC", 0.0)))

        async def scene() -> None:
            async with asyncio.timeout(20), connect(tmp_path / "jobs.db") as there:
                async with beside(there.work([SHOP])):
                    await until(lambda: rd.jobs.counts() == {})

        asyncio.run(scene())
