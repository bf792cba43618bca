# SPDX-License-Identifier: Apache-2.0
"""The threads of a worker: one that talks to the store, and as many for sync stages as may run at once.

They are kept apart so that stages which block cannot keep outcomes from being committed. The context of the caller goes along, so
that what it holds (a request id for logs, a virtual clock) is there on the thread as well.

Stages are handed over without a future each. A thread that takes one wakes at most one more, and only while there is more to take:
functions that block spread over as many threads as they need, and functions that return at once stay on the thread that is awake,
instead of waking a crowd that would fight for the interpreter. What has ended is brought to the loop in batches, too.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol, TypeVar

logger = logging.getLogger("redrive.worker")

T = TypeVar("T")

RETRY_SECONDS: Final = 1.0


class Hands(Protocol):
    """What runs sync functions: `done` is called on the loop with what `work` returned. `work` must not raise."""

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run `work` as soon as there is a thread for it."""
        ...


class StageThreads:
    """Up to `limit` threads that run sync stages; made as they are needed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._waiting: deque[tuple[Callable[[], object], Callable[[object], None]]] = deque()
        self._ended: deque[tuple[Callable[[object], None], object]] = deque()
        self._idle = threading.Condition()
        self._idlers = 0
        self._threads = 0
        self._is_waking = False
        self._is_telling = False
        self._is_closed = False

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """See `Hands.start`."""
        self._waiting.append((work, done))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - the two belong together.
        if not self._is_waking:
            self._wake()

    def close(self) -> None:
        """Let idle threads end; one that still runs a stage ends after it, and does not keep the process from ending."""
        with self._idle:
            self._is_closed = True
            self._idle.notify_all()

    def _wake(self) -> None:
        """Let one more thread come, unless one is on its way already."""
        with self._idle:
            if self._is_waking:
                return
            if self._idlers:
                self._is_waking = True
                self._idle.notify()
            elif self._threads < self._limit:
                self._is_waking = True
                self._threads += 1
                try:
                    self._new_thread()
                except RuntimeError as error:
                    # The system gives no more threads: those that are there go on, and without any it is asked again.
                    self._is_waking = False
                    self._threads -= 1
                    logger.warning("no more threads for stages than %d: %s", self._threads, error)
                    if not self._threads:
                        self._loop.call_soon_threadsafe(self._loop.call_later, RETRY_SECONDS, self._wake)

    def _new_thread(self) -> None:
        context = self._context.copy()
        threading.Thread(target=context.run, args=(self._serve,), name="redrive-stage", daemon=True).start()

    def _serve(self) -> None:
        self._is_waking = False
        while True:
            try:
                work, done = self._waiting.popleft()
            except IndexError:
                if self._rest():
                    continue
                return
            if self._waiting and not self._is_waking:
                self._wake()
            self._ended.append((done, work()))
            if not self._is_telling:
                self._is_telling = True
                # A loop that has ended no longer wants to know.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._tell)

    def _rest(self) -> bool:
        """Wait until there may be something to do; False when there never will be."""
        with self._idle:
            # Looked at again under the lock: what was handed over before is seen here, and what comes later wakes somebody.
            if self._waiting:
                return True
            if self._is_closed:
                return False
            self._idlers += 1
            self._idle.wait()
            self._idlers -= 1
            self._is_waking = False
        return True

    def _tell(self) -> None:
        self._is_telling = False
        while self._ended:
            done, result = self._ended.popleft()
            try:
                done(result)
            except BaseException:
                # Those behind it must not wait for ever.
                logger.exception("the outcome of a stage could not be taken in")


class StoreThread:
    """The one thread that talks to the store; questions are answered in order."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="redrive-store")

    def ask(self, question: Callable[[], object]) -> asyncio.Future[object]:
        """Ask the store; it is at work when this returns, and the future brings its answer."""
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(self._thread, context.run, question)

    def close(self) -> None:
        """Wait for the last answer, and end the thread."""
        self._thread.shutdown()
