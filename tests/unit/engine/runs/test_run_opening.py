# SPDX-License-Identifier: Apache-2.0
"""A run that is opened with its items: all of them or none, once per key, with results in item order."""

from __future__ import annotations

import asyncio

import pytest

from redrive import ConfigurationError, Context, Fail, Pipeline, Redrive, Skip, connect, stage
from redrive.client.runs import Item
from redrive.core.budget import FailureRule, RunThresholds
from redrive.engine.runs.items import ITEMS_MAX
from redrive.errors import RunError, SerializationError
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import jobs, rows, until, work, worker_on, working


@stage
def double(number: int) -> int:
    if number == 13:
        raise Fail("UNLUCKY", "thirteen")
    if number == 0:
        raise Skip("nothing to double")
    return number * 2


@stage
def echo(text: str) -> str:
    return text


SHOP = Pipeline("shop", [double])
TEXTS = Pipeline("texts", [echo])


def test_a_run_is_opened_with_all_its_items(store: SqliteStore, rd: Redrive) -> None:
    report = rd.runs.open(SHOP, [1, 2, 3], key="batch-1", label="morning", owner="ann")

    assert (report.total, report.open, report.status, report.is_duplicate) == (3, 3, "running", False)
    assert (report.key, report.label, report.owner) == ("batch-1", "morning", "ann")
    assert rd.runs.is_fed(report.id)
    assert jobs(store, "run_id, ordinal, owner, priority, CAST(payload AS TEXT)") == [
        (1, place, "ann", 5, str(place + 1)) for place in range(3)
    ]


def test_the_same_key_is_the_same_run_while_it_exists(store: SqliteStore, rd: Redrive) -> None:
    first = rd.runs.open(SHOP, [1], key="batch-1")
    work(store, SHOP)
    again = rd.runs.open(SHOP, [1, 2, 3], key="batch-1")
    other = rd.runs.open(TEXTS, ["a"], key="batch-1")

    assert (again.id, again.is_duplicate, again.total, again.succeeded) == (first.id, True, 1, 1)
    assert (other.id != first.id, other.is_duplicate) == (True, False)
    assert len(jobs(store)) == 2


def test_items_may_have_keys_owners_and_priorities(store: SqliteStore, rd: Redrive) -> None:
    rd.runs.open(SHOP, [Item(payload=1, key="a", owner="bob", priority=0), 2], owner="ann")

    assert jobs(store, "key, owner, priority") == [("a", "bob", 0), (None, "ann", 5)]


def test_large_payloads_and_any_text_survive(store: SqliteStore, rd: Redrive) -> None:
    texts = ["x" * 10_000, 'a "quoted" \\ text\n', "naïve \u0000 ☃", ""]
    run = rd.runs.open(TEXTS, texts).id
    work(store, TEXTS)

    assert [one.value for one in rd.runs.results(run)] == texts
    assert rows(store, "count(*)", "job_values WHERE dispatch = 0") == [(1,)]


@pytest.mark.parametrize(
    ("payloads", "problem"),
    [
        ([1, "two"], "item 1, counting from 0"),
        ([1, object()], "item 1, counting from 0"),
    ],
)
def test_one_item_that_does_not_fit_refuses_them_all(
    store: SqliteStore, rd: Redrive, payloads: list[object], problem: str
) -> None:
    with pytest.raises(SerializationError, match=problem) as refused:
        rd.runs.open(SHOP, payloads)

    assert refused.value.index == 1
    assert jobs(store) == []
    assert rows(store, "id", "runs") == []


def test_an_item_whose_key_is_taken_refuses_them_all_and_is_named(store: SqliteStore, rd: Redrive) -> None:
    taken = rd.submit(SHOP, 1, key="a")

    with pytest.raises(ConfigurationError, match=f"key of item 1.*job {taken.id} has it"):
        rd.runs.open(SHOP, [2, Item(payload=1, key="a")])
    with pytest.raises(ConfigurationError, match="another item has it"):
        rd.runs.open(SHOP, [Item(payload=1, key="b"), Item(payload=1, key="b")])

    assert len(jobs(store)) == 1
    assert rows(store, "id", "runs") == []


