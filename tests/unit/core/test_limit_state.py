# SPDX-License-Identifier: Apache-2.0
"""The bucket, the slots and the learned rate of a limit as pure steps: what is never exceeded, and that nobody starves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core import limit_state as step
from redrive.core.limit import Limit
from redrive.core.limit_state import Block, LimitState, Pace, Share, SlotRequest

TEN = Limit("api", rate=10, burst=5)
FOUR = Limit("tenant", concurrency=4)


def reserve(limit: Limit, state: LimitState, now: float, wanted: float) -> tuple[LimitState, Block]:
    state, block = step.reserve(limit, state, now, wanted)
    assert block is not None
    return state, block


def test_what_is_saved_up_is_usable_at_once_and_the_rest_comes_at_the_rate() -> None:
    _, block = reserve(TEN, LimitState(), 100.0, 8)

    assert block.tokens == 8
    assert block.usable(100.0) == pytest.approx(5)
    assert block.usable_at(1) == pytest.approx(99.6)
    assert block.spent(5).usable_at(1) == pytest.approx(100.1)
    assert block.usable(100.3) == pytest.approx(8)
    assert block.usable(500.0) == 8


def test_whoever_reserves_next_stands_behind() -> None:
    state, first = reserve(TEN, LimitState(), 0.0, 15)
    _, second = reserve(TEN, state, 0.0, 15)

    assert (first.tokens, first.ready_at) == (15, 1.0)
    assert second == Block(1, 1.1, 10)


def test_a_call_that_costs_more_than_a_block_is_reserved_as_a_whole() -> None:
    _, block = step.reserve(TEN, LimitState(), 0.0, 40, least=40)

    assert block == Block(40, 3.5, 10.0)


def test_the_bucket_holds_what_was_set_or_one_second() -> None:
    assert step.burst_of(TEN, LimitState(), 0) == 5
    assert step.burst_of(Limit("api", rate=30), LimitState(), 0) == 30
    assert step.burst_of(Limit("api", rate="6/min"), LimitState(), 0) == 1
    assert step.burst_of(TEN, LimitState(burst=7), 0) == 7
    assert step.available(TEN, LimitState(tokens=1, at=0), 100) == 5


def test_tokens_that_were_not_spent_go_back_and_those_used_beyond_are_taken() -> None:
    state, _ = reserve(TEN, LimitState(), 0.0, 5)

    assert step.available(TEN, step.returned(TEN, state, 0.0, 3), 0.0) == 3
    assert step.available(TEN, step.returned(TEN, state, 0.0, 99), 0.0) == 5
    assert step.available(TEN, step.returned(TEN, state, 0.0, -4), 0.0) == -4
    assert step.returned(TEN, state, 0.0, 0) is state
    assert step.returned(FOUR, state, 0.0, 3) is state


def test_an_operator_sets_other_numbers_and_pauses() -> None:
    state = LimitState(rate=2.0, burst=1, concurrency=9)

    assert step.rate_of(TEN, state, 0) == 2
    assert step.concurrency_of(FOUR, state) == 9
    assert step.concurrency_of(FOUR, LimitState()) == 4
    assert step.reserve(TEN, replace(state, is_paused=True), 0, 1) == (replace(state, is_paused=True), None)
    assert step.opens_at(replace(state, is_paused=True), 0) is None
    assert step.reserve(FOUR, state, 0, 1)[1] is not None
    assert step.reserve(FOUR, LimitState(), 0, 1) == (LimitState(), None)


def test_a_delay_that_was_asked_for_pauses_everyone_and_what_was_saved_up_is_gone() -> None:
    state = step.refused(TEN, LimitState(), 10.0, started_at=9.9, retry_after=20)

    assert (state.paused_until, state.refused_at) == (30.0, 10.0)
    assert step.opens_at(state, 10.0) == 30.0
    assert step.opens_at(state, 31.0) == 31.0
    assert step.opens_at(LimitState(), 31.0) == 31.0
    assert step.available(TEN, state, 30.0) == 0
    assert reserve(TEN, state, 10.0, 1)[1].ready_at == pytest.approx(30.1)


def test_a_shorter_delay_does_not_end_a_longer_one_and_a_longer_one_extends_it() -> None:
    state = step.paused(LimitState(), 30.0)
    assert step.paused(state, 40.0).paused_until == 40.0

    assert step.paused(state, 20.0) is state
    assert step.refused(TEN, state, 10.0, started_at=9.9, retry_after=0).paused_until == 30.0


class TestLearning:
    """An adaptive limit."""

    FREE = Limit("api", adaptive=True)

    def test_it_doubles_until_the_first_refusal(self) -> None:
        state, _ = reserve(self.FREE, LimitState(), 0.0, 1)

        assert step.rate_of(self.FREE, LimitState(), 0.0) == step.FIRST_RATE
        assert step.rate_of(self.FREE, state, 1.0) == pytest.approx(4 * step.FIRST_RATE)
        assert step.rate_of(self.FREE, state, 1e9) == step.LEARNED_MAX

    def test_it_does_not_grow_while_nobody_needs_more(self) -> None:
        state, _ = reserve(self.FREE, LimitState(), 0.0, 1)
        state, _ = reserve(self.FREE, state, 100.0, 1)

        assert (step.rate_of(self.FREE, state, 100.0) or 0) < 1.2 * step.FIRST_RATE

    def test_a_refusal_slows_it_down_and_earlier_calls_do_not(self) -> None:
        state = LimitState(tokens=0, at=100, pace=Pace(0, 10, peak=100.0))
        before = step.rate_of(self.FREE, state, 100.0) or 0
        state = step.refused(self.FREE, state, 100.0, started_at=99.9, retry_after=None)
        again = step.refused(self.FREE, state, 100.1, started_at=99.95, retry_after=None)

        assert step.rate_of(self.FREE, state, 100.0) == pytest.approx(step.DECREASE * before)
        assert again.pace == state.pace
        assert state.paused_until is not None
        assert state.paused_until - 100 == pytest.approx(1 / (step.DECREASE * before))

    def test_a_delay_that_was_asked_for_is_kept_instead_of_one_of_its_own(self) -> None:
        state = step.refused(self.FREE, LimitState(), 100.0, started_at=99.9, retry_after=7)

        assert state.paused_until == 107

    def test_every_refusal_that_slows_it_down_excuses_the_calls_before_it(self) -> None:
        state = LimitState()
        for at in (100.0, 120.0):
            state = step.refused(self.FREE, state, at, started_at=at - 1, retry_after=None)

        for started_at, cut_at in ((101.0, 120.0), (120.0, 120.0), (120.5, 121.0)):
            again = step.refused(self.FREE, state, 121.0, started_at=started_at, retry_after=None)
            assert again.pace is not None
            assert again.pace.cut_at == cut_at

    def test_what_comes_in_comes_at_the_rate_of_the_time_before(self) -> None:
        state = LimitState(tokens=0, at=1, pace=Pace(0, 10))

        assert step.available(self.FREE, state, 1.05) == pytest.approx(0.05 * 40)

    def test_a_block_has_the_rate_that_was_learned_without_the_time_when_nobody_needed_more(self) -> None:
        _, block = reserve(self.FREE, LimitState(tokens=1, pace=Pace(0, 10)), 60.0, 5)

        assert block.rate == pytest.approx(10)

    def test_it_returns_to_where_it_was_refused_and_then_tries_more(self) -> None:
        state = LimitState(pace=Pace(0, 100, peak=100.0))
        rates = [step.rate_of(self.FREE, state, at) or 0 for at in (0, 2, 5, 8, 10)]

        assert rates == sorted(rates)
        assert (rates[0], rates[2], rates[4]) == pytest.approx((70, 100, 130))

    def test_a_refusal_below_the_last_one_lowers_the_aim(self) -> None:
        state = LimitState(tokens=0, at=1, pace=Pace(0, 100, peak=100.0))
        rate = step.rate_of(self.FREE, state, 1.0) or 0
        pace = step.refused(self.FREE, state, 1.0, started_at=1.0, retry_after=None).pace

        assert pace is not None
        assert pace.peak == pytest.approx(rate * 0.85)

    def test_a_rate_of_its_own_is_where_it_begins_and_the_most_it_tries(self) -> None:
        limit = Limit("api", rate=50, adaptive=True)
        state = step.refused(limit, LimitState(), 0.0, started_at=0, retry_after=None)

        assert step.rate_of(limit, LimitState(), 0.0) == 50
        assert step.rate_of(limit, state, 0.0) == pytest.approx(35)
        assert step.rate_of(limit, state, 1e6) == 50

    def test_it_never_stops_altogether(self) -> None:
        state = LimitState()
        for second in range(200):
            state = step.refused(self.FREE, state, second, started_at=second, retry_after=None)

        assert step.rate_of(self.FREE, state, 200) == pytest.approx(step.LEARNED_MIN * step.DECREASE, rel=0.1)


class TestSlots:
    """Concurrency that several workers share."""

    def ask(
        self, state: LimitState, worker: str, wanted: int, *, now: float = 0.0, used: int = 0
    ) -> LimitState:
        return step.shared(FOUR, state, now, SlotRequest(worker, wanted, used), set("abcde"))

    def test_one_worker_gets_them_all_and_gives_up_what_others_want(self) -> None:
        state = self.ask(LimitState(), "a", 9)
        assert state.shares["a"].slots == 4

        state = self.ask(state, "b", 9)
        assert state.shares["b"].slots == 0

        state = self.ask(state, "a", 9, used=3)
        assert state.shares["a"].slots == 3
        state = self.ask(self.ask(state, "b", 9), "a", 9, used=2)
        state = self.ask(state, "b", 9)
        assert {name: each.slots for name, each in state.shares.items()} == {"a": 2, "b": 2}

    def test_a_worker_has_the_slots_it_uses_though_an_operator_has_allowed_fewer_since(self) -> None:
        state = replace(self.ask(LimitState(), "a", 4), concurrency=2)

        assert self.ask(state, "a", 4, used=4).shares["a"].slots == 4

    def test_the_slots_of_a_worker_that_is_gone_are_free(self) -> None:
        state = self.ask(LimitState(), "a", 4)
        state = step.shared(FOUR, state, 0, SlotRequest("b", 4), {"b"})

        assert {name: each.slots for name, each in state.shares.items()} == {"b": 4}

    def test_a_worker_that_wants_nothing_has_nothing(self) -> None:
        state = self.ask(LimitState(), "a", 4)

        assert self.ask(state, "a", 0).shares == {}
        assert self.ask(LimitState(), "a", 0) == LimitState()
        assert step.shared(TEN, LimitState(), 0, SlotRequest("a", 4), {"a"}) == LimitState()

    def test_one_slot_too_few_goes_round(self) -> None:
        state, turns = LimitState(), dict.fromkeys("abcde", 0)
        for tenth in range(400):
            for worker in turns:
                state = self.ask(state, worker, 1, now=tenth / 10)
                turns[worker] += state.shares[worker].slots
            assert sum(each.slots for each in state.shares.values()) <= 4

        assert min(turns.values()) > 0.7 * max(turns.values())

    @pytest.mark.untraced
    @given(
        st.integers(1, 20),
        st.dictionaries(
            st.text(min_size=1, max_size=2), st.tuples(st.integers(0, 30), st.floats(0, 9)), max_size=8
        ),
    )
    def test_shares_are_fair(self, slots: int, asked: dict[str, tuple[int, float]]) -> None:
        shares = {name: Share(0, wanted, at) for name, (wanted, at) in asked.items()}

        given = step.divided(slots, shares)

        assert sum(given.values()) == min(slots, sum(each.wanted for each in shares.values()))
        assert all(given[name] <= shares[name].wanted for name in shares)
        unserved = [given[name] for name in shares if given[name] < shares[name].wanted]
        assert not unserved or max(given.values()) <= min(unserved) + 1


@pytest.mark.untraced
@settings(max_examples=200)
@given(
    rate=st.floats(0.1, 1000),
    burst=st.integers(1, 50),
    calls=st.lists(
        st.tuples(st.integers(0, 3), st.floats(0, 3), st.floats(1, 80), st.booleans()),
        min_size=1,
        max_size=60,
    ),
)
def test_no_worker_can_spend_more_than_burst_and_rate_allow(
    rate: float, burst: int, calls: list[tuple[int, float, float, bool]]
) -> None:
    limit = Limit("api", rate=rate, burst=burst)
    state, now, spent = LimitState(), 0.0, 0.0
    blocks: dict[int, Block] = {}
    for worker, wait, wanted, gives_back in calls:
        now += wait
        held = blocks.get(worker)
        if held is None or held.tokens < 1:
            state, held = reserve(limit, state, now, wanted)
        if gives_back:
            state = step.returned(limit, state, now, held.tokens)
            blocks.pop(worker, None)
            continue
        usable = max(0.0, min(held.tokens, held.usable(now)))
        spent += usable
        blocks[worker] = held.spent(usable)

        assert spent <= burst + rate * now + 1e-6 * (1 + spent)


@pytest.mark.untraced
@given(rate=st.floats(0.1, 1000), workers=st.integers(1, 20), rounds=st.integers(1, 10))
def test_nobody_starves(rate: float, workers: int, rounds: int) -> None:
    limit = Limit("api", rate=rate, burst=1)
    state, now = LimitState(), 0.0
    blocks: dict[int, Block] = {}
    for _ in range(rounds):
        for worker in range(workers):
            state, blocks[worker] = reserve(limit, state, now, 1e9)
        latest = max(each.ready_at for each in blocks.values())
        assert latest - now <= step.BLOCK_SECONDS + (workers + 1) / rate + 1e-6
        assert all(each.tokens >= 1 for each in blocks.values())
        now = latest


@given(st.floats(0, 100), st.floats(0, 100), st.integers(1, 50))
def test_tokens_only_grow_while_nobody_reserves(first: float, later: float, taken: int) -> None:
    state, _ = reserve(TEN, LimitState(), 0.0, taken)

    assert step.available(TEN, state, first) <= step.available(TEN, state, first + later) <= 5
