# SPDX-License-Identifier: Apache-2.0
"""Breakers by key: a dead origin holds its own jobs and no others."""

from __future__ import annotations

import msgspec
import pytest

from redrive import Batch, Breaker, ConfigurationError, Limit, Pipeline, Redrive, guard, stage
from redrive.core import breaker_state
from redrive.core.breaker import Evidence
from redrive.core.breaker_state import BreakerState, Phase, closed, opened
from redrive.engine.delivery.recipients import record_listeners
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.worker.breakers import SharedBreakers, keyed_name
from redrive.ops import breakers
from redrive.ops.audit import Actor
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import workers as worker_sql
from redrive.testing import VirtualClock
from tests.unit.build import STEADY, attempts, jobs, one_stage, work

ORIGIN = Breaker("origin", consecutive=2, open_for=60, key=lambda job: job.input.partition("/")[0])


def fetching(clock: VirtualClock, back_at: float, breaker: Breaker = ORIGIN, **options: object) -> Pipeline:
    """Build a stage that fetches URLs; the origin `dead` is down until `back_at`."""

    async def fetch(url: str) -> str:
        if url.startswith("dead") and clock.wall() < back_at:
            raise ConnectionRefusedError(111, "refused")
        return url

    made = stage(breaker=breaker, retry=STEADY)(fetch)
    return Pipeline("shop", [made], **options)  # type: ignore[arg-type]


def phase_of(store: SqliteStore, name: str) -> Phase | None:
    raw = store.breaker(name)
    return None if raw is None else msgspec.json.decode(raw, type=BreakerState).phase


