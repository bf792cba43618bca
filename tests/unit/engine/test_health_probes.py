# SPDX-License-Identifier: Apache-2.0
"""Breakers that bring their own probe: a worker calls it instead of risking a job, one worker at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import pytest

from redrive import Breaker, Pipeline, Redrive, RetryPolicy, stage
from redrive.core.breaker_state import Phase
from redrive.engine.health_probes import LOOK_SECONDS, HealthProbes
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.probes import Probes
from redrive.errors import StoreUnavailableError
from redrive.ops.audit import Actor
from redrive.ops.breakers import breakers, move
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock, run_inline
from tests.embedded import read_rows
from tests.inline import T, at_once
from tests.unit.build import beside, bounded, passing

ANN = Actor("ann", "a test")
FOREVER = 1e9


class Api:
    """A dependency that is down until it has been asked so often."""

    def __init__(self, down_for: int) -> None:
        self.down_for = down_for
        self.asked = 0
        self.calls: list[int] = []

    def health(self) -> None:
        self.asked += 1
        if self.asked <= self.down_for:
            raise ConnectionRefusedError(111, "down")

    async def ahealth(self) -> None:
        self.health()

    def call(self, number: int) -> int:
        self.calls.append(number)
        if self.asked <= self.down_for:
            raise ConnectionRefusedError(111, "down")
        return number

    def pipeline(
        self,
        *,
        probe: Callable[[], object] | None = None,
        mode: Literal["hold", "fail_fast"] = "hold",
        close_after: int = 1,
        probe_timeout: float = 60.0,
    ) -> Pipeline:
        breaker = Breaker(
            "api",
            consecutive=1,
            open_for=30,
            ramp=0,
            probe=probe or self.health,
            mode=mode,
            close_after=close_after,
            probe_timeout=probe_timeout,
        )
        return Pipeline("shop", [stage(name="call", breaker=breaker, retry=RetryPolicy(1))(self.call)])


def probing(
    store: SqliteStore, clock: VirtualClock, pipeline: Pipeline, name: str = "w1"
) -> tuple[HealthProbes, Probes]:
    lanes = lanes_of(store, [pipeline])
    own = [each.breaker for each in pipeline.stages if each.breaker is not None]
    probes = Probes(store, lanes, SharedBreakers(store, own))
    made = HealthProbes(
        probes, clock, name=lambda: name, ask_store=at_once, call=at_once, on_close=lambda: None
    )
    return made, probes


@pytest.mark.parametrize("is_async", [True, False])
def test_the_probe_is_asked_instead_of_a_job_until_the_dependency_is_back(
    rd: Redrive, *, is_async: bool
) -> None:
    api = Api(down_for=2)
    # Virtual time may run far ahead while a thread calls the probe.
    pipeline = api.pipeline(probe=api.ahealth if is_async else api.health, probe_timeout=FOREVER)
    rd.submit_many(pipeline, [1, 2, 3])

    assert rd.work([pipeline], until_idle=True, concurrency=1, hold_max=FOREVER) == "idle"

    # One job met the outage. The others waited, and so did it, while the probe was asked three times.
    assert api.asked == 3
    assert sorted(api.calls) == [1, 1, 2, 3]
    assert rd.jobs.counts() == {"complete": 3}


@pytest.mark.untraced
def test_a_dependency_that_stays_down_is_recorded_and_logged_once(
    rd: Redrive, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api(down_for=5)
    pipeline = api.pipeline(probe=api.ahealth)
    rd.submit_many(pipeline, [1, 2])

    with caplog.at_level("INFO", logger="redrive.worker"):
        rd.work([pipeline], until_idle=True, concurrency=1, hold_max=FOREVER)

    lines = [each.getMessage() for each in caplog.records if each.getMessage().startswith("breaker ")]
    assert lines == [
        "breaker api: closed -> open: too many calls failed, the last one with NETWORK_REFUSED",
        "breaker api: open -> closed: its probes succeeded",
    ]
    found = read_rows(rd, "SELECT before, after FROM breaker_changes ORDER BY id")
    assert found == [("closed", "open"), ("open", "closed")]


def test_jobs_are_refused_by_a_breaker_that_fails_fast_and_none_of_them_is_the_probe(rd: Redrive) -> None:
    api = Api(down_for=10**9)
    pipeline = api.pipeline(mode="fail_fast")
    rd.submit_many(pipeline, [1, 2, 3])

    rd.work([pipeline], until_idle=True, concurrency=1)

    assert api.calls == [1]
    assert rd.jobs.counts() == {"failed": 3}


def test_a_pipeline_that_runs_inline_is_probed_as_well() -> None:
    api = Api(down_for=2)

    result = run_inline(api.pipeline(), 7)

    assert (result.status, api.asked, api.calls) == ("complete", 3, [7, 7])


def test_an_isolated_or_closed_breaker_is_not_asked(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    api = Api(down_for=0)
    made, probes = probing(store, clock, api.pipeline())
    (breaker,) = probes.own

    assert bounded(made.look(breaker)) == LOOK_SECONDS
    move(store, "api", "isolate", ANN, is_new=True)
    clock.advance(3600)
    assert bounded(made.look(breaker)) == LOOK_SECONDS

    assert api.asked == 0


def test_one_worker_asks_at_a_time_and_a_dead_one_blocks_the_others_until_its_token_expires(
    store: SqliteStore, clock: VirtualClock
) -> None:
    api = Api(down_for=0)
    pipeline = api.pipeline()
    (_, one), (second, _) = (probing(store, clock, pipeline, name) for name in ("w1", "w2"))
    (breaker,) = one.own
    move(store, "api", "open", ANN, is_new=True)
    assert bounded(second.look(breaker)) == LOOK_SECONDS
    clock.advance(30)
    assert one.take_alone(breaker, clock.wall(), "w1:health:1")

    assert bounded(second.look(breaker)) == LOOK_SECONDS
    assert api.asked == 0
    clock.advance(60)
    bounded(second.look(breaker))

    assert api.asked == 1
    assert one.standing(breaker).state.phase is Phase.CLOSED
    assert not one.take_alone(breaker, clock.wall(), "w1:health:2")


def test_several_good_answers_are_asked_for_without_a_pause(store: SqliteStore, clock: VirtualClock) -> None:
    api = Api(down_for=0)
    made, probes = probing(store, clock, api.pipeline(close_after=2))
    (breaker,) = probes.own
    move(store, "api", "open", ANN, is_new=True)
    clock.advance(30)

    assert bounded(made.look(breaker)) == 0
    assert probes.standing(breaker).state.phase is Phase.HALF_OPEN
    bounded(made.look(breaker))

    assert (api.asked, probes.standing(breaker).state.phase) == (2, Phase.CLOSED)


def test_an_async_probe_that_hangs_means_down(store: SqliteStore, clock: VirtualClock) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    breaker = Breaker("api", consecutive=1, open_for=30, probe=hang, probe_timeout=0.01)
    made, probes = probing(store, clock, Pipeline("shop", [stage(name="call", breaker=breaker)(len)]))
    move(store, "api", "open", ANN, is_new=True)
    clock.advance(30)

    bounded(made.look(breaker))

    assert probes.standing(breaker).state.phase is Phase.OPEN
    assert [each.name for each in breakers(store)] == ["api"]


def test_a_store_that_is_away_is_asked_again(store: SqliteStore, clock: VirtualClock) -> None:
    api = Api(down_for=0)
    made, probes = probing(store, clock, api.pipeline())
    move(store, "api", "open", ANN, is_new=True)
    asked = 0

    async def away_at_first(question: Callable[[], T]) -> T:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise StoreUnavailableError(database="x", cause="gone")
        return question()

    made._ask_store = away_at_first

    async def scene() -> None:
        async with beside(made.run()):
            await passing(clock, lambda: api.asked)

    bounded(scene())
    assert probes.standing(probes.own[0]).state.phase is Phase.CLOSED
