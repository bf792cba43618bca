# SPDX-License-Identifier: Apache-2.0
"""Resuming runs: after a crash, a pause or a hold; and the sources, pipelines and ends with which that is refused."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redrive import Backoff, Breaker, FailureBudget, Pipeline, Redrive, RetryPolicy, RunReport, connect, stage
from redrive.engine.runs import driver as feeding
from redrive.engine.runs.driver import Driver
from redrive.engine.runs.runs import RunOptions, Runs
from redrive.errors import RunError, StoreUnavailableError
from redrive.store.records import INLINE_MAX, RunId
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import T, at_once
from tests.unit.build import beside, bounded, items_of, one_stage, watching_parts, worker_on

pytestmark = pytest.mark.usefixtures("clock")


@stage
def plain(number: object) -> object:
    return number


SHOP = Pipeline("shop", [plain])


def crashed(rd: Redrive, pipeline: Pipeline, items: Callable[[], object], *, after: int) -> int:
    """Start a run and cancel it, as a crash would end it, when so many items have ended; return its id."""

    async def scene() -> None:
        over = asyncio.Event()

        def look(report: RunReport) -> None:
            if report.tally.finished >= after:
                over.set()

        async with connect(rd.store._path) as other:  # type: ignore[attr-defined]
            async with beside(
                other.run(pipeline, items(), on_progress=look, concurrency=2)  # type: ignore[arg-type]
            ):
                await over.wait()

    bounded(scene())
    return rd.runs.latest()[0].id


def endless_after(items: list[object]) -> Callable[[], object]:
    """Return a source that gives some items and then never ends."""

    async def source() -> object:
        for item in items:
            yield item
        await asyncio.Event().wait()

    return source


@pytest.mark.untraced
def test_a_run_that_was_interrupted_goes_on_where_it_was(filed: Redrive) -> None:
    ran: list[object] = []

    def count(number: int) -> int:
        ran.append(number)
        return number

    pipeline = one_stage(count)
    run = crashed(filed, pipeline, endless_after(list(range(20))), after=20)
    assert filed.runs.report(run).status == "running"

    report = filed.run(pipeline, range(50), resume=run)

    assert (report.id, report.status, report.total, report.succeeded) == (run, "completed", 50, 50)
    assert sorted(ran) == list(range(50))  # type: ignore[type-var]


@pytest.mark.untraced
def test_large_items_are_compared_as_well(filed: Redrive) -> None:
    big = "x" * (INLINE_MAX + 1)
    run = crashed(filed, SHOP, endless_after([big, 2]), after=2)

    assert filed.run(SHOP, [big, 2, 3], resume=run).succeeded == 3


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([0, 1, 99, 3, 4], "no longer yields the same item at position 2"),
        ([0, 1], "ended after 2 items, but 5 were submitted before"),
        ([], "ended after 0 items"),
    ],
)
def test_a_source_that_is_not_the_same_is_refused_and_the_right_one_still_works(
    filed: Redrive, items: list[int], why: str
) -> None:
    run = crashed(filed, SHOP, endless_after(list(range(5))), after=5)

    with pytest.raises(RunError, match=why) as refused:
        filed.run(SHOP, items, resume=run)

    assert refused.value.run == run
    assert filed.run(SHOP, range(7), resume=run).succeeded == 7


def test_a_run_belongs_to_its_pipeline(filed: Redrive) -> None:
    run = crashed(filed, SHOP, endless_after([1]), after=1)

    with pytest.raises(RunError, match="belongs to the pipeline shop"):
        filed.run(one_stage(plain.fn, "other", name="plain"), [1], resume=run)


def test_a_run_that_has_ended_is_not_resumed(filed: Redrive) -> None:
    report = filed.run(SHOP, [1])

    with pytest.raises(RunError, match="has ended as completed"):
        filed.run(SHOP, [1], resume=report.id)


def test_a_resumed_run_is_judged_as_it_was_started(filed: Redrive) -> None:
    budget = FailureBudget(max_rate=0.5, check_every=7)

    async def scene() -> int:
        async with connect(filed.store._path) as rd:  # type: ignore[attr-defined]
            seen = asyncio.Event()
            async with beside(
                rd.run(
                    SHOP,
                    endless_after([1])(),  # type: ignore[arg-type]
                    failure_budget=budget,
                    on_progress=lambda report: seen.set() if report.succeeded else None,
                )
            ):
                await seen.wait()
        return filed.runs.latest()[0].id

    run = bounded(scene())
    filed.run(SHOP, [1, 2], resume=run)

    assert filed.runs.options(run).budget == budget


@pytest.mark.untraced
@pytest.mark.parametrize("larger", [0.9, None, FailureBudget(max_rate=0.8, check_every=20)])
def test_a_run_that_stopped_at_its_budget_can_be_resumed_with_a_larger_one(
    filed: Redrive, larger: FailureBudget | float | None
) -> None:
    fragile = one_stage(lambda number: 1 / number, name="divide")
    items = [0, 0, 1] * 30
    budget = FailureBudget(max_rate=0.1, check_every=10, on_exceeded="pause")
    paused = filed.run(fragile, items, failure_budget=budget)
    assert paused.status == "paused"

    again = filed.run(fragile, items, resume=paused.id, failure_budget=larger)

    assert (again.status, again.total, again.dead) == ("failed", 90, 60)
    kept = filed.runs.options(paused.id).budget
    assert kept == (FailureBudget(max_rate=larger) if isinstance(larger, float) else larger)


def test_the_limits_of_a_run_can_be_changed_when_it_is_resumed(filed: Redrive) -> None:
    budget = FailureBudget(max_rate=0.1, check_every=10, on_exceeded="pause")
    fragile = one_stage(lambda number: 1 / number, name="divide")
    items = [0] * 10 + [1] * 10
    paused = filed.run(fragile, items, failure_budget=budget)

    again = filed.run(fragile, items, resume=paused.id, thresholds={"completed": 0.5}, hold_max=5)

    assert again.status == "completed"
    options = filed.runs.options(paused.id)
    assert (options.thresholds.completed, options.hold_max, options.budget) == (0.5, 5.0, budget)


def test_a_budget_is_not_changed_by_a_resume_that_is_refused(filed: Redrive) -> None:
    budget = FailureBudget(max_rate=0.1, check_every=10, on_exceeded="pause")
    fragile = one_stage(lambda number: 1 / number, name="divide")
    paused = filed.run(fragile, [0] * 30, failure_budget=budget)

    with pytest.raises(RunError, match="no longer yields the same item"):
        filed.run(fragile, [7] * 30, resume=paused.id, failure_budget=0.9)

    assert filed.runs.options(paused.id).budget == budget


def test_items_of_a_paused_run_wait_for_somebody_and_say_so(
    filed: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "BATCH", 1)

    def source(*, is_broken: bool) -> Iterator[int]:
        yield from range(3)
        if is_broken:
            raise LookupError("gone")

    slow = one_stage(_always_later, retry=RetryPolicy(2, Backoff.fixed(1_000)))
    with pytest.raises(LookupError):
        filed.run(slow, source(is_broken=True))

    waiting = filed.store.read("SELECT status, waiting FROM jobs")  # type: ignore[attr-defined]
    assert ("queued", "paused") in waiting
    paused = next(each for each in (1, 2, 3) if filed.job(each).facts.waiting == "paused")
    assert filed.job(paused).facts.run_at.year == 9999
    assert filed.work([slow], until_idle=True, hold_max=0) == "held"


@pytest.mark.untraced
@pytest.mark.parametrize("by", ["budget", "source"])
def test_items_that_were_in_a_stage_when_their_run_is_paused_wait_as_well(
    filed: Redrive, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(feeding, "BATCH", 1)
    is_going, is_paused = threading.Event(), threading.Event()
    finished: list[int] = []

    def first(number: int) -> int:
        if number:
            raise PermissionError(13, "denied")
        is_going.set()
        assert is_paused.wait(10)
        return number

    def look(report: RunReport) -> None:
        if report.status == "paused":
            is_paused.set()

    pipeline = Pipeline("shop", [stage(first), stage(name="second")(finished.append)])
    budget = FailureBudget(max_rate=0.1, check_every=5, on_exceeded="pause")

    def source() -> Iterator[int]:
        yield from range(6)
        assert is_going.wait(10)
        raise LookupError("gone")

    if by == "budget":
        filed.run(pipeline, range(6), failure_budget=budget, on_progress=look)
    else:
        with pytest.raises(LookupError):
            filed.run(pipeline, source(), failure_budget=None, on_progress=look)
    (report,) = filed.runs.latest()
    assert report.status == "paused"

    assert filed.work([pipeline], until_idle=True) == "held"
    assert finished == []
    filed.run(pipeline, range(6), resume=report.id)
    assert finished == [0]


def _always_later(_number: int) -> None:
    raise ConnectionResetError(104, "reset")


class Scene:
    """A run driven on one loop, in virtual time, without any threads."""

    def __init__(
        self, store: SqliteStore, clock: VirtualClock, pipeline: Pipeline, **options: object
    ) -> None:
        self.store, self.clock, self.pipeline = store, clock, pipeline
        self.options = RunOptions(**options)  # type: ignore[arg-type]
        self.book = Runs(store)

    def run(
        self, items: object, *, resume: int | None = None, ask: object = at_once, concurrency: int = 4
    ) -> RunReport:
        run = RunId(resume) if resume else self.book.add(self.pipeline.name, self.options, self.clock.wall())
        if resume:
            self.book.reopen(run, self.pipeline.name, self.options)

        async def scene() -> None:
            driver = Driver(
                self.store, self.pipeline, run, self.options, clock=self.clock, concurrency=concurrency
            )
            worker = worker_on(
                self.store,
                self.pipeline,
                parts=watching_parts(),
                concurrency=concurrency,
                on_commit=driver.budget.committed,
            )
            working = asyncio.ensure_future(worker.run())
            try:
                await driver.drive(items, worker, ask)  # type: ignore[arg-type]
            finally:
                worker.stop()
                worker.stop()
                await asyncio.gather(working, return_exceptions=True)

        bounded(scene())
        return self.book.report(run)


def test_a_run_that_is_held_too_long_ends_as_paused_and_can_be_resumed(
    store: SqliteStore, clock: VirtualClock
) -> None:
    is_down = True

    @stage(breaker=Breaker("api", consecutive=1, open_for=60), retry=RetryPolicy(2, Backoff.fixed(1)))
    async def call(number: int) -> int:
        if is_down:
            raise ConnectionRefusedError(111, "refused")
        return number

    pipeline = Pipeline("shop", [call])
    scene = Scene(store, clock, pipeline, hold_max=30.0)
    held = scene.run(items_of(range(5)))
    assert (held.status, held.open, held.dead) == ("paused", 5, 0)
    assert held.reason == "all remaining items have been held for 30 s"

    is_down = False
    clock.advance(120)
    again = scene.run(items_of(range(5)), resume=held.id)
    assert (again.status, again.succeeded) == ("completed", 5)


def test_a_run_that_was_paused_by_its_budget_is_looked_at_again_after_another_interval(
    store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "BATCH", 10)
    monkeypatch.setattr(feeding, "WINDOW_MIN", 10)
    fragile = one_stage(lambda number: 1 / number, name="divide")
    budget = FailureBudget(max_rate=0.5, check_every=10, on_exceeded="pause")
    scene, items = Scene(store, clock, fragile, budget=budget), [0] * 10 + [1] * 30
    first = scene.run(items_of(items), concurrency=1)
    assert (first.status, first.dead) == ("paused", 10)

    again = scene.run(items_of(items), resume=first.id, concurrency=1)
    assert (again.status, again.total, again.succeeded) == ("partial_success", 40, 30)


def test_while_the_store_does_not_answer_a_run_waits_and_loses_nothing(
    store: SqliteStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "BATCH", 4)
    chance = random.Random(7)

    async def ask(question: Callable[[], T]) -> T:
        if chance.random() < 0.3:
            raise StoreUnavailableError(database="x", cause="gone")
        answer = question()
        if chance.random() < 0.3:
            # What was asked for was done, and its answer is lost.
            raise StoreUnavailableError(database="x", cause="gone")
        return answer

    with caplog.at_level(logging.WARNING):
        report = Scene(store, clock, SHOP).run(items_of(range(10)), ask=ask)

    assert (report.status, report.total, report.succeeded) == ("completed", 10, 10)
    assert "waits" in caplog.text


def test_a_slow_async_source_gives_what_it_has(
    store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "BATCH_SECONDS", 0.001)
    order: list[str] = []

    async def scene() -> None:
        may_go = asyncio.Event()

        async def slow() -> object:
            yield 1
            await may_go.wait()
            order.append("second")
            yield 2

        async for batch in feeding._async_batches(slow()):  # type: ignore[arg-type]
            order.append(f"batch {batch}")
            may_go.set()

    bounded(scene())
    assert order == ["batch [1]", "second", "batch [2]"]


def test_a_slow_sync_source_gives_what_it_has(clock: VirtualClock) -> None:
    def slow() -> Iterator[int]:
        for number in range(3):
            clock.advance(1)
            yield number

    async def scene() -> list[object]:
        return [batch async for batch in feeding._batches(slow(), clock)]

    assert bounded(scene()) == [[0], [1], [2]]


def test_full_batches_of_an_async_source_are_given_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "BATCH", 2)

    async def scene() -> list[object]:
        return [batch async for batch in feeding._async_batches(items_of(range(5)))]

    assert bounded(scene()) == [[0, 1], [2, 3], [4]]


def test_a_file_survives_the_connection_that_started_the_run(tmp_path: Path) -> None:
    with connect(tmp_path / "jobs.db") as rd:
        run = crashed(rd, SHOP, endless_after([1, 2]), after=2)
    with connect(tmp_path / "jobs.db") as rd:
        assert rd.run(SHOP, [1, 2, 3], resume=run).succeeded == 3