def test_a_dead_origin_holds_its_own_jobs_and_no_others(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = fetching(clock, clock.wall() + 1e6)
    rd.submit_many(pipeline, [f"{origin}/{number}" for number in range(50) for origin in ("dead", "alive")])

    assert work(store, pipeline, concurrency=4, hold_max=30) == "held"

    assert rd.jobs.counts() == {"complete": 50, "queued": 50}
    assert phase_of(store, "origin[dead]") is Phase.OPEN
    assert phase_of(store, "origin[alive]") is None
    assert phase_of(store, "origin") is None
    assert len(attempts(store)) < 70


def test_each_key_is_probed_alone_and_released_when_its_origin_is_back(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = fetching(clock, clock.wall() + 100)
    rd.submit_many(pipeline, [f"dead/{number}" for number in range(10)])

    assert work(store, pipeline, concurrency=4) == "idle"

    assert rd.jobs.counts() == {"complete": 10}
    assert phase_of(store, "origin[dead]") is Phase.CLOSED
    # Two open it, what ran beside them is held, and the probe after 60 s fails; none of them burns more than its first attempt.
    assert max(int(str(row[0])) for row in attempts(store, "attempt")) <= 2


@pytest.mark.untraced
def test_many_dead_origins_hold_no_others_and_all_are_held_together(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    breaker = Breaker("origin", consecutive=1, open_for=3_600, key=lambda job: job.input)
    pipeline = fetching(clock, clock.wall() + 1e6, breaker)
    rd.submit_many(pipeline, [f"dead{number:03}" for number in range(150) for _ in range(2)])
    assert work(store, pipeline, concurrency=8, hold_max=1) == "held"

    rd.submit_many(pipeline, ["later"] * 3)
    assert work(store, pipeline, concurrency=8, hold_max=30) == "held"

    assert rd.jobs.counts() == {"complete": 3, "queued": 300}


def test_a_breaker_of_one_key_is_listed_opened_and_closed_by_its_name(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = fetching(clock, clock.wall() + 1e6, on_breaker=lambda _: None)
    record_listeners(store, lanes_of(store, [pipeline]))
    rd.submit_many(pipeline, ["dead/1", "dead/2", "dead/3"])
    work(store, pipeline, concurrency=1, hold_max=1)

    listed = {each.name: each for each in breakers.breakers(store)}
    assert listed["origin[dead]"].phase == "open"
    closed = breakers.move(store, "origin[dead]", "close", Actor("ann"))
    assert closed.phase == "closed"
    assert [each.after for each in breakers.breaker_changes(store, pipeline="shop")] == ["open", "closed"]
    assert len(store.read("SELECT 1 FROM outbox WHERE change_id IS NOT NULL")) == 2


def test_one_that_fails_fast_refuses_the_jobs_of_its_key_alone(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    breaker = Breaker("origin", consecutive=2, open_for=60, mode="fail_fast", key=lambda job: job.input[:4])
    pipeline = fetching(clock, clock.wall() + 1e6, breaker)
    rd.submit_many(pipeline, ["dead/1", "dead/2", "dead/3", "alive/1"])
    work(store, pipeline, concurrency=1)

    assert rd.jobs.counts()["complete"] == 1


def test_a_stage_may_have_a_breaker_and_a_limit_by_different_keys(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def fetch(url: str) -> str:
        return url

    pipeline = one_stage(
        fetch, breaker=ORIGIN, limits=Limit("origin", concurrency=2, key=lambda job: job.owner)
    )
    rd.submit_many(pipeline, ["a/1", "b/1"])
    work(store, pipeline)

    assert sorted(str(row[0]) for row in jobs(store, "lane_key")) == ['["a",""]', '["b",""]']


def test_breakers_of_keys_that_nobody_needs_are_forgotten(store: SqliteStore, clock: VirtualClock) -> None:
    shared = SharedBreakers(store, [ORIGIN])
    now = clock.wall()
    states = {
        "closed": BreakerState(changed_at=now),
        "failing": BreakerState(failures=1),
        "open": opened(now),
        "isolated": BreakerState(phase=Phase.ISOLATED, changed_at=now),
    }
    for key, state in states.items():
        store.apply(worker_sql.add_breaker(name=keyed_name("origin", key), state=msgspec.json.encode(state)))
    store.apply(worker_sql.add_breaker(name="originals", state=msgspec.json.encode(states["closed"])))
    mine = shared.of_key(ORIGIN, "closed")

    shared.forget_idle(now)
    assert len(store.query(worker_sql.breakers())) == 5
    shared.forget_idle(now + 7_200)
    assert [row[0] for row in store.query(worker_sql.breakers())] == [
        "origin[failing]",
        "origin[isolated]",
        "origin[open]",
        "originals",
    ]
    shared.forget_idle(now + 8 * 86_400)
    assert [row[0] for row in store.query(worker_sql.breakers())] == [
        "origin[failing]",
        "origin[isolated]",
        "originals",
    ]
    assert shared.of_key(ORIGIN, "closed") is not mine


def test_one_of_which_something_is_still_to_be_written_is_not_forgotten(
    store: SqliteStore, clock: VirtualClock
) -> None:
    shared, now = SharedBreakers(store, [ORIGIN]), clock.wall()
    own = shared.of_key(ORIGIN, "dead")
    shared.note(own, Evidence.DOWN, "REFUSED")

    shared.forget_idle(now)
    shared.flush(now)

    assert shared.standing(own).state.failures == 1


def test_one_that_lets_work_go_gradually_is_not_forgotten(store: SqliteStore, clock: VirtualClock) -> None:
    shared, now = SharedBreakers(store, [ORIGIN]), clock.wall()
    shared.change(shared.of_key(ORIGIN, "back"), lambda _: closed(now))

    shared.forget_idle(now + 1)

    assert shared.is_ramping(now + 1)


def test_of_very_many_those_that_only_count_failures_are_kept_for_a_while_after_they_closed(
    store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.engine.worker.breakers.KEYS_KEPT", 1)
    shared, now = SharedBreakers(store, [ORIGIN]), clock.wall()
    for key in ("a", "b"):
        raw = msgspec.json.encode(BreakerState(changed_at=now, failures=1))
        store.apply(worker_sql.add_breaker(name=keyed_name("origin", key), state=raw))

    shared.forget_idle(now + 1_800)
    assert len(store.query(worker_sql.breakers())) == 2
    shared.forget_idle(now + 7_200)

    assert store.query(worker_sql.breakers()) == []


def test_one_that_is_forgotten_while_a_call_is_under_way_counts_as_closed_and_is_known_again(
    store: SqliteStore, clock: VirtualClock
) -> None:
    shared, now = SharedBreakers(store, [ORIGIN]), clock.wall()
    own = shared.of_key(ORIGIN, "dead")
    shared.forget_idle(now)

    assert shared.standing(own).is_closed
    assert shared.standing(own).state == BreakerState()
    shared.note(own, Evidence.DOWN, "REFUSED")
    shared.flush(now)
    assert shared.standing(own).state.failures == 1

    shared.forget_idle(now)
    shared.change(own, lambda _: opened(now))
    assert shared.opens_in(now, 1e6) == 60


def test_breakers_of_keys_may_come_and_go_while_another_thread_looks_at_them(
    store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = Breaker("origin", consecutive=1, open_for=60, key=lambda job: job.owner)
    breakers = SharedBreakers(store, [origin])
    one, plain = breakers.of_key(origin, "one"), breaker_state.opens_at
    breakers.note(one, Evidence.DOWN)
    breakers.flush(clock.wall())

    def another_comes(breaker: Breaker, state: BreakerState) -> float | None:
        breakers.of_key(origin, "two")
        return plain(breaker, state)

    def this_one_goes(breaker: Breaker, state: BreakerState, now: float) -> bool:
        breakers._breakers.pop(one.name, None)
        breakers.of_key(origin, f"{breaker.name} {now}")
        return False

    monkeypatch.setattr(breaker_state, "opens_at", another_comes)
    monkeypatch.setattr(breaker_state, "is_ramping", this_one_goes)

    assert breakers.opens_in(clock.wall(), 1.0) == pytest.approx(60.0)
    assert not breakers.is_ramping(clock.wall())
    # Its state is still there for a moment: it is no longer known.
    assert breakers.opens_in(clock.wall(), 1.0) == 1.0


def test_a_key_must_be_a_function_and_a_guard_has_none() -> None:
    with pytest.raises(ConfigurationError, match="must be a function"):
        Breaker("origin", consecutive=1, key="host")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cannot be given with key="):
        Breaker("origin", consecutive=1, key=lambda job: job.input, probe=lambda: None)
    with pytest.raises(ConfigurationError, match="has a key"):
        guard(breaker=ORIGIN)


def test_a_batch_cannot_have_a_breaker_with_keys() -> None:
    async def fetch(urls: list[str]) -> list[str]:
        return urls

    with pytest.raises(ConfigurationError, match="has keys"):
        stage(breaker=ORIGIN, batch=Batch(size=4))(fetch)


@pytest.mark.parametrize(
    "limit",
    [
        Limit("api", rate=100, cost=lambda _: 2),
        Limit("api", rate=100, key=lambda job: job.input),
        Limit("api", rate=100, cost=lambda _: 2, key=lambda job: job.input),
    ],
    ids=["cost", "key", "both"],
)
def test_a_breaker_without_keys_gets_its_probe_through_any_limit(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, limit: Limit
) -> None:
    back_at = clock.wall() + 20

    async def fetch(url: str) -> str:
        if clock.wall() < back_at:
            raise ConnectionRefusedError(111, "refused")
        return url

    breaker = Breaker("origin", consecutive=1, open_for=15, ramp=0)
    pipeline = one_stage(fetch, breaker=breaker, retry=STEADY, limits=limit)
    rd.submit_many(pipeline, ["a", "b", "c"])

    assert work(store, pipeline, concurrency=1, hold_max=300) == "idle"
    assert phase_of(store, "origin") is Phase.CLOSED
    assert rd.jobs.counts() == {"complete": 3}
    # One that opens it, a probe that fails and one that does not, and the other two.
    assert len(attempts(store)) == 5
