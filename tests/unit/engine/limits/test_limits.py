# SPDX-License-Identifier: Apache-2.0
"""Limits in a worker, on virtual time: what they let start and when, and that waiting for one burns nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from email.message import Message
from itertools import pairwise
from typing import Any
from urllib.error import HTTPError

import msgspec
import pytest

from redrive import Backoff, ConfigurationError, Context, Limit, Pipeline, Redrive, RetryPolicy, stage
from redrive.core.limit_state import LimitState
from redrive.engine.limits.meter import DECODE_LIMIT
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import workers as worker_sql
from redrive.testing import VirtualClock, run_inline
from tests.inline import inline_parts
from tests.unit.build import ONCE, attempts, bounded, jobs, letters, one_stage, work, worker_on

PATIENT = RetryPolicy(20, Backoff.fixed(1))


def too_many(retry_after: float | None = None) -> HTTPError:
    headers = Message()
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return HTTPError("http://api.test/", 429, "Too Many Requests", headers, None)


def starts(store: SqliteStore) -> list[float]:
    return sorted(float(str(row[0])) for row in attempts(store, "started_at"))


def most_above(times: list[float], rate: float, burst: float) -> float:
    """Return by how much calls exceed burst + rate x time, in any window."""
    return max(
        (last - first + 1) - burst - rate * (times[last] - times[first])
        for first in range(len(times))
        for last in range(first, len(times))
    )


def state_of(store: SqliteStore, name: str, key: str = "") -> LimitState:
    return DECODE_LIMIT(store.query(worker_sql.limit(name=name, key=key))[0])


async def echo(value: int) -> int:
    return value


def test_calls_start_as_fast_as_the_limit_allows_and_no_faster(store: SqliteStore, rd: Redrive) -> None:
    pipeline = one_stage(echo, limits=Limit("api", rate=10, burst=5))
    rd.submit_many(pipeline, range(45))

    assert work(store, pipeline) == "idle"

    begun = starts(store)
    assert len(begun) == 45
    assert most_above(begun, 10, 5) <= 1e-3
    assert 3.9 <= begun[-1] - begun[0] <= 4.5
    assert set(attempts(store, "outcome, attempt, burned")) == {("ok", 1, 1)}


def test_stages_of_several_pipelines_share_a_limit_by_its_name(store: SqliteStore, rd: Redrive) -> None:
    one = one_stage(echo, "one", limits=[Limit("api", rate=10, burst=5)])
    other = one_stage(echo, "other", limits=[Limit("api", rate=10, burst=5)])
    for pipeline in (one, other):
        rd.submit_many(pipeline, range(20))

    work(store, one, other)

    begun = starts(store)
    assert len(begun) == 40
    assert most_above(begun, 10, 5) <= 1e-3
    assert begun[-1] - begun[0] <= 4.5


def test_a_later_stage_with_a_limit_is_paced_too(store: SqliteStore, rd: Redrive) -> None:
    plain, paced = stage(name="plain")(echo), stage(name="paced", limits=Limit("api", rate=10, burst=5))(echo)
    pipeline = Pipeline("shop", [plain, paced])
    rd.submit_many(pipeline, range(25))

    work(store, pipeline)

    begun = sorted(float(str(at)) for lane, at in attempts(store, "lane_id, started_at") if lane == 2)
    assert len(begun) == 25
    assert most_above(begun, 10, 5) <= 1e-3


@pytest.mark.untraced
def test_two_workers_exceed_a_limit_by_no_more_than_a_block_each_and_both_get_their_share(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    by_worker: Counter[int] = Counter()

    def counting(worker: int) -> Pipeline:
        async def call(value: int) -> int:
            by_worker[worker] += 1
            return value

        return one_stage(call, limits=Limit("api", rate=20, burst=5))

    rd.submit_many(counting(0), range(205))

    async def scene() -> None:
        workers = [
            worker_on(store, counting(number), parts=inline_parts(), concurrency=8) for number in range(2)
        ]
        for number, worker in enumerate(workers):
            worker.name = f"worker-{number}"
        await asyncio.gather(*(worker.run(until_idle=True) for worker in workers))

    bounded(scene())

    begun = starts(store)
    assert len(begun) == 205
    assert most_above(begun, 20, 5) <= 2 * 20
    assert begun[-1] - begun[0] <= 12
    assert min(by_worker.values()) > 40


@pytest.mark.untraced
def test_tokens_are_taken_in_blocks_and_not_one_by_one(rd: Redrive) -> None:
    class Counting(SqliteStore):
        def __init__(self) -> None:
            super().__init__(":memory:")
            self.steps: Counter[str] = Counter()

        def apply(self, *steps: Any) -> Any:
            self.steps.update(step.name for step in steps)
            return super().apply(*steps)

    store = Counting()
    pipeline = one_stage(echo, limits=Limit("api", rate=1e6, concurrency=1_000))
    Redrive(store).submit_many(pipeline, range(2_000))
    work(store, pipeline, concurrency=16)

    assert attempts(store, "count(*)") == [(2_000,)]
    assert store.steps["swap_limit"] + store.steps["add_limit"] < 30
    store.close()


def test_a_told_delay_pauses_all_jobs_of_the_limit(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    begun: list[tuple[float, int]] = []

    async def call(value: int) -> int:
        begun.append((clock.wall(), value))
        if len(begun) == 3:
            raise too_many(30)
        return value

    limit = Limit("api", rate=10, burst=1)
    pipeline = one_stage(call, limits=limit, retry=PATIENT)
    other = one_stage(call, "other", limits=limit)
    rd.submit_many(pipeline, range(6))
    rd.submit_many(other, range(6))

    assert work(store, pipeline, other, hold_max=1.0) == "idle"

    gaps = [later[0] - earlier[0] for earlier, later in pairwise(begun)]
    assert gaps[2] >= 30
    assert max(gaps[:2] + gaps[3:]) < 1
    assert state_of(store, "api").refused_at is not None


def test_a_delay_told_without_a_429_pauses_the_limit_and_teaches_no_rate(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    begun: list[float] = []

    async def call(value: int) -> int:
        begun.append(clock.wall())
        if len(begun) == 1:
            headers = Message()
            headers["Retry-After"] = "20"
            raise HTTPError("http://api.test/", 503, "busy", headers, None)
        return value

    pipeline = one_stage(call, limits=Limit("api", rate=10, burst=1), retry=PATIENT)
    rd.submit_many(pipeline, range(3))
    work(store, pipeline)

    assert begun[1] - begun[0] >= 20
    assert state_of(store, "api").refused_at is None


class Service:
    """A service with a bucket of its own, that refuses what is too much."""

    def __init__(self, clock: VirtualClock, rate: float, burst: float) -> None:
        self._clock, self._rate, self._burst = clock, rate, burst
        self._tokens, self._at = burst, clock.wall()
        self.refused = 0

    def call(self) -> None:
        now = self._clock.wall()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1 - 1e-6:
            self.refused += 1
            raise too_many()
        self._tokens -= 1


@pytest.mark.untraced
def test_an_adaptive_limit_finds_a_rate_that_nobody_told_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    service = Service(clock, rate=50, burst=20)

    async def call(value: int) -> int:
        service.call()
        return value

    pipeline = one_stage(call, limits=Limit("api", adaptive=True), retry=PATIENT)
    rd.submit_many(pipeline, range(1_020))
    work(store, pipeline)

    times = starts(store)
    assert rd.jobs.counts() == {"complete": 1_020}
    assert service.refused < 60
    assert times[-1] - times[0] < 1.5 * 20


def test_a_cost_is_counted_and_corrected_by_what_was_really_used(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    begun: list[float] = []

    async def call(value: int, ctx: Context) -> int:
        begun.append(clock.wall())
        ctx.used("tokens", 100)
        return value

    limits = [Limit("calls", rate=1_000), Limit("tokens", rate=100, burst=100, cost=lambda value: value)]
    pipeline = one_stage(call, limits=limits)
    rd.submit_many(pipeline, [50] * 20)
    work(store, pipeline)

    # By the estimate it would be 9 s; what was used takes 19 s, and the last block may run ahead of it.
    assert 16 <= begun[-1] - begun[0] <= 21


def test_a_call_that_costs_more_than_the_burst_waits_for_all_of_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    begun: list[tuple[int, float]] = []

    async def call(value: int) -> int:
        begun.append((value, clock.wall()))
        return value

    pipeline = one_stage(call, limits=Limit("tokens", rate=10, burst=10, cost=lambda value: value))
    rd.submit_many(pipeline, [5, 100, 5])
    work(store, pipeline)

    assert [value for value, _ in begun] == [5, 100, 5]
    assert 8 <= begun[1][1] - begun[0][1] <= 11
    assert set(attempts(store, "outcome")) == {("ok",)}


@pytest.mark.parametrize(("given", "code"), [(lambda _: 1 / 0, "BUG"), (lambda _: "many", "CONFIG")])
def test_a_cost_that_fails_is_a_failure_of_its_job_alone(
    store: SqliteStore, rd: Redrive, given: Callable[[Any], Any], code: str
) -> None:
    def cost(value: int) -> float:
        return float(value) if value else given(value)

    pipeline = one_stage(echo, limits=Limit("tokens", rate=100, cost=cost), retry=ONCE)
    rd.submit_many(pipeline, [1, 0, 2])
    work(store, pipeline)

    assert rd.jobs.counts() == {"complete": 2, "failed": 1}
    assert code in str(letters(store)[0][0])


def test_what_is_reported_must_be_of_a_limit_of_the_stage(store: SqliteStore, rd: Redrive) -> None:
    async def call(value: int, ctx: Context) -> int:
        ctx.used("api" if value else "tokens", -1)
        return value

    pipeline = one_stage(call, limits=Limit("api", rate=100), retry=ONCE)
    rd.submit_many(pipeline, [0, 1])
    work(store, pipeline)

    messages = [str(row[0]) for row in letters(store, "message")]
    assert "limit of this stage: api" in messages[0]
    assert "at least 0" in messages[1]


class TestConcurrency:
    """Calls at once, over several workers."""

    def running(self, clock: VirtualClock, limit: Limit) -> tuple[Pipeline, list[int]]:
        now, seen = [0], [0]

        async def call(value: int) -> int:
            now[0] += 1
            seen.append(now[0])
            for _ in range(5):
                await asyncio.sleep(0)
            now[0] -= 1
            return value

        return one_stage(call, limits=limit), seen

    def test_no_more_run_at_once_than_it_allows(
        self, store: SqliteStore, rd: Redrive, clock: VirtualClock
    ) -> None:
        pipeline, seen = self.running(clock, Limit("db", concurrency=3))
        rd.submit_many(pipeline, range(40))
        work(store, pipeline, concurrency=16)

        assert max(seen) == 3
        assert rd.jobs.counts() == {"complete": 40}
        assert state_of(store, "db").shares == {}

    def test_workers_share_it(self, store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
        pipeline, seen = self.running(clock, Limit("db", concurrency=3))
        rd.submit_many(pipeline, range(60))

        async def scene() -> None:
            workers = [worker_on(store, pipeline, concurrency=16) for _ in range(3)]
            for number, worker in enumerate(workers):
                worker.name = f"worker-{number}"
            await asyncio.gather(*(worker.run(until_idle=True) for worker in workers))

        bounded(scene())

        assert max(seen) <= 3
        assert rd.jobs.counts() == {"complete": 60}

    def test_slots_of_a_worker_that_died_are_free_when_it_is_reaped(
        self, store: SqliteStore, rd: Redrive, clock: VirtualClock
    ) -> None:
        pipeline, _ = self.running(clock, Limit("db", concurrency=2))
        rd.submit_many(pipeline, range(3))
        store.start_worker("dead", clock.wall(), 30.0)
        taken = msgspec.json.encode({"shares": {"dead": {"slots": 2, "wanted": 2, "at": clock.wall()}}})
        store.apply(worker_sql.add_limit(name="db", key="", state=taken, now=clock.wall()))

        async def scene() -> None:
            worker = worker_on(store, pipeline)
            running = asyncio.ensure_future(worker.run(until_idle=True))
            await clock.asleep(5.0)
            assert rd.jobs.counts() == {"queued": 3}
            store.reap(clock.wall() + 60)
            await running

        bounded(scene())
        assert rd.jobs.counts() == {"complete": 3}


def test_a_limit_that_an_operator_paused_holds_its_jobs(store: SqliteStore, rd: Redrive) -> None:
    pipeline = one_stage(echo, limits=Limit("api", rate=10))
    rd.submit(pipeline, 1)
    store.apply(
        worker_sql.add_limit(name="api", key="", state=msgspec.json.encode({"is_paused": True}), now=0.0)
    )

    assert work(store, pipeline, hold_max=5.0) == "held"
    assert jobs(store, "status, attempt, dispatch") == [("queued", 1, 0)]


def test_a_job_runs_inline_with_limits(clock: VirtualClock) -> None:
    pipeline = one_stage(
        echo, limits=[Limit("api", rate="1/min"), Limit("big", rate=1, burst=1, cost=lambda _: 30)]
    )
    before = clock.wall()

    assert run_inline(pipeline, 7).value == 7
    assert clock.wall() - before >= 28


def test_a_limit_defined_twice_with_other_numbers_is_refused() -> None:
    one = stage(name="one", limits=Limit("api", rate="500/min"))(echo)
    other = stage(name="other", limits=Limit("api", rate="600/min"))(echo)

    with pytest.raises(ConfigurationError, match=r"rate 8\.33.* and 10\.0") as refused:
        Pipeline("shop", [one, other])
    assert "Limit(api)" in str(refused.value)


@pytest.mark.parametrize("given", ["api", 5, ["api"], [Limit("a", rate=1), Limit("a", rate=2)]])
def test_a_stage_takes_limits_and_nothing_else(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="limits"):
        stage(limits=given)(echo)
