# SPDX-License-Identifier: Apache-2.0
"""An idle worker that nobody can wake looks whether anybody has changed the store, and the rarer, the longer it is idle."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from redrive.engine.worker.idle import POLL_SECONDS, WATCH_MAX, IdleWait
from redrive.engine.worker.service import WATCH_SECONDS
from redrive.engine.worker.slots import WorkerParts
from redrive.store.records import UpcomingWork
from redrive.testing import VirtualClock
from tests.inline import InlineThreads, NoProcesses, at_once


class Quiet(IdleWait):
    """Waits in no time, and notes for how long it would have."""

    def __init__(self, clock: VirtualClock, counters: list[object]) -> None:
        self.waits: list[float] = []
        nothing: Any = SimpleNamespace(
            upcoming=lambda _order: UpcomingWork(due={}, leased=0, paused=frozenset()),
            change_counter=lambda: counters.pop() if counters else None,
            order=(),
            blocked=frozenset,
            opens=dict,
            is_ramping=lambda _now: False,
        )

        async def ask(question: Any) -> Any:
            return question()

        parts = WorkerParts(
            ask_store=at_once, threads=InlineThreads(), processes=NoProcesses(), watch=WATCH_SECONDS
        )
        super().__init__(
            nothing,
            nothing,
            nothing,
            clock,
            limits=nothing,
            pipelines=(),
            wake=asyncio.Event(),
            ask_until_answered=cast("Any", ask),
            parts=parts,
        )

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
