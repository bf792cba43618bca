# SPDX-License-Identifier: Apache-2.0
"""Jobs that were claimed ahead wait for a place in their worker; when none comes free, they go back to where others find them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from redrive import Pipeline, Redrive
from redrive.engine.worker.prefetch import PREFETCH_SECONDS, Prefetch
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from redrive.testing.loop import VirtualLoop
from tests.unit.build import STUCK_SECONDS, attempts, bounded, jobs, one_stage, until, worker_on, working

PLACES = 2


class Crossing:
    """A stage whose first jobs block until they may continue."""

    def __init__(self, rd: Redrive) -> None:
        self.begun: list[int] = []
        self.go_on = asyncio.Event()
        self.pipeline: Pipeline = one_stage(self.cross)
        rd.submit_many(self.pipeline, range(PLACES + 3))

    async def cross(self, number: int) -> int:
        self.begun.append(number)
        if number < PLACES:
            await self.go_on.wait()
        return number


async def passed(seconds: float) -> None:
    """Let so much time of the loop pass."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


def on_virtual_time(clock: VirtualClock, scene: Coroutine[object, object, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(1_000 * STUCK_SECONDS):
            await scene

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(limited())


def test_jobs_that_wait_where_all_places_block_are_run_by_a_worker_that_has_room(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        crossing = Crossing(rd)
        blocked = worker_on(store, crossing.pipeline, concurrency=PLACES)
        blocked._prefetch.count = 3
        other = worker_on(store, crossing.pipeline, concurrency=PLACES)
        other.name = "other"
        async with working(blocked):
            await until(lambda: blocked.slots.running == PLACES)
            assert jobs(store) == [("processing",)] * 5
            async with working(other):
                await passed(5 * PREFETCH_SECONDS)
                assert rd.jobs.counts() == {"processing": PLACES, "complete": 3}
            crossing.go_on.set()
            await until(lambda: rd.jobs.counts() == {"complete": 5})

    on_virtual_time(clock, scene())
    assert attempts(store) == [("ok",)] * 5


def test_what_went_back_is_not_claimed_ahead_again_until_a_place_comes_free(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        crossing = Crossing(rd)
        worker = worker_on(store, crossing.pipeline, concurrency=PLACES)
        worker._prefetch.count = 3
        async with working(worker):
            await until(lambda: worker.slots.running == PLACES)
            # Whoever asks it to look again does not make them wait longer.
            for _ in range(20):
                await passed(PREFETCH_SECONDS / 4)
                worker.wake()
            assert jobs(store, "status, dispatch") == [("processing", 1)] * PLACES + [("queued", 1)] * 3
            crossing.go_on.set()
            await until(lambda: rd.jobs.counts() == {"complete": 5})

    on_virtual_time(clock, scene())
    assert attempts(store) == [("ok",)] * 5


def test_jobs_that_wait_only_a_moment_stay(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    async def scene() -> None:
        crossing = Crossing(rd)
        worker = worker_on(store, crossing.pipeline, concurrency=PLACES)
        worker._prefetch.count = 3
        async with working(worker):
            await until(lambda: worker.slots.running == PLACES)
            await passed(PREFETCH_SECONDS / 2)
            assert jobs(store) == [("processing",)] * 5
            crossing.go_on.set()
            await until(lambda: rd.jobs.counts() == {"complete": 5})

    on_virtual_time(clock, scene())
    assert jobs(store, "dispatch") == [(1,)] * 5


@pytest.mark.usefixtures("clock")
def test_jobs_that_wait_for_a_place_when_their_worker_stops_are_given_back_unrun(
    store: SqliteStore, rd: Redrive
) -> None:
    """Claimed ahead: more than there are places, as after a commit during which many ended."""
    ran: list[int] = []

    async def scene() -> None:
        going = asyncio.Event()

        async def endless(number: int) -> int:
            ran.append(number)
            going.set()
            await go_on.wait()
            return number

        go_on = asyncio.Event()
        pipeline = one_stage(endless)
        rd.submit_many(pipeline, [1, 2, 3])
        worker = worker_on(store, pipeline, concurrency=1)
        worker._prefetch.count = 2
        task = asyncio.ensure_future(worker.run())
        await going.wait()
        assert jobs(store) == [("processing",)] * 3
        worker.stop()
        go_on.set()
        assert await task == "stopped"

    bounded(scene())
    assert ran == [1]
    assert jobs(store) == [("complete",), ("queued",), ("queued",)]


class Waiting:
    """Slots of which none becomes free by itself."""

    def __init__(self) -> None:
        self.ended = 0
        self.first_waiting: object = object()

    def drop_waiting(self) -> list[object]:
        dropped, self.first_waiting = [self.first_waiting], None
        return dropped


def prefetch_of(slots: Waiting, concurrency: int = 8) -> Prefetch:
    return Prefetch(slots, concurrency)  # type: ignore[arg-type]


def test_as_many_are_claimed_ahead_as_ended_since_the_last_commit_and_few_ends_bring_it_down_slowly() -> None:
    slots = Waiting()
    prefetch = prefetch_of(slots)
    counts: list[int] = []

    for ended in (5, 0, 1, 4, 100, 0):
        slots.ended += ended
        prefetch.committed()
        counts.append(prefetch.count)

    assert counts == [5, 3, 2, 4, 8, 6]


def test_a_job_that_waits_since_another_one_took_a_slot_has_its_own_time(clock: VirtualClock) -> None:
    async def scene() -> None:
        slots, wake, loop = Waiting(), asyncio.Event(), asyncio.get_running_loop()
        prefetch = prefetch_of(slots)
        loop.call_later(0.6, wake.set)
        assert await prefetch.wait(wake) == []
        second = slots.first_waiting = object()
        began = loop.time()

        dropped: list[object] = []
        while not dropped:
            wake.clear()
            dropped += await prefetch.wait(wake)

        assert dropped == [second]
        assert loop.time() - began == pytest.approx(PREFETCH_SECONDS)

    on_virtual_time(clock, scene())


def test_a_wait_that_something_else_ended_wakes_nobody_later(clock: VirtualClock) -> None:
    async def scene() -> None:
        wake = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, wake.set)
        await prefetch_of(Waiting()).wait(wake)
        wake.clear()

        await passed(2 * PREFETCH_SECONDS)

        assert not wake.is_set()

    on_virtual_time(clock, scene())
