# SPDX-License-Identifier: Apache-2.0
"""Which jobs a worker sends as probes, and when their tokens are free again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from redrive import Redrive
from redrive.core.breaker_state import BreakerState, Phase
from redrive.engine.pipeline.lanes import Lane
from redrive.store.records import ClaimRequest, Exchange, LaneId, Step, UpcomingWork
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.engine.worker.test_counted_starts import Scene


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


def test_a_probe_whose_job_another_worker_took_first_is_free_again(
    scene: Scene, store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, upcoming = lane_of(scene), store.upcoming
    store.start_worker("w2", clock.wall(), 30.0)

    def look_too_early(lanes: Sequence[LaneId]) -> UpcomingWork:
        seen = upcoming(lanes)
        assert store.exchange("w2", [], ClaimRequest((lane.id,), 1), now=clock.wall(), token=99).claimed
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
        store.apply(Step("pause_lanes", (clock.wall(), lane.pipeline.name)))
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

    def spy(*args: object, now: float, token: int) -> Exchange:
        asked.append(token)
        return exchange(*args, now=now, token=token)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "exchange", spy)
    scene.commit(2)

    assert asked == [2]
