# SPDX-License-Identifier: Apache-2.0
"""Threads for sync stages: as many as block, no more than allowed, nothing lost, and the caller's context goes along."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from redrive.engine.worker.threads import BLOCKS_SECONDS, StageThreads, StoreThread
from tests.unit.build import bounded, turns, until

CALLER: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")


def _call(work: Callable[[], object]) -> object:
    return work()


async def ended(threads: StageThreads, works: Sequence[Callable[[], object]]) -> list[object]:
    """Run functions and return what came back, in the order in which it did."""
    results: list[object] = []
    over = asyncio.Event()

    def done(_work: object, result: object) -> None:
        results.append(result)
        if len(results) == len(works):
            over.set()

    for work in works:
        threads.start(_call, work, done)
    await over.wait()
    return results


def test_functions_that_block_really_run_side_by_side() -> None:
    together = threading.Barrier(50, timeout=10)

    async def scene() -> list[object]:
        threads = StageThreads(50)
        try:
            return await ended(threads, [together.wait] * 50)
        finally:
            threads.close()

    assert sorted(bounded(scene())) == list(range(50))  # type: ignore[type-var]


def test_no_more_threads_run_than_allowed() -> None:
    lock = threading.Lock()
    names: set[str] = set()

    def name() -> None:
        with lock:
            names.add(str(threading.get_ident()))

    async def scene() -> None:
        threads = StageThreads(3)
        await ended(threads, [name] * 500)
        threads.close()

    bounded(scene())
    assert 1 <= len(names) <= 3


def test_functions_that_return_at_once_all_come_back_however_often_they_are_started() -> None:
    async def scene() -> int:
        threads = StageThreads(8)
        count = 0
        for turn in range(200):
            pairs = [(turn, place) for place in range(turn % 7 + 1)]
            works = [partial(tuple, pair) for pair in pairs]
            assert sorted(await ended(threads, works)) == pairs  # type: ignore[type-var]
            count += len(works)
        threads.close()
        return count

    assert bounded(scene()) == sum(turn % 7 + 1 for turn in range(200))


def test_functions_started_from_other_functions_results_come_back_too() -> None:
    async def scene() -> list[int]:
        threads, seen, over = StageThreads(4), list[int](), asyncio.Event()

        def done(_before: int, number: int) -> None:
            seen.append(number)
            if number < 300:
                threads.start(lambda before: before + 1, number, done)
            else:
                over.set()

        threads.start(lambda before: before + 1, 0, done)
        await over.wait()
        threads.close()
        return seen

    assert bounded(scene()) == list(range(1, 301))


def test_a_blocked_function_does_not_keep_those_behind_it_waiting() -> None:
    go_on = threading.Event()

    async def scene() -> list[object]:
        threads = StageThreads(2)
        blocked = asyncio.ensure_future(ended(threads, [lambda: go_on.wait(10)]))
        await asyncio.sleep(0)
        quick = await ended(threads, [partial(int, place) for place in range(20)])
        go_on.set()
        assert await blocked == [True]
        threads.close()
        return quick

    assert sorted(bounded(scene())) == list(range(20))  # type: ignore[type-var]


def test_what_ends_before_a_function_that_blocks_on_the_same_thread_does_not_wait_for_it() -> None:
    go_on = threading.Event()

    async def scene() -> list[object]:
        threads = StageThreads(1)
        quick, over = list[object](), asyncio.Event()

        def done(_work: object, result: object) -> None:
            quick.append(result)
            over.set()

        threads.start(_call, lambda: "quick", done)
        threads.start(_call, lambda: go_on.wait(10), done)
        await over.wait()
        seen = list(quick)
        go_on.set()
        while len(quick) < 2:
            over.clear()
            await over.wait()
        threads.close()
        return seen

    assert bounded(scene()) == ["quick"]


def test_functions_that_block_once_get_their_threads_at_once_the_next_time() -> None:
    together, never = threading.Barrier(30, timeout=10), threading.Event()

    def block() -> None:
        never.wait(10 * BLOCKS_SECONDS)

    def block_together() -> None:
        together.wait()
        # Who came last has not blocked so far, and the loop may look at that one alone.
        block()

    async def scene() -> int:
        threads = StageThreads(30)
        try:
            await ended(threads, [block_together] * 30)
            # With the next function the loop looks at those that have ended.
            await ended(threads, [block])
            await until(lambda: not threads._is_polled)
            return threads._wanted
        finally:
            threads.close()

    assert bounded(scene()) > 1


class Contrived(StageThreads):
    """Lets the first function end, and another thread take the second, while the loop looks and has taken in all there was."""

    def __init__(self, limit: int, go_on: threading.Event) -> None:
        super().__init__(limit)
        self._go_on = go_on
        self.started_by: list[str] = []

    def _new_thread(self) -> None:
        self.started_by.append(threading.current_thread().name)
        if threading.current_thread() is not threading.main_thread() or not self._threads:
            super()._new_thread()
            return
        self._go_on.set()
        while not self._ended:
            pass
        super()._new_thread()
        while self._waiting:
            pass


def test_what_ends_while_the_loop_polls_is_delivered_although_nothing_waits_any_more() -> None:
    first_may_end, second_may_end = threading.Event(), threading.Event()

    async def scene() -> list[str]:
        threads, delivered, over = Contrived(4, first_may_end), list[str](), asyncio.Event()

        def done(name: str, _result: object) -> None:
            delivered.append(name)
            over.set()

        threads.start(lambda _: first_may_end.wait(10), "first", done)
        threads.start(lambda _: second_may_end.wait(10), "second", done)
        await over.wait()
        seen = list(delivered)
        over.clear()
        second_may_end.set()
        await over.wait()
        threads.close()
        return seen

    assert bounded(scene()) == ["first"]


def test_threads_start_each_other_so_that_the_loop_waits_for_few() -> None:
    async def scene() -> list[str]:
        threads, together = Counted(40), threading.Barrier(40, timeout=10)
        await ended(threads, [together.wait] * 40)
        threads.close()
        return threads.started_by

    started_by = bounded(scene())
    assert len(started_by) == 40
    assert started_by.count(threading.main_thread().name) < 10


class Counted(StageThreads):
    """Notes who started each thread."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.started_by: list[str] = []

    def _new_thread(self) -> None:
        before = self._threads
        super()._new_thread()
        if self._threads > before:
            self.started_by.append(threading.current_thread().name)


