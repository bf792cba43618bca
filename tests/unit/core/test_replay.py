# SPDX-License-Identifier: Apache-2.0
"""What a replay does next, as a pure function of where its letters are."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.replay import (
    CANARY,
    REFILL,
    SHARE_MAX,
    WINDOW,
    Counts,
    Finish,
    Plan,
    Release,
    ReplayRules,
    Stop,
    Turn,
    Wait,
    next_turn,
    plan_of,
)
from redrive.core.stop_reason import MostFailures, SameFailures
from redrive.errors import ConfigurationError

PLAN = plan_of()
NONE = Counts()
NOW = 1_000.0


def turn(counts: Counts, *, plan: Plan = PLAN, pardoned: Counts = NONE, next_at: float = NOW) -> Turn:
    return next_turn(plan, counts, pardoned, next_at=next_at, now=NOW)


def test_the_first_canary_goes_alone() -> None:
    assert turn(Counts(waiting=500)) == Release(1, NOW)


def test_a_step_waits_until_the_one_before_has_ended() -> None:
    assert turn(Counts(waiting=499, replaying=1)) == Wait("1 of this step to end")
    assert turn(Counts(waiting=499, completed=1)) == Release(5, NOW)
    assert turn(Counts(waiting=494, completed=5, replaying=1)) == Wait("1 of this step to end")
    assert turn(Counts(waiting=494, completed=6)) == Release(20, NOW)


def test_a_step_that_was_released_in_part_is_released_on() -> None:
    assert turn(Counts(waiting=497, completed=1, replaying=2)) == Release(3, NOW)


def test_after_the_last_step_the_rest_goes_as_places_become_free() -> None:
    released = sum(CANARY)
    assert turn(Counts(waiting=90_000, completed=released)) == Release(WINDOW, NOW)
    on_their_way = Counts(waiting=86_000, completed=released, replaying=WINDOW)
    assert turn(on_their_way) == Wait(f"some of the {WINDOW} running to end")
    assert turn(Counts(waiting=2, completed=released, replaying=1_000)) == Release(2, NOW)


def test_a_few_free_places_are_not_filled_one_by_one() -> None:
    few = Counts(waiting=86_000, completed=sum(CANARY), replaying=WINDOW - REFILL + 1)
    assert turn(few) == Wait(f"some of the {few.replaying} running to end")
    enough = Counts(waiting=86_000, completed=sum(CANARY), replaying=WINDOW - REFILL)
    assert turn(enough) == Release(REFILL, NOW)
    assert turn(Counts(waiting=4, completed=sum(CANARY), replaying=WINDOW - 4)) == Release(4, NOW)
    paced = turn(few, plan=plan_of(rate=10.0))
    assert isinstance(paced, Release)


def test_without_a_canary_all_go_at_once() -> None:
    assert turn(Counts(waiting=50), plan=plan_of(())) == Release(50, NOW)


def test_it_ends_when_nothing_waits_and_nothing_is_on_its_way() -> None:
    assert turn(Counts(completed=3, replaying=2)) == Wait("the last 2 to end")
    assert turn(Counts(completed=5)) == Finish()
    assert turn(Counts()) == Finish()


def test_a_cancelled_job_is_no_failure() -> None:
    assert turn(Counts(waiting=9, cancelled=1)) == Release(5, NOW)


def test_in_small_steps_one_old_failure_stops_it() -> None:
    assert turn(Counts(waiting=499, same=1)) == Stop(SameFailures(same=1, ended=1))
    assert turn(Counts(waiting=474, completed=25, same=1)) == Stop(SameFailures(same=1, ended=26))


def test_in_larger_steps_more_than_two_in_a_hundred_stop_it() -> None:
    fine = Counts(waiting=374, completed=123, replaying=1, same=2)
    assert isinstance(turn(fine), Wait)
    bad = Counts(waiting=374, completed=122, replaying=1, same=3)
    assert turn(bad) == Stop(SameFailures(same=3, ended=125, share_max=SHARE_MAX))


def test_the_first_letters_of_a_large_step_do_not_decide_for_all_of_them() -> None:
    assert isinstance(turn(Counts(waiting=374, completed=26, replaying=99, same=1)), Wait)
    assert isinstance(turn(Counts(waiting=374, completed=26, replaying=98, same=2)), Wait)


def test_the_rest_is_judged_by_what_has_ended() -> None:
    assert isinstance(turn(Counts(waiting=5_000, completed=9_800, replaying=WINDOW, same=200)), Wait)
    assert isinstance(turn(Counts(waiting=5_000, completed=9_790, replaying=WINDOW, same=210)), Stop)


def test_when_most_of_it_fails_it_stops_whatever_the_failure() -> None:
    assert turn(Counts(waiting=9, other=1)) == Stop(MostFailures(failed=1, ended=1, other=1))
    after_one = Counts(waiting=494, completed=1, other=5)
    assert turn(after_one) == Stop(MostFailures(failed=5, ended=6, other=5))
    assert isinstance(turn(Counts(waiting=494, completed=1, other=4, replaying=1)), Wait)
    rest = Counts(waiting=9_000, completed=126, replaying=WINDOW, other=127)
    assert isinstance(turn(rest), Stop)


def test_most_of_twenty_stop_it_while_others_still_run_but_not_half_of_them_or_most_of_fewer() -> None:
    assert isinstance(turn(Counts(waiting=474, completed=9, replaying=6, other=11)), Stop)
    assert isinstance(turn(Counts(waiting=474, completed=10, replaying=6, other=10)), Wait)
    assert isinstance(turn(Counts(waiting=474, completed=8, replaying=7, other=11)), Wait)


def test_another_failure_among_recovered_ones_does_not_stop_it() -> None:
    assert turn(Counts(waiting=494, completed=5, other=1)) == Release(20, NOW)


def test_what_was_pardoned_does_not_stop_it_again() -> None:
    stopped = Counts(waiting=499, same=1)
    assert turn(stopped, pardoned=stopped) == Release(5, NOW)
    again = Counts(waiting=494, same=2, completed=4)
    assert turn(again, pardoned=stopped) == Stop(SameFailures(same=1, ended=5))


def test_after_a_pardon_the_share_is_of_what_has_ended_since() -> None:
    pardoned = Counts(completed=9_700, same=300)
    fine = Counts(waiting=5_000, completed=9_798, replaying=WINDOW, same=302)
    assert isinstance(turn(fine, pardoned=pardoned), Wait)
    bad = Counts(waiting=5_000, completed=9_797, replaying=WINDOW, same=303)
    assert turn(bad, pardoned=pardoned) == Stop(SameFailures(same=3, ended=100, share_max=SHARE_MAX))


def test_after_a_pardon_most_of_what_has_ended_since_stops_it_and_not_the_first_of_it() -> None:
    pardoned = Counts(completed=100, other=101)
    few = Counts(waiting=200, completed=100, replaying=6, other=102)
    assert turn(few, pardoned=pardoned) == Release(200, NOW)
    most = Counts(waiting=200, completed=109, replaying=6, other=112)
    assert turn(most, pardoned=pardoned) == Stop(MostFailures(failed=11, ended=20, other=11))


def test_a_rate_spreads_the_releases() -> None:
    plan = plan_of((), 10)
    assert turn(Counts(waiting=50), plan=plan) == Release(1, NOW + 0.1)
    assert turn(Counts(waiting=50), plan=plan, next_at=NOW - 0.5) == Release(6, pytest.approx(NOW + 0.1))  # type: ignore[arg-type]
    assert turn(Counts(waiting=50), plan=plan, next_at=NOW + 0.5) == Wait(
        "the rate of 10 per second", NOW + 0.5
    )


def test_a_clock_that_was_set_back_by_a_day_does_not_make_it_wait_for_a_day() -> None:
    late = turn(Counts(waiting=50), plan=plan_of((), 10), next_at=NOW + 86_400)
    assert late == Wait("the rate of 10 per second", pytest.approx(NOW + 1.1))  # type: ignore[arg-type]


def test_a_rate_that_was_not_used_for_long_is_not_made_up_for() -> None:
    expected = Release(11, pytest.approx(NOW + 0.1))  # type: ignore[arg-type]
    assert turn(Counts(waiting=500), plan=plan_of((), 10), next_at=0.0) == expected


@pytest.mark.parametrize("canary", [(0,), (-1, 5), (5, 5), (5, 1), (True,), (1.5,)])
def test_a_canary_that_does_not_rise_is_refused(canary: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="canary"):
        plan_of(canary)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan"), True, "10/s"])
def test_a_rate_of_nothing_is_refused(rate: float) -> None:
    with pytest.raises(ConfigurationError, match="rate"):
        plan_of((), rate)


@pytest.mark.parametrize(("field", "value"), [("evidence", "maybe"), ("export", "all")])
def test_rules_in_unknown_words_are_refused(field: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"ReplayRules.{field}"):
        ReplayRules(**{field: value})  # type: ignore[arg-type]


@given(
    canary=st.lists(st.integers(1, 200), max_size=5, unique=True).map(lambda sizes: tuple(sorted(sizes))),
    letters=st.integers(0, 20_000),
    fails=st.integers(0, 3),
)
def test_every_replay_ends_or_stops_and_never_releases_more_than_its_step(
    canary: tuple[int, ...], letters: int, fails: int
) -> None:
    plan, counts = plan_of(canary), Counts(waiting=letters)
    bounds = [*accumulate(canary)]
    for _ in range(10_000):
        step = turn(counts, plan=plan)
        if isinstance(step, Finish):
            assert counts.waiting == counts.replaying == 0
            return
        if isinstance(step, Stop):
            assert counts.same
            return
        if isinstance(step, Wait):
            assert counts.replaying
            same = min(fails, counts.replaying)
            counts = Counts(
                waiting=counts.waiting,
                completed=counts.completed + counts.replaying - same,
                same=counts.same + same,
            )
            continue
        assert 0 < step.letters <= counts.waiting
        released = counts.released + step.letters
        assert not any(counts.released < bound < released for bound in bounds)
        assert counts.replaying == 0 or counts.released not in bounds
        counts = Counts(
            waiting=counts.waiting - step.letters,
            replaying=counts.replaying + step.letters,
            completed=counts.completed,
            same=counts.same,
        )
    raise AssertionError("it neither ended nor stopped")
