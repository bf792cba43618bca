# SPDX-License-Identifier: Apache-2.0
"""The corners of guard: what must not hang, spin, leak, replace an exception or blame the wrong side."""

from __future__ import annotations

import asyncio
import functools
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import redrive
from redrive import (
    Backoff,
    Breaker,
    BreakerOpenError,
    ConfigurationError,
    Fail,
    Jitter,
    Retry,
    RetryPolicy,
    Snooze,
    guard,
)
from redrive.core.breaker_state import Phase
from redrive.errors import AttemptsSpentError
from redrive.testing import VirtualClock, virtual_time

from .scripts import DOWN, STEADY, Runner, Script, both, run_async


def call(made: Callable[[], object]) -> object:
    """Call an async function from a sync one, and hand its coroutine on."""
    return made()


class Busy(Exception):
    pass


@both
def test_a_told_delay_given_as_a_whole_number_is_waited_for(run: Runner) -> None:
    own = redrive.Classifier(
        [redrive.Rule(Busy, lambda _exc: redrive.Verdict.of("RATE_LIMITED", retry_after=12))]
    )
    with virtual_time() as clock:
        run(Script(Busy(), "ok"), guard(retry=STEADY, classifier=own))

    assert clock.waits == [12]


@both
@pytest.mark.parametrize("wish", [Fail("NOPE"), KeyError("bug")], ids=["fail", "bug"])
def test_what_is_never_retried_is_not_kept_alive_by_a_hold(run: Runner, wish: Exception) -> None:
    breaker = Breaker("api", consecutive=1, counts="all", open_for=30)
    script = Script(wish)
    with virtual_time(), pytest.raises(type(wish)):
        run(script, guard(retry=STEADY, breaker=breaker))

    assert script.calls == 1


@both
def test_give_up_on_wins_over_a_hold(run: Runner) -> None:
    script = Script(DOWN)
    policy = RetryPolicy(3, give_up_on=["NETWORK_REFUSED"])
    with virtual_time(), pytest.raises(DOWN):
        run(script, guard(retry=policy, breaker=Breaker("api", consecutive=1)))

    assert script.calls == 1


@both
def test_retry_asked_for_inside_an_open_breaker_keeps_its_delay_and_limit(run: Runner) -> None:
    script = Script(Retry(7))
    breaker = Breaker("api", consecutive=1, counts="all")
    with virtual_time() as clock, pytest.raises(AttemptsSpentError) as raised:
        run(script, guard(retry=STEADY, breaker=breaker))

    assert script.calls == 4
    assert clock.waits == [7, 7, 7]
    assert isinstance(raised.value.__cause__, Retry)


@both
def test_a_hold_without_a_deadline_ends_after_hold_max(run: Runner) -> None:
    guarded_by = guard(retry=STEADY, breaker=Breaker("api", consecutive=1, open_for=30), hold_max=100)
    with virtual_time() as clock, pytest.raises(BreakerOpenError):
        run(Script(DOWN), guarded_by)

    assert sum(clock.waits) == pytest.approx(100)
    assert guard().hold_max == 600


@both
def test_what_the_dependency_told_us_is_waited_for_in_a_hold_too(run: Runner) -> None:
    told = ConnectionRefusedError(111, "later")
    told.retry_after = 100  # type: ignore[attr-defined]
    with virtual_time() as clock:
        run(Script(told, "ok"), guard(retry=STEADY, breaker=Breaker("api", consecutive=1, open_for=2)))

    assert sum(clock.waits) == pytest.approx(100)


@both
def test_a_snooze_that_ends_after_the_deadline_is_not_begun(run: Runner) -> None:
    with virtual_time() as clock, pytest.raises(AttemptsSpentError):
        run(Script(Snooze(10)), guard(deadline=5))

    assert clock.waits == []


def test_successes_of_calls_that_overlap_failures_break_a_row_of_failures() -> None:
    """Six calls begin while all is calm and end ok, failed, ok, failed, ok, failed: never two failures in a row."""

    async def scene() -> Phase:
        guarded_by = guard(retry=RetryPolicy(1), breaker=Breaker("api", consecutive=2))
        gates = [asyncio.Event() for _ in range(6)]

        @guarded_by
        async def call(n: int) -> str:
            await gates[n].wait()
            if n % 2:
                raise ConnectionResetError(104, "reset")
            return "ok"

        tasks = [asyncio.ensure_future(call(n)) for n in range(6)]
        await asyncio.sleep(0)
        for n, gate in enumerate(gates):
            gate.set()
            await asyncio.wait([tasks[n]])
        await asyncio.gather(*tasks, return_exceptions=True)
        return guarded_by.cell.state.phase

    assert asyncio.run(scene()) is Phase.CLOSED


def test_long_calls_count_in_the_window_in_which_they_end() -> None:
    guarded_by = guard(
        retry=RetryPolicy(1),
        breaker=Breaker("llm", failure_rate=0.5, window=60, min_calls=5, mode="fail_fast"),
    )

    def call(fails: bool) -> str:
        clock.advance(5)
        if fails:
            raise ConnectionResetError(104, "reset")
        return "ok"

    guarded = guarded_by(call)
    with virtual_time() as clock:
        for n in range(40):
            if n % 4 == 3:
                with pytest.raises(ConnectionResetError):
                    guarded(True)
            else:
                guarded(False)
        assert guarded_by.cell.state.phase is Phase.CLOSED