def test_a_system_without_threads_is_asked_once_in_a_while_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, start, asked = [100.0], threading.Thread.start, list[float]()

    def refuse(_thread: threading.Thread) -> None:
        asked.append(now[0])
        raise RuntimeError("can't start new thread")

    async def scene() -> object:
        threads = StageThreads(3)
        result = asyncio.ensure_future(ended(threads, [lambda: "done"]))
        for _ in range(50):
            await turns(1)
            threads._poll()
        monkeypatch.setattr(threading.Thread, "start", start)
        now[0] += 2
        seen = await result
        threads.close()
        return seen

    monkeypatch.setattr("redrive.engine.worker.threads._now", lambda: now[0])
    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert bounded(scene()) == ["done"]
    assert asked == [100.0]
    assert [record.getMessage() for record in caplog.records] == [
        "no more threads for stages than 0: can't start new thread"
    ]


def test_a_thread_at_rest_holds_on_to_nothing() -> None:
    class Outcome:
        """Something that may have an open socket in it."""

    gone = threading.Event()

    async def scene() -> bool:
        threads, over = StageThreads(1), asyncio.Event()

        def make(_of: object) -> Outcome:
            made = Outcome()
            weakref.finalize(made, gone.set)
            return made

        threads.start(make, object(), lambda *_: over.set())
        await over.wait()
        await until(lambda: threads._idle_count == 1)
        seen = gone.is_set()
        threads.close()
        return seen

    assert bounded(scene())


def test_a_failure_that_was_delivered_is_gone_at_once_and_with_it_what_it_holds() -> None:
    # Its traceback knows the frames it came through. If one of them knew it in turn, only the search for cyclic garbage would free
    # it, and until then the connection of every failed call would stay open.
    class Failure(Exception):
        """Something that has an open connection in it."""

    gone = threading.Event()

    def fail(_of: object) -> Exception:
        try:
            raise Failure
        except Failure as failure:
            weakref.finalize(failure, gone.set)
            return failure

    async def scene() -> bool:
        threads, over = StageThreads(1), asyncio.Event()
        threads.start(fail, object(), lambda *_: over.set())
        await over.wait()
        await until(lambda: threads._idle_count == 1)
        threads.close()
        return gone.is_set()

    gc.disable()
    try:
        assert bounded(scene())
    finally:
        gc.enable()


def test_what_is_started_after_closing_is_done_all_the_same() -> None:
    async def scene() -> list[object]:
        threads = StageThreads(1)
        await ended(threads, [lambda: "before"])
        threads.close()
        return await ended(threads, [lambda: "after"])

    assert bounded(scene()) == ["after"]


def test_closing_ends_idle_threads_and_those_at_work_after_it() -> None:
    go_on, alive = threading.Event(), list[threading.Thread]()

    async def scene() -> None:
        threads = StageThreads(2)
        together = threading.Barrier(2, timeout=10)

        def remember() -> None:
            alive.append(threading.current_thread())
            together.wait()

        await ended(threads, [remember, remember])
        busy = asyncio.ensure_future(ended(threads, [lambda: go_on.wait(10)]))
        await asyncio.sleep(0)
        threads.close()
        go_on.set()
        assert await busy == [True]

    bounded(scene())
    for thread in alive:
        thread.join(10)
    assert len(alive) == 2
    assert not any(thread.is_alive() for thread in alive)


def test_what_ends_after_its_loop_has_gone_is_nobodys_business() -> None:
    go_on, alive = threading.Event(), list[threading.Thread]()

    async def scene() -> None:
        threads, going = StageThreads(1), asyncio.Event()
        loop = asyncio.get_running_loop()

        def wait() -> bool:
            alive.append(threading.current_thread())
            loop.call_soon_threadsafe(going.set)
            return go_on.wait(10)

        threads.start(_call, wait, lambda *_: None)
        await going.wait()
        threads.close()

    bounded(scene())
    go_on.set()
    alive[0].join(10)

    assert not alive[0].is_alive()


def test_the_context_of_the_caller_goes_along_and_what_is_set_there_stays_there() -> None:
    def change() -> str:
        seen = CALLER.get()
        CALLER.set("thread")
        return seen

    async def scene() -> tuple[list[object], object, str]:
        CALLER.set("ann")
        threads, store = StageThreads(1), StoreThread()
        seen = await ended(threads, [CALLER.get])
        asked = await store.ask(change)
        threads.close()
        store.close()
        return seen, asked, CALLER.get()

    assert bounded(scene()) == (["ann"], "ann", "ann")


def test_questions_to_the_store_are_answered_in_order_and_an_error_is_an_answer() -> None:
    order: list[int] = []

    def fail() -> None:
        raise LookupError("no")

    async def scene() -> list[object]:
        store = StoreThread()
        questions = [store.ask(partial(order.append, place)) for place in range(20)]
        answers = await asyncio.gather(*questions, store.ask(fail), return_exceptions=True)
        store.close()
        return list(answers)

    assert isinstance(bounded(scene())[-1], LookupError)
    assert order == list(range(20))
