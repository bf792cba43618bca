# SPDX-License-Identifier: Apache-2.0
"""Threads for user functions that may never return: hooks, sinks, the source of a run.

The event loop has few threads, and a process waits for them at its end: one hook that hangs would block the others and the end of
the process. These threads are created as needed, end after some idle time, and do not keep the process alive. The caller limits
how many calls that may hang are open.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

IDLE_SECONDS: Final = 10.0
"""How long a thread waits for more work before it ends."""

T = TypeVar("T")
Order = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], contextvars.Context, Callable[[], object]]


class DaemonThreads:
    """Runs each function on an idle thread, or on a new one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._mutex = threading.Lock()
        self._idle: list[SimpleQueue[Order]] = []

    def ask(self, question: Callable[[], T]) -> asyncio.Future[T]:
        """Run a function in a copy of the caller's context; the future gets its result or exception."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        with self._mutex:
            is_new = not self._idle
            inbox: SimpleQueue[Order] = SimpleQueue() if is_new else self._idle.pop()
        inbox.put((loop, answer, contextvars.copy_context(), question))
        if is_new:
            threading.Thread(target=self._serve, args=(inbox,), name=self._name, daemon=True).start()
        return answer

    def _serve(self, inbox: SimpleQueue[Order]) -> None:
        while self._work_one(inbox):
            pass

    def _work_one(self, inbox: SimpleQueue[Order]) -> bool:
        """Run the next function; return False when none came for a while."""
        try:
            loop, answer, context, question = inbox.get(timeout=IDLE_SECONDS)
        except Empty:
            with self._mutex:
                # A caller may have chosen this thread at the last moment.
                if inbox not in self._idle:
                    return True
                self._idle.remove(inbox)
            return False
        outcome = _outcome(context, question)
        # Become idle before answering, so that the next caller finds this thread.
        with self._mutex:
            self._idle.append(inbox)
        # The loop may have ended.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_set, answer, *outcome)
        # An exception's traceback refers to this frame; without this, the two would keep each other alive.
        del loop, answer, context, question, outcome
        return True


def _outcome(
    context: contextvars.Context, question: Callable[[], object]
) -> tuple[object, BaseException | None]:
    try:
        return context.run(question), None
    except StopIteration as error:
        # A future cannot carry it.
        return None, RuntimeError(f"it raised {type(error).__name__}")
    except BaseException as error:  # noqa: BLE001 - the caller gets it.
        return None, error


def _set(answer: asyncio.Future[object], result: object, error: BaseException | None) -> None:
    if answer.done():
        # The caller no longer waits.
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
