# SPDX-License-Identifier: Apache-2.0
"""A thread that notices when a stage blocks the event loop, and logs which.

It only looks: a blocking call cannot be interrupted. Meanwhile heartbeats continue on their own thread; all else on the loop waits.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Final

logger = logging.getLogger("redrive.worker")

BLOCKED_SECONDS: Final = 1.0
"""After so long without a turn of the loop, that is logged."""


class LoopTracker(threading.Thread):
    """Asks a loop for a sign of life again and again; logs each stage that holds it up, once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, patience: float = BLOCKED_SECONDS) -> None:
        super().__init__(name="redrive-loop", daemon=True)
        self._loop = loop
        self._patience = patience
        self._turned = threading.Event()
        self._is_over = threading.Event()
        self._logged: set[str] = set()

    def run(self) -> None:
        """Look until stopped."""
        while not self._is_over.wait(self._patience):
            self._turned.clear()
            try:
                self._loop.call_soon_threadsafe(self._turned.set)
            except RuntimeError:
                # The loop is closed.
                return
            if not self._turned.wait(self._patience) and not self._is_over.is_set():
                self._log_blocked()
                self._turned.wait()

    def stop(self) -> None:
        """Stop looking."""
        self._is_over.set()
        self._turned.set()

    def _log_blocked(self) -> None:
        task = asyncio.current_task(self._loop)
        name = "something" if task is None else task.get_name()
        if name not in self._logged:
            self._logged.add(name)
            logger.warning(
                "%s has blocked the event loop for more than %g s; all other async stages wait. Make it a sync stage, or await"
                " asyncio.to_thread(...) around the blocking call.",
                name if task is None else f"stage {name}",
                self._patience,
            )
