# SPDX-License-Identifier: Apache-2.0
"""A guard's fallback: it answers for what was given up, and for nothing else."""

from __future__ import annotations

import asyncio

import pytest

from redrive import Breaker, Cancel, ConfigurationError, Fail, guard
from redrive.testing import virtual_time

from .scripts import DOWN, STEADY, Runner, Script, both


@both
def test_what_was_given_up_is_answered_for_after_the_last_attempt(run: Runner) -> None:
    heard: list[str] = []
    told: list[Exception] = []
    script = Script(*[DOWN] * 9)

    def cached(error: Exception) -> str:
        told.append(error)
        return "from the cache"

    with virtual_time():
        answer = run(
            script, guard(retry=STEADY, fallback=cached, on_dead=lambda event: heard.append(event.kind))
        )

    assert (answer, script.calls, heard) == ("from the cache", STEADY.max_attempts, ["dead"])
    assert [type(error) for error in told] == [DOWN]


@both
def test_a_success_needs_no_answer(run: Runner) -> None:
    with virtual_time():
        assert run(Script(DOWN, "ok"), guard(retry=STEADY, fallback=lambda _error: "never")) == "ok"


@both
def test_a_refusal_by_the_breaker_is_answered_for_too(run: Runner) -> None:
    breaker = Breaker("api", consecutive=1, mode="fail_fast")
    careful = guard(retry=STEADY, breaker=breaker, fallback=lambda error: type(error).__name__)
    script = Script("ok")

    with virtual_time():
        careful.cell.open()
        assert run(script, careful) == "BreakerOpenError"

    assert script.calls == 0


@both
@pytest.mark.parametrize("raised", [KeyError("a bug"), Fail("NOPE"), Cancel()], ids=["bug", "fail", "cancel"])
def test_bugs_and_signals_are_raised_all_the_same(run: Runner, raised: Exception) -> None:
    with virtual_time(), pytest.raises(type(raised)):
        run(Script(raised), guard(retry=STEADY, fallback=lambda _error: "never"))


def test_an_async_function_may_have_an_async_fallback() -> None:
    async def ask() -> str:
        raise DOWN

    async def remembered(_error: Exception) -> str:
        return "from the cache"

    with virtual_time():
        assert asyncio.run(guard(ask, retry=STEADY, fallback=remembered)()) == "from the cache"
    with pytest.raises(ConfigurationError, match="must be a sync function"):
        guard(fallback=remembered)(lambda: "sync")


def test_what_a_fallback_raises_comes_out() -> None:
    def none_left(_error: Exception) -> str:
        raise LookupError("nothing is cached")

    def ask() -> str:
        raise DOWN

    with virtual_time(), pytest.raises(LookupError, match="nothing is cached") as raised:
        guard(ask, retry=STEADY, fallback=none_left)()
    assert isinstance(raised.value.__context__, DOWN)


def test_a_fallback_must_be_callable() -> None:
    with pytest.raises(ConfigurationError, match="must be callable"):
        guard(fallback="cached")  # type: ignore[call-overload]
