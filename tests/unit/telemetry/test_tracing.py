# SPDX-License-Identifier: Apache-2.0
"""Traces: a span per attempt below the submitter's, in every kind of stage, for children too; nothing without a caller's span."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.trace import StatusCode, get_current_span

from redrive import Backoff, Batch, Context, Pipeline, Redrive, RetryPolicy, connect, stage
from redrive.store.records import ClaimRequest, ExchangeRequest
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import run_inline
from tests.unit.telemetry.spans import CHILD, PARENT, Spans, is_below, spans_in_memory


def answer(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, text="hello")


CLIENT = httpx.Client(transport=httpx.MockTransport(answer))
ASYNC_CLIENT = httpx.AsyncClient(transport=httpx.MockTransport(answer))


@stage(retry=RetryPolicy(2, Backoff.fixed(0)))
async def fetch(number: int, context: Context) -> int:
    if number == 13 and context.attempt == 1:
        raise ConnectionResetError(104, "reset by somebody@example.com")
    await ASYNC_CLIENT.get("http://async.example/")
    return number


@stage
def halve(number: int, context: Context) -> float:
    CLIENT.get("http://sync.example/")
    context.submit(CHILD, number)
    return 10 / number


SHOP = Pipeline("shop", [fetch, halve])


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Generator[Spans]:
    with spans_in_memory(monkeypatch) as made:
        yield made


@pytest.fixture
def instrumented(spans: Spans) -> Generator[None]:
    for client in (CLIENT, ASYNC_CLIENT):
        HTTPXClientInstrumentor.instrument_client(client, tracer_provider=spans.provider)
    yield
    for client in (CLIENT, ASYNC_CLIENT):
        HTTPXClientInstrumentor.uninstrument_client(client)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def traces(rd: Redrive) -> list[tuple[object, ...]]:
    assert isinstance(rd.store, SqliteStore)
    return rd.store.read("SELECT job_id, traceparent FROM job_traces ORDER BY job_id")


@pytest.mark.usefixtures("instrumented")
def test_every_attempt_and_every_call_in_it_hangs_below_the_submitter(spans: Spans, path: Path) -> None:
    with connect(path) as rd:
        with spans.caller() as trace:
            rd.submit(SHOP, 13)
        rd.work([SHOP, CHILD], until_idle=True)

    caller, (first, second), halved = spans.one("caller"), spans.named("shop.fetch"), spans.one("shop.halve")
    assert all(is_below(span, caller) for span in (first, second, halved))
    asked, asked_sync = (span for span in spans.all() if span.name == "GET")
    assert is_below(asked, second)
    assert is_below(asked_sync, halved)
    assert is_below(spans.one("child.last"), halved), "a child belongs to the attempt that submitted it"
    assert all(f"{span.context.trace_id:032x}" == trace for span in spans.all() if span.context)


def test_the_items_of_a_run_hang_below_the_request_that_opened_it(spans: Spans, path: Path) -> None:
    with connect(path) as rd:
        with spans.caller() as trace:
            rd.runs.open(CHILD, [1, 2])
        rd.runs.open(CHILD, [3])
        assert [job for job, _ in traces(rd)] == [1, 2]
        rd.work([CHILD], until_idle=True)

    found = [f"{span.context.trace_id:032x}" == trace for span in spans.named("child.last") if span.context]
    assert sorted(found) == [False, True, True]


def test_a_span_has_the_facts_of_its_attempt_and_no_message(spans: Spans) -> None:
    with connect(":memory:") as rd:
        rd.submit(Pipeline("shop", [fetch]), 13)
        rd.work([Pipeline("shop", [fetch])], until_idle=True)

    first, second = spans.named("shop.fetch")
    assert dict(first.attributes or {}) == {
        "redrive.job_id": 1,
        "redrive.pipeline": "shop",
        "redrive.stage": "fetch",
        "redrive.attempt": 1,
        "redrive.dispatch": 1,
        "redrive.round": 1,
        "redrive.outcome": "retry",
        "redrive.code": "NETWORK_RESET",
    }
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "NETWORK_RESET")
    assert (second.attributes or {})["redrive.outcome"] == "ok"
    assert second.status.status_code is StatusCode.UNSET
    assert "example.com" not in first.to_json()
    assert first.parent is None, "nobody traced the submission"


def test_a_job_without_a_traced_submitter_stores_nothing(spans: Spans) -> None:
    with connect(":memory:") as rd:
        rd.submit(CHILD, 1)
        with spans.caller():
            rd.submit(CHILD, 2)
            rd.submit(CHILD, 3, key="three")
            rd.submit(CHILD, 3, key="three")
            rd.submit_many(CHILD, [4, 5])
        rd.submit(CHILD, 6)

        assert [row[0] for row in traces(rd)] == [2, 3, 4, 5]


def test_a_trace_is_gone_with_its_job(spans: Spans) -> None:
    with connect(":memory:") as rd, spans.caller():
        rd.submit(CHILD, 1)
        assert isinstance(rd.store, SqliteStore)
        with rd.store._writing() as db:
            db.execute("DELETE FROM jobs")

        assert traces(rd) == []


def test_an_attempt_whose_function_is_not_called_has_its_span_too(spans: Spans) -> None:
    with connect(":memory:") as rd:
        with spans.caller():
            rd.submit(CHILD, 1, expires_at=datetime.now(UTC) - timedelta(seconds=1))
        rd.work([CHILD], until_idle=True)

    found = spans.one("child.last")
    assert is_below(found, spans.one("caller"))
    assert (found.attributes or {})["redrive.outcome"] == "dead"


def test_a_stage_in_a_process_carries_the_trace_to_its_children(spans: Spans, path: Path) -> None:
    with connect(path) as rd:
        with spans.caller():
            rd.submit(PARENT, 1)
        rd.work([PARENT, CHILD], until_idle=True)

    assert is_below(spans.one("parent.submits"), spans.one("caller"))
    assert is_below(spans.one("child.last"), spans.one("parent.submits"))


def test_a_run_that_is_cut_off_ends_its_span(spans: Spans, path: Path) -> None:
    async def stopped() -> None:
        started = asyncio.Event()

        @stage
        async def never(_number: int) -> None:
            started.set()
            await asyncio.Event().wait()

        flow = Pipeline("endless", [never])
        async with connect(path) as rd:
            await rd.submit(flow, 1)
            working = asyncio.ensure_future(rd.work([flow]))
            await started.wait()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(stopped())

    assert (spans.one("endless.never").attributes or {})["redrive.outcome"] == "crashed"


@pytest.mark.parametrize("is_async", [True, False])
def test_each_job_of_a_batch_has_a_span_in_its_own_trace_and_only_one_however_often_it_is_called(
    spans: Spans, path: Path, *, is_async: bool
) -> None:
    inside: list[int] = []

    def call(numbers: list[int]) -> list[int]:
        inside.append(get_current_span().get_span_context().span_id)
        if 13 in numbers:
            raise ValueError("thirteen")
        return numbers

    async def acall(numbers: list[int]) -> list[int]:
        return call(numbers)

    embed = stage(name="embed", batch=Batch(size=3, on_error="split"), retry=RetryPolicy(1))
    pipeline = Pipeline("batched", [embed(acall) if is_async else embed(call)])
    with connect(path) as rd:
        for number in (1, 13, 2):
            with spans.caller():
                rd.submit(pipeline, number)
        rd.work([pipeline], until_idle=True)

    found = sorted(
        spans.named("batched.embed"), key=lambda span: str((span.attributes or {})["redrive.job_id"])
    )
    callers = spans.named("caller")
    assert [is_below(span, caller) for span, caller in zip(found, callers, strict=True)] == [True] * 3
    assert [(span.attributes or {})["redrive.outcome"] for span in found] == ["ok", "dead", "ok"]
    # The function runs inside of one of them, and leaves all.
    assert inside[0] in {span.context.span_id for span in found if span.context}
    assert len(inside) > 1
    assert not get_current_span().get_span_context().is_valid


def test_outside_its_attempt_no_span_is_current(spans: Spans) -> None:
    with connect(":memory:") as rd:
        rd.submit_many(CHILD, [1, 2])
        rd.work([CHILD], until_idle=True)

    assert not get_current_span().get_span_context().is_valid
    first, second = spans.named("child.last")
    assert first.context
    assert second.context
    assert first.context.trace_id != second.context.trace_id


def test_inline_runs_are_traced_once(spans: Spans) -> None:
    run_inline(CHILD, 1)

    assert len(spans.named("child.last")) == 1


def test_a_trace_that_cannot_be_read_is_ignored(spans: Spans) -> None:
    with connect(":memory:") as rd:
        rd.submit(CHILD, 1)
        assert isinstance(rd.store, SqliteStore)
        with rd.store._writing() as db:
            db.execute("INSERT INTO job_traces VALUES (1, 'no traceparent at all')")
        rd.work([CHILD], until_idle=True)

    assert spans.one("child.last").parent is None


def test_a_worker_that_does_not_trace_leaves_traces_alone(spans: Spans, path: Path) -> None:
    with spans.caller(), connect(path) as rd:
        rd.submit(CHILD, 1)
    with closing(SqliteStore(path)) as store:
        (lane,) = store.lanes("child", ["last"])
        store.start_worker("w", 0.0, 30.0)
        (job,) = store.exchange(ExchangeRequest("w", [], ClaimRequest((lane,), 1), now=9e9, token=1)).claimed

    assert job.trace is None
