# SPDX-License-Identifier: Apache-2.0
"""Which jobs a worker sends as probes, and when their tokens are free again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from redrive import Breaker, Limit, Pipeline, Redrive
from redrive.core import breaker_state as step
from redrive.core.breaker import Evidence
from redrive.core.breaker_state import BreakerState, Phase
from redrive.engine.limits import keys
from redrive.engine.limits.keys import JobKeys, JobView
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
    assert [job_for_probe(rows[::-1], turn) for turn in range(2)] == [3, 4]
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


def test_every_second_probe_begins_at_another_place_among_those_who_wait(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    api = Breaker("api", consecutive=1, open_for=5)
    pipeline = one_stage(lambda number: number, name="call", breaker=api)
    rd.submit_many(pipeline, [0] * 3, owner="mallory")
    clock.advance(90.0)
    rd.submit(pipeline, 1, owner="ann")
    clock.advance(10.0)
    lanes = lanes_of(store, [pipeline])
    (lane,) = lanes
    chosen: list[object] = []

    for turn in (3, 4, 5):
        probes = Probes(store, lanes, SharedBreakers(store, [api]))
        probes._turns[api.name] = turn
        chosen.append(probes._next_of(api, lane, clock.wall()))

    # 0.618 of the way by each turn: 0.85 at the third, and 0.09 at the fifth, in which Ann is the only one who came since.
    assert chosen == [4, 1, 4]


def test_where_nobody_has_come_later_the_probe_is_one_of_those_who_came_first(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    api = Breaker("api", consecutive=1, open_for=5)
    pipeline = one_stage(lambda number: number, name="call", breaker=api)
    rd.submit(pipeline, 0)
    clock.advance(100.0)
    lanes = lanes_of(store, [pipeline])
    (lane,) = lanes
    probes = Probes(store, lanes, SharedBreakers(store, [api]))

    assert [probes._next_of(api, lane, clock.wall()) for _ in range(4)] == [1] * 4


def test_a_job_that_is_due_this_instant_can_be_the_probe(
    scene: Scene, store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = UpcomingWork(due={lane_of(scene).id: clock.wall()}, leased=0, paused=frozenset())
    monkeypatch.setattr(store, "upcoming", lambda _lanes: now)

    assert scene.commit(1).claimed


def test_a_new_worker_goes_on_where_the_probes_of_others_are(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    api = Breaker("api", consecutive=1, open_for=5)
    pipeline = one_stage(lambda number: number, name="call", breaker=api)
    for priority in (0, 1, 2):
        rd.submit(pipeline, priority, priority=priority)
    lanes = lanes_of(store, [pipeline])
    (lane,) = lanes
    breakers = SharedBreakers(store, [api])
    breakers.change(api, lambda _: step.opened(clock.wall(), 4))

    assert Probes(store, lanes, breakers)._next_of(api, lane, clock.wall()) == 3


def test_a_probe_is_not_taken_when_others_write_the_breaker_all_the_time(
    scene: Scene, store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "swap_breaker", lambda *_: False)

    assert not scene.probes.take(scene.open, clock.wall(), "w1:1")


def test_a_breaker_stands_as_others_have_left_it(
    scene: Scene, store: SqliteStore, clock: VirtualClock
) -> None:
    other = SharedBreakers(store, [scene.open])
    other.change(scene.open, lambda _: step.closed(clock.wall()))

    assert scene.probes.standing(scene.open).is_closed


def test_jobs_behind_a_closed_breaker_are_no_probes(scene: Scene, clock: VirtualClock) -> None:
    clock.advance(1_000)
    (lane,) = (each for each in scene.journal._lanes.values() if each.stage.breaker is scene.closed)
    scene.want = ClaimRequest((lane.id,), 10)

    claimed = [job for job in scene.commit(1).claimed if job.lane == lane.id]

    assert claimed
    assert not any(scene.probes.is_probe(job.id) for job in claimed)


def test_the_probe_of_one_commit_is_not_taken_for_what_a_later_one_has_claimed(scene: Scene) -> None:
    assert scene.commit(1).claimed

    assert [scene.commit(token).claimed for token in range(2, 10)] == [()] * 8


def test_probes_of_several_breakers_are_no_more_than_there_is_room_for(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipelines, breakers = list[Pipeline](), list[Breaker]()
    for name in ("mail", "maps", "news"):
        breakers.append(Breaker(name, consecutive=1, open_for=5))
        pipelines.append(one_stage(lambda number: number, name, name="call", breaker=breakers[-1]))
        rd.submit(pipelines[-1], 1)
    shared = SharedBreakers(store, breakers)
    for breaker in breakers:
        shared.note(breaker, Evidence.DOWN)
    shared.flush(clock.wall())
    clock.advance(10)
    store.start_worker("w1", clock.wall(), 30.0)
    probes = Probes(store, lanes_of(store, pipelines), shared)

    assert len(probes.claim([], ClaimRequest((), 2), "w1", now=clock.wall(), token=1)) == 2


def test_a_breaker_that_brings_its_own_probe_is_named_once_however_many_stages_are_behind_it(
    store: SqliteStore, clock: VirtualClock
) -> None:
    async def ask() -> None:
        return None

    api = Breaker("api", consecutive=1, probe=ask)
    pipelines = [
        one_stage(lambda number: number, name, name="call", breaker=api) for name in ("shop", "mill")
    ]

    assert Probes(store, lanes_of(store, pipelines), SharedBreakers(store, [api])).own == (api,)


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


def test_a_job_that_does_not_run_frees_the_probe_of_its_key(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    origin = Breaker("origin", consecutive=1, open_for=5, key=lambda _: "dead")
    pipeline = one_stage(lambda number: number, name="call", breaker=origin)
    lanes, shared = lanes_of(store, [pipeline]), SharedBreakers(store, [origin])
    shared.keys = JobKeys(store, lanes)
    rd.submit(pipeline, 1)
    (lane,) = lanes
    shared.keys.mark(lane)
    store.start_worker("w1", clock.wall(), 30.0)
    want = ClaimRequest((lane,), 1, keys={lane: dict.fromkeys(shared.keys.upcoming(lane, clock.wall()), 1)})
    (job,) = store.exchange(ExchangeRequest("w1", [], want, now=clock.wall(), token=1)).claimed
    shared.keys.remember([job])
    own = shared.of_key(origin, "dead")
    shared.change(own, lambda _: step.opened(clock.wall()))
    clock.advance(10)
    probes = Probes(store, lanes, shared)
    probes.assign(job.id, own, clock.wall(), "probe")
    taken = probes.standing(own).state.probe

    probes.drop(job.id, origin)
    probes.release_dropped(clock.wall())

    assert taken is not None
    assert probes.standing(own).state.probe is None


def test_of_more_keys_than_one_claim_considers_each_has_its_turn_to_have_the_probe(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "KEYS_MAX", 4)
    api = Breaker("api", consecutive=1, open_for=5)
    limit = Limit("api", rate=100, key=lambda job: str(job.input))
    pipeline = one_stage(lambda number: number, name="call", breaker=api, limits=[limit])
    lanes, shared = lanes_of(store, [pipeline]), SharedBreakers(store, [api])
    shared.keys = JobKeys(store, lanes)
    rd.submit_many(pipeline, range(10))
    (lane,) = lanes
    probes = Probes(store, lanes, shared)

    seen = [probes._keys_of(lane, clock.wall()) or [] for _ in range(3)]

    assert [len(each) for each in seen] == [4, 4, 4]
    assert len(set().union(*seen)) == 10
