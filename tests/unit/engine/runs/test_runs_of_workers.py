# SPDX-License-Identifier: Apache-2.0
"""Runs that no process drives: workers keep their failure budget, and stop one that failed early when an operator says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

import pytest

from redrive import Backoff, FailureBudget, Pipeline, Redrive, RetryPolicy, stage
from redrive.core.budget import FailureRule
from redrive.engine.runs import ending
from redrive.engine.runs.ending import RunStatusDriver
from redrive.engine.runs.runs import KEEP_SECONDS, RunOptions, Runs, keep_run
from redrive.errors import RunError
from redrive.store.records import RunId
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements.text import statements_of
from redrive.testing import VirtualClock
from tests.inline import at_once
from tests.unit.build import beside, bounded, jobs, passing, rows, until, work, worker_on, working

WRONG: set[int] = set()


@pytest.fixture(autouse=True)
def _nothing_wrong() -> None:
    WRONG.clear()


@stage(retry=RetryPolicy(1, Backoff.fixed(1)))
def fetch(number: int) -> int:
    if number in WRONG:
        raise PermissionError(13, "denied")
    return number


SHOP = Pipeline("shop", [fetch])


def looks(store: SqliteStore, clock: VirtualClock, *between: Callable[[], object]) -> list[int]:
    """Let one worker look at the runs, with something happening before each further look."""

    async def scene() -> list[int]:
        endings = RunStatusDriver(store, clock, ask_store=at_once)
        found = [endings.decide()]
        for happen in between:
            happen()
            found.append(endings.decide())
        return found

    return bounded(scene())


def end_items(store: SqliteStore, clock: VirtualClock, first: int, last: int, status: str) -> None:
    """End some items as a worker does that is elsewhere."""
    store._db.execute(
        "UPDATE jobs SET status = ?1, finished_at = ?2, error_code = CASE ?1 WHEN 'failed' THEN 'AUTH_DENIED' END,"
        " lease_token = NULL, worker_id = NULL WHERE ordinal BETWEEN ?3 AND ?4",
        (status, clock.wall(), first, last),
    )


def broken_run(rd: Redrive, count: int, on_exceeded: Literal["abort", "pause"] = "abort") -> RunId:
    budget = FailureBudget(max_rate=0.1, check_every=10, on_exceeded=on_exceeded)
    run = rd.runs.add("shop", RunOptions(budget=budget), 0.0)
    rd.submit_many(SHOP, range(count), run=run)
    return run


@pytest.mark.req("FG-6.1")
def test_workers_abort_a_run_whose_budget_is_spent_long_before_its_end(
    store: SqliteStore,
    rd: Redrive,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ending, "STEP", 40)
    run = broken_run(rd, 100)

    lease = "UPDATE jobs SET status = 'processing', lease_token = 1, worker_id = 'w0', dispatch = 1 WHERE ordinal = 99"
    changed = looks(
        store,
        clock,
        lambda: end_items(store, clock, 0, 8, "failed"),
        lambda: end_items(store, clock, 9, 10, "skipped"),
        lambda: store._db.execute(lease),
    )
    assert (changed, rd.runs.report(run).status) == ([0, 0, 0, 0], "running")
    end_items(store, clock, 11, 13, "failed")

    async def scene() -> list[tuple[str, int]]:
        endings = RunStatusDriver(store, clock, ask_store=at_once)
        found: list[tuple[str, int]] = []
        for _ in range(5):
            endings.decide()
            found.append((rd.runs.report(run).status, rd.runs.report(run).open))
        return found

    # A step of items at a time; the one in a stage is asked to end.
    assert bounded(scene()) == [
        ("aborted", 86),
        ("aborted", 46),
        ("aborted", 6),
        ("aborted", 1),
        ("aborted", 1),
    ]
    assert "12 of 12 finished jobs failed" in str(rd.runs.report(run).reason)
    assert f"run {run} is aborted: 12 of 12" in caplog.text
    assert rows(store, "cancel_asked", "jobs WHERE ordinal = 99") == [(1,)]
    end_items(store, clock, 99, 99, "cancelled")
    assert looks(store, clock) == [1]
    assert rows(store, "status, ended_at", "runs") == [("aborted", clock.wall())]
    with pytest.raises(RunError, match="ended as aborted"):
        rd.submit_many(SHOP, [1], run=run)


def test_a_worker_stops_a_run_with_a_broken_key_early(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    WRONG.update(range(300))
    run = broken_run(rd, 300)

    async def scene() -> None:
        endings = RunStatusDriver(store, clock, ask_store=at_once)
        async with beside(endings.run()):
            async with working(worker_on(store, SHOP, on_commit=endings.committed, concurrency=4)):
                await passing(clock, lambda: rows(store, "ended_at IS NOT NULL", "runs") == [(1,)])
        await endings.flush()

    bounded(scene())

    report = rd.runs.report(run)
    assert report.dead + report.cancelled == 300
    assert report.cancelled > 200
    assert "the budget is 10.0%" in str(report.reason)


def test_an_abort_that_was_cut_off_is_continued_by_another_worker_and_a_replay_is_left_alone(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "STEP", 10)
    run = broken_run(rd, 30)
    end_items(store, clock, 0, 9, "failed")
    assert looks(store, clock) == [1]
    assert rd.runs.report(run).open == 20

    looks(store, clock, lambda: None)
    assert rd.runs.report(run).open == 20
    clock.advance(KEEP_SECONDS + 1)
    looks(store, clock, *[lambda: None] * 4)
    assert (rd.runs.report(run).open, rd.runs.report(run).cancelled) == (0, 20)

    # Later an item runs again: that is no abort that was cut off.
    store._db.execute(
        "UPDATE jobs SET status = 'queued', finished_at = NULL, error_code = NULL WHERE ordinal = 0"
    )
    clock.advance(KEEP_SECONDS + 1)
    looks(store, clock, *[lambda: None] * 3)
    assert rd.runs.report(run).open == 1


def test_one_that_shall_pause_is_paused_and_has_a_fresh_budget_when_it_is_resumed(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    run = broken_run(rd, 100, "pause")
    end_items(store, clock, 0, 9, "failed")
    assert looks(store, clock) == [1]
    paused = rd.runs.report(run)
    assert (paused.status, paused.open) == ("paused", 90)
    assert rows(store, "DISTINCT waiting", "jobs WHERE status = 'queued'") == [("paused",)]

    rd.runs.resume(run)
    assert Runs(store).options(run).resumed_with == paused.tally
    end_items(store, clock, 10, 18, "failed")
    assert (looks(store, clock), rd.runs.report(run).status) == ([0], "running")
    end_items(store, clock, 19, 19, "failed")
    assert (looks(store, clock), rd.runs.report(run).status) == ([1], "paused")
    assert "10 of 10" in str(rd.runs.report(run).reason)


def test_a_run_that_is_driven_is_left_to_its_driver(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    run = broken_run(rd, 100)
    keep_run(store, run, clock.wall())
    end_items(store, clock, 0, 9, "failed")

    assert (looks(store, clock), rd.runs.report(run).status) == ([0], "running")
    clock.advance(KEEP_SECONDS + 1)
    assert (looks(store, clock), rd.runs.report(run).status) == ([1], "aborted")


class TestOneThatFailedEarly:
    """By its rule, while items are open."""

    @pytest.fixture
    def run(self, store: SqliteStore, rd: Redrive, clock: VirtualClock) -> int:
        WRONG.add(1)
        run = rd.runs.open(SHOP, [1, 2, 3], rule=FailureRule()).id
        store._db.execute("UPDATE jobs SET run_at = run_at + 100 WHERE id > 1")

        async def scene() -> None:
            async with working(worker_on(store, SHOP)):
                await until(lambda: jobs(store)[0] == ("failed",))

        bounded(scene())
        looks(store, clock)
        assert (rd.runs.report(run).status, rd.runs.report(run).open) == ("failed", 2)
        return run

    def test_it_can_be_paused_and_resumed(
        self, store: SqliteStore, rd: Redrive, clock: VirtualClock, run: int
    ) -> None:
        assert rd.runs.pause(run).status == "paused"
        assert jobs(store, "status, waiting")[1:] == [("queued", "paused")] * 2
        assert rd.runs.resume(run).status == "running"

        # Its failure is for good.
        looks(store, clock)
        assert rd.runs.report(run).status == "failed"
        clock.advance(200)
        work(store, SHOP)
        looks(store, clock)
        assert (rd.runs.report(run).status, rd.runs.report(run).open) == ("failed", 0)
        for act in (rd.runs.pause, rd.runs.cancel):
            with pytest.raises(RunError, match="it is failed"):
                act(run)

    def test_it_can_be_cancelled(
        self, store: SqliteStore, rd: Redrive, clock: VirtualClock, run: int
    ) -> None:
        assert (rd.runs.cancel(run).status, rd.runs.report(run).cancelled) == ("cancelled", 2)

        looks(store, clock)
        assert rows(store, "status, ended_at", "runs") == [("cancelled", clock.wall())]

    def test_it_can_be_driven_to_its_end(
        self, store: SqliteStore, rd: Redrive, clock: VirtualClock, run: int
    ) -> None:
        clock.advance(200)
        report = rd.run(SHOP, None, resume=run)

        assert (report.status, report.open) == ("failed", 0)
        assert rows(store, "ended_at IS NULL", "runs") == [(0,)]

    def test_items_can_be_added(self, rd: Redrive, run: int) -> None:
        rd.submit_many(SHOP, [4], run=run)

        assert rd.runs.report(run).total == 4


def test_items_are_refused_for_a_run_that_ended_after_its_size_was_read(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = rd.runs.add("shop", RunOptions(), 0.0)
    rd.submit_many(SHOP, [1], run=run)
    work(store, SHOP)
    plain = Runs.mark_source

    def ended_first(book: Runs, run: RunId, *, is_fed: bool) -> None:
        looks(store, clock)
        plain(book, run, is_fed=is_fed)

    monkeypatch.setattr(Runs, "mark_source", ended_first)

    with pytest.raises(RunError, match="ended as completed"):
        rd.submit_many(SHOP, [2], run=run)
    report = rd.runs.report(run)
    assert (report.status, report.total, Runs(store).is_fed(run)) == ("completed", 1, True)


@pytest.mark.parametrize("options", [b"{", b'{"budget":{"max_rate":7}}'])
def test_a_run_whose_options_cannot_be_read_keeps_no_other_waiting(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture, options: bytes
) -> None:
    for _ in range(2):
        rd.runs.open(SHOP, [1])
    store._db.execute("UPDATE runs SET options = ? WHERE id = 1", (options,))
    work(store, SHOP)

    with caplog.at_level(logging.ERROR, "redrive.runs"):
        assert looks(store, clock, lambda: None) == [1, 0]
    assert [rd.runs.report(run).status for run in (1, 2)] == ["running", "completed"]
    assert caplog.text.count("run 1 is not decided: its options cannot be read") == 1


class TestPausedAgain:
    """Items that were in a stage when their run was paused."""

    @pytest.fixture
    def run(self, store: SqliteStore, rd: Redrive) -> int:
        run = rd.runs.open(SHOP, [1, 2]).id
        store._db.execute(
            "UPDATE jobs SET status = 'processing', lease_token = 1, worker_id = 'w0', dispatch = 1"
        )
        rd.runs.pause(run)
        return run

    @staticmethod
    def _queued(store: SqliteStore) -> None:
        store._db.execute("UPDATE jobs SET status = 'queued', lease_token = NULL, worker_id = NULL")

    def test_they_are_paused_when_they_are_queued_again(
        self, store: SqliteStore, clock: VirtualClock, run: int
    ) -> None:
        looks(store, clock, lambda: self._queued(store))

        assert jobs(store, "status, waiting, run_at > 1e12") == [("queued", "paused", 1)] * 2, run

    def test_not_when_the_run_was_resumed_since_the_last_look(
        self, store: SqliteStore, rd: Redrive, clock: VirtualClock, run: int
    ) -> None:
        looks(store, clock, lambda: (rd.runs.resume(run), self._queued(store)))

        assert jobs(store, "status, waiting, run_at > 1e12") == [("queued", None, 0)] * 2

    def test_nor_when_it_is_resumed_during_a_look(
        self,
        store: SqliteStore,
        rd: Redrive,
        clock: VirtualClock,
        run: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        plain = Runs.pause_items

        def resumed_first(book: Runs, run: RunId) -> None:
            rd.runs.resume(run)
            self._queued(store)
            plain(book, run)

        monkeypatch.setattr(Runs, "pause_items", resumed_first)
        looks(store, clock)

        assert jobs(store, "status, waiting, run_at > 1e12") == [("queued", None, 0)] * 2, run

    @pytest.mark.parametrize(
        ("statement", "values"), [("paused_at_work", ()), ("pause_jobs", ("[1]",)), ("live_runs", (1.0,))]
    )
    def test_a_look_reads_neither_all_runs_nor_all_their_items(
        self, store: SqliteStore, statement: str, values: tuple[object, ...]
    ) -> None:
        plan = store.read("EXPLAIN QUERY PLAN " + statements_of("sqlite")[statement], values)
        scans = [
            str(row[3]) for row in plan if str(row[3]).startswith("SCAN") and "json_each" not in str(row[3])
        ]

        assert scans in ([], ["SCAN jobs USING INDEX jobs_leased"], ["SCAN runs USING INDEX runs_live"])
        assert not any("dead_letters" in str(row[3]) for row in plan)
