# SPDX-License-Identifier: Apache-2.0
"""Holds and their end: how long a worker waits for a dependency, and how gradually work starts again."""

from __future__ import annotations

import asyncio
import bisect
import threading
from contextlib import closing

import msgspec
import pytest

from redrive import Backoff, Breaker, Pipeline, Redrive, RetryPolicy, stage
from redrive.core import breaker_state as step
from redrive.core.breaker import Evidence
from redrive.engine.worker.breakers import SharedBreakers
from redrive.errors import StoreUnavailableError
from redrive.ops.audit import Actor
from redrive.ops.breakers import move
from redrive.store.records import (
    Exchange,
    ExchangeRequest,
    PhaseChange,
)
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import operations as operation_sql
from redrive.store.statements import workers as worker_sql
from redrive.testing import VirtualClock
from tests.unit.build import (
    STEADY,
    STUCK_SECONDS,
    attempts,
    bounded,
    jobs,
    one_stage,
    threaded_parts,
    work,
    worker_on,
)

API = Breaker("api", consecutive=2, open_for=60, ramp=10)


def calling(clock: VirtualClock, back_at: float, *names: str, breaker: Breaker = API) -> Pipeline:
    """Build a pipeline of stages behind one breaker whose dependency is down until `back_at`."""

    async def call(number: int) -> int:
        if clock.wall() < back_at:
            raise ConnectionRefusedError(111, "refused")
        return number

    stages = [stage(name=name, breaker=breaker, retry=STEADY)(call) for name in names or ("call",)]
    return Pipeline("shop", stages)


def starts_after_closing(store: SqliteStore, breaker: Breaker) -> tuple[step.BreakerState, list[float]]:
    shared = SharedBreakers(store, [breaker])
    shared.flush(0.0)
    state = shared.standing(breaker).state
    assert state.changed_at is not None
    starts = sorted(float(str(row[0])) for row in attempts(store, "started_at"))
    # The probe that closed it started before.
    return state, starts[bisect.bisect_left(starts, state.changed_at) :]


