# SPDX-License-Identifier: Apache-2.0
"""Backoff and jitter: formulas, bounds, distribution, and refusal of wrong arguments."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Backoff, ConfigurationError, Jitter

draws = st.floats(min_value=0, max_value=1, exclude_max=True)
attempts = st.integers(min_value=1, max_value=10_000)
jitters = st.one_of(
    st.just(Jitter.none()),
    st.just(Jitter.full()),
    st.floats(min_value=0.01, max_value=1).map(Jitter.ratio),
    st.floats(min_value=0, max_value=5).map(lambda low: Jitter.additive(low, low + 1)),
)
caps = st.floats(min_value=1, max_value=86_400)
backoffs = st.one_of(
    st.builds(lambda cap, jitter: Backoff.exponential(1, factor=2, cap=cap, jitter=jitter), caps, jitters),
    st.builds(lambda cap, jitter: Backoff.linear(1, cap=cap, jitter=jitter), caps, jitters),
    st.builds(lambda cap, jitter: Backoff.fixed(cap, jitter=jitter), caps, jitters),
    st.builds(
        lambda caps, jitter: Backoff.schedule(caps, jitter=jitter),
        st.lists(caps, min_size=1, max_size=5),
        jitters,
    ),
)


@pytest.mark.untraced
@given(backoffs, attempts, draws)
def test_a_delay_is_finite_never_negative_and_the_same_for_the_same_draw(
    backoff: Backoff, attempt: int, draw: float
) -> None:
    delay = backoff.delay(attempt, draw)

    assert math.isfinite(delay)
    assert delay >= 0
    assert delay == backoff.delay(attempt, draw)


@given(backoffs, attempts)
def test_the_nominal_delay_never_exceeds_the_cap(backoff: Backoff, attempt: int) -> None:
    assert backoff.nominal(attempt) <= backoff.cap


@given(caps, st.integers(min_value=1, max_value=9_999))
def test_exponential_and_linear_delays_never_shrink_from_attempt_to_attempt(cap: float, attempt: int) -> None:
    for backoff in (Backoff.exponential(1, cap=cap), Backoff.linear(1, cap=cap)):
        assert backoff.nominal(attempt) <= backoff.nominal(attempt + 1)


@given(draws)
def test_the_bounds_of_each_jitter_at_the_cap(draw: float) -> None:
    def at_cap(jitter: Jitter) -> float:
        return Backoff.exponential(1, cap=60, jitter=jitter).delay(10_000, draw)

    assert 0 <= at_cap(Jitter.full()) <= 60
    assert 45 <= at_cap(Jitter.ratio(0.25)) <= 75
    assert 60 <= at_cap(Jitter.additive(0, 2)) <= 62
    assert at_cap(Jitter.none()) == 60


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("jitter", "mean", "spread"),
    [(Jitter.full(), 30, 60), (Jitter.ratio(0.25), 60, 30), (Jitter.additive(0, 2), 61, 2)],
    ids=["full", "ratio", "additive"],
)
def test_jitter_is_uniform_and_still_jitters_at_the_cap(jitter: Jitter, mean: float, spread: float) -> None:
    chance = random.Random(7)
    backoff = Backoff.exponential(1, cap=60, jitter=jitter)

    delays = [backoff.delay(50, chance.random()) for _ in range(20_000)]

    assert statistics.fmean(delays) == pytest.approx(mean, rel=0.02)
    # A uniform distribution has no hole: every twentieth of the range gets its share.
    low = mean - spread / 2
    counts = [0] * 20
    for delay in delays:
        counts[min(19, int((delay - low) / spread * 20))] += 1
    assert min(counts) > 800
    assert max(counts) < 1200


@pytest.mark.req("CR-2.1")
def test_the_criticizer_formula_is_full_jitter_on_doubling_seconds_up_to_sixty() -> None:
    backoff = Backoff.exponential(1, factor=2, cap=60, jitter=Jitter.full())

    assert [backoff.delay(n, 0.5) for n in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.delay(1, 0.0) == 0


def test_the_gateway_schedule_is_five_fifteen_forty_five_give_or_take_a_fifth() -> None:
    backoff = Backoff.schedule([5, 15, 45], jitter=Jitter.ratio(0.2))

    assert [backoff.delay(n, 0.5) for n in (1, 2, 3, 4)] == [5, 15, 45, 45]
    assert backoff.delay(2, 0.0) == pytest.approx(12)


@pytest.mark.req("FG-2.2")
def test_the_forge_formulas_have_their_nominal_mean() -> None:
    chance = random.Random(1)
    kinds = {
        Backoff.exponential(1, cap=60, jitter=Jitter.ratio(0.25)): [1, 2, 4, 8, 16, 32, 60, 60],
        Backoff.linear(1, cap=60): [1, 2, 3, 4, 5, 6, 7, 8],
        Backoff.fixed(1): [1] * 8,
    }
    for backoff, nominal in kinds.items():
        means = [statistics.fmean(backoff.delay(n, chance.random()) for _ in range(400)) for n in range(1, 9)]
        assert means == pytest.approx(nominal, rel=0.10)


def test_the_collabiq_formula_clamps_then_adds_jitter() -> None:
    backoff = Backoff.exponential(1, factor=2, floor=1, cap=10, jitter=Jitter.additive(0, 2))

    assert [backoff.delay(n, 0.25) for n in (1, 2, 3, 4, 5, 6)] == [1.5, 2.5, 4.5, 8.5, 10.5, 10.5]


def test_a_floor_lifts_the_first_delays() -> None:
    backoff = Backoff.exponential(0.1, floor=1, cap=10, jitter=Jitter.none())

    assert [backoff.delay(n, 0) for n in (1, 4, 5, 6)] == [1, 1, 1.6, 3.2]


def test_durations_may_be_timedeltas() -> None:
    assert Backoff.exponential(timedelta(seconds=1), cap=timedelta(minutes=1)) == Backoff.exponential(
        1, cap=60
    )


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: Backoff.exponential(-1), "initial"),
        (lambda: Backoff.exponential(0), "initial"),
        (lambda: Backoff.exponential("1"), "initial"),  # type: ignore[arg-type]
        (lambda: Backoff.exponential(True), "initial"),
        (lambda: Backoff.exponential(math.nan), "initial"),
        (lambda: Backoff.exponential(1, factor=0.5), "factor"),
        (lambda: Backoff.exponential(1, factor=math.inf), "factor"),
        (lambda: Backoff.exponential(1, factor="2"), "factor"),  # type: ignore[arg-type]
        (lambda: Backoff.exponential(10, cap=5), "cap"),
        (lambda: Backoff.exponential(1, floor=9, cap=5), "cap"),
        (lambda: Backoff.exponential(1, cap=math.inf), "cap"),
        (lambda: Backoff.exponential(1, jitter="full"), "jitter"),  # type: ignore[arg-type]
        (lambda: Backoff.exponential(1, jitter=None), "jitter"),  # type: ignore[arg-type]
        (lambda: Backoff.exponential(1, factor=10**400), "factor"),
        (lambda: Backoff.exponential(10**400), "initial"),
        (lambda: Backoff.fixed(1e15), "delay"),
        (lambda: Backoff.schedule(5), "delays"),  # type: ignore[arg-type]
        (lambda: Backoff.schedule("5"), "delays"),  # type: ignore[arg-type]
        (lambda: Backoff("exponential", (1.0,), 2.0, 0.0, 60.0, Jitter.none()), "Backoff"),  # type: ignore[arg-type]
        (lambda: Jitter("full"), "Jitter"),  # type: ignore[arg-type]
        (lambda: Jitter("bogus"), "Jitter"),  # type: ignore[arg-type]
        (lambda: Backoff.linear(0), "step"),
        (lambda: Backoff.linear(5, cap=1), "cap"),
        (lambda: Backoff.fixed(-1), "delay"),
        (lambda: Backoff.schedule([]), "delays"),
        (lambda: Backoff.schedule([1, -1]), "delay 2"),
        (lambda: Jitter.ratio(0), "ratio"),
        (lambda: Jitter.ratio(1.5), "ratio"),
        (lambda: Jitter.additive(2, 1), "high"),
        (lambda: Jitter.additive(-1, 1), "low"),
        (lambda: Backoff.fixed(1).delay(0, 0.5), "attempt"),
        (lambda: Backoff.fixed(1).delay(1, 1.0), "draw"),
    ],
)
def test_a_wrong_argument_is_refused_by_name_with_a_fix(build: Callable[[], object], field: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        build()

    assert field in refused.value.field
    assert refused.value.got in str(refused.value)
    assert refused.value.fix
