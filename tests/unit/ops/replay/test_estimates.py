# SPDX-License-Identifier: Apache-2.0
"""How long a replay still takes: by its rate, or else by what ended of late; a stop, a pause or a late worker does not count."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, stage
from redrive.core.replay import RECENT_SECONDS, Counts, Plan, seconds_left
from redrive.ops.replay.progress import ReplayReport, waits_for
from redrive.ops.replay.replays import get_replay
from redrive.store.records import WorkerFacts
from redrive.testing import VirtualClock

SHOPS: list[Redrive] = []
"""The connection that the stage looks at its replay with; none while everything fails."""
SEEN: list[ReplayReport] = []


@stage(retry=RetryPolicy(1))
def pay(order: int) -> int:
    if not SHOPS:
        raise PermissionError("the key has expired")
    SEEN.append(SHOPS[0].replays.status(1))
    return order


SHOP = Pipeline("shop", [pay], replay=ReplayRules(evidence="optional"))


@pytest.fixture(autouse=True)
def _forty_failed_jobs(rd: Redrive) -> Generator[None]:
    """Forty failed jobs of a stage that was fixed since."""
    rd.submit_many(SHOP, range(40))
    rd.work([SHOP], until_idle=True)
    SHOPS.append(rd)
    yield
    SHOPS.clear()
    SEEN.clear()


def test_under_a_rate_it_takes_what_the_rate_takes_however_late_the_worker_came(
    rd: Redrive, clock: VirtualClock
) -> None:
    rd.replays.start(pipeline="shop", canary=(), rate=5.0)
    clock.advance(4_000)
    rd.work([SHOP], until_idle=True)

    assert len(SEEN) == 40
    assert [each.seconds_left for each in SEEN] == [
        each.waiting / 5 if each.waiting else None for each in SEEN
    ]
    assert rd.replays.status(1).seconds_left is None


@pytest.mark.untraced
def test_without_a_rate_only_what_ended_of_late_tells(rd: Redrive, clock: VirtualClock) -> None:
    rd.replays.start(pipeline="shop", canary=(1, 5, 10))
    clock.advance(4_000)
    rd.work([SHOP], until_idle=True)

    told = [each.seconds_left for each in SEEN]
    assert told[0] is None
    # However long its threads take, and the clock with them: the hour before the worker came is not in it.
    assert all(each is None or each <= 40 * RECENT_SECONDS for each in told)


def test_a_replay_that_does_not_run_has_no_estimate(rd: Redrive) -> None:
    begun = rd.replays.start(pipeline="shop", rate=5.0)
    paused = rd.replays.pause(begun.id)

    assert (begun.seconds_left, paused.seconds_left) == (None, None)


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("rate", "ended_at", "told"),
    [
        (5.0, [], 2.0),
        (5.0, [1.0, 99.0], 2.0),
        (None, [], None),
        (None, [99.0], None),
        (None, [1.0, 2.0, 3.0], None),
        (None, [1.0, 90.0, 95.0], 150.0),
        (None, [90.0, 95.0, 100.0], 75.0),
        (None, [90.0, 95.0, 500.0], 150.0),
    ],
)
def test_an_estimate_is_by_the_rate_or_by_the_last_minute(
    rate: float | None, ended_at: list[float], told: float | None
) -> None:
    counts = Counts(waiting=10, replaying=5, completed=3)

    assert seconds_left(Plan(rate=rate, canary=()), counts, ended_at, now=100.0) == told


def test_the_pace_of_the_canaries_is_not_that_of_the_rest() -> None:
    plan = Plan(canary=(1, 2))
    ended_at = [90.0, 94.0, 98.0, 99.0, 99.5]

    during = seconds_left(plan, Counts(waiting=9_997, completed=3), ended_at[:3], now=98.0)
    after = seconds_left(plan, Counts(waiting=95, replaying=5, completed=5), ended_at, now=100.0)

    assert during is None
    assert after == 100.0


def test_a_replay_never_waits_for_what_has_ended(rd: Redrive, clock: VirtualClock) -> None:
    started = rd.replays.start(pipeline="shop", canary=())
    rd.store.start_worker("w1", clock.wall(), 30.0, WorkerFacts(pipelines=("shop",)))
    running = replace(get_replay(rd.store, started.id), status="running", reason="the last 430 to end")

    assert waits_for(rd.store, running, Counts(replaying=12)) == "the last 12 to end"
    assert waits_for(rd.store, running, Counts(completed=430)) is None


def test_when_nothing_waits_the_rate_tells_nothing() -> None:
    assert seconds_left(Plan(rate=5.0), Counts(replaying=3), [], now=100.0) is None


def test_why_somebody_paused_it_is_told_with_what_it_waits_for(rd: Redrive) -> None:
    rd.replays.start(pipeline="shop")

    told = rd.replays.pause(1, actor="ann", reason="lunch").waits_for
    rd.replays.resume(1)
    untold = rd.replays.pause(1, actor="ann").waits_for

    assert told == "an operator to resume or cancel it: paused by ann (lunch)"
    assert untold == "an operator to resume or cancel it: paused by ann"
