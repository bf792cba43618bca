# SPDX-License-Identifier: Apache-2.0
"""The threads of a worker: one that talks to the store, and as many for sync stages as may run at once.

They are kept apart so that stages which block cannot keep outcomes from being committed. The context of the caller goes along, so
that what it holds (a request id for logs, a virtual clock) is there on the thread as well; each function has a copy of its own, so
that what one sets there is not there for the next.

Stages are handed over without a future each. Functions that block get as many threads as there are functions waiting; those that
return at once stay on one, instead of waking a crowd that would fight for the interpreter. Which kind they are shows when they have
ended: the loop looks after them every one to five milliseconds while there is anything to look after, and what has ended is brought
to it in batches, too.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from redrive.engine.clock import SYSTEM_CLOCK
from redrive.engine.error_text import shown

logger = logging.getLogger("redrive.worker")

A = TypeVar("A")
T = TypeVar("T")

RunBlocking = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a blocking function off the event loop; the awaitable brings what it returned."""
AskStore = RunBlocking
"""Runs a call to the store on the one thread that talks to the store."""

_now: Final = SYSTEM_CLOCK.monotonic

RETRY_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.001
"""So often the loop looks after functions that block, or of which nothing is known yet, for as long as it finds anything."""
QUICK_LOOK_SECONDS: Final = 0.005
"""So often it looks after functions that were quick: each look takes the interpreter from them."""
BLOCKS_SECONDS: Final = 0.0003
"""Functions that take longer than this on average are taken to wait for something."""


class ThreadPool(Protocol):
    """What runs sync functions: `done` is called on the loop with the argument and what `work` returned. `work` must not raise."""

    def start(self, work: Callable[[A], T], of: A, done: Callable[[A, T], None]) -> None:
        """Run `work` as soon as there is a thread for it."""
        ...


class StageThreads:
    """Up to `limit` threads that run sync stages; made as they are needed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._waiting: deque[tuple[Callable[..., object], object, Callable[..., None]]] = deque()
        self._ended: deque[tuple[Callable[..., None], object, object, float]] = deque()
        self._wanted = 1
        """How many threads are called when something is handed over."""
        self._pause = LOOK_SECONDS
        self._told = 0
        self._spent = 0.0
        self._idle = threading.Condition()
        self._idlers = 0
        self._threads = 0
        self._expected = 0
        """How many more threads are to be started."""
        self._none_before = 0.0
        self._is_handing_over = False
        self._is_looked_after = False
        self._is_telling = False
        self._is_closed = False

    def start(self, work: Callable[[A], T], of: A, done: Callable[[A, T], None]) -> None:
        """See `Hands.start`."""
        self._waiting.append((work, of, done))
        if not self._is_handing_over:
            # After this turn of the loop, which may put more here: a thread woken earlier would only fight with it.
            self._is_handing_over = True
            self._loop.call_soon(self._hand_over)

    def close(self) -> None:
        """Let idle threads end; one that still runs a stage ends after it, and does not keep the process from ending."""
        with self._idle:
            self._is_closed = True
            self._idlers = 0
            self._idle.notify_all()

    def _hand_over(self) -> None:
        self._is_handing_over = False
        self._call(min(self._wanted, len(self._waiting)))
        if not self._is_looked_after:
            self._is_looked_after = True
            self._loop.call_later(self._pause, self._look)

    def _look(self) -> None:
        """Take in what has ended, and let more threads come if those that are there are blocked."""
        self._tell()
        told, spent = self._told, self._spent
        self._told, self._spent = 0, 0.0
        if told and spent <= told * BLOCKS_SECONDS:
            self._wanted, self._pause = 1, QUICK_LOOK_SECONDS
        elif told or self._waiting:
            # Step by step: a thread that was kept from the interpreter looks as if it were blocked.
            self._wanted, self._pause = min(self._limit, self._wanted * 4), LOOK_SECONDS
        if self._waiting and self._wanted > 1:
            self._call(min(self._wanted, len(self._waiting)))
        # First no more, then a last look: what ended before is seen here, and what ends from now on is told by its thread.
        self._is_looked_after = False
        if told or self._ended or (self._waiting and (self._idlers or self._threads < self._limit)):
            self._is_looked_after = True
            self._loop.call_later(self._pause, self._look)

    def _call(self, wanted: int) -> None:
        """Let so many more threads come, if there are that many."""
        with self._idle:
            woken = min(wanted, self._idlers)
            self._idlers -= woken
            self._idle.notify(woken)
            self._expected = min(wanted - woken, self._limit - self._threads)
        self._new_thread()

    def _new_thread(self) -> None:
        """Start one more thread if any is expected; it starts the next, because whoever starts one waits until it runs."""
        with self._idle:
            if self._expected <= 0 or not self._waiting or self._none_before > _now():
                return
            self._expected -= 1
            self._threads += 1
        context = self._context.copy()
        thread = threading.Thread(target=context.run, args=(self._serve,), name="redrive-stage", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The system gives no more threads: those that are there go on, and after a while it is asked again.
            self._none_before = _now() + RETRY_SECONDS
            with self._idle:
                self._threads -= 1
            logger.warning("no more threads for stages than %d: %s", self._threads, error)

    def _serve(self) -> None:
        self._new_thread()
        while self._work_one() or self._rest():
            pass

    def _work_one(self) -> bool:
        """Run what waits longest; False when nothing does. A function of its own, so that a thread at rest holds on to nothing."""
        try:
            work, of, done = self._waiting.popleft()
        except IndexError:
            return False
        began = _now()
        # The outcome gets no name here: a failure knows this frame by its traceback, and the two would keep each other alive.
        self._ended.append((done, of, self._context.copy().run(work, of), _now() - began))
        # While there is more to do and the loop comes to look by itself, it is left alone.
        if not self._is_telling and not (self._waiting and self._is_looked_after):
            self._is_telling = True
            # A loop that has ended no longer wants to know.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell)
        return True

    def _rest(self) -> bool:
        """Wait until there may be something to do; False when there never will be."""
        with self._idle:
            # Looked at again under the lock: what was handed over before is seen here, and what comes later wakes somebody.
            if self._waiting:
                return True
            if self._is_closed:
                self._threads -= 1
                return False
            self._idlers += 1
            self._idle.wait()
        return True

    def _tell(self) -> None:
        self._is_telling = False
        while self._ended:
            done, of, result, spent = self._ended.popleft()
            self._told += 1
            self._spent += spent
            try:
                done(of, result)
            except BaseException as error:  # noqa: BLE001 - those behind it must not wait for ever.
                logger.error("the outcome of a stage could not be taken in: %s", shown(error))  # noqa: TRY400 - redacted.


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
