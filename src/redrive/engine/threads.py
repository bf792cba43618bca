# SPDX-License-Identifier: Apache-2.0
"""The threads of a worker: one that talks to the store, and as many for sync stages as may run at once.

They are kept apart so that stages which block cannot keep outcomes from being committed. The context of the caller goes along, so
that what it holds (a request id for logs, a virtual clock) is there on the thread as well.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor


class Threads:
    """A worker's threads; close them when it has ended."""

    def __init__(self, stages: int) -> None:
        self._stages = ThreadPoolExecutor(stages, thread_name_prefix="redrive-stage")
        self._store = ThreadPoolExecutor(1, thread_name_prefix="redrive-store")

    async def run_stage(self, work: Callable[[], object]) -> object:
        """Run a sync stage."""
        return await _run(self._stages, work)

    async def ask_store(self, work: Callable[[], object]) -> object:
        """Ask the store; questions are answered in order."""
        return await _run(self._store, work)

    def close(self) -> None:
        """Wait for what still runs, and end the threads."""
        self._stages.shutdown()
        self._store.shutdown()


async def _run(executor: Executor, work: Callable[[], object]) -> object:
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(executor, context.run, work)
