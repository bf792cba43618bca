# SPDX-License-Identifier: Apache-2.0
"""The breaker as a pure step function: every transition, the window, probes, the ramp, and what counts."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from redrive import Breaker, Category, ConfigurationError
from redrive.core import breaker_state as step
from redrive.core import taxonomy
from redrive.core.breaker import Evidence
from redrive.core.breaker_state import Admitted, BreakerState, Phase, Refused

from .build import failure


def tripped(breaker: Breaker, *, at: float = 0.0) -> BreakerState:
    state = BreakerState()
    for _ in range(breaker.consecutive or 1):
        state = step.record(breaker, state, at, failed=1)
    assert state.phase is Phase.OPEN
    return state


THREE = Breaker("api", consecutive=3, open_for=30, close_after=2, probe_timeout=10)


def test_failures_in_a_row_open_it_and_a_success_starts_the_count_again() -> None:
    state = step.record(THREE, BreakerState(), 0, failed=2)
    state = step.record(THREE, state, 0, ok=1)
    state = step.record(THREE, state, 0, failed=2)

    assert state.phase is Phase.CLOSED
    assert step.record(THREE, state, 5, failed=1) == step.opened(5, failures=3)


def test_successes_without_a_failure_before_change_nothing() -> None:
    state = BreakerState()

    assert step.record(THREE, state, 0, ok=5) is state


def test_an_open_breaker_refuses_until_its_time_has_come() -> None:
    state = tripped(THREE, at=100)

    after, answer = step.admit(THREE, state, 129.9, "a")

    assert after is state
    assert answer == Refused(130, "it is open")


def test_one_probe_at_a_time_is_let_through_when_half_open() -> None:
    state, first = step.admit(THREE, tripped(THREE, at=0), 30, "a")
    after, second = step.admit(THREE, state, 31, "b")

    assert first == Admitted(is_probe=True)
    assert state.phase is Phase.HALF_OPEN
    assert after is state
    assert second == Refused(40, "it is half open and a probe is running")


def test_enough_good_probes_in_a_row_close_it() -> None:
    state, _ = step.admit(THREE, tripped(THREE), 30, "a")
    state = step.record(THREE, state, 31, ok=1, token="a")
    assert state.phase is Phase.HALF_OPEN
    assert state.probe is None

    state, _ = step.admit(THREE, state, 31, "b")
    assert step.record(THREE, state, 32, ok=1, token="b") == step.closed(32)


def test_it_is_half_open_since_its_first_probe() -> None:
    state, _ = step.admit(THREE, tripped(THREE), 30.0, "p1")
    state = step.record(THREE, state, 31.0, ok=1, token="p1")
    state, _ = step.admit(THREE, state, 40.0, "p2")

    assert (state.phase, state.changed_at) == (Phase.HALF_OPEN, 30.0)


def test_a_bad_probe_opens_it_for_another_full_time() -> None:
    state, _ = step.admit(THREE, tripped(THREE), 30, "a")

    assert step.record(THREE, state, 31, failed=1, token="a") == step.opened(31, failures=4)


def test_a_good_probe_followed_by_a_bad_one_opens_it_again() -> None:
    state, _ = step.admit(THREE, tripped(THREE), 30, "a")
    state = step.record(THREE, state, 31, ok=1, token="a")
    state, _ = step.admit(THREE, state, 31, "b")

    assert step.record(THREE, state, 32, failed=1, token="b") == step.opened(32, failures=4)


def test_late_results_of_older_calls_do_not_move_a_half_open_breaker() -> None:
    state, _ = step.admit(THREE, tripped(THREE), 30, "a")

    assert step.record(THREE, state, 31, ok=5, token="old") is state
    assert step.record(THREE, state, 31, failed=5) is state
    free = step.release(state, "a")
    assert step.record(THREE, free, 31, ok=5, token="a") is free
    assert step.record(THREE, free, 31, failed=5) is free


def test_results_do_not_move_an_open_or_isolated_breaker() -> None:
    for state in (step.opened(0), step.isolated(0)):
        assert step.record(THREE, state, 1, ok=1, failed=1) is state


def test_a_probe_that_never_comes_back_is_void_after_its_timeout() -> None:
    state, _ = step.admit(THREE, tripped(THREE), 30, "a")

    state, answer = step.admit(THREE, state, 40, "b")

    assert answer == Admitted(is_probe=True)
    assert step.record(THREE, state, 41, ok=1, token="a") is state


def test_a_released_probe_can_be_taken_at_once() -> None:
    state, _ = step.admit(THREE, tripped(THREE), 30, "a")
    assert step.release(state, "other") is state

    _, answer = step.admit(THREE, step.release(state, "a"), 30, "b")

    assert answer == Admitted(is_probe=True)


def test_an_isolated_breaker_refuses_until_it_is_closed_by_hand() -> None:
    _, answer = step.admit(THREE, step.isolated(0), 1e9, "a")
    _, closed = step.admit(THREE, step.closed(0), 0, "a")

    assert answer == Refused(None, "it is isolated by an operator")
    assert closed == Admitted(is_probe=False)


RATE = Breaker("rate", failure_rate=0.5, window=120, min_calls=10)


def test_a_rate_needs_its_minimum_sample() -> None:
    gateway = Breaker("gateway", failure_rate=0.5, window=120, min_calls=3)
    state = step.record(gateway, BreakerState(), 0, failed=2)
    assert state.phase is Phase.CLOSED

    assert step.record(gateway, state, 1, failed=1).phase is Phase.OPEN


@pytest.mark.parametrize(
    ("ok", "failed", "phase"), [(6, 5, Phase.CLOSED), (5, 5, Phase.OPEN), (0, 9, Phase.CLOSED)]
)
def test_a_rate_opens_at_the_threshold_and_not_below(ok: int, failed: int, phase: Phase) -> None:
    assert step.record(RATE, BreakerState(), 0, ok=ok, failed=failed).phase is phase


def test_a_success_never_opens_a_breaker() -> None:
    state = step.record(RATE, BreakerState(), 0, failed=9)

    assert step.record(RATE, state, 0, ok=1).phase is Phase.CLOSED


def test_what_left_the_window_no_longer_counts() -> None:
    state = step.record(RATE, BreakerState(), 0, failed=9)

    assert step.window_totals(RATE, state, 119) == (0, 9)
    assert step.window_totals(RATE, state, 120) == (0, 0)
    assert step.record(RATE, state, 120, failed=1).phase is Phase.CLOSED


def test_the_window_forgets_slice_by_slice_and_stays_small() -> None:
    state = BreakerState()
    for second in range(0, 3_000, 3):
        state = step.record(RATE, state, second, ok=1)

    assert len(state.samples) <= step.BUCKETS
    ok, failed = step.window_totals(RATE, state, 2_999)
    assert 36 <= ok <= 40
    assert failed == 0


def test_a_clock_that_went_back_adds_to_the_last_slice() -> None:
    rate = Breaker("api", failure_rate=0.5, min_calls=100, window=120)
    state = BreakerState()
    for now in (1_000.0, 900.0, 1_000.0):
        state = step.record(rate, state, now, ok=1, failed=1)

    assert [(each.ok, each.failed) for each in state.samples] == [(3, 3)]


def test_a_slice_ends_within_a_twelfth_of_the_window() -> None:
    for now in (0.0, 3.3, 9.999, 1e6 + 0.5):
        assert 0 < step.slice_end(RATE, now) - now <= 10


def test_after_closing_starts_are_let_go_faster_and_faster_then_all() -> None:
    breaker = Breaker("ramp", consecutive=1, ramp=10)
    state = step.closed(100)

    starts = [step.next_start_at(breaker, state, n) for n in range(3_000)]

    assert starts[0] == 100
    assert starts == sorted(starts)
    per_second = [sum(100 + s <= start < 101 + s for start in starts) for s in range(4)]
    assert per_second == sorted(per_second)
    assert starts[-1] == 110
    assert step.is_ramping(breaker, state, 109.9)
    assert not step.is_ramping(breaker, state, 110)


def test_a_breaker_that_never_opened_does_not_ramp() -> None:
    assert step.next_start_at(THREE, BreakerState(), 1_000_000) == -math.inf
    assert step.next_start_at(Breaker("flat", consecutive=1, ramp=0), step.closed(5), 9) == -math.inf
    assert not step.is_ramping(THREE, BreakerState(), 0)


def test_by_default_only_unreachability_counts_and_a_4xx_proves_the_dependency_alive() -> None:
    breaker = Breaker("x", consecutive=1)

    assert breaker.evidence_of(failure(taxonomy.NETWORK_TIMEOUT)) is Evidence.DOWN
    assert breaker.evidence_of(failure(taxonomy.UPSTREAM_ERROR, http_status=500)) is Evidence.DOWN
    assert breaker.evidence_of(failure(taxonomy.RATE_LIMITED, http_status=429)) is Evidence.ALIVE
    assert breaker.evidence_of(failure(taxonomy.RATE_LIMITED, provider_code="slow_down")) is Evidence.ALIVE
    assert breaker.evidence_of(failure(taxonomy.BUG_CODE)) is Evidence.NOTHING


def test_counts_can_be_everything_or_a_set_of_codes_categories_and_statuses() -> None:
    everything = Breaker("all", consecutive=1, counts="all")
    some = Breaker("some", consecutive=1, counts={"GW_5XX", Category.IO, 429})

    assert everything.evidence_of(failure(taxonomy.SCHEMA_INVALID)) is Evidence.DOWN
    assert everything.evidence_of(failure(taxonomy.BUG_CODE)) is Evidence.NOTHING
    assert some.evidence_of(failure(taxonomy.NETWORK_TIMEOUT, code="GW_5XX")) is Evidence.DOWN
    assert some.evidence_of(failure(taxonomy.IO_ERROR)) is Evidence.DOWN
    assert some.evidence_of(failure(taxonomy.RATE_LIMITED, http_status=429)) is Evidence.DOWN
    assert some.evidence_of(failure(taxonomy.NETWORK_TIMEOUT)) is Evidence.NOTHING


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "Breaker(x)"),
        ({"consecutive": 0}, "consecutive"),
        ({"consecutive": 1.5}, "consecutive"),
        ({"failure_rate": 0}, "failure_rate"),
        ({"failure_rate": 1.1}, "failure_rate"),
        ({"failure_rate": 0.5, "min_calls": 0}, "min_calls"),
        ({"failure_rate": 0.5, "window": 0}, "window"),
        ({"consecutive": 1, "open_for": 0}, "open_for"),
        ({"consecutive": 1, "open_for": "60"}, "open_for"),
        ({"consecutive": 1, "close_after": 0}, "close_after"),
        ({"consecutive": 1, "mode": "wait"}, "mode"),
        ({"consecutive": 1, "mode": ["hold"]}, "mode"),
        ({"consecutive": 1, "counts": 5}, "counts"),
        ({"consecutive": 1, "counts": {9999}}, "counts"),
        ({"consecutive": 1, "counts": {""}}, "counts"),
        ({"consecutive": 1, "open_for": 1e15}, "open_for"),
        ({"consecutive": 1, "probe": "ping"}, "probe"),
        ({"consecutive": 1, "counts": "GW_5XX"}, "counts"),
        ({"consecutive": 1, "counts": set()}, "counts"),
        ({"consecutive": 1, "counts": {None}}, "counts"),
        ({"consecutive": 1, "ramp": -1}, "ramp"),
        ({"consecutive": 1, "probe_timeout": 0}, "probe_timeout"),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(options: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Breaker("x", **options)  # type: ignore[arg-type]

    assert field in refused.value.field
    assert refused.value.fix


def test_a_mistyped_code_to_count_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean NETWORK_TIMEOUT") as refused:
        Breaker("x", consecutive=1, counts=[503, "NETWORK_TIMOUT"])

    assert refused.value.field == "Breaker(x).counts"


@pytest.mark.parametrize("name", ["", "  ", None])
def test_a_breaker_needs_a_name(name: object) -> None:
    with pytest.raises(ConfigurationError, match="must be a non-empty string"):
        Breaker(name, consecutive=1)  # type: ignore[arg-type]


def test_durations_may_be_timedeltas_and_equal_breakers_compare_equal() -> None:
    assert Breaker("x", consecutive=1, open_for=timedelta(minutes=1)) == Breaker(
        "x", consecutive=1, open_for=60
    )


@pytest.mark.untraced
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_recording_in_batches_or_one_by_one_gives_the_same_window(calls: list[tuple[int, int, int]]) -> None:
    breaker = Breaker("x", failure_rate=1.0, window=60, min_calls=10_000)
    batched = single = BreakerState()
    now = 0.0
    for pause, ok, failed in calls:
        now += pause
        batched = step.record(breaker, batched, now, ok=ok, failed=failed)
        for _ in range(ok):
            single = step.record(breaker, single, now, ok=1)
        for _ in range(failed):
            single = step.record(breaker, single, now, failed=1)

    assert step.window_totals(breaker, batched, now) == step.window_totals(breaker, single, now)
    assert batched.failures == single.failures


class BreakerWalk(RuleBasedStateMachine):
    """Any order of calls, results, hands and pauses keeps the promises of a breaker."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(
            "walk", consecutive=2, failure_rate=0.5, min_calls=4, window=20, open_for=10, close_after=2
        )
        self.state = BreakerState()
        self.now = 0.0
        self.tokens = 0
        self.out: dict[str, bool] = {}

    @rule(pause=st.floats(min_value=0, max_value=80))
    def wait(self, pause: float) -> None:
        self.now += pause

    @rule()
    def call(self) -> None:
        before = self.state
        self.tokens += 1
        token = str(self.tokens)
        self.state, answer = step.admit(self.breaker, before, self.now, token)
        if isinstance(answer, Admitted):
            self.out[token] = answer.is_probe
            assert answer.is_probe == (before.phase is not Phase.CLOSED)
        else:
            assert self.state is before
            assert answer.retry_at is None or answer.retry_at > self.now

    @rule(alive=st.booleans(), data=st.data())
    def end(self, alive: bool, data: st.DataObject) -> None:
        if not self.out:
            return
        token = data.draw(st.sampled_from(sorted(self.out)))
        self.out.pop(token)
        before = self.state
        self.state = step.record(
            self.breaker, before, self.now, ok=int(alive), failed=int(not alive), token=token
        )
        if self.state.phase is not before.phase:
            allowed = {
                (Phase.CLOSED, Phase.OPEN),
                (Phase.HALF_OPEN, Phase.OPEN),
                (Phase.HALF_OPEN, Phase.CLOSED),
            }
            assert (before.phase, self.state.phase) in allowed
            assert (self.state.phase is Phase.CLOSED) == alive

    @rule(change=st.sampled_from([step.opened, step.closed, step.isolated]))
    def force(self, change: object) -> None:
        self.state = change(self.now)  # type: ignore[operator]

    @invariant()
    def a_probe_is_out_only_while_half_open(self) -> None:
        assert self.state.probe is None or self.state.phase is Phase.HALF_OPEN

    @invariant()
    def an_open_breaker_always_comes_back_unless_isolated(self) -> None:
        back = step.opens_at(self.breaker, self.state)
        assert (back is None) == (self.state.phase is Phase.ISOLATED)
        assert back is None or back <= self.now + 60


TestBreakerWalk = BreakerWalk.TestCase
