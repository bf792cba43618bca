# SPDX-License-Identifier: Apache-2.0
"""A worker on the in-memory store and virtual time: the walk of a job through its stages, and every way it can end."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from redrive import Backoff, Cancel, Fail, Redrive, Retry, RetryPolicy, Snooze, connect
from redrive.engine.pipeline.context import Context
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.stage import Stage, stage
from redrive.store.records import ClaimRequest, ExchangeRequest, NewJob
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import transfer as transfer_sql
from redrive.testing import VirtualClock
from redrive.testing.conformance.build import settlement
from tests.unit.build import STEADY, attempts, bounded, jobs, one_stage, work, worker_on


def submit(store: SqliteStore, pipeline: Pipeline, *payloads: object) -> None:
    lane = store.lanes(pipeline.name, [each.name for each in pipeline.stages])[0]
    store.submit([NewJob(lane=lane, payload=json.dumps(each).encode(), run_at=0.0) for each in payloads], 0.0)


@dataclass
class Order:
    number: int
    note: str = ""


def test_a_job_goes_through_all_stages_sync_and_async_typed_between_them(
    store: SqliteStore, clock: VirtualClock
) -> None:
    @stage
    def fetch(number: int) -> Order:
        return Order(number)

    @stage
    async def price(order: Order, ctx: Context) -> dict[str, object]:
        await asyncio.sleep(0)
        return {"number": order.number, "key": ctx.idempotency_key, "attempt": ctx.attempt}

    pipeline = Pipeline("shop", [fetch, price])
    submit(store, pipeline, 7)
    work(store, pipeline)

    ((status, result),) = jobs(store, "status, result")
    assert status == "complete"
    key = f"shop:{store.query(transfer_sql.installation())[0]}-1:price"
    assert json.loads(result) == {"number": 7, "key": key, "attempt": 1}  # type: ignore[arg-type]
    assert store.read("SELECT outcome, attempt, dispatch FROM attempts") == [("ok", 1, 1), ("ok", 1, 2)]
    assert fetch(3) == Order(3)


@pytest.mark.req("CR-3.2")
def test_each_stage_has_a_budget_of_its_own_and_every_attempt_is_a_row(
    store: SqliteStore, clock: VirtualClock
) -> None:
    failures = {"fetch": 2, "notify": 2}

    def flaky(name: str) -> Stage[..., object]:
        def run(value: int) -> int:
            if failures[name]:
                failures[name] -= 1
                raise ConnectionResetError(104, "reset")
            return value

        return stage(retry=STEADY, name=name)(run)

    pipeline = Pipeline("shop", [flaky("fetch"), flaky("notify")])
    submit(store, pipeline, 1)
    work(store, pipeline)

    assert jobs(store) == [("complete",)]
    rows = store.read(
        "SELECT stage, attempt, outcome, code FROM attempts JOIN lanes ON lanes.id = lane_id ORDER BY dispatch"
    )
    assert rows == [
        *((name, attempt, "retry", "NETWORK_RESET") for name, attempt in (("fetch", 1), ("fetch", 2))),
        ("fetch", 3, "ok", None),
        *((name, attempt, "retry", "NETWORK_RESET") for name, attempt in (("notify", 1), ("notify", 2))),
        ("notify", 3, "ok", None),
    ]
    assert sum(clock.waits) == pytest.approx(1 + 2 + 1 + 2)


@pytest.mark.req("CR-3.3", "CR-4.1")
def test_an_exhausted_stage_leaves_a_dead_letter_and_keeps_the_work_of_the_stages_before(
    store: SqliteStore, clock: VirtualClock
) -> None:
    ran: list[str] = []

    @stage
    def fetch(number: int) -> int:
        ran.append("fetch")
        return number * 10

    @stage(retry=STEADY)
    def review(number: int) -> int:
        ran.append("review")
        raise ConnectionRefusedError(111, "refused")

    pipeline = Pipeline("shop", [fetch, review])
    submit(store, pipeline, 4)
    work(store, pipeline)

    assert ran == ["fetch", "review", "review", "review"]
    assert jobs(store, "status, error_code, input") == [("failed", "NETWORK_REFUSED", b"40")]
    ((stage_name, code, stack, first, last, reason),) = store.read(
        "SELECT stage, code, stack, first_failure_at, last_failure_at, reason FROM letters JOIN lanes ON lanes.id = lane_id"
    )
    assert (stage_name, code, reason) == ("review", "NETWORK_REFUSED", "exhausted")
    assert "ConnectionRefusedError" in str(stack)
    assert last - first == pytest.approx(3)  # type: ignore[operator]


@pytest.mark.req("CR-4.2", "CR-4.3")
def test_a_dead_letter_has_what_an_operator_needs_and_nothing_secret(
    store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = "zq7-plain-words-of-a-customer"
    monkeypatch.setenv("SHOP_API_TOKEN", "env-secret-value-123")

    def review(order: dict[str, str]) -> None:
        try:
            raise PermissionError(13, f"denied for {order['note']} with env-secret-value-123")
        except PermissionError as exc:
            raise RuntimeError(f"https://u:pw12345@api.test/?q={order['note']}") from exc

    pipeline = one_stage(review)
    submit(store, pipeline, {"note": planted, "mail": "ann@example.org"})
    work(store, pipeline)

    for table in ("jobs", "attempts", "dead_letters", "letter_facts"):
        columns = [
            row[1]
            for row in store.read(f"PRAGMA table_info({table})")
            if row[1] not in {"payload", "input", "result"}
        ]
        everything = str(store.read(f"SELECT {', '.join(map(str, columns))} FROM {table}"))
        for secret in (planted, "env-secret-value-123", "pw12345"):
            assert secret not in everything, table
    ((context,),) = store.read("SELECT context FROM letters")
    known = json.loads(context)  # type: ignore[arg-type]
    assert (known["stage"], known["attempt"]) == ("review", 1)
    assert len(known["input_sha256"]) == 16


def test_what_cannot_heal_is_not_tried_again(store: SqliteStore, clock: VirtualClock) -> None:
    def bug(_value: int) -> None:
        raise TypeError("oops")

    pipeline = one_stage(bug, retry=STEADY)
    submit(store, pipeline, 1)
    work(store, pipeline)

    assert store.read("SELECT count(*), decision ->> '$.reason' FROM attempts") == [(1, "permanent")]


@pytest.mark.req("FG-1.1")
def test_one_bad_job_never_stops_the_others(store: SqliteStore, clock: VirtualClock) -> None:
    def half(number: int) -> float:
        return 10 / number

    pipeline = one_stage(half)
    submit(store, pipeline, *range(10))
    work(store, pipeline)

    assert sorted(jobs(store)) == [("complete",)] * 9 + [("failed",)]


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("signal", "status", "outcomes"),
    [
        (Retry(5), "complete", [("retry", 1), ("ok", 2)]),
        (Snooze(7), "complete", [("hold", 1), ("ok", 1)]),
        (Cancel("enough"), "cancelled", [("cancelled", 1)]),
        (Fail("NOT_FOUND"), "failed", [("dead", 1)]),
    ],
    ids=["retry", "snooze", "cancel", "fail"],
)
@pytest.mark.parametrize("is_returned", [True, False])
def test_a_stage_may_raise_or_return_a_signal(
    store: SqliteStore,
    clock: VirtualClock,
    signal: Exception,
    status: str,
    outcomes: list[object],
    is_returned: bool,
) -> None:
    wishes = [signal]

    def wish(value: int) -> object:
        if not wishes:
            return value
        wish = wishes.pop()
        if is_returned:
            return wish
        raise wish

    pipeline = one_stage(wish)
    submit(store, pipeline, 1)
    work(store, pipeline)

    assert jobs(store) == [(status,)]
    assert store.read("SELECT outcome, attempt FROM attempts ORDER BY dispatch") == outcomes


def test_only_snoozes_count_as_snoozes(store: SqliteStore, clock: VirtualClock) -> None:
    wishes = [Snooze(7), ConnectionResetError(104, "reset"), Snooze(7)]

    def wish(value: int) -> int:
        if wishes:
            raise wishes.pop(0)
        return value

    pipeline = one_stage(wish, retry=RetryPolicy(3, snooze_max=2))
    submit(store, pipeline, 1)
    work(store, pipeline)

    outcomes = store.read("SELECT outcome, attempt FROM attempts ORDER BY dispatch")
    assert outcomes == [("hold", 1), ("retry", 1), ("hold", 2), ("ok", 2)]


def test_a_stage_that_snoozes_more_often_than_it_may_is_given_up(
    store: SqliteStore, clock: VirtualClock
) -> None:
    def wish(_value: int) -> int:
        raise Snooze(7)

    pipeline = one_stage(wish, retry=RetryPolicy(3, snooze_max=2))
    submit(store, pipeline, 1)
    work(store, pipeline)

    ended = store.read("SELECT outcome, decision ->> '$.reason' FROM attempts ORDER BY dispatch")
    assert ended == [("hold", "asked"), ("hold", "asked"), ("dead", "snoozes_exhausted")]


def test_an_input_that_does_not_fit_and_an_output_that_cannot_be_encoded_are_failures_of_the_attempt(
    store: SqliteStore, clock: VirtualClock
) -> None:
    def typed(order: Order) -> object:
        return object() if order.number else None

    pipeline = one_stage(typed)
    submit(store, pipeline, {"number": "seven"}, {"number": 1})
    work(store, pipeline)

    messages = [str(row[1]) for row in store.read("SELECT error_code, error_message FROM jobs ORDER BY id")]
    assert "$.number" in messages[0]
    assert "typed (output)" in messages[1]


def test_an_attempt_that_takes_too_long_is_cancelled(store: SqliteStore, clock: VirtualClock) -> None:
    async def slow(_value: int) -> None:
        await asyncio.Event().wait()

    pipeline = one_stage(slow, timeout=0.01, retry=RetryPolicy(1))
    submit(store, pipeline, 1)
    work(store, pipeline)

    assert jobs(store, "error_code") == [("TIMEOUT",)]


def test_the_functions_own_timeout_is_its_own(store: SqliteStore, clock: VirtualClock) -> None:
    async def slow(_value: int) -> None:
        raise TimeoutError("timed out")

    pipeline = one_stage(slow, timeout=60, retry=RetryPolicy(1))
    submit(store, pipeline, 1)
    work(store, pipeline)

    assert jobs(store, "error_code") == [("NETWORK_TIMEOUT",)]


def test_no_more_runs_at_once_than_allowed_and_later_stages_go_first(
    store: SqliteStore, clock: VirtualClock
) -> None:
    running = most = 0
    order: list[str] = []

    async def crowd(number: int, ctx: Context) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        order.append(ctx.stage)
        return number

    pipeline = Pipeline("shop", [stage(name="first")(crowd), stage(name="second")(crowd)])
    submit(store, pipeline, *range(20))
    work(store, pipeline, concurrency=4)

    assert most == 4
    assert order.index("second") < 10
    assert jobs(store) == [("complete",)] * 20


def test_a_stopped_worker_settles_what_runs_and_claims_nothing_more(
    store: SqliteStore, clock: VirtualClock
) -> None:
    async def scene() -> None:
        async def halting(number: int) -> int:
            worker.stop()
            await asyncio.sleep(0)
            return number

        pipeline = one_stage(halting)
        submit(store, pipeline, 1, 2)
        worker = worker_on(store, pipeline, concurrency=1)
        await worker.run()

    asyncio.run(scene())
    assert jobs(store) == [("complete",), ("queued",)]


def test_a_cancelled_worker_gives_back_what_it_holds(store: SqliteStore, clock: VirtualClock) -> None:
    async def scene() -> None:
        started = asyncio.Event()

        async def endless(_number: int) -> None:
            started.set()
            await asyncio.Event().wait()

        pipeline = one_stage(endless)
        submit(store, pipeline, 1)
        task = asyncio.ensure_future(worker_on(store, pipeline).run())
        await started.wait()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(scene())
    assert jobs(store, "status, attempt") == [("queued", 1)]
    assert store.read("SELECT count(*) FROM workers") == [(0,)]


def test_a_worker_declared_dead_drops_its_runs_and_continues_under_a_new_name(
    store: SqliteStore, clock: VirtualClock
) -> None:
    runs: list[str] = []

    async def scene() -> None:
        async def work_once(number: int) -> int:
            runs.append(worker.name)
            if len(runs) == 1:
                store.reap(clock.wall() + 1_000)
                worker.declare_dead(worker.name)
                await asyncio.Event().wait()
            return number

        pipeline = one_stage(work_once)
        submit(store, pipeline, 1)
        worker = worker_on(store, pipeline)
        await worker.run(until_idle=True)

    asyncio.run(scene())
    assert runs == ["w1", "w2"]
    assert jobs(store, "status, attempt, dispatch") == [("complete", 1, 2)]
    assert store.read("SELECT outcome FROM attempts ORDER BY dispatch") == [("crashed",), ("ok",)]


def test_on_real_threads_as_many_sync_stages_block_at_once_as_allowed_and_outcomes_are_still_committed(
    tmp_path: Path,
) -> None:
    together = threading.Barrier(20, timeout=30)

    def meet(number: int) -> int:
        together.wait()
        return number

    pipeline = one_stage(meet)
    with connect(tmp_path / "jobs.db") as rd:
        rd.submit_many(pipeline, range(40))
        rd.work([pipeline], until_idle=True, concurrency=20)

        assert rd.jobs.counts() == {"complete": 40}


def test_what_is_not_committed_yet_counts_as_leased(store: SqliteStore, clock: VirtualClock) -> None:
    async def scene() -> list[int]:
        worker = worker_on(store, one_stage(lambda number: number), leased_max=lambda: 3)
        before = worker._leasable()
        submit(store, one_stage(lambda number: number), 1)
        (job,) = store.exchange(
            ExchangeRequest("w0", [], ClaimRequest(tuple(worker.lanes), 1), now=0.0, token=1)
        ).claimed
        worker._add_settlement(settlement(job))
        return [before, worker._leasable()]

    store.start_worker("w0", 0.0, 1e9)
    assert bounded(scene()) == [3, 2]


@pytest.mark.usefixtures("clock")
def test_an_async_stage_may_return_a_signal(store: SqliteStore, rd: Redrive) -> None:
    async def wish(number: int, ctx: Context) -> object:
        return Retry(5) if ctx.attempt == 1 else number

    pipeline = one_stage(wish)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert attempts(store) == [("retry",), ("ok",)]


@pytest.mark.usefixtures("clock")
def test_a_job_records_every_arrow_it_went_along(store: SqliteStore, rd: Redrive) -> None:
    def flaky(number: int, ctx: Context) -> int:
        if ctx.attempt == 1 and ctx.stage == "one":
            raise ConnectionResetError(104, "reset")
        return number

    steady = RetryPolicy(2, Backoff.fixed(1))
    pipeline = Pipeline("shop", [stage(name=name, retry=steady)(flaky) for name in ("one", "two")])
    job = rd.submit(pipeline, 1)
    work(store, pipeline)

    events = [str(event.event) for event in job.events()]
    assert events[0] == "queued"
    assert [word for word in events if word in {"retry", "checkpoint", "complete"}] == [
        "retry",
        "checkpoint",
        "complete",
    ]
