# SPDX-License-Identifier: Apache-2.0
"""The virtual clock: who is at work is not overtaken by it."""

from __future__ import annotations

import asyncio
import threading

from redrive.testing import VirtualClock


def test_virtual_time_does_not_jump_while_an_executor_works() -> None:
    clock = VirtualClock()
    may_return, began = threading.Event(), clock.monotonic()

    def work() -> float:
        assert may_return.wait(30)
        return clock.monotonic()

    async def scene() -> tuple[float, float]:
        await clock.asleep(1.0)
        working = asyncio.get_running_loop().run_in_executor(None, work)
        sleeping = asyncio.ensure_future(clock.asleep(60.0))
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert not sleeping.done()
        may_return.set()
        seen = await working
        await sleeping
        return seen, clock.monotonic()

    seen, ended = asyncio.run(scene())

    assert (seen - began, ended - began) == (1.0, 61.0)


def test_a_loop_whose_executor_works_does_not_spin() -> None:
    clock = VirtualClock()
    may_return = threading.Event()
    turns = 0

    async def scene() -> None:
        nonlocal turns
        await clock.asleep(1.0)
        loop = asyncio.get_running_loop()
        working = loop.run_in_executor(None, may_return.wait, 30)
        sleeping = [asyncio.ensure_future(clock.asleep(60.0)) for _ in range(3)]
        select = loop._selector.select  # type: ignore[attr-defined] # - what a turn of the loop does once.

        def counted(timeout: float | None) -> object:
            nonlocal turns
            turns += 1
            if timeout:
                may_return.set()
            return select(timeout)

        loop._selector.select = counted  # type: ignore[attr-defined] # - as above.
        await working
        await asyncio.gather(*sleeping)

    asyncio.run(scene())

    assert turns < 20


def test_a_sleeper_that_is_cancelled_holds_nobody_up_and_moves_nothing() -> None:
    clock = VirtualClock()
    began = clock.monotonic()

    async def scene() -> tuple[float, float]:
        short, long = (asyncio.ensure_future(clock.asleep(seconds)) for seconds in (1.0, 5.0))
        await asyncio.sleep(0)
        short.cancel()
        await asyncio.wait([short])
        unmoved = clock.monotonic()
        await asyncio.gather(long, clock.asleep(2.0))
        return unmoved, clock.monotonic()

    unmoved, ended = asyncio.run(scene())

    assert (unmoved - began, ended - began) == (0.0, 5.0)
