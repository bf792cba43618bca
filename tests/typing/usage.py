# SPDX-License-Identifier: Apache-2.0
"""How the public API reads to a type checker; never run, only checked by mypy and basedpyright."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, assert_type

from redrive import (
    Backoff,
    Breaker,
    CallEvent,
    Category,
    CodeSet,
    Failure,
    Guard,
    Jitter,
    Job,
    OwnCode,
    Pipeline,
    RetryPolicy,
    Rule,
    RunReport,
    Verdict,
    classify,
    connect,
    guard,
    redact,
    redact_mapping,
    stage,
)
from redrive.client.job import AsyncJob
from redrive.core.taxonomy import RATE_LIMITED
from redrive.ops.jobs.explain import Explanation
from redrive.ops.jobs.timeline import TimelineEntry
from redrive.ops.letters.pages import Page
from redrive.ops.letters.triage import ActResult
from redrive.ops.replay.progress import ReplayReport
from redrive.ops.reports.reports import ErrorReport
from redrive.store.statements.jobs import JobFacts
from redrive.testing import VirtualClock, virtual_time


@guard
def bare(x: int, *, y: str = "") -> bytes:
    return (y * x).encode()


assert_type(bare(1, y="a"), bytes)


@guard(
    retry=RetryPolicy(
        5,
        Backoff.exponential(timedelta(seconds=1), factor=2, cap=60, jitter=Jitter.full()),
        retry_on=[429, "NETWORK_TIMEOUT", ConnectionError],
        give_up_on=[PermissionError],
        per_code_max_attempts={"IO_ERROR": 2},
    ),
    breaker=Breaker(
        "api", failure_rate=0.5, window=timedelta(minutes=2), counts={"GW_5XX", Category.IO, 503}
    ),
    timeout=30,
    deadline=timedelta(minutes=5),
)
async def fetch(url: str) -> int:
    return len(url)


async def caller() -> None:
    assert_type(await fetch("http://127.0.0.1/"), int)


def on_retry(event: CallEvent) -> None:
    assert_type(event.failure, Failure | None)
    assert_type(event.delay, float | None)


shared = guard(on_retry=on_retry, idempotent=True)
assert_type(shared, Guard)


class Client:
    @shared
    def get(self, key: str) -> str:
        return key


assert_type(Client().get("a"), str)

codes = CodeSet(
    "app", [OwnCode("GW_5XX", [range(500, 600), "NETWORK_TIMEOUT", OSError])], otherwise=OwnCode("UNKNOWN")
)
failure = classify(OSError(), idempotent=True, codes=codes, stage="convert")
assert_type(failure.retry_after, float | None)
assert_type(failure.category, Category)


def read(exc: BaseException) -> Verdict | str | None:
    return Verdict(code=RATE_LIMITED, retry_after=3.0) if exc.args else None


@stage
def download(url: str) -> bytes:
    return url.encode()


@stage(retry=RetryPolicy(3), timeout=5)
async def parse(page: bytes) -> int:
    return len(page)


flow = Pipeline("typed", [download, parse])
assert_type(flow, Pipeline[Any, object])
said = Pipeline[str, int]("typed", [download, parse])
elsewhere = Pipeline.ref("typed", payload=str)
# From a tuple pyright finds out the types by itself; mypy takes it for a list.
found = Pipeline("typed", (download, parse))
assert_type(download("x"), bytes)

rules = [Rule(OSError, "CONFLICT"), Rule("package.Error", RATE_LIMITED), Rule(ValueError, read)]

assert_type(redact("text"), str)
redact_mapping({"password": "x"})

with virtual_time(seed=1) as clock:
    assert_type(clock, VirtualClock)
    clock.advance(3.0)


def nouns() -> None:
    with connect("jobs.db") as rd:
        assert_type(rd.submit(said, "x"), Job[int])
        assert_type(rd.submit(said, "x").result(), int)
        assert_type(rd.submit(flow, 3).result(), object)
        assert_type(rd.submit(elsewhere, "x"), Job[object])
        assert_type(rd.job(3), Job[object])
        assert_type(rd.job(3, said).result(), int)
        rd.submit(said, 3)  # type: ignore[misc]  # pyright: ignore[reportArgumentType] - must be refused
        rd.submit(elsewhere, 3)  # type: ignore[misc]  # pyright: ignore[reportArgumentType] - must be refused
        rd.submit_many(said, [3])  # type: ignore[misc]  # pyright: ignore[reportArgumentType] - must be refused
        assert_type(rd.letters.list(pipeline="typed", limit=5), Page)
        assert_type(rd.replays.status(1), ReplayReport)
        assert_type(rd.jobs.explain(1), Explanation)
        assert_type(rd.reports.account(run=1).adds_up, bool)


async def async_nouns() -> None:
    async with connect("jobs.db") as rd:
        assert_type(await (await rd.submit(said, "x")).result(), int)
        assert_type(await (await rd.submit(said, "x")).status, str)
        assert_type(await rd.job(3), AsyncJob[object])
        assert_type(await (await rd.job(3, said)).result(), int)
        assert_type(await rd.letters.list(pipeline="typed", limit=5), Page)
        chosen = await rd.letters.choose(code="IO_ERROR")
        assert_type(await rd.letters.triage(chosen, diagnosis="data", actor="ann"), ActResult)
        assert_type([line async for line in rd.letters.export(owner="ann")], list[bytes])
        assert_type(await rd.jobs.retry(1, from_start=True), JobFacts)
        assert_type(await rd.replays.start(rate=2.0, pipeline="typed"), ReplayReport)
        assert_type(await rd.runs.latest(limit=3), list[RunReport])
        assert_type(await rd.jobs.timeline(1), Sequence[TimelineEntry])
        assert_type(await rd.reports.errors(pipeline="typed", stage="parse"), Sequence[ErrorReport])
        assert_type(await rd.schedules.add("nightly", flow, "x", cron="0 3 * * *"), None)
        await rd.replays.pause(1, because="no such word")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] - must be refused
