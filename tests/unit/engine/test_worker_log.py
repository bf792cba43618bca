# SPDX-License-Identifier: Apache-2.0
"""What a worker logs: a line for its start, its end, and what did not just succeed; a summary; and no flood in a storm."""

from __future__ import annotations

import asyncio
import json
import logging
import re

import pytest

from redrive import Backoff, Breaker, Pipeline, Redrive, RetryPolicy, Snooze, stage
from redrive.cli.output.logs import JsonFormatter
from redrive.engine.observers import CommitFacts
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.worker_log import LINES_MAX, SUMMARY_SECONDS, WorkerLog
from redrive.store.records import Exchange, WorkerFacts
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from redrive.testing.conformance.build import NOW, settlement, taken
from tests.unit.build import beside

API = Breaker("api", consecutive=1, open_for=60)


@stage(retry=RetryPolicy(2, Backoff.fixed(5)))
async def fetch(number: int) -> int:
    if number == 13:
        raise ConnectionResetError(104, "reset by somebody@example.com")
    return number


@stage(breaker=API)
async def ask(number: int) -> int:
    raise ConnectionResetError(104, str(number))


SHOP = Pipeline("shop", [fetch])
ASKING = Pipeline("asking", [ask])


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "redrive.worker")
    return caplog


def test_a_retry_and_a_dead_letter_have_a_line_each(rd: Redrive, logged: pytest.LogCaptureFixture) -> None:
    rd.submit(SHOP, 13)
    rd.submit(SHOP, 1)
    rd.work([SHOP], until_idle=True, concurrency=3, lease=20)

    first, ended = logged.messages[0], logged.messages[-1]
    assert first.endswith("started: serves shop from memory, 3 at once, lease 20 s")
    assert "job 1 shop.fetch attempt 1: retried in 5 s after NETWORK_RESET" in logged.messages
    dead = "job 1 shop.fetch attempt 2: dead letter with NETWORK_RESET (ConnectionResetError)"
    assert dead in logged.messages
    assert "ended (idle) after" in ended
    assert ended.endswith(": 1 dead, 1 ok, 1 retry")
    assert "example.com" not in logged.text


def test_a_hold_names_its_breaker(rd: Redrive, logged: pytest.LogCaptureFixture) -> None:
    rd.submit(ASKING, 1)

    assert rd.work([ASKING], until_idle=True) == "held"

    assert "breaker api: closed -> open" in logged.text
    held = r"job 1 asking\.ask attempt 1: held for \S+ s by breaker api after NETWORK_RESET"
    assert any(re.fullmatch(held, line) for line in logged.messages)


def test_a_snooze_is_no_hold_of_a_breaker(rd: Redrive, logged: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    @stage
    async def doze(number: int) -> int:
        calls.append(number)
        if len(calls) == 1:
            raise Snooze(60)
        return number

    rd.submit(Pipeline("dozing", [doze]), 7)
    rd.work([Pipeline("dozing", [doze])], until_idle=True)

    assert "job 1 dozing.doze attempt 1: snoozed for 60 s" in logged.messages


@pytest.mark.untraced
def test_without_a_reader_there_is_no_log(rd: Redrive, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "redrive.worker")
    rd.submit(SHOP, 13)
    rd.work([SHOP], until_idle=True)

    assert caplog.messages == []


def commit(store: SqliteStore, *outcomes: str) -> CommitFacts:
    lanes = lanes_of(store, [SHOP])
    store.start_worker("w1", NOW, 30.0)
    job = taken(store)
    (lane,) = lanes
    batch = [settlement(job, outcome=outcome, code="X") for outcome in outcomes]
    return CommitFacts(
        batch=batch,
        answer=Exchange(lost=(), broken=(), claimed=()),
        lanes={job.lane: lanes[lane]},
        seconds=0.1,
    )


def test_a_storm_is_counted_and_not_logged_line_by_line(
    store: SqliteStore, clock: VirtualClock, logged: pytest.LogCaptureFixture
) -> None:
    log = WorkerLog(clock, store="x.db", lease=30)
    storm = commit(store, *["retry"] * 500, *["dead"] * 3)

    log.committed(storm)
    assert len(logged.messages) == LINES_MAX
    clock.advance(1.5)
    log.committed(commit_of(storm, 1))

    assert logged.messages[LINES_MAX:] == [
        f"too many to log each: 3 dead, {500 - LINES_MAX} retry",
        "job 1 shop.fetch attempt 1: retried in 0 s after X",
    ]


def commit_of(other: CommitFacts, first: int) -> CommitFacts:
    return CommitFacts(batch=other.batch[:first], answer=other.answer, lanes=other.lanes, seconds=0.1)


def test_a_summary_is_logged_when_something_moved(
    store: SqliteStore, clock: VirtualClock, logged: pytest.LogCaptureFixture
) -> None:
    log = WorkerLog(clock, store="x.db", lease=30)
    log.worker_started("w1", WorkerFacts(pipelines=("shop",), concurrency=2))

    log.summarise()
    log.committed(commit(store, "ok", "ok"))
    log.summarise()
    log.summarise()
    log.worker_ended("stopped")

    assert logged.messages == [
        "worker w1 started: serves shop from x.db, 2 at once, lease 30 s",
        f"in the last {SUMMARY_SECONDS:g} s: 2 ok",
        "worker w1 ended (stopped) after 0 s: 2 ok",
    ]


def test_summaries_come_by_the_clock(
    store: SqliteStore, clock: VirtualClock, logged: pytest.LogCaptureFixture
) -> None:
    log = WorkerLog(clock, store="x.db", lease=30)
    log.committed(commit(store, "ok"))

    async def wait_for_it() -> None:
        async with beside(log.run()):
            await clock.asleep(SUMMARY_SECONDS + 1)

    asyncio.run(wait_for_it())

    assert logged.messages == ["in the last 30 s: 1 ok"]


def test_json_has_the_job_the_facts_and_the_error_and_survives_any_text() -> None:
    record = logging.LogRecord("shop", logging.ERROR, "", 1, "bad \udc80 \x1b[31m %s", ("name",), None)
    record.job_id, record.pipeline, record.stage, record.attempt = 7, "shop", "fetch", 2
    try:
        raise OSError("no \udc80")
    except OSError as error:
        record.exc_info = (type(error), error, error.__traceback__)

    line = JsonFormatter().format(record)

    members = json.loads(line)
    assert "\x1b" not in line
    assert (members["job_id"], members["stage"], members["level"]) == (7, "fetch", "error")
    assert members["message"].endswith("name")
    assert "OSError" in members["error"]
