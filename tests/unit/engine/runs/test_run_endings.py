# SPDX-License-Identifier: Apache-2.0
"""The status of a run is decided by any worker: once, at its end or at a permanent failure, and again after a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redrive import (
    Backoff,
    Context,
    FailureBudget,
    Pipeline,
    Redrive,
    ReplayRules,
    RetryPolicy,
    RunReport,
    stage,
)
from redrive.core.budget import FailureRule, RunStatus, RunThresholds, Tally, decide_status
from redrive.engine.delivery.recipients import record_listeners
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.runs.ending import RunStatusDriver
from redrive.engine.runs.runs import RunOptions, Runs, keep_run
from redrive.errors import ConfigurationError, StoreUnavailableError
from redrive.store.records import Step
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import outbox as outbox_sql
from redrive.testing import VirtualClock
from tests.inline import T, at_once
from tests.unit.build import beside, bounded, jobs, passing, rows, turns, until, work, worker_on, working


class Weather:
    """Which orders fail, and how."""

    def __init__(self) -> None:
        self.down: set[int] = set()
        self.wrong: set[int] = set()


WEATHER = Weather()


@pytest.fixture(autouse=True)
def _fair_weather() -> None:
    WEATHER.__init__()  # type: ignore[misc]


@stage(retry=RetryPolicy(2, Backoff.fixed(1)))
def fetch(number: int) -> int:
    if number in WEATHER.down:
        raise ConnectionResetError(104, "reset")
    if number in WEATHER.wrong:
        raise PermissionError(13, "denied")
    return number


SHOP = Pipeline("shop", [fetch], replay=ReplayRules(evidence="optional"))


def decide(store: SqliteStore, clock: VirtualClock) -> int:
    async def scene() -> int:
        return RunStatusDriver(store, clock, ask_store=at_once).decide()

    return bounded(scene())


@pytest.mark.parametrize(
    ("bad", "status"), [(0, "completed"), (1, "completed"), (2, "partial_success"), (11, "failed")]
)
def test_a_run_without_a_driver_is_decided_by_a_worker_and_once(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, bad: int, status: str
) -> None:
    WEATHER.wrong = set(range(bad))
    run = rd.runs.add("shop", RunOptions(), 0.0)
    rd.submit_many(SHOP, range(20), run=run)
    assert decide(store, clock) == 0
    work(store, SHOP)

    assert rd.runs.report(run).status == "running"
    assert decide(store, clock) == 1
    assert decide(store, clock) == 0
    assert rd.runs.report(run).status == status
    assert rows(store, "ended_at", "runs") == [(clock.wall(),)]


def test_a_worker_decides_the_runs_it_has_worked_on_before_it_ends(filed: Redrive) -> None:
    run = filed.runs.add("shop", RunOptions(), 0.0)
    filed.submit_many(SHOP, range(5), run=run)

    filed.work([SHOP], until_idle=True)

    assert filed.runs.report(run).status == "completed"


def test_a_run_that_is_being_fed_or_driven_is_left_alone(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    fed, driven = (rd.runs.add("shop", RunOptions(), 0.0) for _ in range(2))
    for run in (fed, driven):
        rd.submit_many(SHOP, [1], run=run)
    book = Runs(store)
    book.mark_source(fed, is_fed=False)
    keep_run(store, driven, clock.wall())
    work(store, SHOP)

    assert decide(store, clock) == 0
    book.mark_source(fed, is_fed=True)
    clock.advance(31)
    assert decide(store, clock) == 2


def test_a_run_is_not_decided_between_two_batches_of_items(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    run = rd.runs.add("shop", RunOptions(), 0.0)
    rd.submit_many(SHOP, [1], run=run)
    seen = []

    def more() -> object:
        work(store, SHOP)
        seen.append(decide(store, clock))
        yield 2

    rd.submit_many(SHOP, more(), run=run)  # type: ignore[arg-type]

    assert seen == [0]
    assert rd.runs.report(run).status == "running"


def test_a_decision_about_a_run_that_has_changed_since_is_not_taken(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    WEATHER.wrong = {1}
    report = rd.runs.open(SHOP, [1, 2])
    work(store, SHOP)
    plain = store.apply

    def replayed_first(*steps: Step) -> object:
        monkeypatch.setattr(store, "apply", plain)
        rd.jobs.retry(1)
        return store.apply(*steps)

    monkeypatch.setattr(store, "apply", replayed_first)

    assert decide(store, clock) == 0
    assert rd.runs.report(report.id).status == "running"


@pytest.mark.req("FG-1.2")
def test_the_status_is_decided_again_after_a_replay(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    WEATHER.wrong = {1, 2}
    run = rd.runs.open(SHOP, range(1, 5)).id
    work(store, SHOP)
    decide(store, clock)
    assert rd.runs.report(run).status == "partial_success"

    WEATHER.wrong = set()
    for job in (1, 2):
        rd.jobs.retry(job)
    while_open = rd.runs.report(run)
    assert decide(store, clock) == 0
    work(store, SHOP)
    decide(store, clock)

    assert (while_open.status, while_open.open) == ("partial_success", 2)
    assert rd.runs.report(run).status == "completed"


def test_by_kinds_of_failures_a_run_has_failed_as_soon_as_one_cannot_heal_and_for_good(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    WEATHER.wrong = {1}
    run = rd.runs.open(SHOP, [1, 2, 3], rule=FailureRule()).id
    store._db.execute("UPDATE jobs SET run_at = run_at + 100 WHERE id > 1")

    async def scene() -> None:
        worker = worker_on(store, SHOP)
        async with working(worker):
            await until(lambda: jobs(store)[0] == ("failed",))

    bounded(scene())
    decide(store, clock)
    at_once_ = rd.runs.report(run)
    WEATHER.wrong = set()
    rd.jobs.retry(1)
    clock.advance(200)
    work(store, SHOP)
    decide(store, clock)

    assert (at_once_.status, at_once_.open) == ("failed", 2)
    ended = rd.runs.report(run)
    assert (ended.status, ended.succeeded, ended.open) == ("failed", 3, 0)
    assert rows(store, "ended_at", "runs") == [(clock.wall(),)]


@pytest.mark.parametrize(
    ("down", "status"), [(set(), "completed"), ({1}, "partial_success"), ({1, 2}, "failed")]
)
def test_by_kinds_of_failures_spent_attempts_are_a_partial_success_unless_all_are(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, down: set[int], status: str
) -> None:
    WEATHER.down = down
    run = rd.runs.open(SHOP, [1, 2], rule=FailureRule()).id
    work(store, SHOP)
    decide(store, clock)

    assert rd.runs.report(run).status == status


def test_a_stopped_run_keeps_its_status_whatever_becomes_of_its_items() -> None:
    fine = Tally(total=1, succeeded=1)
    for status in (RunStatus.ABORTED, RunStatus.CANCELLED, RunStatus.PAUSED):
        assert decide_status(RunThresholds(), status, fine, has_permanent=False) is status
    assert decide_status(FailureRule(), RunStatus.FAILED, fine, has_permanent=False) is RunStatus.FAILED
    still_open = Tally(total=2, succeeded=1)
    assert (
        decide_status(FailureRule(), RunStatus.RUNNING, still_open, has_permanent=False) is RunStatus.RUNNING
    )


def test_a_run_whose_driver_died_is_aborted_at_its_end_if_its_budget_is_spent(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    WEATHER.wrong = {1}
    run = rd.runs.add("shop", RunOptions(budget=FailureBudget(max_rate=0.1, check_every=2)), 0.0)
    rd.submit_many(SHOP, [1, 2], run=run)
    work(store, SHOP)
    decide(store, clock)

    report = rd.runs.report(run)
    assert (report.status, "1 of 2" in str(report.reason)) == ("aborted", True)


def test_a_commit_wakes_the_decision_only_while_there_are_runs(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []

    async def scene() -> None:
        ended: list[bool] = []
        endings = RunStatusDriver(store, clock, ask_store=at_once, on_end=lambda: ended.append(True))
        plain = endings.decide

        def looking() -> int:
            looks.append(True)
            return plain()

        monkeypatch.setattr(endings, "decide", looking)
        never = asyncio.Event()
        monkeypatch.setattr(clock, "asleep", lambda _seconds: never.wait())
        async with beside(endings.run()):
            await turns()
            worker = worker_on(store, SHOP, on_commit=endings.committed)
            async with working(worker):
                rd.submit(SHOP, 1)
                worker.wake()
                await until(lambda: jobs(store) == [("complete",)])
                await turns()
                assert len(looks) == 1
            rd.runs.open(SHOP, [2])
            endings.decide()
            await turns()
            worker = worker_on(store, SHOP, on_commit=endings.committed)
            async with working(worker):
                await until(lambda: rd.runs.report(1).status == "completed")
            assert ended

    bounded(scene())


def test_without_an_answer_of_the_store_runs_are_decided_later(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    run = rd.runs.open(SHOP, [1]).id
    work(store, SHOP)
    answers = [StoreUnavailableError(database="x", cause="gone"), None]

    async def ask(question: Callable[[], T]) -> T:
        error = answers.pop(0) if answers else None
        if error is not None:
            raise error
        return question()

    async def scene() -> None:
        endings = RunStatusDriver(store, clock, ask_store=ask)
        async with beside(endings.run()):
            await passing(clock, lambda: rd.runs.report(run).status == "completed")
        answers.append(StoreUnavailableError(database="x", cause="gone"))
        await endings.flush()

    bounded(scene())
    assert "the status of runs is not decided for now" in caplog.text


def test_the_end_of_a_run_is_told_to_the_hook_after_each_end(filed: Redrive) -> None:
    told: list[RunReport] = []
    shop = Pipeline("shop", [fetch], replay=ReplayRules(evidence="optional"), on_run_end=told.append)
    WEATHER.wrong = {1}

    filed.runs.open(shop, [1, 2], label="morning")
    filed.work([shop], until_idle=True)
    WEATHER.wrong = set()
    filed.jobs.retry(1)
    filed.work([shop], until_idle=True)

    assert [(each.status, each.label, each.succeeded) for each in told] == [
        ("partial_success", "morning", 1),
        ("completed", "morning", 2),
    ]


def test_a_hook_that_fails_is_called_again_and_a_run_of_another_pipeline_has_none(
    filed: Redrive, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def failing(report: RunReport) -> None:
        calls.append(report.id)
        raise ConnectionResetError(104, "reset")

    shop = Pipeline("shop", [fetch], on_run_end=failing)
    filed.runs.open(shop, [1])
    filed.runs.open(Pipeline("other", [fetch]), [1])
    filed.work([shop, Pipeline("other", [fetch])], until_idle=True)

    assert set(calls) == {1}
    assert "hook on_run_end of run 1 raised" in caplog.text
    assert filed.store.query(outbox_sql.undelivered(before=0.0))[0][:3] == ("shop", "hook", 1)


def test_a_hook_must_be_a_function() -> None:
    with pytest.raises(ConfigurationError, match="on_run_end"):
        Pipeline("shop", [fetch], on_run_end="tell me")  # type: ignore[arg-type]


def test_children_join_the_run_of_their_parent_by_choice_and_count_in_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    leaf = Pipeline("leaf", [fetch])

    @stage
    def split(number: int, ctx: Context) -> int:
        ctx.submit(leaf, number, join_run=True)
        ctx.submit(leaf, number, key="one of all", join_run=True)
        ctx.submit(leaf, number)
        return number

    tree = Pipeline("tree", [split])
    alone = rd.submit(tree, 0)
    run = rd.runs.open(tree, [1, 2]).id
    work(store, tree)
    report = rd.runs.report(run)
    assert decide(store, clock) == 0
    work(store, tree, leaf)
    decide(store, clock)

    # One with a key that is taken is no job of this run.
    assert (report.total, report.items, report.children, report.open) == (4, 2, 2, 2)
    assert (rd.runs.report(run).status, rd.runs.report(run).succeeded) == ("completed", 4)
    assert alone.facts.run is None
    assert rows(store, "count(*)", "jobs WHERE run_id IS NULL") == [(1 + 3 + 2,)]


def test_a_choice_to_join_is_true_or_false(rd: Redrive) -> None:
    ctx = Context(job_id=1, pipeline="shop", stage="fetch", attempt=1)

    with pytest.raises(ConfigurationError, match="join_run"):
        ctx.submit(SHOP, 1, join_run="yes")  # type: ignore[arg-type]


def test_listeners_of_runs_are_recorded(store: SqliteStore) -> None:
    shop = Pipeline("shop", [fetch], on_run_end=print)
    record_listeners(store, lanes_of(store, [shop]))

    assert store.query(outbox_sql.listeners_of(pipeline="shop")) == [("runs", "hook")]
