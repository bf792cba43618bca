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
