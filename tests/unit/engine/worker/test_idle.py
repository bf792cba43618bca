# SPDX-License-Identifier: Apache-2.0
"""How long an idle worker waits: one that nobody can wake looks whether anybody has changed the store, ever more rarely."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator, Mapping
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from redrive.engine.worker.idle import (
    LOOK_SECONDS,
    PAUSED_FROM,
    POLL_SECONDS,
    RAMP_SECONDS,
    WATCH_MAX,
    IdleWait,
)
from redrive.engine.worker.service import WATCH_SECONDS
from redrive.engine.worker.slots import WorkerParts
from redrive.store.protocol import ChangeSignal
from redrive.store.records import UpcomingWork
from redrive.store.statements import replays as replay_sql
from redrive.testing import VirtualClock
from tests.inline import InlineThreads, NoProcesses, at_once


class Idle(IdleWait):
    """Waits over a store, breakers and limits that are as the test says."""

    def __init__(
        self,
        clock: VirtualClock,
        *,
        watch: float | None = None,
        signal: ChangeSignal | None = None,
        **facts: Any,
    ) -> None:
        facts = {
            "due": {},
            "leased": 0,
            "paused": frozenset(),
            "held": frozenset(),
            "replayed": [],
            "opens": {},
            "is_ramping": False,
            **facts,
        }
        world: Any = SimpleNamespace(
            upcoming=lambda _order: UpcomingWork(due=world.due, leased=world.leased, paused=world.paused),
            change_counter=lambda: None,
            query=lambda asked: world.replayed if asked == replay_sql.live_replays() else [],
            order=(),
            blocked=lambda: world.held,
            **facts,
        )
        self.world = world
        world.is_ramping = lambda _now: facts["is_ramping"]

        async def ask(question: Any) -> Any:
            return question()

        super().__init__(
            world,
            world,
            world,
            clock,
            limits=world,
            pipelines=("shop",),
            wake=asyncio.Event(),
            ask_until_answered=cast("Any", ask),
            parts=WorkerParts(
                ask_store=at_once,
                threads=InlineThreads(),
                processes=NoProcesses(),
                watch=watch,
                signal=signal,
            ),
        )


class Quiet(Idle):
    """Waits in no time while it pauses, and notes for how long it would have."""

    def __init__(self, clock: VirtualClock, counters: list[object], **options: Any) -> None:
        self.waits: list[float] = []
        super().__init__(clock, **{"watch": WATCH_SECONDS, **options})
        self.world.change_counter = lambda: counters.pop() if counters else None

    async def _woken_within(self, seconds: float) -> None:
        self.waits.append(seconds)


def paused(idle: Quiet, times: int) -> list[float]:
    """Return for how long it waits before each look, in so many pauses."""
    idle.waits.clear()

    async def scene() -> None:
        for _ in range(times):
            await idle.pause()

    asyncio.run(scene())
    return list(idle.waits)


def test_looks_become_rarer_while_there_is_nothing_to_do_and_frequent_again_after_work(
    clock: VirtualClock,
) -> None:
    idle = Quiet(clock, [])

    first, minute = paused(idle, 1), paused(idle, 60)

    assert first[:5] == [WATCH_SECONDS * 2**turn for turn in range(5)]
    assert sum(first) == pytest.approx(POLL_SECONDS)
    # Four looks a second instead of a hundred.
    assert minute == [WATCH_MAX] * 240

    idle.settled()

    assert paused(idle, 1) == first


def test_a_change_that_brings_no_job_ends_the_pause_and_does_not_make_looks_frequent(
    clock: VirtualClock,
) -> None:
    """A server that is busy with other databases changes all the time."""
    idle = Quiet(clock, [object() for _ in range(8)])

    assert paused(idle, 8)[4:] == [16 * WATCH_SECONDS, *[WATCH_MAX] * 3]


@pytest.mark.parametrize(("is_sated", "seconds"), [(False, POLL_SECONDS), (True, WATCH_SECONDS)])
def test_what_changed_before_a_claim_ends_no_pause_unless_there_may_be_more_to_claim(
    clock: VirtualClock, is_sated: bool, seconds: float
) -> None:
    idle = Quiet(clock, [])
    idle.world.change_counter = lambda: 7
    idle.before_claim(is_sated=is_sated)

    assert sum(paused(idle, 1)) == pytest.approx(seconds)


def test_a_worker_with_a_signal_waits_once(clock: VirtualClock, bell: Bell) -> None:
    assert paused(Quiet(clock, [], watch=None, signal=bell), 1) == [POLL_SECONDS]


def test_jobs_of_a_paused_run_are_held(clock: VirtualClock) -> None:
    idle = Idle(clock, due={1: PAUSED_FROM})

    assert asyncio.run(idle.until_idle(0)) == "held"


def test_a_worker_that_was_woken_does_not_even_begin_to_pause(clock: VirtualClock) -> None:
    idle = Quiet(clock, [])
    idle._wake.set()

    assert paused(idle, 1) == []


SOON: dict[str, Any] = {"due": {1: 0.3}}
PAUSES: Mapping[str, tuple[dict[str, Any], float]] = {
    "nothing to look for": ({"watch": None, **SOON}, POLL_SECONDS),
    "a limit opens": ({"watch": None, "due": {1: -5}, "opens": {1: 0.3}}, 0.3),
    "a limit was open and nothing was claimed": ({"watch": None, "due": {1: -5}, "opens": {1: -1}}, RAMP_SECONDS),
    "a breaker lets work go gradually": ({"watch": None, "is_ramping": True}, RAMP_SECONDS),
    "a job is due": (SOON, 0.3),
    "a job is due much later": ({"due": {1: 99}}, POLL_SECONDS),
    "a job was due and was not claimed": ({"due": {1: -5}}, WATCH_SECONDS),
    "the job that is due is paused": ({"due": {1: -5}, "paused": frozenset({1})}, POLL_SECONDS),
}  # fmt: skip


def at(clock: VirtualClock, facts: dict[str, Any]) -> dict[str, Any]:
    """Return facts whose times are from now on."""
    times = {
        name: {lane: clock.wall() + seconds for lane, seconds in facts.get(name, {}).items()}
        for name in ("due", "opens")
    }
    return {**facts, **times}


@pytest.mark.parametrize(("facts", "seconds"), PAUSES.values(), ids=PAUSES)
def test_a_pause_ends_when_something_may_be_claimed(
    clock: VirtualClock, facts: dict[str, Any], seconds: float
) -> None:
    idle = Quiet(clock, [], **at(clock, facts))

    assert sum(paused(idle, 1)) == pytest.approx(seconds)


WAITS: Mapping[str, tuple[dict[str, Any], float]] = {
    "the next job is due later": ({"due": {1: 10, 2: 90}}, 10),
    "others may submit meanwhile": ({"due": {1: 10}, "watch": WATCH_SECONDS}, POLL_SECONDS),
    "what is due was not claimed": ({"due": {1: -5}}, RAMP_SECONDS),
    "another worker may give back its jobs": ({"due": {1: 10}, "leased": 1}, POLL_SECONDS),
    "another worker has the last jobs": ({"leased": 1}, POLL_SECONDS),
    "some are paused": ({"due": {1: -5, 2: 10}, "paused": frozenset({1})}, 10),
    "some are held": ({"due": {1: -5, 2: 10}, "held": frozenset({1})}, 10),
    "a limit opens": ({"due": {1: -5}, "opens": {1: 3}}, 3),
    "a limit opens before the job is due": ({"due": {1: 10}, "opens": {1: 3}}, 10),
    "a replay will release more": ({"replayed": [SimpleNamespace(pipeline="shop")]}, POLL_SECONDS),
}


@pytest.mark.parametrize(("facts", "seconds"), WAITS.values(), ids=WAITS)
def test_a_worker_that_is_to_end_when_idle_waits_for_what_is_left(
    clock: VirtualClock, facts: dict[str, Any], seconds: float
) -> None:
    idle = Idle(clock, **at(clock, facts))

    assert asyncio.run(idle.until_idle(float("inf"))) is None
    assert clock.waits == [pytest.approx(seconds)]


def test_a_replay_over_other_pipelines_keeps_no_worker(clock: VirtualClock) -> None:
    idle = Idle(clock, replayed=[SimpleNamespace(pipeline="other")])

    assert asyncio.run(idle.until_idle(float("inf"))) == "idle"


def test_a_worker_looks_when_a_breaker_opens_and_ends_when_everything_has_been_held_for_long_enough(
    clock: VirtualClock,
) -> None:
    idle = Idle(clock, due={1: clock.wall()}, held=frozenset({1}), opens_in=lambda _now, _otherwise: 7.0)

    async def scene() -> list[object]:
        return [await idle.until_idle(10) for _ in range(3)]

    assert asyncio.run(scene()) == [None, None, "held"]
    assert clock.waits == [pytest.approx(7), pytest.approx(3)]


@pytest.mark.parametrize("why", ["settled", "claimable", "nothing is left"])
def test_what_is_held_has_been_since_something_was_done_or_could_be(clock: VirtualClock, why: str) -> None:
    def held_for(*, is_idle: bool) -> float:
        return asyncio.run(idle.held_for(is_idle=is_idle))

    idle = Idle(clock, due={1: clock.wall()}, held=frozenset({1}))
    assert held_for(is_idle=True) == 0
    clock.advance(5)
    assert (held_for(is_idle=True), held_for(is_idle=False)) == (5, 5)

    if why == "settled":
        idle.settled()
    else:
        idle.world.due = {2: clock.wall()} if why == "claimable" else {}
        assert held_for(is_idle=True) == 0

    clock.advance(5)
    assert held_for(is_idle=False) == 0


class Bell:
    """A signal that anybody may ring."""

    def __init__(self) -> None:
        self.out, self.into = socket.socketpair()
        self.cleared: list[float] = []

    def ring(self) -> None:
        self.into.send(b"!")

    def fileno(self) -> int:
        return self.out.fileno()

    def clear(self) -> None:
        self.out.recv(4_096)
        self.cleared.append(asyncio.get_running_loop().time())

    def close(self) -> None:
        self.out.close()
        self.into.close()


@pytest.fixture
def bell() -> Generator[Bell]:
    with closing(Bell()) as made:
        yield made


def test_two_looks_because_of_signals_are_apart_and_each_is_waited_for_once(
    clock: VirtualClock, bell: Bell
) -> None:
    idle = Idle(clock, signal=bell)

    async def scene() -> None:
        loop, timers = asyncio.get_running_loop(), list[object]()
        call_at = loop.call_at

        def spy(when: float, callback: Any, *args: Any, **options: Any) -> asyncio.TimerHandle:
            timers.extend([when] if callback == idle._wake.set else [])
            return call_at(when, callback, *args, **options)

        loop.call_at = spy  # type: ignore[method-assign, assignment]
        idle._looked_at = loop.time()
        for _ in range(2):
            bell.ring()
            idle._wake.clear()
            await idle.pause()
        resolution = loop._clock_resolution  # type: ignore[attr-defined]
        assert bell.cleared[1] - bell.cleared[0] >= LOOK_SECONDS - resolution
        assert len(timers) <= 2

    asyncio.run(scene())


def test_nothing_listens_to_the_signal_after_a_pause_that_something_else_has_ended(
    clock: VirtualClock, bell: Bell
) -> None:
    idle = Idle(clock, signal=bell)

    async def scene() -> None:
        idle._wake.set()
        await idle.pause()
        assert not asyncio.get_running_loop().remove_reader(bell.fileno())

    asyncio.run(scene())
