# SPDX-License-Identifier: Apache-2.0
"""Scripted functions for tests of guard, run sync and async alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import redrive
from redrive import Backoff, Jitter, RetryPolicy

STEADY = RetryPolicy(4, Backoff.exponential(1, jitter=Jitter.none()))
DOWN = ConnectionRefusedError
"""A step of a script: the dependency refuses the connection, each time with an exception of its own."""


class Script:
    """A function that does, call by call, what it is told: raise an exception, or return a value."""

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)
        self.calls = 0

    def __call__(self, *_args: object, **_kwargs: object) -> object:
        self.calls += 1
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if step is DOWN:
            raise DOWN(111, "refused")
        if isinstance(step, BaseException) and not getattr(step, "is_returned", False):
            raise step
        return step() if callable(step) else step


Runner = Callable[[Script, "redrive.Guard"], object]


def run_sync(script: Script, guarded_by: redrive.Guard) -> object:
    return guarded_by(script)()


def run_async(script: Script, guarded_by: redrive.Guard) -> object:
    async def work() -> object:
        return script()

    return asyncio.run(guarded_by(work)())


both = pytest.mark.parametrize("run", [run_sync, run_async], ids=["sync", "async"])
