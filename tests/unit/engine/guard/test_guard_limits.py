# SPDX-License-Identifier: Apache-2.0
"""guard's time limits, cancellation, concurrency, and the shapes of callables it can be put on."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import redrive
from redrive import Backoff, Breaker, BreakerOpenError, ConfigurationError, RetryPolicy, guard
from redrive.engine.runtime import CURRENT, SYSTEM
from redrive.testing import VirtualClock, virtual_time

from .scripts import STEADY


def test_an_attempt_that_takes_too_long_is_cancelled_and_tried_again() -> None:
    cancelled: list[int] = []
    calls = 0

    @guard(retry=RetryPolicy(2, Backoff.fixed(0)), timeout=0.01)
    async def slow() -> str:
        nonlocal calls
        calls += 1
        if calls == 2:
            return "quick"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(calls)
            raise
        return "never"

    assert asyncio.run(slow()) == "quick"
    assert cancelled == [1]


def test_the_last_timeout_reaches_the_caller_as_one() -> None:
    @guard(retry=RetryPolicy(1), timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as raised:
        asyncio.run(slow())

    assert isinstance(raised.value, redrive.errors.AttemptTimeoutError)
    assert raised.value.timeout == 0.01


def test_a_deadline_cuts_a_running_async_attempt() -> None:
    @guard(retry=STEADY, timeout=60, deadline=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    with pytest.raises(redrive.errors.DeadlineExceededError) as raised:
        asyncio.run(slow())

    assert raised.value.deadline == 0.01


def test_the_functions_own_timeout_is_not_mistaken_for_ours() -> None:
    own = TimeoutError("mine")

    @guard(retry=RetryPolicy(1), timeout=60)
    async def slow() -> None:
        raise own

    with pytest.raises(TimeoutError) as raised:
        asyncio.run(slow())

    assert raised.value is own


def test_a_cancelled_task_is_not_retried() -> None:
    calls = 0

    async def scene() -> None:
        started = asyncio.Event()

        @guard(retry=RetryPolicy(5, retry_on="all"), timeout=60)
        async def wait() -> None:
            nonlocal calls
            calls += 1
            started.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(wait())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    assert calls == 1


def test_many_held_tasks_send_one_probe_at_a_time() -> None:
    running = most = 0

    async def scene() -> list[str]:
        guarded_by = guard(retry=STEADY, breaker=Breaker("api", consecutive=1, open_for=30))

        @guarded_by
        async def call() -> str:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return "ok"

        guarded_by.cell.open()
        return await asyncio.gather(*(call() for _ in range(5)))

    with virtual_time():
        assert asyncio.run(scene()) == ["ok"] * 5
    assert most == 1


def test_bare_guard_keeps_name_signature_and_kind() -> None:
    @guard
    def plain(x: int, *, y: str = "") -> str:
        """Say it."""
        return y * x

    @guard
    async def spoken() -> None: ...

    assert plain(2, y="a") == "aa"
    assert (plain.__name__, plain.__doc__) == ("plain", "Say it.")
    assert str(inspect.signature(plain)) == str(inspect.signature(plain.__wrapped__))  # type: ignore[attr-defined]
    assert inspect.iscoroutinefunction(spoken)


def test_methods_partials_and_callable_objects_can_be_guarded() -> None:
    class Client:
        @guard
        def get(self, n: int) -> int:
            return n

        @classmethod
        @guard
        def make(cls) -> str:
            return cls.__name__

        async def __call__(self) -> str:
            return "called"

    assert Client().get(3) == 3
    assert Client.make() == "Client"
    called: Coroutine[Any, Any, str] = guard(Client())()
    assert asyncio.run(called) == "called"


def test_virtual_time_touches_nothing_outside_its_context() -> None:
    with virtual_time() as clock:
        clock.advance(5)
        assert CURRENT.get() is not SYSTEM

    assert CURRENT.get() is SYSTEM
    assert isinstance(clock, VirtualClock)


def generator() -> object:
    yield 1


async def agenerator() -> object:
    yield 1


async def aprobe() -> None: ...


class Generating:
    def __call__(self) -> object:
        yield 1


@pytest.mark.parametrize(
    ("misuse", "field", "words"),
    [
        (lambda: guard(42), "guard", "callable"),  # type: ignore[call-overload]
        (lambda: guard(RetryPolicy(3)), "guard", "guard(retry=...)"),  # type: ignore[call-overload]
        (lambda: guard(Breaker("x", consecutive=1)), "guard", "guard(breaker=...)"),  # type: ignore[call-overload]
        (lambda: guard(Generating()), "guard", "generator"),
        (lambda: guard(on_retry=aprobe), "guard(on_retry)", "sync function"),  # type: ignore[arg-type]
        (lambda: guard(hold_max=0), "guard(hold_max)", "more than 0"),
        (lambda: guard(name=5), "guard(name)", "str"),  # type: ignore[call-overload]
        (lambda: guard(deadline=10**400), "guard(deadline)", "hundred years"),
        (lambda: guard(retry=RetryPolicy())("fetch"), "guard", "callable"),  # type: ignore[arg-type]
        (lambda: guard(classmethod(lambda cls: 1)), "guard", "@classmethod above @guard"),  # type: ignore[call-overload]
        (lambda: guard(staticmethod(lambda: 1)), "guard", "@staticmethod above @guard"),
        (lambda: guard(generator), "guard", "generator"),
        (lambda: guard(agenerator), "guard", "generator"),
        (lambda: guard(retries=3), "guard(retries)", "on_retry"),  # type: ignore[call-overload]
        (lambda: guard(retry=3), "guard(retry)", "RetryPolicy"),  # type: ignore[call-overload]
        (lambda: guard(breaker="api"), "guard(breaker)", "Breaker"),  # type: ignore[call-overload]
        (lambda: guard(codes={}), "guard(codes)", "CodeSet"),  # type: ignore[call-overload]
        (lambda: guard(classifier=len), "guard(classifier)", "Classifier"),  # type: ignore[call-overload]
        (lambda: guard(idempotent="yes"), "guard(idempotent)", "bool"),  # type: ignore[call-overload]
        (lambda: guard(on_retry="log"), "guard(on_retry)", "callable"),  # type: ignore[call-overload]
        (lambda: guard(timeout=0), "guard(timeout)", "more than 0"),
        (lambda: guard(deadline=-1), "guard(deadline)", "more than 0"),
        (lambda: guard(deadline="5"), "guard(deadline)", "seconds"),  # type: ignore[call-overload]
        (lambda: guard(timeout=5)(len), "guard(timeout)", "thread cannot be stopped"),
        (lambda: guard(breaker=Breaker("x", consecutive=1, probe=aprobe))(len), "Breaker(x).probe", "sync"),
        (lambda: guard().cell, "guard(breaker)", "not set"),
    ],
)
def test_misuse_is_refused_by_name_with_a_fix(misuse: Callable[[], object], field: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        misuse()

    assert refused.value.field == field
    assert words in str(refused.value)
    assert refused.value.fix


def test_guards_share_a_breaker_by_sharing_the_object() -> None:
    api = Breaker("api", consecutive=3)
    first, second, other = (
        guard(breaker=api),
        guard(breaker=api),
        guard(breaker=Breaker("api", consecutive=3)),
    )
    with virtual_time():
        first.cell.isolate()
        assert second.cell is first.cell
        assert other.cell is not first.cell


@pytest.mark.untraced
def test_a_breaker_keeps_its_state_while_its_guard_lives_whatever_runs_on_virtual_time_meanwhile() -> None:
    guarded_by = guard(breaker=Breaker("api", consecutive=3))
    call = guarded_by(lambda: "ok")
    guarded_by.cell.isolate()
    with virtual_time():
        assert call() == "ok"
    gc.collect()

    with pytest.raises(BreakerOpenError):
        call()


@pytest.mark.untraced
def test_breakers_of_guards_that_are_gone_leave_nothing_behind() -> None:
    with virtual_time():
        cells = CURRENT.get().breakers._cells
        for _ in range(50):
            guard(breaker=Breaker("api", consecutive=3))(lambda: 1)()
        gc.collect()
        assert len(cells) == 0


def test_an_option_that_is_none_counts_as_left_out() -> None:
    bare = guard(
        retry=None, breaker=None, timeout=None, deadline=None, codes=None, classifier=None, on_retry=None
    )

    assert bare(lambda: 1)() == 1


def test_a_guard_shows_its_options() -> None:
    assert repr(guard(deadline=3)) == "guard(deadline=3)"


def test_a_limit_for_an_unknown_code_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="per_code_max_attempts"):
        guard(retry=RetryPolicy(per_code_max_attempts={"GATEWAY_GONE": 2}))
