# SPDX-License-Identifier: Apache-2.0
"""The threads of a worker: one that talks to the store, and as many for sync stages as may run at once.

They are separate so that stages which block cannot keep settlements from being committed. Each function runs in a copy of the
caller's context, with its request id for logs or its virtual clock; what it sets there is gone for the next.

Stages are handed over without a future each. Functions that block get as many threads as there are functions waiting; those that
return at once stay on one, instead of waking many that would compete for the interpreter. Which kind they are shows when they have
ended: while anything runs, the loop polls every one to five milliseconds, and takes results in batches, too.
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
from redrive.engine.error_text import error_text

logger = logging.getLogger("redrive.worker")

A = TypeVar("A")
T = TypeVar("T")


class BlockingCall(Protocol):
    """Runs a blocking function off the event loop."""

    def __call__(self, question: Callable[[], T], /) -> Awaitable[T]:
        """Run it; the awaitable brings what it returned."""
        ...


AskStore = BlockingCall
"""Runs a call to the store on the one thread that talks to the store."""

_now: Final = SYSTEM_CLOCK.monotonic

RETRY_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.001
"""How often the loop polls functions that block, or of which nothing is known yet, for as long as it finds anything."""
QUICK_POLL_SECONDS: Final = 0.005
"""How often it polls functions that were quick: each poll takes the interpreter from them."""
BLOCKS_SECONDS: Final = 0.0003
"""Functions that take longer than this on average are assumed to block."""
BLOCKED_SECONDS: Final = 1.0
"""After so long without a response of the loop, that is logged."""


class ThreadPool(Protocol):
    """Runs sync functions. `done` is called on the loop with the argument and what `work` returned; `work` must not raise."""

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
        """How many threads are woken when something is handed over."""
        self._pause = POLL_SECONDS
        self._delivered = 0
        self._spent = 0.0
        self._idle = threading.Condition()
        self._idle_count = 0
        self._threads = 0
        self._expected = 0
        """How many more threads are to be started."""
        self._no_thread_before = 0.0
        self._is_handing_over = False
        self._is_polled = False
        self._is_delivering = False
        self._is_closed = False

    def start(self, work: Callable[[A], T], of: A, done: Callable[[A, T], None]) -> None:
        """Run `work` as soon as there is a thread for it."""
        self._waiting.append((work, of, done))
        if not self._is_handing_over:
            # After this turn of the loop, which may put more here: a thread woken earlier would only compete with it.
            self._is_handing_over = True
            self._loop.call_soon(self._hand_over)

    def close(self) -> None:
        """Let idle threads end; one that still runs a stage ends after it, and does not keep the process from ending."""
        with self._idle:
            self._is_closed = True
            self._idle_count = 0
            self._idle.notify_all()

    def _hand_over(self) -> None:
        self._is_handing_over = False
        self._wake(min(self._wanted, len(self._waiting)))
        if not self._is_polled:
            self._is_polled = True
            self._loop.call_later(self._pause, self._poll)

    def _poll(self) -> None:
        """Deliver what has ended, and wake or start more threads if those at work are blocked."""
        self._deliver()
        delivered, spent = self._delivered, self._spent
        self._delivered, self._spent = 0, 0.0
        if delivered and spent <= delivered * BLOCKS_SECONDS:
            self._wanted, self._pause = 1, QUICK_POLL_SECONDS
        elif delivered or self._waiting:
            # Step by step: a thread that was kept from the interpreter looks as if it were blocked.
            self._wanted, self._pause = min(self._limit, self._wanted * 4), POLL_SECONDS
        if self._waiting and self._wanted > 1:
            self._wake(min(self._wanted, len(self._waiting)))
        # First stop polling, then look once more: what ended before is seen here, and what ends from now on wakes the loop itself.
        self._is_polled = False
        if delivered or self._ended or (self._waiting and (self._idle_count or self._threads < self._limit)):
            self._is_polled = True
            self._loop.call_later(self._pause, self._poll)

    def _wake(self, wanted: int) -> None:
        """Wake so many idle threads, and start new ones for the rest as far as the limit allows."""
        with self._idle:
            woken = min(wanted, self._idle_count)
            self._idle_count -= woken
            self._idle.notify(woken)
            self._expected = min(wanted - woken, self._limit - self._threads)
        self._new_thread()

    def _new_thread(self) -> None:
        """Start one more thread if any is expected; it starts the next, because whoever starts one waits until it runs."""
        with self._idle:
            if self._expected <= 0 or not self._waiting or self._no_thread_before > _now():
                return
            self._expected -= 1
            self._threads += 1
        context = self._context.copy()
        thread = threading.Thread(target=context.run, args=(self._serve,), name="redrive-stage", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The system has no more threads to give: continue with those that run, and try again after a while.
            self._no_thread_before = _now() + RETRY_SECONDS
            with self._idle:
                self._threads -= 1
            logger.warning("no more threads for stages than %d: %s", self._threads, error)

    def _serve(self) -> None:
        self._new_thread()
        while self._run_one() or self._rest():
            pass

    def _run_one(self) -> bool:
        """Run what waits longest; False when nothing does. A function of its own, so that an idle thread keeps nothing alive."""
        try:
            work, of, done = self._waiting.popleft()
        except IndexError:
            return False
        began = _now()
        # The result gets no name here: a failure refers to this frame by its traceback, and the two would keep each other alive.
        self._ended.append((done, of, self._context.copy().run(work, of), _now() - began))
        # While there is more to do and the loop polls, it need not be woken.
        if not self._is_delivering and not (self._waiting and self._is_polled):
            self._is_delivering = True
            # The loop may have ended.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver)
        return True

    def _rest(self) -> bool:
        """Wait until there may be something to do; False when there never will be."""
        with self._idle:
            # Checked again under the lock: what was handed over before is seen here, and what comes later wakes a thread.
            if self._waiting:
                return True
            if self._is_closed:
                self._threads -= 1
                return False
            self._idle_count += 1
            self._idle.wait()
        return True

    def _deliver(self) -> None:
        self._is_delivering = False
        while self._ended:
            done, of, result, spent = self._ended.popleft()
            self._delivered += 1
            self._spent += spent
            try:
                done(of, result)
            except BaseException as error:  # noqa: BLE001 - those behind it must not wait for ever.
                logger.error("the result of a stage could not be delivered: %s", error_text(error))  # noqa: TRY400 - redacted.


class StoreThread:
    """The one thread that talks to the store; calls are made in order."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="redrive-store")

    def ask(self, question: Callable[[], T]) -> asyncio.Future[T]:
        """Call the store; the call is under way when this returns, and the future brings its answer."""
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(self._thread, context.run, question)

    def close(self) -> None:
        """Wait for the last answer, and end the thread."""
        self._thread.shutdown()