@both
def test_nested_guards_on_one_breaker_probe_once_and_recover(run: Runner) -> None:
    breaker = Breaker("api", consecutive=1, open_for=30, mode="fail_fast")
    inner_guard = guard(retry=RetryPolicy(1), breaker=breaker)
    inner = inner_guard(Script("ok"))
    outer = Script(inner)
    with virtual_time() as clock:
        inner_guard.cell.open()
        clock.advance(31)
        assert run(outer, guard(retry=RetryPolicy(1), breaker=breaker)) == "ok"
        assert inner_guard.cell.state.phase is Phase.CLOSED


@both
def test_a_refusal_by_another_breaker_is_not_held_against_this_one(run: Runner) -> None:
    broken = guard(retry=RetryPolicy(1), breaker=Breaker("inner", consecutive=1, mode="fail_fast"))
    inner = broken(Script("ok"))
    outer = guard(retry=RetryPolicy(1), breaker=Breaker("outer", consecutive=1, mode="fail_fast"))
    with virtual_time():
        broken.cell.isolate()
        with pytest.raises(BreakerOpenError, match="inner"):
            run(Script(inner), outer)
        assert outer.cell.state.phase is Phase.CLOSED


def test_our_own_deadline_is_not_held_against_the_dependency() -> None:
    guarded_by = guard(breaker=Breaker("api", consecutive=1), deadline=0.01)

    @guarded_by
    async def slow() -> None:
        await asyncio.Event().wait()

    with pytest.raises(redrive.errors.DeadlineExceededError):
        asyncio.run(slow())
    assert guarded_by.cell.state.phase is Phase.CLOSED


@both
def test_no_probe_is_taken_when_the_time_is_up(run: Runner) -> None:
    guarded_by = guard(retry=STEADY, breaker=Breaker("api", consecutive=1, open_for=30), deadline=30)
    script = Script("ok")
    with virtual_time(), pytest.raises(BreakerOpenError):
        guarded_by.cell.open()
        run(script, guarded_by)

    assert script.calls == 0


@dataclass(frozen=True)
class Frozen(Exception):
    text: str = "x"


