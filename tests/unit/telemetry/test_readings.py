# SPDX-License-Identifier: Apache-2.0
"""What is read from the store: exact counts from the moment it is first read, whatever was pruned meanwhile, in bounded series."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from redrive import Backoff, Breaker, Fail, Pipeline, Redrive, ReplayRules, RetryPolicy, stage
from redrive.engine.retention import Retention
from redrive.ops.audit import Actor
from redrive.ops.breakers import move
from redrive.ops.upkeep.prune import prune
from redrive.store.records import Call
from redrive.store.statements import reports as report_sql
from redrive.telemetry import readings
from redrive.telemetry.catalogue import CODES_MAX, DURATIONS, FROM_STORE, LANES_MAX, OTHER, TEXT_MAX, Labels
from redrive.telemetry.readings import StoreReadings
from redrive.testing import virtual_time

ANN = Actor("ann", "a test")
API = Breaker("api", consecutive=1, open_for=3600)


@stage(retry=RetryPolicy(2, Backoff.fixed(0)), breaker=API)
async def fetch(number: int) -> int:
    if number == 13:
        raise ConnectionResetError(104, "reset")
    return number


@stage(retry=RetryPolicy(2, Backoff.fixed(0)))
async def halve(number: int) -> float:
    if number == 7:
        raise TimeoutError
    return 10 / number


@stage
async def coded(code: str) -> str:
    raise Fail(code, "no")


SHOP = Pipeline("shop", [fetch, halve], replay=ReplayRules(evidence="optional"))
CODED = Pipeline("coded", [coded])


def work(rd: Redrive, *payloads: object, pipeline: Pipeline = SHOP) -> None:
    rd.submit_many(pipeline, payloads)
    rd.work([pipeline], until_idle=True)


def test_attempts_are_counted_from_the_first_reading_on(rd: Redrive) -> None:
    work(rd, 1, 0)
    reading = StoreReadings(rd.store)

    assert reading.read()["redrive_attempts_total"] == {}

    work(rd, 2, 0, 7)
    values = reading.read()

    lane = ("shop", "halve")
    assert values["redrive_attempts_total"] == {
        ("shop", "fetch", "ok"): 3,
        (*lane, "ok"): 1,
        (*lane, "retry"): 1,
        (*lane, "dead"): 2,
    }
    assert values["redrive_retries_total"] == {(*lane, "TIMEOUT"): 1}
    assert values["redrive_dead_letters_total"] == {lane: 2}
    assert values["jobs_failed_total"] == {("BUG_CODE",): 1, ("TIMEOUT",): 1}
    assert sum(reading.durations[lane].counts) == 4
    assert reading.durations[lane].sum >= 0
    assert reading.read() == values


def test_each_reading_adds_what_came_since(rd: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "STEP", 2)
    reading = StoreReadings(rd.store)

    for many in (1, 3, 5):
        work(rd, *range(1, many + 1))
        reading.read()

    assert reading.read()["redrive_attempts_total"] == {
        ("shop", "fetch", "ok"): 9,
        ("shop", "halve", "ok"): 9,
    }


@pytest.mark.parametrize("statement", ["attempt_tally", "failure_tally"])
def test_a_reading_that_was_cut_short_counts_nothing_twice(
    rd: Redrive, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(readings, "STEP", 2)
    reading = StoreReadings(rd.store)
    work(rd, 1, 2, 3, 4)
    query, asked = rd.store.query, 0

    def failing(call: Call[object]) -> object:
        nonlocal asked
        asked += call.name == statement
        if asked == 3:
            raise OSError("gone")
        return query(call)

    with monkeypatch.context() as broken, pytest.raises(OSError, match="gone"):
        broken.setattr(rd.store, "query", failing)
        reading.read()

    assert sum(reading.read()["redrive_attempts_total"].values()) == 8


def test_every_outcome_of_an_attempt_is_counted_as_what_it_is(filed: Redrive, tmp_path: Path) -> None:
    reading = StoreReadings(filed.store)
    work(filed, *range(1, 8))
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as direct:
        for place, outcome in enumerate(readings.OUTCOMES, start=1):
            direct.execute("UPDATE attempts SET outcome = ? WHERE seq % 7 = ? % 7", (outcome, place))
        stored = Counter(outcome for (outcome,) in direct.execute("SELECT outcome FROM attempts"))
        ((table,),) = direct.execute("SELECT sql FROM sqlite_schema WHERE name = 'attempts'")
        direct.commit()

    counted = reading.read()["redrive_attempts_total"]

    found: Counter[str] = Counter()
    for (*_, outcome), count in counted.items():
        found[outcome] += int(count)
    assert found == stored
    assert set(stored) == set(readings.OUTCOMES)
    assert set(re.findall("outcome = '([a-z]+)'", table)) == set(readings.OUTCOMES)


def test_queues_and_leases_are_what_they_are_now(rd: Redrive) -> None:
    rd.submit_many(SHOP, [1, 2, 3])
    reading = StoreReadings(rd.store)

    values = reading.read()

    assert values["queue_depth"] == {("shop", "fetch"): 3, ("shop", "halve"): 0}
    assert values["jobs_active"] == {("shop", "fetch"): 0, ("shop", "halve"): 0}


def test_a_hold_is_counted_and_its_breaker_is_open(rd: Redrive) -> None:
    reading = StoreReadings(rd.store)
    work(rd, 13)

    values = reading.read()

    assert values["redrive_holds_total"] == {("shop", "fetch"): 1}
    assert values["redrive_breaker_state"] == {
        ("api", "closed"): 0,
        ("api", "open"): 1,
        ("api", "half_open"): 0,
        ("api", "isolated"): 0,
    }
    move(rd.store, "api", "isolate", ANN)
    assert reading.read()["redrive_breaker_state"]["api", "isolated"] == 1


def test_retries_by_hand_and_replays_are_counted_apart(rd: Redrive) -> None:
    work(rd, 0, 0, 0)
    rd.jobs.retry(1, reason="before it was measured")
    rd.work([SHOP], until_idle=True)
    reading = StoreReadings(rd.store)

    rd.jobs.retry(2, reason="by hand")
    rd.work([SHOP], until_idle=True)
    by_hand = reading.read()
    replay = rd.replays.start(pipeline="shop", reason="all of them")
    rd.work([SHOP], until_idle=True)
    replayed = reading.read()

    assert (by_hand["manual_retry_total"], by_hand["redrive_replayed_total"]) == ({(): 1}, {(): 0})
    assert replayed["manual_retry_total"] == {(): 1}
    assert replayed["redrive_replayed_total"] == {(): 1}, f"the canary of {replay} fails again"


def test_pruned_attempts_whose_numbers_are_given_again_are_not_missed(rd: Redrive) -> None:
    with virtual_time() as clock:
        reading = StoreReadings(rd.store)
        work(rd, 1, 2)
        reading.read()
        clock.advance(3600)
        prune(rd.store, Retention(complete=60), ANN)
        assert rd.store.query(report_sql.newest_attempt()) == []
        assert sum(reading.read()["redrive_attempts_total"].values()) == 4

        work(rd, 3)

        assert sum(reading.read()["redrive_attempts_total"].values()) == 6


def test_made_up_codes_cannot_make_more_series_than_the_limit(rd: Redrive) -> None:
    reading = StoreReadings(rd.store)

    work(rd, *(f"CODE_{number}" for number in range(CODES_MAX + 20)), pipeline=CODED)
    failed = reading.read()["jobs_failed_total"]

    assert len(failed) == CODES_MAX + 1
    assert failed[(OTHER,)] == 20
    assert sum(failed.values()) == CODES_MAX + 20


def test_many_pipelines_share_one_series_after_the_limit(rd: Redrive) -> None:
    for number in range(LANES_MAX + 3):
        rd.submit(Pipeline(f"p{number}", [halve]), 1)

    depth = StoreReadings(rd.store).read()["queue_depth"]

    assert len(depth) == LANES_MAX + 1
    assert depth[OTHER, OTHER] == 3


def test_a_label_is_cut() -> None:
    assert Labels(1).of("x" * 500) == ("x" * TEXT_MAX,)


def test_every_metric_of_the_store_has_a_value(rd: Redrive) -> None:
    names = {metric.name for metric in FROM_STORE if metric.kind != "histogram"}

    assert set(StoreReadings(rd.store).read()) == names
    assert list(DURATIONS) == sorted(DURATIONS)
