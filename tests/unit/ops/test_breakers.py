# SPDX-License-Identifier: Apache-2.0
"""Breakers moved by hand: what is held is released, and nobody's change is lost."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redrive import Breaker, Pipeline, Redrive, Snooze, stage
from redrive.engine.replay.rules import record_rules
from redrive.errors import StoreUnavailableError
from redrive.ops import breakers
from redrive.testing import VirtualClock
from tests.unit.build import work
from tests.unit.ops.test_pipelines import ANN, log


@pytest.mark.parametrize("verb", ["open", "isolate"])
def test_closing_a_breaker_by_hand_releases_what_is_held_for_it_at_once(
    rd: Redrive, clock: VirtualClock, verb: breakers.Verb
) -> None:
    is_down = True
    asked: list[str] = []

    @stage(breaker=Breaker("api", consecutive=1, open_for=120, ramp=0))
    async def call(what: str) -> str:
        if what == "later" and what not in asked:
            asked.append(what)
            raise Snooze(1_000)
        if is_down:
            raise ConnectionRefusedError(111, "refused")
        return what

    flow = Pipeline("calls", [call])
    record_rules(rd.store, [flow])
    snoozed, job = rd.submit(flow, "later"), rd.submit(flow, "now")
    assert work(rd.store, flow, hold_max=0) == "held"
    held_until = job.facts.run_at
    assert (held_until - clock_now(clock)).total_seconds() > 100
    (facts,) = breakers.breakers(rd.store)
    assert (facts.phase, facts.failures, facts.next_probe_at) == ("open", 1, held_until)

    breakers.move(rd.store, "api", verb, ANN)
    assert work(rd.store, flow, hold_max=0) == "held"
    is_down = False
    closed = breakers.move(rd.store, "api", "close", ANN)

    assert (closed.phase, closed.next_probe_at) == ("closed", None)
    assert job.facts.run_at <= clock_now(clock)
    # A stage that asked to wait is not released.
    assert (snoozed.facts.run_at - clock_now(clock)).total_seconds() > 500
    assert work(rd.store, flow) == "idle"
    assert job.result() == "now"


def test_the_breaker_of_a_key_is_found_whatever_brackets_its_name_has(
    rd: Redrive, clock: VirtualClock
) -> None:
    @stage(breaker=Breaker("api[eu]", consecutive=1, open_for=120, key=lambda job: job.owner))
    async def call(what: str) -> str:
        raise ConnectionRefusedError(111, "refused")

    flow = Pipeline("calls", [call])
    record_rules(rd.store, [flow])
    job = rd.submit(flow, "now", owner="shop[1]")
    assert work(rd.store, flow, hold_max=0) == "held"

    (facts,) = breakers.breakers(rd.store)

    assert (facts.name, facts.next_probe_at) == ("api[eu][shop[1]]", job.facts.run_at)


def clock_now(clock: VirtualClock) -> datetime:
    return datetime.fromtimestamp(clock.wall(), UTC)


def test_a_breaker_that_others_change_all_the_time_is_left_alone(
    rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    breakers.move(rd.store, "model", "open", ANN, is_new=True)
    monkeypatch.setattr(rd.store, "apply", lambda *_: None)

    with pytest.raises(StoreUnavailableError, match="100 times in a row"):
        breakers.move(rd.store, "model", "close", ANN)


def test_a_breaker_is_moved_against_what_a_worker_wrote_meanwhile(rd: Redrive) -> None:
    breakers.move(rd.store, "model", "open", ANN, is_new=True)
    asked = rd.store.breaker
    seen: list[bytes | None] = []

    def interrupted(name: str) -> bytes | None:
        before = asked(name)
        if not seen:
            rd.store.swap_breaker(name, before, b'{"failures": 3}')
        seen.append(before)
        return before

    rd.store.breaker = interrupted  # type: ignore[method-assign]  # a worker between our two questions
    moved = breakers.move(rd.store, "model", "isolate", ANN)

    assert len(seen) == 2
    assert moved.phase == "isolated"
    assert [each.phase for each in breakers.breakers(rd.store)] == ["isolated"]
    assert [verb for _, verb, _, _ in log(rd)] == ["open", "isolate"]
