# SPDX-License-Identifier: Apache-2.0
"""guard on virtual time: retries, holds, signals, hooks and notes, sync and async alike."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Any

import pytest

import redrive
from redrive import (
    Backoff,
    Breaker,
    BreakerOpenError,
    CallEvent,
    Cancel,
    ConfigurationError,
    Fail,
    Finish,
    Retry,
    RetryPolicy,
    Skip,
    Snooze,
    guard,
)
from redrive.core.breaker_state import Phase
from redrive.testing import virtual_time

from .scripts import DOWN, STEADY, Runner, Script, both, run_async


@both
def test_a_success_is_returned_without_waiting(run: Runner) -> None:
    with virtual_time() as clock:
        assert run(Script(7), guard(retry=STEADY)) == 7

    assert clock.waits == []


@both
def test_what_can_heal_is_tried_again_with_growing_delays(run: Runner) -> None:
    script = Script(DOWN, DOWN, DOWN, "ok")
    with virtual_time() as clock:
        assert run(script, guard(retry=STEADY)) == "ok"

    assert clock.waits == [1, 2, 4]
    assert script.calls == 4


@both
@pytest.mark.req("CR-2.4")
def test_what_cannot_heal_stops_at_once_even_after_retries(run: Runner) -> None:
    script = Script(DOWN, PermissionError(13, "denied"), "never")
    with virtual_time() as clock, pytest.raises(PermissionError):
        run(script, guard(retry=STEADY))

    assert clock.waits == [1]


@both
def test_at_the_end_the_original_exception_is_raised_with_the_history_as_redacted_notes(run: Runner) -> None:
    last = ConnectionResetError(104, "reset, password=hunter2hunter2")
    script = Script(DOWN, DOWN, DOWN, last)
    with virtual_time(), pytest.raises(ConnectionResetError) as raised:
        run(script, guard(retry=STEADY))

    notes = "\n".join(raised.value.__notes__)
    assert raised.value is last
    assert raised.value.__context__ is None
    assert "gave up" in notes
    assert "after 4 attempts, 7 s after the first failure" in notes
    assert notes.count("NETWORK_REFUSED") == 3
    assert "hunter2" not in notes


@both
def test_a_single_failure_gets_one_note(run: Runner) -> None:
    with virtual_time(), pytest.raises(KeyError) as raised:
        run(Script(KeyError("x")), guard(retry=STEADY))

    assert len(raised.value.__notes__) == 1
    assert "BUG_CODE" in raised.value.__notes__[0]


@both
def test_an_exception_that_is_raised_again_and_again_does_not_pile_up_notes(run: Runner) -> None:
    cached = KeyError("x")
    cached.add_note("somebody else's")
    for _ in range(3):
        with virtual_time(), pytest.raises(KeyError):
            run(Script(cached), guard(retry=STEADY))

    assert len(cached.__notes__) == 2


@both
@pytest.mark.req("CR-2.3")
def test_a_told_delay_is_kept(run: Runner) -> None:
    told = ConnectionResetError(104, "slow down")
    told.retry_after = 17  # type: ignore[attr-defined]
    with virtual_time() as clock:
        run(Script(told, "ok"), guard(retry=STEADY))

    assert clock.waits == [17]


@both
def test_no_retry_is_begun_that_would_end_after_the_deadline(run: Runner) -> None:
    script = Script(DOWN)
    with virtual_time() as clock, pytest.raises(ConnectionRefusedError) as raised:
        run(script, guard(retry=STEADY, deadline=4))

    assert clock.waits == [1, 2]
    assert "deadline" in raised.value.__notes__[0]


@both
def test_an_open_breaker_in_hold_mode_makes_calls_wait_without_burning_attempts(run: Runner) -> None:
    script = Script(*[DOWN] * 6, "ok")
    breaker = Breaker("api", consecutive=2, open_for=30)
    with virtual_time() as clock:
        assert run(script, guard(retry=STEADY, breaker=breaker)) == "ok"

    # Two failures open it; then one probe every 30 seconds, however many it takes, although only four attempts are allowed.
    assert script.calls == 7
    assert sum(clock.waits) == pytest.approx(1 + 5 * 30)


@both
def test_a_hold_ends_at_the_deadline_with_the_time_to_come_back(run: Runner) -> None:
    breaker = Breaker("api", consecutive=1, open_for=30)
    with virtual_time() as clock, pytest.raises(BreakerOpenError) as raised:
        run(Script(DOWN), guard(retry=STEADY, breaker=breaker, deadline=10))

    assert sum(clock.waits) == pytest.approx(10)
    assert raised.value.retry_at is not None
    assert raised.value.retry_at.timestamp() == pytest.approx(clock.wall() + 20)
    assert isinstance(raised.value.__cause__, DOWN)
    assert "NETWORK_REFUSED" in raised.value.__notes__[0]


@both
def test_a_fail_fast_breaker_refuses_at_once_without_calling(run: Runner) -> None:
    script = Script(DOWN)
    guarded_by = guard(retry=STEADY, breaker=Breaker("api", consecutive=2, open_for=30, mode="fail_fast"))
    with virtual_time() as clock:
        with pytest.raises(ConnectionRefusedError) as first:
            run(script, guarded_by)
        with pytest.raises(BreakerOpenError, match="'api' refused"):
            run(script, guarded_by)

    assert script.calls == 2
    assert clock.waits == [1]
    assert "it would refuse a retry" in first.value.__notes__[0]


@both
def test_a_fail_fast_breaker_lets_a_retry_through_that_comes_after_it_half_opens(run: Runner) -> None:
    slow = RetryPolicy(4, Backoff.fixed(40))
    script = Script(DOWN, "ok")
    with virtual_time():
        assert (
            run(
                script,
                guard(retry=slow, breaker=Breaker("api", consecutive=1, open_for=30, mode="fail_fast")),
            )
            == "ok"
        )


@both
def test_a_4xx_or_a_bug_does_not_open_a_breaker(run: Runner) -> None:
    guarded_by = guard(retry=RetryPolicy(1), breaker=Breaker("api", consecutive=1))
    with virtual_time():
        for _ in range(5):
            with pytest.raises(KeyError):
                run(Script(KeyError("x")), guarded_by)
        assert guarded_by.cell.state.phase is Phase.CLOSED


@both
def test_a_breaker_with_a_probe_of_its_own_asks_that_instead_of_risking_a_call(run: Runner) -> None:
    probe = Script(ConnectionRefusedError(), ConnectionRefusedError(), "alive")
    script = Script(DOWN, "ok")
    breaker = Breaker("api", consecutive=1, open_for=30, probe=probe)
    with virtual_time() as clock:
        assert run(script, guard(retry=STEADY, breaker=breaker)) == "ok"

    assert probe.calls == 3
    assert script.calls == 2
    assert sum(clock.waits) == pytest.approx(90)


def test_an_async_probe_is_awaited() -> None:
    asked: list[str] = []

    async def probe() -> None:
        await asyncio.sleep(0)
        asked.append("probe")

    with virtual_time():
        assert (
            run_async(
                Script(DOWN, "ok"), guard(retry=STEADY, breaker=Breaker("api", consecutive=1, probe=probe))
            )
            == "ok"
        )

    assert asked == ["probe"]


@both
def test_an_isolated_breaker_refuses_even_in_hold_mode(run: Runner) -> None:
    guarded_by = guard(breaker=Breaker("api", consecutive=1))
    with virtual_time():
        guarded_by.cell.isolate()
        with pytest.raises(BreakerOpenError) as raised:
            run(Script("ok"), guarded_by)
        guarded_by.cell.close()
        assert run(Script("ok"), guarded_by) == "ok"

    assert raised.value.retry_at is None


@both
def test_a_breaker_can_be_opened_by_hand_and_comes_back_by_itself(run: Runner) -> None:
    guarded_by = guard(breaker=Breaker("api", consecutive=5, open_for=30))
    with virtual_time() as clock:
        guarded_by.cell.open()
        assert run(Script("ok"), guarded_by) == "ok"

    assert sum(clock.waits) == pytest.approx(30)


@both
def test_after_a_hold_work_is_let_go_gradually(run: Runner) -> None:
    guarded_by = guard(breaker=Breaker("api", consecutive=1, open_for=30, ramp=10))
    with virtual_time() as clock:
        guarded_by.cell.open()
        guarded_by.cell.close()
        ends = []
        for _ in range(20):
            run(Script("ok"), guarded_by)
            ends.append(clock.monotonic())
        clock.advance(20)
        before = clock.monotonic()
        run(Script("ok"), guarded_by)
        assert clock.monotonic() == before

    gaps = [later - earlier for earlier, later in itertools.pairwise(ends)]
    assert gaps[0] > gaps[5] > gaps[15] > 0


@both
def test_a_failure_rate_counts_the_successes_too(run: Runner) -> None:
    guarded_by = guard(
        retry=RetryPolicy(1),
        breaker=Breaker("api", failure_rate=0.5, window=60, min_calls=4, mode="fail_fast"),
    )

    def call(step: object) -> Phase:
        try:
            run(Script(step), guarded_by)
        except ConnectionRefusedError:
            pass
        return guarded_by.cell.state.phase

    with virtual_time() as clock:
        phases = [call(step) for step in ("ok", "ok", "ok", "ok", DOWN, DOWN, DOWN)]
        assert set(phases) == {Phase.CLOSED}
        clock.advance(61)
        assert [call(step) for step in ("ok", "ok", DOWN, DOWN)] == [Phase.CLOSED] * 3 + [Phase.OPEN]


@both
def test_signals_may_be_raised_or_returned(run: Runner) -> None:
    returned = Retry(9)
    returned.is_returned = True  # type: ignore[attr-defined]
    with virtual_time() as clock:
        assert run(Script(returned, Retry(5), Snooze(7), "ok"), guard(retry=STEADY)) == "ok"

    assert clock.waits == [9, 5, 7]


@both
@pytest.mark.parametrize("is_returned", [False, True])
@pytest.mark.parametrize("signal", [Fail("NOT_PDF", "no PDF"), Cancel("enough")], ids=["fail", "cancel"])
def test_fail_and_cancel_end_the_call_at_once(run: Runner, is_returned: bool, signal: Exception) -> None:
    signal.is_returned = is_returned  # type: ignore[attr-defined]
    script = Script(DOWN, signal)
    with virtual_time(), pytest.raises(type(signal)):
        run(script, guard(retry=RetryPolicy(4, STEADY.backoff, retry_on="all")))
    with virtual_time(), pytest.raises(type(signal)):
        run(Script(signal), guard(retry=STEADY))

    assert script.calls == 2


@both
@pytest.mark.parametrize("is_returned", [False, True])
@pytest.mark.parametrize("signal", [Skip("no text"), Finish(1)], ids=["skip", "finish"])
def test_skip_and_finish_are_refused_because_a_call_has_no_job(
    run: Runner, is_returned: bool, signal: Exception
) -> None:
    signal.is_returned = is_returned  # type: ignore[attr-defined]
    script = Script(signal)
    with virtual_time(), pytest.raises(ConfigurationError, match="cannot end a job") as refused:
        run(script, guard(retry=STEADY))

    assert type(signal).__name__ in str(refused.value)
    assert refused.value.__cause__ is signal
    assert script.calls == 1


@both
def test_a_snooze_burns_no_attempt(run: Runner) -> None:
    script = Script(*[Snooze(1)] * 10, "ok")
    with virtual_time() as clock:
        assert run(script, guard(retry=RetryPolicy(1))) == "ok"

    assert clock.waits == [1.0] * 10


@both
def test_hooks_see_every_retry_hold_and_giving_up(run: Runner) -> None:
    events: list[CallEvent] = []
    options: dict[str, Any] = {"on_retry": events.append, "on_hold": events.append, "on_dead": events.append}
    breaker = Breaker("api", consecutive=2, open_for=30)
    with virtual_time(), pytest.raises(KeyError):
        run(Script(DOWN, DOWN, KeyError("bug")), guard(retry=STEADY, breaker=breaker, **options))

    assert [(event.kind, event.attempt) for event in events] == [("retry", 1), ("hold", 2), ("dead", 2)]
    assert events[0].delay == 1
    assert events[0].failure is not None
    assert events[0].failure.code == "NETWORK_REFUSED"
    assert events[1].delay == pytest.approx(30)
    assert events[2].delay is None


@both
def test_a_refused_call_is_an_event_too_and_a_hold_is_told_once(run: Runner) -> None:
    events: list[CallEvent] = []
    guarded_by = guard(
        breaker=Breaker("api", consecutive=1, open_for=30),
        deadline=10,
        on_hold=events.append,
        on_dead=events.append,
    )
    with virtual_time():
        guarded_by.cell.open()
        with pytest.raises(BreakerOpenError):
            run(Script("ok"), guarded_by)

    assert [event.kind for event in events] == ["hold", "dead"]
    assert events[0].failure is None


@both
def test_a_hook_that_fails_changes_nothing_and_is_logged(
    run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_event: CallEvent) -> None:
        raise RuntimeError("hook")

    with virtual_time(), caplog.at_level(logging.ERROR, logger="redrive.guard"):
        assert run(Script(DOWN, "ok"), guard(retry=STEADY, on_retry=broken)) == "ok"

    assert "on_retry hook failed: RuntimeError: hook" in caplog.text


@both
def test_a_hook_that_fails_brings_no_secret_into_the_log(
    run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails while the failure of the call is being handled, and a traceback would show that as well."""
    secret = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dE3fG6"

    def broken(_event: CallEvent) -> None:
        raise RuntimeError(f"cannot report Bearer {secret}")

    refused = ConnectionResetError(f"refused Authorization: Bearer {secret}")
    with virtual_time(), caplog.at_level(logging.DEBUG):
        assert run(Script(refused, "ok"), guard(retry=STEADY, on_retry=broken)) == "ok"

    assert "on_retry hook failed: RuntimeError: cannot report Bearer <redacted:" in caplog.text
    assert secret not in caplog.text