@pytest.mark.untraced
def test_after_a_hold_work_starts_as_gradually_as_the_breaker_allows(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = calling(clock, clock.wall() + 30)
    rd.submit_many(pipeline, range(800))
    work(store, pipeline, concurrency=1_000)

    assert rd.jobs.counts() == {"complete": 800}
    state, starts = starts_after_closing(store, API)
    closed_at = float(str(state.changed_at))
    for seconds in (1.0, 2.0, 4.0, 6.0, 8.0):
        now = closed_at + seconds
        started = bisect.bisect_right(starts, now)
        allowed = step.starts_allowed(API, state, now)
        assert started <= allowed + 1
        assert started >= min(799, allowed * 0.9 - 3), (seconds, started, allowed)


@pytest.mark.untraced
def test_stages_behind_one_breaker_share_its_ramp(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = calling(clock, clock.wall() + 30, "one", "two", "three")
    rd.submit_many(pipeline, range(300))
    work(store, pipeline, concurrency=1_000)

    assert rd.jobs.counts() == {"complete": 300}
    state, starts = starts_after_closing(store, API)
    for seconds in (1.0, 2.0, 4.0, 6.0):
        now = float(str(state.changed_at)) + seconds
        assert bisect.bisect_right(starts, now) <= step.starts_allowed(API, state, now) + 1


def test_without_a_ramp_all_work_starts_at_once(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    breaker = Breaker("api", consecutive=2, open_for=60, ramp=0)
    pipeline = calling(clock, clock.wall() + 30, breaker=breaker)
    rd.submit_many(pipeline, range(100))
    work(store, pipeline, concurrency=1_000)

    state, starts = starts_after_closing(store, breaker)
    assert starts[-1] - float(str(state.changed_at)) <= 1.0


class ClosedMeanwhile(SqliteStore):
    """A store in which somebody closes the breaker between the decision to hold a job and its commit."""

    def exchange(self, asked: ExchangeRequest) -> Exchange:
        if any(one.outcome == "hold" for one in asked.done) and not self.query(
            operation_sql.operations(limit=1)
        ):
            move(self, "api", "close", Actor("ann"))
        return super().exchange(asked)


def test_a_job_held_while_somebody_closes_its_breaker_is_released_at_once(clock: VirtualClock) -> None:
    start = clock.wall()
    with closing(ClosedMeanwhile(":memory:")) as store:
        pipeline = calling(clock, start + 1, breaker=Breaker("api", consecutive=2, open_for=3_600))
        Redrive(store).submit_many(pipeline, range(2))
        work(store, pipeline)

        assert jobs(store) == [("complete",)] * 2
        assert clock.wall() - start < 60


def test_a_worker_gives_up_waiting_for_what_is_held_though_probes_go_out_meanwhile(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    start = clock.wall()
    pipeline = calling(clock, start + 5_000)
    rd.submit_many(pipeline, range(3))

    assert work(store, pipeline, hold_max=600) == "held"
    assert 600 <= clock.wall() - start <= 700
    assert jobs(store) == [("queued",)] * 3


@pytest.mark.untraced
def test_a_worker_waits_anew_for_what_is_held_after_another_job_has_ended(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    start = clock.wall()
    held, free = calling(clock, start + 5_000), one_stage(lambda number: number, "free", name="f")
    rd.submit(held, 1)
    store.swap_breaker("api", None, msgspec.json.encode(step.isolated(start)))

    async def scene() -> str:
        worker = worker_on(store, held, free)
        running = asyncio.ensure_future(worker.run(until_idle=True, hold_max=600))
        await clock.asleep(300)
        rd.submit(free, 2)
        return await running

    assert bounded(scene()) == "held"
    assert jobs(store) == [("queued",), ("complete",)]
    assert 900 <= clock.wall() - start <= 910


def test_without_patience_a_worker_ends_at_the_first_hold(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = calling(clock, clock.wall() + 5_000)
    rd.submit_many(pipeline, range(3))

    assert work(store, pipeline, hold_max=0) == "held"
    assert rd.jobs.counts() == {"queued": 3}


def test_what_was_paused_is_held_and_other_lanes_go_on(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    paused, free = (
        one_stage(lambda number: number, "paused", name="p"),
        one_stage(lambda n: n, "free", name="f"),
    )
    rd.submit(paused, 1)
    rd.submit(free, 2)
    store.apply(worker_sql.pause_lanes(now=clock.wall(), pipeline="paused"))

    assert work(store, paused, free, hold_max=0) == "held"
    assert jobs(store) == [("queued",), ("complete",)]

    store.apply(worker_sql.resume_lanes(pipeline="paused"))
    assert work(store, paused, free) == "idle"
    assert jobs(store) == [("complete",), ("complete",)]


def test_an_isolated_breaker_waits_for_somebody(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    pipeline = calling(clock, 0.0)
    rd.submit(pipeline, 1)
    store.swap_breaker("api", None, msgspec.json.encode(step.isolated(clock.wall())))

    assert work(store, pipeline, hold_max=100) == "held"
    assert attempts(store) == []


@pytest.mark.untraced
def test_what_is_held_follows_its_breaker_when_somebody_isolates_and_opens_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    begin = clock.wall()
    pipeline = calling(clock, begin + 1, breaker=Breaker("api", consecutive=1, open_for=60, ramp=0))
    rd.submit(pipeline, 1)
    assert work(store, pipeline, hold_max=0) == "held"

    move(store, "api", "isolate", Actor("ann"))
    assert work(store, pipeline, hold_max=600) == "held"
    assert len(attempts(store)) == 1, "its time came, and it was not tried"

    move(store, "api", "open", Actor("ann"))
    opened_at = clock.wall()
    assert work(store, pipeline) == "idle"
    assert attempts(store, "started_at")[1] == (opened_at + 60,)


def test_one_of_the_jobs_that_are_claimed_together_is_the_probe_of_a_breaker_that_fails_fast(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    called: list[int] = []

    def call(number: int) -> int:
        called.append(number)
        raise ConnectionRefusedError(111, "refused")

    breaker = Breaker("api", consecutive=1, open_for=60, mode="fail_fast")
    pipeline = one_stage(call, breaker=breaker, retry=RetryPolicy(1))
    store.swap_breaker("api", None, msgspec.json.encode(step.opened(clock.wall() - 61)))
    rd.submit_many(pipeline, range(5))
    work(store, pipeline)

    assert len(called) == 1
    assert jobs(store) == [("failed",)] * 5


def test_a_fail_fast_stage_is_refused_by_name_with_the_time_to_come_back(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    breaker = Breaker("api", consecutive=1, open_for=60, mode="fail_fast")
    pipeline = calling(clock, clock.wall() + 1_000, breaker=breaker)
    rd.submit_many(pipeline, range(2))
    work(store, pipeline, concurrency=1)

    codes = {row[0] for row in attempts(store, "code")}
    assert codes == {"NETWORK_REFUSED", "BREAKER_OPEN"}


def test_a_breaker_that_opens_while_jobs_wait_for_a_place_holds_them_unburned(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = calling(clock, clock.wall() + 30)
    rd.submit_many(pipeline, range(50))
    work(store, pipeline, concurrency=1)

    assert rd.jobs.counts() == {"complete": 50}
    burned = attempts(store, "burned, outcome").count((1, "retry"))
    assert burned <= 2


def test_the_breaker_of_a_cancelled_worker_gets_its_probe_back(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        going = asyncio.Event()

        @stage(breaker=API, retry=RetryPolicy(2, Backoff.fixed(1)))
        async def call(_number: int) -> None:
            going.set()
            await asyncio.Event().wait()

        pipeline = Pipeline("shop", [call])
        rd.submit(pipeline, 1)
        somebody = SharedBreakers(store, [API])
        for _ in range(2):
            somebody.note(API, Evidence.DOWN)
        somebody.flush(clock.wall())
        clock.advance(61)
        working = asyncio.ensure_future(worker_on(store, pipeline).run())
        await going.wait()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    bounded(scene())
    shared = SharedBreakers(store, [API])
    shared.flush(clock.wall())
    assert shared.standing(API).state.probe is None


def test_the_breaker_of_a_worker_that_leaves_a_thread_behind_gets_its_probe_back(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        loop, going, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        @stage(breaker=API)
        def call(_number: int) -> None:
            loop.call_soon_threadsafe(going.set)
            may_end.wait(STUCK_SECONDS)

        pipeline = Pipeline("shop", [call])
        rd.submit(pipeline, 1)
        somebody = SharedBreakers(store, [API])
        for _ in range(2):
            somebody.note(API, Evidence.DOWN)
        somebody.flush(clock.wall())
        clock.advance(61)
        working = asyncio.ensure_future(worker_on(store, pipeline, parts=threaded_parts()).run())
        await going.wait()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        may_end.set()

    bounded(scene())
    shared = SharedBreakers(store, [API])
    shared.flush(clock.wall())
    assert shared.standing(API).state.probe is None


@pytest.mark.parametrize("is_probed", [True, False])
def test_stages_that_never_fail_leave_their_breaker_alone(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_probed: bool
) -> None:
    pipeline = calling(clock, 0.0)
    rd.submit_many(pipeline, range(5 if is_probed else 1))
    work(store, pipeline)

    assert rd.jobs.counts().keys() == {"complete"}
    assert store.breaker("api") is None


def opened(store: SqliteStore, clock: VirtualClock, breaker: Breaker) -> None:
    """Open a breaker, and let so much time pass that it is time for a probe."""
    store.swap_breaker(breaker.name, None, msgspec.json.encode(step.opened(clock.wall())))
    clock.advance(61)


@pytest.mark.parametrize(
    "meanwhile", ["all places are taken", "the breaker is closed by hand", "others probe"]
)
def test_a_probe_whose_answer_was_lost_is_run_though_the_commit_is_repeated_in_another_world(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    running: set[int] = set()
    most: list[int] = []

    async def call(number: int) -> int:
        running.add(number)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(number)
        return number

    probed = one_stage(call, "probed", breaker=API, retry=STEADY)
    free = one_stage(call, "free", retry=STEADY)
    probe = rd.submit(probed, 0)
    opened(store, clock, API)
    exchange, lost = store.exchange, list[int]()

    def losing(*args: object, **kwargs: object) -> object:
        answer = exchange(*args, **kwargs)  # type: ignore[arg-type]
        if not lost and [job.id for job in answer.claimed] == [probe.id]:
            lost.append(1)
            rd.submit_many(free, [1, 2, 3])
            if meanwhile != "all places are taken":
                after = step.closed(clock.wall()) if "closed" in meanwhile else step.opened(clock.wall())
                store.swap_breaker("api", store.breaker("api"), msgspec.json.encode(after))
            raise StoreUnavailableError(database="x", cause="the answer was lost")
        return answer

    monkeypatch.setattr(store, "exchange", losing)
    work(store, probed, free, concurrency=1)

    assert lost
    assert jobs(store) == [("complete",)] * 4
    assert max(most) == 1
    assert ("ok",) in store.read("SELECT outcome FROM attempts WHERE job_id = ?", (probe.id,))
    shared = SharedBreakers(store, [API])
    shared.flush(clock.wall())
    assert shared.standing(API).is_closed


def test_a_probe_that_took_no_job_before_its_answer_was_lost_is_given_back(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def look(number: int) -> int:
        shared = SharedBreakers(store, [API])
        shared.flush(clock.wall())
        seen.append(shared.standing(API).state.probe)
        return number

    probed, free = one_stage(lambda number: number, "probed", name="p", breaker=API), one_stage(look, "free")
    rd.submit(probed, 0)
    opened(store, clock, API)
    swap, lost = store.swap_breaker, list[int]()

    def losing(name: str, before: bytes | None, after: bytes, change: PhaseChange | None = None) -> bool:
        answer = swap(name, before, after, change)
        if not lost:
            lost.append(1)
            rd.submit(free, 1)
            raise StoreUnavailableError(database="x", cause="the answer was lost")
        return answer

    monkeypatch.setattr(store, "swap_breaker", losing)
    work(store, probed, free, concurrency=1)

    assert (lost, seen) == ([1], [None])
    assert jobs(store) == [("complete",)] * 2
