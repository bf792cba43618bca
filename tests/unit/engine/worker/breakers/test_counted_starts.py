# SPDX-License-Identifier: Apache-2.0
"""Starts through a breaker that lets work go gradually: each counts once, however often its commit is made."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from redrive import Breaker, Redrive
from redrive.core.breaker import Evidence
from redrive.engine.classifier import DEFAULT
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.journal import Journal
from redrive.engine.worker.probes import Probes
from redrive.engine.worker.runner import Runner
from redrive.errors import StoreUnavailableError
from redrive.store.records import ClaimRequest, Exchange
from redrive.store.sqlite.store import SqliteStore
from redrive.store.steps import SWAPS_MAX
from redrive.testing import VirtualClock
from tests.inline import at_once
from tests.unit.build import one_stage

JOBS = 3


class Scene:
    """A journal over two lanes: one behind a breaker that closed a moment ago, one behind a breaker that is due for a probe."""

    def __init__(self, store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
        self.closed = Breaker("closed", consecutive=1, open_for=5, ramp=100)
        self.open = Breaker("open", consecutive=1, open_for=5)
        pipelines = [
            one_stage(lambda n: n, each.name, name="call", breaker=each) for each in (self.closed, self.open)
        ]
        rd.submit_many(pipelines[0], range(JOBS))
        rd.submit(pipelines[1], 0)
        lanes = lanes_of(store, pipelines)
        self.breakers = SharedBreakers(store, (self.closed, self.open))
        runtime = CURRENT.get()
        self.probes = Probes(store, lanes, self.breakers)
        runner = Runner(self.probes, runtime, classifier=DEFAULT, ask_store=at_once)
        self.journal = Journal(store, lanes, runner)
        for breaker in (self.closed, self.open):
            self.breakers.note(breaker, Evidence.DOWN)
        self.breakers.flush(clock.wall())
        clock.advance(10)
        assert self.probes.take(self.closed, clock.wall(), "probe")
        self.probes.end(self.closed, clock.wall(), "probe", Evidence.ALIVE)
        clock.advance(60)
        self.clock = clock
        self.want = ClaimRequest(
            tuple(lane.id for lane in lanes.values() if lane.stage.breaker is self.closed), 10
        )
        store.start_worker("w1", clock.wall(), 30.0)

    def commit(self, token: int) -> Exchange:
        return self.journal.commit("w1", [], self.want, now=self.clock.wall(), token=token)

    def starts_left(self) -> float:
        return self.breakers.starts_left(self.closed, self.clock.wall())


@pytest.fixture
def scene(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> Scene:
    return Scene(store, rd, clock)


def test_a_commit_that_is_made_again_because_a_probe_could_not_be_taken_counts_its_starts_once(
    scene: Scene, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = scene.starts_left()
    with monkeypatch.context() as gone:
        gone.setattr(store, "swap_breaker", _unreachable)
        with pytest.raises(StoreUnavailableError):
            scene.commit(1)
    answer = scene.commit(1)

    assert len(answer.claimed) == JOBS + 1
    assert scene.starts_left() == before - JOBS


def test_a_commit_whose_answer_was_lost_counts_its_starts_once(scene: Scene) -> None:
    before = scene.starts_left()
    first, second = scene.commit(1), scene.commit(1)

    assert {job.id for job in first.claimed} >= {job.id for job in second.claimed}
    assert scene.starts_left() == before - JOBS


def test_the_same_job_counts_again_with_its_next_claim(
    scene: Scene, store: SqliteStore, clock: VirtualClock
) -> None:
    before = scene.starts_left()
    scene.commit(1)
    store.stop_worker("w1")
    store.start_worker("w1", clock.wall(), 30.0)
    scene.commit(2)

    assert scene.starts_left() == before - 2 * JOBS


def test_a_probe_that_became_an_ordinary_job_counts_once(
    scene: Scene, store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to its claim was lost, and before it was found again somebody closed its breaker."""
    scene.want = ClaimRequest((), 10)
    with monkeypatch.context() as losses:
        # The first exchange asks for nothing, the second one for the probe.
        losses.setattr(store, "exchange", _losing(store, 2, is_done=True))
        with pytest.raises(StoreUnavailableError):
            scene.commit(1)
    (probe,) = (
        f"w1:1:{lane.id}" for lane in scene.journal._lanes.values() if lane.stage.breaker is scene.open
    )
    scene.probes.end(scene.open, clock.wall(), probe, Evidence.ALIVE)
    clock.advance(1)
    before = scene.breakers.starts_left(scene.open, clock.wall())
    with monkeypatch.context() as losses:
        # Found again, and lost again with the commit that follows.
        losses.setattr(store, "exchange", _losing(store, 2, is_done=False))
        with pytest.raises(StoreUnavailableError):
            scene.commit(1)
    answer = scene.commit(1)

    assert len(answer.claimed) == 1
    assert scene.breakers.starts_left(scene.open, clock.wall()) == before - 1


def test_a_probe_that_is_found_again_takes_the_place_of_another_claim(
    scene: Scene, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed_lanes = scene.want.lanes
    scene.want = ClaimRequest((), 10)
    with monkeypatch.context() as losses:
        losses.setattr(store, "exchange", _losing(store, 2, is_done=True))
        with pytest.raises(StoreUnavailableError):
            scene.commit(1)
    scene.want = ClaimRequest(closed_lanes, 2)
    answer = scene.commit(1)

    assert len(answer.claimed) == 2
    assert len({job.lane for job in answer.claimed}) == 2


def test_a_probe_that_is_found_again_is_claimed_once_though_it_could_not_be_assigned(
    scene: Scene, store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the token of the commit, another probe of its breaker would be the same job."""
    scene.want = ClaimRequest((), 10)
    with monkeypatch.context() as losses:
        losses.setattr(store, "exchange", _losing(store, 2, is_done=True))
        with pytest.raises(StoreUnavailableError):
            scene.commit(1)
    (lane,) = (each for each in scene.journal._lanes.values() if each.stage.breaker is scene.open)
    rd.submit(lane.pipeline, 1)
    scene.probes.end(scene.open, clock.wall(), f"w1:1:{lane.id}", Evidence.NOTHING)
    swap, tries = store.swap_breaker, itertools.count(1)
    monkeypatch.setattr(store, "swap_breaker", lambda *args: next(tries) > SWAPS_MAX and swap(*args))
    answer = scene.commit(1)

    assert next(tries) > SWAPS_MAX
    assert [job.lane for job in answer.claimed] == [lane.id]


def _losing(store: SqliteStore, nth: int, *, is_done: bool) -> Callable[..., Exchange]:
    """Fail the nth exchange, before or after it is done."""
    plain, count = store.exchange, itertools.count(1)

    def exchange(*args: object, **options: object) -> Exchange:
        if next(count) != nth:
            return plain(*args, **options)  # type: ignore[arg-type]
        if is_done:
            plain(*args, **options)  # type: ignore[arg-type]
        raise StoreUnavailableError(database=":memory:", cause="gone")

    return exchange


def _unreachable(*_args: object) -> bool:
    raise StoreUnavailableError(database=":memory:", cause="gone")
