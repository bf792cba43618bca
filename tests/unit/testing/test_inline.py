# SPDX-License-Identifier: Apache-2.0
"""`run_inline`: everything a worker and a store would have made of one job, without either."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from redrive import (
    Backoff,
    Breaker,
    Cancel,
    Context,
    Event,
    Fail,
    Jitter,
    Pipeline,
    Retry,
    RetryPolicy,
    Snooze,
    guard,
    stage,
)
from redrive.core.decision_text import reason_and_sentence
from redrive.engine.worker.worker import Worker
from redrive.errors import AttemptTimeoutError, ConfigurationError, SerializationError
from redrive.store.records import NewJob
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import jobs as job_sql
from redrive.testing import Faults, InlineResult, arun_inline, run_inline, virtual_time
from tests.inline import inline_parts

STEADY = RetryPolicy(3, Backoff.exponential(1, jitter=Jitter.none()))


def run_async(*args: object, **kwargs: object) -> InlineResult:
    return asyncio.run(arun_inline(*args, **kwargs))  # type: ignore[arg-type]


both = pytest.mark.parametrize("run", [run_inline, run_async], ids=["sync", "async"])
Run = Callable[..., InlineResult]


@dataclass
class Order:
    number: int
    note: str = ""


class Client:
    name = "real"


class Fake(Client):
    name = "fake"


@stage
def fetch(number: int) -> Order:
    return Order(number)


@stage(retry=STEADY)
async def price(order: Order, ctx: Context) -> dict[str, object]:
    await asyncio.sleep(0)
    ctx.note("request", "r-1")
    return {"number": order.number, "key": ctx.idempotency_key, "attempt": ctx.attempt}


shop = Pipeline("shop", [fetch, price])


def outcomes(result: InlineResult) -> list[tuple[object, ...]]:
    return [(each.stage, each.attempt, each.outcome, each.code, each.waited) for each in result.attempts]


@both
def test_sync_and_async_stages_run_in_order_with_typed_values_between_them(run: Run) -> None:
    result = run(shop, 7)

    assert result.status == "complete"
    assert cast("dict[str, object]", result.value).items() >= {"number": 7, "attempt": 1}.items()
    assert outcomes(result) == [("fetch", 1, "ok", None, 0.0), ("price", 1, "ok", None, 0.0)]
    assert result.notes == {"request": "r-1"}
    assert (result.letter, result.error, result.children, result.events) == (None, None, (), ())


@both
def test_a_failure_is_retried_by_the_policy_and_nobody_waits(run: Run) -> None:
    faults = Faults().fail("price", code="NETWORK_RESET", attempts=range(1, 3))

    result = run(shop, 7, faults=faults)

    assert outcomes(result)[1:] == [
        ("price", 1, "retry", "NETWORK_RESET", 1.0),
        ("price", 2, "retry", "NETWORK_RESET", 2.0),
        ("price", 3, "ok", None, 0.0),
    ]
    assert result.elapsed == pytest.approx(3)
    assert [each.reason for each in result.attempts] == [None, "retryable", "retryable", None]


@both
def test_an_exhausted_stage_leaves_a_redacted_dead_letter(run: Run) -> None:
    planted = "a customer's own words"

    @stage(retry=STEADY)
    def review(text: str) -> str:
        raise ConnectionRefusedError(111, f"refused: {text}")

    told: list[Event] = []
    pipeline = Pipeline("shop", [review], on_retry=told.append, on_dead=told.append)
    result = run(pipeline, planted)

    assert (result.status, result.value) == ("failed", None)
    assert result.letter is not None
    assert (result.letter.code, result.letter.reason) == ("NETWORK_REFUSED", "exhausted")
    assert planted not in repr(result.letter) + repr(result.attempts)
    assert isinstance(result.error, ConnectionRefusedError)
    assert [event.kind for event in told] == ["retry", "retry", "dead"]
    assert tuple(told) == result.events
    assert (told[0].due_at - told[0].at).total_seconds() == 1


def test_a_value_that_does_not_fit_the_next_stage_fails_as_in_production() -> None:
    @stage
    def wrong(number: int) -> dict[str, str]:
        return {"no": "order"}

    result = run_inline(Pipeline("shop", [wrong, price]), 1)

    assert (result.status, result.attempts[-1].code) == ("failed", "SCHEMA_INVALID")


def test_a_payload_that_does_not_fit_is_refused_as_when_submitted() -> None:
    with pytest.raises(SerializationError, match="fetch"):
        run_inline(shop, "seven")


@pytest.mark.parametrize(
    ("wish", "status", "last"),
    [
        (Retry(5), "complete", ("retry", 5.0)),
        (Snooze(60), "complete", ("hold", 60.0)),
        (Cancel("enough"), "cancelled", ("cancelled", 0.0)),
        (Fail("NOT_FOUND"), "failed", ("dead", 0.0)),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("is_raised", [True, False])
def test_signals_steer_the_job(
    wish: Exception, status: str, last: tuple[str, float], is_raised: bool
) -> None:
    wishes = [wish]

    @stage
    def ask(number: int) -> object:
        if wishes:
            if is_raised:
                raise wishes.pop()
            return wishes.pop()
        return number

    result = run_inline(Pipeline("shop", [ask]), 1)

    assert result.status == status
    assert (result.attempts[0].outcome, result.attempts[0].waited) == last


def test_children_of_completed_stages_are_listed_and_those_of_failed_attempts_are_not() -> None:
    @stage(retry=STEADY)
    def spread(number: int, ctx: Context) -> int:
        ctx.submit(shop, number + ctx.attempt, key=f"k{ctx.attempt}", priority=2)
        if ctx.attempt == 1:
            raise ConnectionResetError(104, "reset")
        return number

    result = run_inline(Pipeline("flow", [spread]), 1)

    ((child),) = result.children
    assert (child.pipeline, child.payload, child.key, child.priority) == ("shop", 3, "k2", 2)


@both
def test_a_hook_that_raises_changes_nothing(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> None:
        raise KeyError("hook")

    @stage(retry=STEADY)
    def call(number: int) -> int:
        raise ConnectionResetError(104, "reset")

    with caplog.at_level(logging.WARNING):
        result = run(Pipeline("flow", [call], on_dead=broken), 1)

    assert (result.status, len(result.events)) == ("failed", 1)
    assert "hook on_dead of job 1 raised" in caplog.text


@both
def test_the_payload_is_hidden_from_later_stages_too(run: Run) -> None:
    @stage
    def shorten(text: str) -> int:
        return len(text)

    @stage
    def refuse(length: int) -> int:
        # As a client that remembers what it was given before.
        raise ValueError(f"cannot take {length} characters of a confidential text")

    result = run(Pipeline("flow", [shorten, refuse]), "a confidential text")

    assert result.letter is not None
    assert result.letter.message == "cannot take 19 characters of <payload:$>"
    assert "confidential" not in result.letter.stack
    assert result.attempts[-1].message == result.letter.message


@both
def test_resources_are_opened_and_closed_or_replaced_by_those_of_the_test(run: Run) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Client]:
        log.append("open")
        async with asyncio.timeout(60):  # Must be left by the task that entered it.
            yield Client()
        log.append("close")

    @stage
    def ask(number: int, client: Client) -> str:
        log.append("ask")
        return client.name

    pipeline = Pipeline("flow", [ask], resources=[opened])
    with pytest.raises(ConfigurationError, match="would be opened for real"):
        run(pipeline, 1)
    assert (run(pipeline, 1, resources="open").value, log) == ("real", ["open", "ask", "close"])
    assert run(pipeline, 1, resources=[Fake()]).value == "fake"
    with pytest.raises(ConfigurationError, match="asks for a resource"):
        run(pipeline, 1, resources=[object()])


def test_sync_stages_run_in_this_thread_with_no_loop_around_them() -> None:
    async def inner() -> int:
        return threading.get_ident()

    @stage
    def call(number: int) -> int:
        return asyncio.run(inner())

    assert run_inline(Pipeline("flow", [call]), 1).value == threading.get_ident()


def test_async_stages_sleep_and_time_out_on_virtual_time() -> None:
    sleep = asyncio.sleep  # Virtual here, which is what is tested.

    @stage(timeout=60, retry=STEADY)
    async def call(number: int, ctx: Context) -> int:
        await sleep(3_600 if ctx.attempt == 1 else 59)
        return number

    result = run_inline(Pipeline("flow", [call]), 1)

    assert outcomes(result) == [("call", 1, "retry", "TIMEOUT", 1.0), ("call", 2, "ok", None, 0.0)]
    assert result.elapsed == pytest.approx(60 + 1 + 59)


def test_a_thread_that_an_async_stage_waits_for_is_not_overtaken_by_its_timeout() -> None:
    go_on = threading.Event()

    @stage(timeout=60)
    async def call(number: int) -> bool:
        asyncio.get_running_loop().call_later(0.01, go_on.set)
        return await asyncio.to_thread(go_on.wait, 30)

    assert run_inline(Pipeline("flow", [call]), 1).value is True


def test_a_process_that_an_async_stage_waits_for_is_not_overtaken_by_a_timeout() -> None:
    @stage(timeout=60)
    async def call(number: int) -> str:
        process = await asyncio.create_subprocess_shell("echo hello", stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        other = await asyncio.create_subprocess_exec("true")
        return f"{out.decode().strip()} {await other.wait()}"

    assert run_inline(Pipeline("flow", [call]), 1).value == "hello 0"


def test_a_socket_that_answers_is_not_overtaken_by_a_timeout() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    @stage(timeout=60)
    async def call(text: str) -> str:
        async with await asyncio.start_server(answer, "127.0.0.1") as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(f"{text}\n".encode())
            line = await reader.readline()
            writer.close()
        return line.decode().strip()

    assert run_inline(Pipeline("flow", [call]), "hello").value == "hello"


@both
def test_a_guard_inside_a_stage_waits_on_the_same_clock_and_may_overrun_the_timeout(run: Run) -> None:
    @guard(retry=RetryPolicy(2, Backoff.fixed(50, jitter=Jitter.none())))
    async def flaky(answers: list[object]) -> object:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @stage(timeout=60, retry=RetryPolicy(1))
    async def call(number: int) -> object:
        await flaky([1, ConnectionResetError(104, "reset")])
        return await flaky([number, ConnectionResetError(104, "reset")])

    result = run(Pipeline("flow", [call]), 1)

    assert (result.status, result.attempts[0].code) == ("failed", "TIMEOUT")
    assert isinstance(result.error, AttemptTimeoutError)


@both
def test_a_late_success_of_a_sync_stage_counts_and_an_abandoned_one_is_a_timeout(run: Run) -> None:
    @stage(timeout=10)
    def patient(number: int) -> int:
        return number

    @stage(timeout=10, on_overrun="abandon", idempotent=True, retry=STEADY)
    def hasty(number: int) -> int:
        return number

    faults = Faults().slow("patient", seconds=30).slow("hasty", seconds=30, attempts=[1])
    result = run(Pipeline("flow", [patient, hasty]), 1, faults=faults)

    assert [(each.stage, each.outcome, each.reason) for each in result.attempts] == [
        ("patient", "ok", "overran"),
        ("hasty", "retry", "retryable"),
        ("hasty", "ok", None),
    ]


@pytest.mark.parametrize("close_after", [1, 2])
def test_a_breaker_holds_the_job_without_burning_and_lets_it_out_as_a_probe(close_after: int) -> None:
    breaker = Breaker("api", consecutive=2, open_for=60, close_after=close_after)
    calls = itertools.count(1)

    @stage(breaker=breaker, retry=STEADY)
    def call(number: int) -> int:
        if next(calls) <= 4:
            raise ConnectionRefusedError(111, "refused")
        return number

    @stage(breaker=breaker, name="again")
    def again(number: int) -> int:
        return number

    result = run_inline(Pipeline("flow", [call, again]), 1)

    assert [(each.attempt, each.outcome, each.burned) for each in result.attempts] == [
        (1, "retry", True),
        (2, "hold", False),
        (2, "hold", False),
        (2, "hold", False),
        (2, "ok", True),
        (1, "ok", True),
    ]
    assert result.elapsed == pytest.approx(1 + 3 * 60, abs=1)


def test_a_breaker_that_fails_fast_refuses_until_its_time_has_come() -> None:
    breaker = Breaker("api", consecutive=1, open_for=5, mode="fail_fast")
    calls: list[int] = []

    @stage(breaker=breaker, retry=RetryPolicy(4, Backoff.fixed(3, jitter=Jitter.none())))
    def call(number: int) -> int:
        calls.append(number)
        if len(calls) == 1:
            raise ConnectionRefusedError(111, "refused")
        return number

    result = run_inline(Pipeline("flow", [call]), 1)

    assert [each.code for each in result.attempts] == ["NETWORK_REFUSED", "BREAKER_OPEN", None]
    assert len(calls) == 2


def test_a_job_that_is_held_for_ever_comes_back_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    @stage(breaker=Breaker("api", consecutive=1, open_for=60), retry=STEADY)
    def call(number: int) -> int:
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr("redrive.testing.inline_worker.DISPATCHES_MAX", 50)
    result = run_inline(Pipeline("flow", [call]), 1)

    assert (result.status, len(result.attempts)) == ("queued", 50)


def test_the_virtual_time_around_it_is_used() -> None:
    faults = Faults().fail("price", code="NETWORK_RESET", attempts=[1])

    with virtual_time(seed=3) as clock:
        result = run_inline(shop, 7, faults=faults)

    assert clock.waits == [1.0]
    assert result.elapsed == 1.0


def test_it_says_what_to_call_in_async_code() -> None:
    async def scene() -> None:
        run_inline(shop, 7)

    with pytest.raises(ConfigurationError, match="await arun_inline"):
        asyncio.run(scene())


@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_no_failure_of_a_stage_goes_through_to_the_test(is_async: bool) -> None:
    closed: list[bool] = []

    @contextmanager
    def opened() -> Generator[Order]:
        try:
            yield Order(1)
        finally:
            closed.append(True)

    def call(number: int) -> int:
        pytest.fail("from inside")

    async def acall(number: int) -> int:
        pytest.fail("from inside")

    made = stage(name="call")(acall if is_async else call)

    with pytest.raises(pytest.fail.Exception, match="from inside"):
        run_inline(Pipeline("flow", [made], resources=[opened]), 1, resources="open")

    assert closed == [True]


def worked(pipeline: Pipeline, payload: bytes) -> list[tuple[object, ...]]:
    """Send one job through the real worker and store; return its attempts."""
    store = SqliteStore(":memory:")
    lane = store.lanes(pipeline.name, [each.name for each in pipeline.stages])[0]
    store.submit([NewJob(lane=lane, payload=payload, run_at=0.0)], 0.0)
    names = (f"w{n}" for n in itertools.count(1))

    async def scene() -> None:
        await Worker(store, [pipeline], inline_parts(), names=names).run(until_idle=True)

    with virtual_time():
        asyncio.run(scene())
    rows = store.query(job_sql.attempts(job=1))
    store.close()
    return [(row[1], row[3], row[4], bool(row[5]), row[6], *reason_and_sentence(row[9])) for row in rows]


@pytest.mark.untraced
@pytest.mark.parametrize("code", ["NETWORK_RESET", "AUTH_DENIED", "RATE_LIMITED", "CONFLICT", "BUG_UNKNOWN"])
@pytest.mark.parametrize("attempts", [[1], [1, 2], range(1, 9)])
def test_a_worker_on_a_store_comes_to_the_same_attempts_and_reasons(code: str, attempts: list[int]) -> None:
    def pipeline() -> Pipeline:
        limited = RetryPolicy(4, Backoff.linear(2, jitter=Jitter.none()), per_code_max_attempts={code: 3})
        plain = stage(name="call", retry=limited)(lambda number: number)
        return (
            Faults()
            .fail("call", code=code, attempts=attempts, retry_after=7)
            .on(Pipeline("flow", [plain, fetch]))
        )

    inline = [
        (each.stage, each.attempt, each.outcome, each.burned, each.code, each.reason, each.sentence)
        for each in run_inline(pipeline(), 1).attempts
    ]

    assert inline == worked(pipeline(), b"1")


def test_nothing_is_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_inline(shop, 7)

    assert list(tmp_path.iterdir()) == []