@pytest.mark.parametrize(
    "options",
    [
        {"key": ""},
        {"key": 7},
        {"owner": "x" * 501},
        {"label": ""},
        {"label": "two\nlines"},
        {"label": 7},
        {"rule": {"best": 1}},
        {"rule": "strict"},
    ],
)
def test_wrong_options_are_refused_and_nothing_is_stored(
    store: SqliteStore, rd: Redrive, options: dict[str, object]
) -> None:
    with pytest.raises(ConfigurationError):
        rd.runs.open(SHOP, [1], **options)  # type: ignore[arg-type]

    assert rows(store, "id", "runs") == []


def test_too_many_items_are_refused_with_what_to_use_instead(store: SqliteStore, rd: Redrive) -> None:
    with pytest.raises(ConfigurationError, match=r"rd\.run"):
        rd.runs.open(SHOP, [1] * (ITEMS_MAX + 1))

    assert jobs(store) == []


def test_the_rule_is_kept_with_the_run(rd: Redrive) -> None:
    strict, rates = (
        rd.runs.open(SHOP, [], rule=FailureRule()),
        rd.runs.open(SHOP, [], rule={"completed": 0.8}),
    )

    assert rd.runs.options(strict.id).rule == FailureRule()
    assert rd.runs.options(rates.id).thresholds == RunThresholds(completed=0.8)


def test_results_come_in_item_order_up_to_the_first_that_is_open(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    run = rd.runs.open(SHOP, [1, 0, 13, 4, 5]).id
    store._db.execute("UPDATE jobs SET run_at = run_at + 60 WHERE id = 4")

    async def scene() -> None:
        async with working(worker_on(store, SHOP)):
            await until(lambda: jobs(store)[4] == ("complete",))

    asyncio.run(scene())
    first = [(one.item, one.status, one.value) for one in rd.runs.results(run, pipeline=SHOP)]
    clock.advance(61)
    work(store, SHOP)
    rest = [(one.item, one.job, one.value) for one in rd.runs.results(run, wait=True)]

    assert first == [(0, "complete", 2), (1, "skipped", None), (2, "failed", None)]
    assert rest[3:] == [(3, 4, 8), (4, 5, 10)]
    assert [one.item for one in rd.runs.results(run, first=3)] == [3, 4]
    assert list(rd.runs.results(run, first=5)) == []


def test_results_of_more_than_a_page_and_of_jobs_that_joined_are_complete(
    store: SqliteStore, rd: Redrive
) -> None:
    @stage
    def split(number: int, ctx: Context) -> int:
        if number == 1:
            ctx.submit(SHOP, 100, join_run=True)
        return number

    tree = Pipeline("tree", [split])
    run = rd.runs.open(tree, range(1, 452)).id
    work(store, tree, SHOP)

    found = list(rd.runs.results(run, wait=True))
    assert [one.value for one in found] == [*range(1, 452), 200]
    assert found[-1].item == 1 << 40


def test_waiting_for_results_ends_when_the_run_does_or_is_paused(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    run = rd.runs.open(SHOP, [1, 2]).id
    waits: list[float] = []
    plain = clock.sleep

    def sleep(seconds: float) -> None:
        plain(seconds)
        waits.append(seconds)
        if len(waits) == 3:
            rd.runs.pause(run)

    clock.sleep = sleep  # type: ignore[method-assign]

    assert list(rd.runs.results(run, wait=True)) == []
    assert len(waits) == 3


def test_results_of_no_run_are_refused(rd: Redrive) -> None:
    with pytest.raises(RunError, match="no such run"):
        list(rd.runs.results(99))
    with pytest.raises(ConfigurationError, match="results"):
        rd.runs.results(99, pipeline="shop")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="first"):
        rd.runs.results(99, first=-1)


def test_async_code_has_the_same_methods(tmp_path: object) -> None:
    async def scene() -> None:
        async with connect(f"{tmp_path}/jobs.db") as rd:
            report = await rd.runs.open(SHOP, [1, 2], key="k")
            again = await rd.runs.open(SHOP, [1, 2], key="k")
            await rd.work([SHOP], until_idle=True)
            assert [one.value async for one in rd.runs.results(report.id, wait=True)] == [2, 4]
            assert (again.is_duplicate, (await rd.runs.report(report.id)).status) == (True, "completed")
            labelled = await rd.runs.label(report.id, "evening")
            assert labelled.label == "evening"

    asyncio.run(scene())