class Stubborn(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


@both
@pytest.mark.parametrize("kind", [Frozen, Stubborn])
def test_an_exception_that_takes_no_notes_is_raised_all_the_same(run: Runner, kind: type[Exception]) -> None:
    own = redrive.Classifier([redrive.Rule(kind, "NOT_FOUND")])
    with virtual_time(), pytest.raises(kind):
        run(Script(kind()), guard(classifier=own))


def test_nested_guards_keep_both_histories() -> None:
    @guard(retry=RetryPolicy(2, Backoff.fixed(1)))
    def inner() -> None:
        raise ConnectionResetError(104, "reset")

    @guard(retry=RetryPolicy(1))
    def outer() -> None:
        inner()

    with virtual_time(), pytest.raises(ConnectionResetError) as raised:
        outer()

    assert [note.split()[4].rpartition(".")[2] for note in raised.value.__notes__] == ["inner", "outer"]


def test_of_very_many_attempts_the_newest_are_noted() -> None:
    with virtual_time(), pytest.raises(DOWN) as raised:
        guard(retry=RetryPolicy(80, Backoff.fixed(1)))(Script(DOWN))()

    note = raised.value.__notes__[0]
    assert "(30 earlier failures omitted)" in note
    assert "attempt 80 of 80" in note
    assert "attempt 1 of 80" not in note


def test_an_outer_guard_does_not_repeat_a_wish_that_the_inner_one_could_not_grant() -> None:
    script = Script(Retry(1))
    inner = guard(retry=RetryPolicy(2, Backoff.fixed(1)))(script)
    with virtual_time(), pytest.raises(AttemptsSpentError):
        guard(retry=RetryPolicy(3, Backoff.fixed(1)))(inner)()

    assert script.calls == 2


@both
def test_a_finished_call_leaves_no_cycle_behind(run: Runner) -> None:
    class Payload:
        pass

    def held(payload: Payload, failures: list[Exception]) -> str:
        if failures:
            raise failures.pop()
        return "ok" if payload is not None else ""

    payload = Payload()
    gone = weakref.ref(payload)
    guarded = guard(retry=RetryPolicy(3, Backoff.fixed(0)), breaker=Breaker("api", consecutive=9))(held)
    gc.disable()
    try:
        guarded(payload, [ConnectionResetError(104, "reset")])
        del payload
        assert gone() is None
    finally:
        gc.enable()


def test_closing_a_closed_breaker_changes_nothing() -> None:
    guarded_by = guard(breaker=Breaker("api", consecutive=3))
    call = guarded_by(lambda: "ok")
    with virtual_time() as clock:
        for _ in range(100):
            call()
        guarded_by.cell.close()
        for _ in range(100):
            call()

    assert clock.waits == []


def test_a_probe_may_not_outlast_the_deadline() -> None:
    async def hanging() -> None:
        await asyncio.Event().wait()

    guarded_by = guard(breaker=Breaker("api", consecutive=1, open_for=0.001, probe=hanging), deadline=0.05)
    guarded_by.cell.open()
    with pytest.raises(BreakerOpenError):
        run_async(Script("ok"), guarded_by)


def test_a_probe_that_turns_out_async_is_refused_by_a_sync_guard_and_given_back() -> None:
    async def probe() -> None: ...

    guarded_by = guard(breaker=Breaker("api", consecutive=1, probe=functools.partial(call, probe)))
    with virtual_time():
        guarded_by.cell.open()
        with pytest.raises(ConfigurationError, match="sync probe"):
            guarded_by(Script("ok"))()
        assert guarded_by.cell.state.probe is None


@both
def test_an_interrupted_probe_is_given_back(run: Runner) -> None:
    guarded_by = guard(breaker=Breaker("api", consecutive=1, probe=Script(KeyboardInterrupt())))
    with virtual_time():
        guarded_by.cell.open()
        with pytest.raises(KeyboardInterrupt):
            run(Script("ok"), guarded_by)
        assert guarded_by.cell.state.probe is None


def test_a_sync_function_that_returns_a_coroutine_is_refused() -> None:
    async def work() -> int:
        return 1

    with pytest.raises(ConfigurationError, match="async def"):
        guard(functools.partial(call, work))()
    with pytest.raises(ConfigurationError, match="async def"):
        guard(functools.partial(call, work), deadline=5)()


def test_own_codes_find_the_stage_by_the_functions_name_or_a_given_one() -> None:
    codes = redrive.CodeSet(
        "app", [redrive.OwnCode("GW", ["network"], stages=["convert"])], otherwise=redrive.OwnCode("ELSE")
    )

    class Gateway:
        @guard(codes=codes, retry=RetryPolicy(1))
        def convert(self) -> None:
            raise ConnectionResetError(104, "reset")

    named = guard(codes=codes, retry=RetryPolicy(1), name="convert")(Script(DOWN))
    with pytest.raises(ConnectionResetError) as by_name:
        Gateway().convert()
    with pytest.raises(DOWN) as by_option:
        named()

    assert "GW" in by_name.value.__notes__[0]
    assert "gave up on convert" in by_option.value.__notes__[0]


def test_a_history_that_cannot_be_redacted_keeps_the_exception_and_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_args: object, **_options: object) -> str:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("redrive.redaction.process.redact_start", refuse)
    last = ConnectionResetError(104, "reset")
    script = Script(ConnectionResetError(104, "password=hunter2hunter2"), last)
    with virtual_time(), pytest.raises(ConnectionResetError) as raised:
        guard(retry=RetryPolicy(2, Backoff.fixed(1)))(script)()

    assert raised.value is last
    assert "ConnectionResetError: (cannot be redacted) -> " in raised.value.__notes__[0]
    assert "hunter2" not in raised.value.__notes__[0]


FORKING = """
import os
from redrive.engine.clock import SYSTEM_CHANCE

SYSTEM_CHANCE.random()
for _ in range(6):
    child = os.fork()
    if not child:
        print(SYSTEM_CHANCE.random(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_forked_workers_draw_jitter_of_their_own() -> None:
    # In a program of its own: it is large, what is forked from a process that runs tests.
    draws = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True).stdout

    assert len(set(draws.split())) == 6


def test_virtual_time_does_not_overtake_a_task_that_is_still_at_work() -> None:
    async def scene() -> list[float]:
        seen: list[float] = []
        failures = [3]

        @guard(retry=RetryPolicy(9, Backoff.fixed(1, jitter=Jitter.none())))
        async def busy() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            seen.append(clock.monotonic() - start)
            if failures[0]:
                failures[0] -= 1
                raise ConnectionResetError(104, "reset")

        await asyncio.gather(busy(), clock.asleep(10))
        return seen

    with virtual_time() as clock:
        start = clock.monotonic()
        assert asyncio.run(scene()) == [0, 1, 2, 3]


def test_a_sleeper_of_a_loop_that_is_gone_does_not_hold_up_another() -> None:
    clock = VirtualClock()

    async def abandon() -> None:
        task = asyncio.ensure_future(clock.asleep(1))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(abandon())
    asyncio.run(clock.asleep(5))
    with pytest.raises(ConfigurationError, match="advance"):
        clock.advance(-5)

    assert clock.waits == [1, 5]


def test_the_wall_clock_of_told_instants_is_the_virtual_one() -> None:
    inner = guard(breaker=Breaker("inner", consecutive=1, open_for=30, mode="fail_fast"))
    events: list[redrive.CallEvent] = []
    outer = guard(retry=RetryPolicy(2, Backoff.fixed(1)), on_retry=events.append)(inner(Script("ok")))
    with virtual_time() as clock:
        inner.cell.open()
        assert outer() == "ok"

    assert clock.waits == [pytest.approx(30)]
