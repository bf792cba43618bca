# SPDX-License-Identifier: Apache-2.0
"""Which jobs a worker sends as probes, and when their tokens are free again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from redrive import Breaker, Limit, Redrive
from redrive.core.breaker_state import BreakerState, Phase
from redrive.engine.limits.keys import JobView
from redrive.engine.pipeline.lanes import Lane, lanes_of
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.probes import Probes, job_for_probe
from redrive.store.records import ClaimRequest, Exchange, ExchangeRequest, LaneId, UpcomingWork
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import workers as worker_sql
from redrive.store.statements.workers import ProbeCandidate
from redrive.testing import VirtualClock
from tests.unit.build import STEADY, bounded, jobs, one_stage, work
from tests.unit.engine.worker.breakers.test_counted_starts import Scene


@pytest.fixture
def scene(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> Scene:
    made = Scene(store, rd, clock)
    made.want = ClaimRequest((), 10)
    return made


def lane_of(scene: Scene) -> Lane:
    """Return the lane behind the breaker that is due for a probe."""
    (lane,) = (each for each in scene.journal._lanes.values() if each.stage.breaker is scene.open)
    return lane


def state_of(scene: Scene) -> BreakerState:
    scene.breakers.flush(scene.clock.wall())
    return scene.breakers.standing(scene.open).state


def test_a_job_is_a_probe_until_its_run_has_ended(scene: Scene) -> None:
    (job,) = scene.commit(1).claimed

    assert scene.probes.is_probe(job.id)
    assert scene.probes.token_of(job.id) is not None
    assert not scene.probes.is_probe(job.id)
    assert scene.probes.token_of(job.id) is None


def test_the_probe_of_a_run_whose_process_died_is_free_again(scene: Scene) -> None:
    (job,) = scene.commit(1).claimed
    runner = scene.journal._runner
    died = runner.decide_crashed(runner.begin(job, lane_of(scene)), is_alone=False, exit_code=None)

    assert bounded(died).outcome == "crashed"
    scene.journal.flush_breakers(scene.clock.wall())
    assert state_of(scene).probe is None


def test_a_probe_whose_job_another_worker_took_first_is_free_again(
    scene: Scene, store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, upcoming = lane_of(scene), store.upcoming
    store.start_worker("w2", clock.wall(), 30.0)

    def look_too_early(lanes: Sequence[LaneId]) -> UpcomingWork:
        seen = upcoming(lanes)
        assert store.exchange(
            ExchangeRequest("w2", [], ClaimRequest((lane.id,), 1), now=clock.wall(), token=99)
        ).claimed
        return seen

    monkeypatch.setattr(store, "upcoming", look_too_early)

    assert scene.commit(1).claimed == ()
    assert (state_of(scene).phase, state_of(scene).probe) == (Phase.HALF_OPEN, None)


@pytest.mark.parametrize("reason", ["no room", "no room in its lane", "paused"])
def test_no_probe_is_taken_for_a_lane_of_which_nothing_can_be_claimed(
    scene: Scene, store: SqliteStore, clock: VirtualClock, reason: str
) -> None:
    lane = lane_of(scene)
    if reason == "paused":
        store.apply(worker_sql.pause_lanes(now=clock.wall(), pipeline=lane.pipeline.name))
    else:
        scene.want = ClaimRequest((), 0) if reason == "no room" else ClaimRequest((), 10, {lane.id: 0})

    assert scene.commit(1).claimed == ()
    assert state_of(scene).phase is Phase.OPEN


def test_a_commit_looks_only_for_probes_of_its_own_earlier_tries(
    scene: Scene, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scene.commit(1).claimed
    asked: list[int] = []
    exchange = store.exchange

    def spy(request: ExchangeRequest) -> Exchange:
        asked.append(request.token)
        return exchange(request)

    monkeypatch.setattr(store, "exchange", spy)
    scene.commit(2)

    assert asked == [2]


@pytest.mark.untraced
def test_a_few_jobs_of_the_first_priority_do_not_take_every_probe(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    api = Breaker("api", consecutive=2, open_for=5, ramp=0)
    begun = clock.wall()

    async def call(host: str) -> str:
        if host == "dead":
            raise ConnectionRefusedError(111, "refused")
        if clock.wall() < begun + 10:
            raise ConnectionRefusedError(111, "refused")
        return host

    pipeline = one_stage(call, breaker=api, retry=STEADY)
    for _ in range(6):
        rd.submit(pipeline, "dead", priority=0)
    for _ in range(20):
        rd.submit(pipeline, "good")
    work(store, pipeline, concurrency=4, hold_max=300.0)

    found = [row for row in jobs(store, "priority, status, finished_at") if row[0] == 5]
    assert {status for _, status, _ in found} == {"complete"}
    assert max(float(str(at)) for _, _, at in found) < begun + 300


def test_priorities_take_turns_then_owners_then_jobs() -> None:
    waiting = [(0, "ann", 1, 0.0), (0, "ann", 2, 1.0), (0, "bob", 3, 2.0), (5, None, 4, 0.0)]
    rows = [ProbeCandidate(*each) for each in waiting]

    assert [job_for_probe(rows, turn) for turn in range(6)] == [1, 4, 3, 4, 1, 4]
    assert job_for_probe([], 0) is None


def test_a_crowd_at_the_beginning_hides_nobody_who_comes_after_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def call(number: int) -> int:
        return number

    api = Breaker("api", consecutive=1, open_for=5)
    pipeline = one_stage(call, breaker=api)
    rd.submit_many(pipeline, [0] * 300, owner="mallory")
    clock.advance(100.0)
    rd.submit(pipeline, 1, owner="ann")
    lanes = lanes_of(store, [pipeline])
    (lane,) = lanes
    probes = Probes(store, lanes, SharedBreakers(store, [api]))

    chosen = {probes._next_of(api, lane, clock.wall()) for _ in range(60)}

    assert 301 in chosen


KEYS: Mapping[str, Callable[[JobView], str | None]] = {
    "by host": lambda job: str(job.input),
    "by owner": lambda job: job.owner,
    "one for all": lambda _: "all",
}


@pytest.mark.untraced
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_in_a_lane_with_keys_a_dead_host_does_not_take_every_probe_either(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, key: Callable[[JobView], str | None]
) -> None:
    api = Breaker("api", consecutive=2, open_for=5, ramp=0)
    begun = clock.wall()

    async def call(host: str) -> str:
        if host == "dead" or clock.wall() < begun + 10:
            raise ConnectionRefusedError(111, "refused")
        return host

    pipeline = one_stage(call, breaker=api, retry=STEADY, limits=[Limit("api", rate=100, key=key)])
    for number in range(6):
        rd.submit(pipeline, "dead", priority=0, owner=f"mallory {number}")
    for _ in range(20):
        rd.submit(pipeline, "good", owner="ann")
    work(store, pipeline, concurrency=4, hold_max=300.0)

    found = [row for row in jobs(store, "priority, status, finished_at") if row[0] == 5]
    assert {status for _, status, _ in found} == {"complete"}
    assert max(float(str(at)) for _, _, at in found) < begun + 300