class BackgroundThread:
    """A daemon thread that calls a function when it is woken, and every so many seconds besides. An error is logged."""

    def __init__(self, name: str, call: Callable[[], None], *, every: float | None = None) -> None:
        self._call = call
        self._every = every
        self._is_due = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Have the function called soon; from any thread."""
        self._is_due.set()

    def stop(self, wait: float | None = None) -> None:
        """End the thread, and wait for it; at most so many seconds."""
        self._is_over = True
        self._is_due.set()
        self._thread.join(wait)

    def run_once(self) -> None:
        """Call the function now, on this thread."""
        try:
            self._call()
        except Exception as error:  # noqa: BLE001 - the thread must not end by one error.
            logger.error("%s failed and will run again: %s", self._thread.name, error_text(error))  # noqa: TRY400 - redacted.

    def _run(self) -> None:
        while True:
            self._is_due.wait(self._every)
            self._is_due.clear()
            if self._is_over:
                return
            self.run_once()


class LoopTracker(threading.Thread):
    """Checks periodically that a loop responds; logs each stage that blocks it, once.

    It only looks: a blocking call cannot be interrupted. Meanwhile heartbeats continue on their own thread; all else on the loop
    waits.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="redrive-loop", daemon=True)
        self._loop = loop
        self._turned = threading.Event()
        self._is_over = threading.Event()
        self._logged: set[str] = set()

    def run(self) -> None:
        """Look until stopped."""
        while not self._is_over.wait(BLOCKED_SECONDS):
            self._turned.clear()
            try:
                self._loop.call_soon_threadsafe(self._turned.set)
            except RuntimeError:
                # The loop is closed.
                return
            if not self._turned.wait(BLOCKED_SECONDS) and not self._is_over.is_set():
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
                BLOCKED_SECONDS,
            )
