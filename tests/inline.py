# SPDX-License-Identifier: Apache-2.0
"""The parts of a worker in tests: everything on the loop, nothing on threads or in processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn, TypeVar

from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.slots import WorkerParts
from redrive.engine.worker.threads import AskStore

A = TypeVar("A")
T = TypeVar("T")


async def at_once(work: Callable[[], T]) -> T:
    """Run what would block, here and now."""
    return work()


class InlineThreads:
    """Runs sync stages on the loop, one after the other."""

    def start(self, work: Callable[[A], T], of: A, done: Callable[[A, T], None]) -> None:
        asyncio.get_running_loop().call_soon(lambda: done(of, work(of)))


class NoProcesses:
    """Has no processes to offer."""

    size = 1

    def can_run(self, _lane: Lane) -> bool:
        return False

    def run(self, _dispatch: Dispatch, *, is_alone: bool) -> NoReturn:
        raise AssertionError(is_alone)


def inline_parts(ask_store: AskStore = at_once) -> WorkerParts:
    return WorkerParts(ask_store=ask_store, threads=InlineThreads(), processes=NoProcesses())
