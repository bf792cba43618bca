# SPDX-License-Identifier: Apache-2.0
"""What a worker commits and claims next: in which order, how the starts of a breaker are divided, and what it forgets when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from redrive import Breaker, Pipeline, Redrive, RetryPolicy, stage
from redrive.core.breaker import Evidence
from redrive.engine.classifier import DEFAULT
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.journal import RELEASE_SECONDS, Journal
from redrive.engine.worker.probes import Probes
from redrive.engine.worker.runner import Runner
from redrive.errors import StoreUnavailableError
from redrive.store.records import (
    ClaimedJob,
    ClaimRequest,
    Exchange,
    ExchangeRequest,
    LaneId,
    Settlement,
    Step,
)
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from redrive.testing.conformance.build import settlement
from tests.inline import at_once

API = Breaker("api", consecutive=1, open_for=5, ramp=100)


def named(name: str, **options: object) -> Callable[[int], int]:
    def run(number: int) -> int:
        return number

    return stage(name=name, retry=RetryPolicy(1), **options)(run)  # type: ignore[call-overload, no-any-return]


class Scene:
    """A journal over a pipeline of three stages; the first two share a breaker."""

    def __init__(self, store: SqliteStore, rd: Redrive, clock: VirtualClock, breaker: Breaker = API) -> None:
        stages = [named("fetch", breaker=breaker), named("parse", breaker=breaker), named("store")]
        self.pipeline = Pipeline("shop", stages)  # type: ignore[arg-type]
        self.store, self.rd, self.clock = store, rd, clock
        lanes = lanes_of(store, [self.pipeline])
        self.lanes = list(lanes)
        self.breakers = SharedBreakers(store, [breaker])
        runtime = CURRENT.get()
        self.probes = Probes(store, lanes, self.breakers)
        runner = Runner(self.probes, runtime, classifier=DEFAULT, ask_store=at_once)
        self.journal = Journal(store, lanes, runner)
        store.start_worker("w1", clock.wall(), 1e6)

    def claimed(self) -> ClaimedJob:
        self.rd.submit(self.pipeline, 1)
        return self.commit(ClaimRequest((self.lanes[0],), 1)).claimed[0]

    def commit(self, want: ClaimRequest) -> Exchange:
        batch, token = self.journal.take()
        return self.journal.commit("w1", batch, want, now=self.clock.wall(), token=token)

    def refuse(self, one: Settlement) -> list[Settlement]:
        """Let the store refuse a settlement; return what is settled instead."""
        self.journal.add_refused(Exchange(lost=(), broken=(one.job.id,), claimed=()), [one])
        return self.journal.take()[0]

    def ramp(self) -> None:
        """Let the breaker close after an outage, so long ago that one call may start."""
        self.breakers.note(API, Evidence.DOWN)
        self.breakers.flush(self.clock.wall())
        self.clock.advance(10)
        assert self.probes.take(API, self.clock.wall(), "probe")
        self.probes.end(API, self.clock.wall(), "probe", Evidence.ALIVE)
        self.clock.advance(1)
        assert 1 <= self.breakers.starts_left(API, self.clock.wall()) < 2


@pytest.fixture
def scene(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> Scene:
    return Scene(store, rd, clock)


def test_what_is_nearly_done_is_claimed_first(scene: Scene) -> None:
    want = scene.journal.want(10, {}, scene.clock.wall())

    assert want.lanes == tuple(sorted(scene.lanes, reverse=True))


def test_what_is_put_back_is_committed_before_what_came_later(scene: Scene) -> None:
    first, second, third = (replace(settlement(scene.claimed()), run_at=float(n)) for n in range(3))
    scene.journal.add(first)
    scene.journal.add(second)
    batch, _ = scene.journal.take()
    scene.journal.add(third)
    scene.journal.put_back(batch)

    assert scene.journal.take()[0] == [first, second, third]


def test_the_only_start_of_a_breaker_goes_to_each_of_its_lanes_in_turn(scene: Scene) -> None:
    scene.ramp()
    shares: list[LaneId] = []
    for _ in range(4):
        limits: dict[LaneId, int] = {}
        scene.journal.want(10, limits, scene.clock.wall())
        assert sorted(limits.values()) == [0, 1]
        shares += [lane for lane, starts in limits.items() if starts]

    assert sorted(shares) == sorted(scene.lanes[:2] * 2)


def test_the_starts_of_a_breaker_widen_no_limit_of_a_lane(scene: Scene) -> None:
    scene.ramp()
    scene.clock.advance(10)
    limits = {scene.lanes[0]: 1, scene.lanes[1]: 0}
    scene.journal.want(100, limits, scene.clock.wall())

    assert limits == {scene.lanes[0]: 1, scene.lanes[1]: 0}


def test_what_is_found_again_takes_its_room_from_what_is_claimed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = scene.claimed()
    wanted: list[ClaimRequest] = []
    exchange = scene.store.exchange

    def spy(asked: ExchangeRequest) -> Exchange:
        wanted.append(asked.want)
        return exchange(asked)

    other = replace(one, lane=scene.lanes[1])
    monkeypatch.setattr(scene.probes, "recover", lambda *_args, **_named: [one, other])
    monkeypatch.setattr(scene.store, "exchange", spy)
    lanes = (scene.lanes[2], one.lane)
    scene.commit(ClaimRequest(lanes, 4, {one.lane: 2, scene.lanes[2]: 2}, slots=3))

    assert wanted[0] == ClaimRequest(lanes, 2, {one.lane: 1, scene.lanes[2]: 2}, slots=1)


def test_what_another_worker_was_faster_to_change_is_counted_with_the_next_commit(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    five, now = Breaker("api", consecutive=5), clock.wall()
    scene, other = Scene(store, rd, clock, five), SharedBreakers(store, [five])
    scene.breakers.note(five, Evidence.DOWN)
    scene.journal.flush_breakers(now)
    scene.breakers.note(five, Evidence.DOWN)
    scene.journal.flush_breakers(now, with_commit=True)
    other.note(five, Evidence.DOWN)
    other.flush(now)

    scene.commit(ClaimRequest((), 0))
    scene.journal.flush_breakers(now)

    assert scene.breakers.standing(five).state.failures == 3


def test_a_job_that_is_released_frees_its_probe_at_once(scene: Scene) -> None:
    one, now = scene.claimed(), scene.clock.wall()
    scene.breakers.note(API, Evidence.DOWN)
    scene.breakers.flush(now)
    now += 10
    scene.probes.assign(one.id, API, now, "one")
    assert scene.probes.is_probe(one.id)
    scene.probes.drop(one.id, API)

    scene.journal.release([one], now)

    assert scene.probes.take(API, now, "another")


@pytest.mark.parametrize("end", ["settled", "released", "cleared"])
def test_only_refusals_in_a_row_and_in_one_life_leave_out_what_is_written_beside_the_job(
    scene: Scene, end: str
) -> None:
    one = replace(settlement(scene.claimed()), notes='{"a":1}')
    (instead,) = scene.refuse(one)
    assert instead.outcome == "dead"
    if end == "settled":
        scene.journal.add_refused(Exchange(lost=(), broken=(), claimed=()), [instead])
    elif end == "released":
        assert [len(scene.refuse(instead)) for _ in range(2)] == [1, 0]
    else:
        scene.journal.clear()

    (again,) = scene.refuse(one)
    assert again.outcome == "dead"
    (reduced,) = scene.refuse(one)
    assert (reduced.outcome, reduced.notes) == ("ok", None)


def test_a_job_that_could_not_be_settled_is_not_released_by_a_later_life(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = settlement(scene.claimed())
    for _ in range(3):
        scene.refuse(one)
    applied: list[Step] = []
    monkeypatch.setattr(scene.store, "apply", lambda *steps: applied.extend(steps))

    scene.journal.clear()
    scene.clock.advance(RELEASE_SECONDS + 1)
    scene.commit(ClaimRequest((), 0))

    assert applied == []


def test_a_job_that_could_not_be_released_after_its_pause_is_released_the_next_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replace(settlement(scene.claimed()), ended_at=scene.clock.wall())
    for _ in range(3):
        scene.refuse(one)
    scene.clock.advance(RELEASE_SECONDS)

    def unreachable(*_steps: Step) -> None:
        raise StoreUnavailableError(database="x", cause="gone")

    with monkeypatch.context() as gone, pytest.raises(StoreUnavailableError):
        gone.setattr(scene.store, "apply", unreachable)
        scene.commit(ClaimRequest((), 0))
    scene.commit(ClaimRequest((), 0))

    assert scene.rd.jobs.counts() == {"queued": 1}


def test_a_job_that_cannot_be_settled_is_released_once_after_a_pause(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replace(settlement(scene.claimed()), ended_at=scene.clock.wall())
    for _ in range(3):
        scene.refuse(one)
    applied: list[Step] = []
    apply = scene.store.apply

    def spy(*steps: Step) -> object:
        applied.extend(steps)
        return apply(*steps)

    monkeypatch.setattr(scene.store, "apply", spy)
    for _ in range(3):
        scene.commit(ClaimRequest((), 0))
        assert applied == []
        scene.clock.advance(RELEASE_SECONDS / 3)
    for _ in range(3):
        scene.commit(ClaimRequest((), 0))

    assert [step.name for step in applied] == ["return_job"]
    assert scene.rd.jobs.counts() == {"queued": 1}
