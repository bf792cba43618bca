# SPDX-License-Identifier: Apache-2.0
"""Hooks: told after the commit, at least once, in order, and without any say in the outcome."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from urllib.error import HTTPError

import pytest

from redrive import (
    Backoff,
    Breaker,
    Category,
    CodeSet,
    Context,
    Event,
    OwnCode,
    Pipeline,
    Redrive,
    RetryPolicy,
    connect,
    stage,
)
from redrive.engine.delivery import outbox as module
from redrive.engine.delivery.outbox import BATCH, HIDDEN_SECONDS, Delivery
from redrive.engine.pipeline.lanes import lanes_of
from redrive.errors import ConfigurationError, StoreUnavailableError
from redrive.store.records import Call
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.embedded import change_rows
from tests.inline import T, at_once
from tests.unit.build import (
    STEADY,
    attempts,
    beside,
    bounded,
    jobs,
    leases_of,
    reached,
    rows,
    threaded_parts,
    until,
    work,
    worker_on,
)


def failing(**options: object) -> Pipeline:
    """Build a pipeline whose jobs fail twice for a reason that passes, and then for one that does not."""

    def call(number: int, ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionResetError(104, "reset")
        raise PermissionError(13, f"denied for token=abcdef0123456789 {number}")

    return Pipeline("shop", [stage(retry=STEADY)(call)], **options)  # type: ignore[arg-type]


def hooks_of(store: SqliteStore, clock: VirtualClock, pipeline: Pipeline) -> Delivery:
    return Delivery(store, lanes_of(store, [pipeline]), clock, ask_store=at_once, call=at_once)


def deliver(store: SqliteStore, clock: VirtualClock, pipeline: Pipeline) -> int:
    async def scene() -> int:
        return await hooks_of(store, clock, pipeline).deliver()

    return bounded(scene())


def test_hooks_hear_of_every_failed_attempt_in_order_redacted(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[Event] = []
    pipeline = failing(on_retry=heard.append, on_dead=heard.append)
    start = clock.wall()
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert heard == []
    assert deliver(store, clock, pipeline) == 3
    assert [(event.kind, event.attempt, event.code) for event in heard] == [
        ("retry", 1, "NETWORK_RESET"),
        ("retry", 2, "NETWORK_RESET"),
        ("dead", 3, "IO_DENIED"),
    ]
    assert (heard[0].job_id, heard[0].pipeline, heard[0].stage, heard[0].round) == (1, "shop", "call", 1)
    assert heard[0].at == datetime.fromtimestamp(start, UTC)
    assert heard[2].reason == "permanent"
    assert heard[2].message == "[Errno 13] denied for token=<redacted:secret> 1"
    assert deliver(store, clock, pipeline) == 0


def test_an_event_tells_what_failed_and_for_whom(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[Event] = []

    @stage(retry=STEADY)
    def call(_number: int, ctx: Context) -> None:
        ctx.note("request", f"r-{ctx.attempt}")
        raise HTTPError("http://shop.example", 503 if ctx.attempt == 1 else 403, "no", Message(), None)

    pipeline = Pipeline("shop", [call], on_retry=heard.append, on_dead=heard.append)
    rd.submit(pipeline, 1, key="a@b.example")
    work(store, pipeline)
    deliver(store, clock, pipeline)

    retry, dead = heard
    assert (retry.http_status, retry.category, retry.key) == (503, "network", "a@b.example")
    assert (dict(retry.notes), retry.exception, retry.stack) == (
        {"request": "r-1"},
        "urllib.error.HTTPError",
        "",
    )
    assert (dead.http_status, dead.category, dead.key) == (403, "auth", "a@b.example")
    assert (dict(dead.notes), dead.exception) == ({"request": "r-2"}, "urllib.error.HTTPError")
    assert "in call" in dead.stack
    assert len({retry, dead}) == 2


@pytest.mark.parametrize(
    ("name", "category", "told"),
    [("DOWN", Category.IO, "io"), ("DOWN", None, None), ("NETWORK_RESET", Category.IO, "io")],
    ids=["said", "left open", "said of a built-in name"],
)
def test_the_category_of_an_own_code_is_told_where_its_entry_says_it(
    store: SqliteStore,
    rd: Redrive,
    clock: VirtualClock,
    name: str,
    category: Category | None,
    told: str | None,
) -> None:
    heard: list[Event] = []
    codes = CodeSet("shop", [OwnCode(name, ["NETWORK_RESET"], category=category)], otherwise=OwnCode("REST"))
    pipeline = failing(on_retry=heard.append, on_dead=heard.append, codes=codes)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    deliver(store, clock, pipeline)

    assert [(event.code, event.category) for event in heard] == [
        (name, told),
        (name, told),
        ("REST", "io"),
    ]


def test_what_is_left_of_a_letter_that_was_pruned_or_cannot_be_read_is_told(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[Event] = []
    pipeline = failing(on_dead=heard.append)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    change_rows(store, "DELETE FROM dead_letters")
    change_rows(store, "UPDATE attempts SET notes = 'no JSON'")
    deliver(store, clock, pipeline)

    (event,) = heard
    assert (event.code, event.category, event.exception) == ("IO_DENIED", "io", "PermissionError")
    assert (event.stack, dict(event.notes)) == ("", {})


def test_only_what_somebody_wants_to_hear_is_written_down(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = failing(on_dead=lambda _event: None)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert rows(store, "dispatch", "outbox") == [(3,)]


def test_a_hold_is_told_as_a_hold(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    heard: list[Event] = []
    back_at = clock.wall() + 100

    @stage(breaker=Breaker("api", consecutive=1, open_for=60), retry=STEADY)
    def call(number: int) -> int:
        if clock.wall() < back_at:
            raise ConnectionRefusedError(111, "refused")
        return number

    pipeline = Pipeline("shop", [call], on_hold=heard.append)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    deliver(store, clock, pipeline)

    assert [event.kind for event in heard] == ["hold", "hold"]
    assert "api" in heard[0].sentence
    assert heard[0].exception == "ConnectionRefusedError"
    assert (heard[0].due_at - heard[0].at).total_seconds() == 60


def test_the_next_attempt_is_due_when_the_event_says_and_a_dead_letter_is_due_at_its_end(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[Event] = []

    def call(_number: int) -> None:
        clock.advance(50)
        raise TypeError("bug")

    pipeline = Pipeline("shop", [stage(call)], on_dead=heard.append)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    deliver(store, clock, pipeline)

    assert heard[0].due_at == heard[0].at


def test_an_event_that_is_delivered_late_still_has_the_delay_that_was_decided(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """All three attempts are over before the first is reported, and the job has long another time."""
    heard: list[Event] = []
    pipeline = failing(on_retry=heard.append)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    deliver(store, clock, pipeline)

    delays = [STEADY.backoff.nominal(event.attempt) for event in heard]
    assert [(event.due_at - event.at).total_seconds() for event in heard] == delays
    assert len(delays) == 2


def test_an_event_has_the_time_at_which_its_attempt_ended_and_not_that_of_its_notice(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[Event] = []
    pipeline = failing(on_dead=heard.append)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    change_rows(store, "UPDATE outbox SET at = at + 60")
    deliver(store, clock, pipeline)

    ((ended_at,),) = rows(store, "max(ended_at)", "attempts")
    assert [event.at for event in heard] == [datetime.fromtimestamp(ended_at, UTC)]  # type: ignore[arg-type]


def test_an_event_of_an_old_decision_has_the_time_of_its_job(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[Event] = []
    pipeline = failing(on_retry=heard.append)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    change_rows(store, "UPDATE attempts SET decision = NULL")
    deliver(store, clock, pipeline)

    ((run_at,),) = rows(store, "run_at", "jobs")
    assert [event.due_at for event in heard] == [datetime.fromtimestamp(run_at, UTC)] * 2  # type: ignore[arg-type]


def test_a_hook_that_raises_changes_nothing_and_is_told_again_later(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def hook(event: Event) -> None:
        heard.append(event.kind)
        if len(heard) < 3:
            raise RuntimeError("the pager is down, password=hunter2hunter2")

    pipeline = failing(on_dead=hook)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert deliver(store, clock, pipeline) == 1
    assert deliver(store, clock, pipeline) == 0
    for _ in range(3):
        clock.advance(HIDDEN_SECONDS + 1)
        deliver(store, clock, pipeline)

    assert heard == ["dead"] * 3
    assert jobs(store) == [("failed",)]
    assert rows(store, "id", "outbox") == []
    assert "hook on_dead of job 1 raised" in caplog.text
    assert "hunter2" not in caplog.text


def test_what_one_worker_tells_is_hidden_from_the_others(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[str] = []

    def hook(_event: Event) -> None:
        heard.append("first")
        assert deliver_nested() == 0

    def deliver_nested() -> int:
        counted: list[int] = []
        thread = threading.Thread(target=lambda: counted.append(deliver(store, clock, pipeline)))
        thread.start()
        thread.join()
        return counted[0]

    pipeline = failing(on_dead=hook)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    deliver(store, clock, pipeline)

    assert heard == ["first"]


def test_a_notice_that_somebody_else_took_first_is_left_to_them(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Event] = []
    pipeline = failing(on_dead=heard.append)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    query = store.query

    def stale(call: Call[object]) -> object:
        found = query(call)
        change_rows(store, "UPDATE outbox SET tries = tries + 1")
        return found

    monkeypatch.setattr(store, "query", stale)
    assert deliver(store, clock, pipeline) == 0
    assert heard == []


def test_more_than_a_batch_is_told_in_the_order_in_which_it_happened(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[int] = []
    pipeline = Pipeline(
        "shop",
        [stage(name="fail")(lambda number: 1 / number)],  # type: ignore[misc]  # a lambda has no types to infer
        on_dead=lambda event: heard.append(event.job_id),
    )
    rd.submit_many(pipeline, [0] * (BATCH + 50))
    work(store, pipeline, concurrency=1)

    async def scene() -> None:
        await hooks_of(store, clock, pipeline).flush()

    bounded(scene())
    assert heard == list(range(1, BATCH + 51))


@pytest.mark.parametrize("why", ["cancelled", "removed"])
def test_a_notice_for_which_there_is_no_hook_any_more_is_dropped(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    pipeline = failing(on_retry=lambda _event: None)
    rd.submit(pipeline, 1)
    if why == "removed":
        work(store, pipeline)
        pipeline = failing(on_dead=lambda _event: None)
    else:
        pipeline = _cancelled_while_it_fails(store, rd, clock)
    for _ in range(3):
        deliver(store, clock, pipeline)
        clock.advance(HIDDEN_SECONDS + 1)

    assert rows(store, "id", "outbox") == []
    assert "raised" not in caplog.text


def _cancelled_while_it_fails(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> Pipeline:
    pipelines: list[Pipeline] = []

    async def scene() -> None:
        loop = asyncio.get_running_loop()

        def call(_number: int, ctx: Context) -> None:
            rd.jobs.cancel(ctx.job_id)
            leases.beat(worker.name)
            reached(loop)
            raise ConnectionResetError(104, "reset")

        pipelines.append(Pipeline("shop", [stage(call)], on_retry=lambda _event: None))
        worker = worker_on(store, *pipelines, parts=threaded_parts())
        leases = leases_of(store, clock, worker)
        await worker.run(until_idle=True)

    bounded(scene())
    assert jobs(store) == [("cancelled",)]
    return pipelines[0]


def test_hooks_are_told_while_the_worker_runs_and_the_rest_before_it_ends(tmp_path: Path) -> None:
    heard: list[str] = []
    told = threading.Event()

    def hook(event: Event) -> None:
        heard.append(event.kind)
        told.set()

    @stage(retry=RetryPolicy(2, Backoff.fixed(0.01)))
    def call(_number: int, ctx: Context) -> None:
        if ctx.attempt == 2:
            assert told.wait(10)
        raise ConnectionResetError(104, "reset")

    pipeline = Pipeline("shop", [call], on_retry=hook, on_dead=hook)
    with connect(tmp_path / "jobs.db") as rd:
        rd.submit(pipeline, 1)
        rd.work([pipeline], until_idle=True)

    assert heard == ["retry", "dead"]


def test_hooks_wait_for_a_store_that_does_not_answer(
    store: SqliteStore,
    rd: Redrive,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[Event] = []
    pipeline = failing(on_dead=heard.append)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    outages = [StoreUnavailableError(database="x", cause="gone")]

    async def ask(question: Callable[[], T]) -> T:
        if outages:
            raise outages.pop()
        return question()

    async def scene() -> None:
        hooks = Delivery(store, lanes_of(store, [pipeline]), clock, ask_store=ask, call=at_once)
        async with beside(hooks.run()):
            await until(lambda: heard)

    with caplog.at_level(logging.WARNING):
        bounded(scene())
    assert "delivery of notices: store unavailable" in caplog.text


def test_a_notice_of_a_job_that_is_due_beyond_the_calendar_is_told(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[Event] = []
    pipeline = failing(on_retry=heard.append)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    change_rows(store, "UPDATE jobs SET run_at = run_at + 1e12")

    deliver(store, clock, pipeline)
    assert [event.attempt for event in heard] == [1, 2]
    assert attempts(store)[-1] == ("dead",)


def test_an_async_hook_is_told_or_refused_but_never_silently_left_out(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[Event] = []

    async def hook(event: Event) -> None:
        heard.append(event)

    try:
        pipeline = failing(on_dead=hook)
    except ConfigurationError:
        return
    rd.submit(pipeline, 1)
    work(store, pipeline)
    deliver(store, clock, pipeline)

    assert [event.kind for event in heard] == ["dead"]