@both
def test_an_interrupt_gives_the_probe_back(run: Runner) -> None:
    guarded_by = guard(breaker=Breaker("api", consecutive=1, open_for=30, probe_timeout=1000))
    with virtual_time() as clock:
        guarded_by.cell.open()
        with pytest.raises(KeyboardInterrupt):
            run(Script(KeyboardInterrupt()), guarded_by)
        waited = sum(clock.waits)
        assert run(Script("ok"), guarded_by) == "ok"

    assert sum(clock.waits) == waited


@both
def test_a_rule_that_raises_reaches_the_caller_as_wrong_configuration_and_gives_the_probe_back(
    run: Runner,
) -> None:
    def broken(_exc: BaseException) -> str:
        raise LookupError("oops")

    own = redrive.Classifier([redrive.Rule(OSError, broken)])
    guarded_by = guard(breaker=Breaker("api", consecutive=1, open_for=30), classifier=own)
    with virtual_time():
        guarded_by.cell.open()
        with pytest.raises(redrive.ConfigurationError, match="must not raise"):
            run(Script(DOWN), guarded_by)
        state = guarded_by.cell.state
        assert state.probe is None


@both
def test_conflicts_are_retried_only_where_that_is_declared_safe(run: Runner) -> None:
    class Race(Exception):
        pass

    own = redrive.Classifier([redrive.Rule(Race, "CONFLICT")])
    with virtual_time():
        with pytest.raises(Race):
            run(Script(Race(), "ok"), guard(retry=STEADY, classifier=own))
        assert run(Script(Race(), "ok"), guard(retry=STEADY, classifier=own, idempotent=True)) == "ok"


@both
def test_own_codes_and_their_limits_apply(run: Runner) -> None:
    codes = redrive.CodeSet(
        "app", [redrive.OwnCode("GW", ["network"], max_attempts=2)], otherwise=redrive.OwnCode("ELSE")
    )
    script = Script(DOWN)
    with virtual_time(), pytest.raises(ConnectionRefusedError) as raised:
        run(script, guard(retry=STEADY, codes=codes))

    assert script.calls == 2
    assert "GW reached its limit of 2 attempts" in raised.value.__notes__[0]
