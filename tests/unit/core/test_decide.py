# SPDX-License-Identifier: Apache-2.0
"""RetryPolicy and decide: total, pure, and in the promised order of questions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive import Backoff, Breaker, Category, Code, ConfigurationError, Failure, Jitter, RetryPolicy, also
from redrive.core import breaker_state as step
from redrive.core import taxonomy
from redrive.core.breaker_state import BreakerState
from redrive.core.decide import (
    BreakerStatus,
    Cancel,
    DeadLetter,
    Decision,
    History,
    Hold,
    Reason,
    RetryAt,
    Skip,
    decide,
)
from redrive.core.decision_text import decode_decision, encode_decision, sentence_of
from redrive.core.failure import SignalKind
from redrive.core.policy import RetryOn

from .build import failure

STEADY = RetryPolicy(5, Backoff.exponential(1, cap=60, jitter=Jitter.none()))


def decided(
    policy: RetryPolicy = STEADY,
    what: Failure | None = None,
    standing: BreakerStatus | None = None,
    **history: object,
) -> Decision:
    return decide(policy, what or failure(), History(**history), 100.0, 0.5, standing)  # type: ignore[arg-type]


def test_what_can_heal_is_tried_again_after_its_backoff() -> None:
    decision = decided(attempt=3)

    assert isinstance(decision, RetryAt)
    assert (decision.at, decision.delay, decision.reason) == (104.0, 4.0, Reason.RETRYABLE)
    assert "attempt 3 of 5" in str(sentence_of(decision))
    assert decision.burned


def test_what_cannot_heal_is_given_up_at_once_and_says_which_rule_said_so() -> None:
    decision = decided(what=failure(taxonomy.AUTH_DENIED))

    assert isinstance(decision, DeadLetter)
    assert decision.reason is Reason.PERMANENT
    assert "a test" in str(sentence_of(decision))


def test_the_last_attempt_is_followed_by_no_delay() -> None:
    decision = decided(attempt=5)

    assert isinstance(decision, DeadLetter)
    assert decision.reason is Reason.EXHAUSTED


def test_one_attempt_means_no_retry() -> None:
    assert isinstance(decided(RetryPolicy(1)), DeadLetter)


@pytest.mark.parametrize(
    ("told", "delay", "reason"),
    [
        (30.0, 30.0, Reason.RETRY_AFTER),
        (1.0, 1.0, Reason.RETRY_AFTER),
        (0.5, 1.0, Reason.RETRYABLE),
        (301.0, 300.0, Reason.RETRY_AFTER),
    ],
)
def test_a_told_delay_is_never_undercut_up_to_its_cap(told: float, delay: float, reason: Reason) -> None:
    decision = decided(what=failure(taxonomy.RATE_LIMITED, retry_after=told))

    assert isinstance(decision, RetryAt)
    assert (decision.delay, decision.reason) == (delay, reason)


def test_a_told_delay_may_be_ignored_on_purpose() -> None:
    deaf = RetryPolicy(5, STEADY.backoff, respect_retry_after=False)

    assert decided(deaf, failure(retry_after=30)).delay == 1.0  # type: ignore[union-attr]


def test_retry_on_all_and_none_overrule_the_classifier() -> None:
    bug = failure(taxonomy.BUG_CODE)

    assert isinstance(decided(RetryPolicy(retry_on="all"), bug), RetryAt)
    assert isinstance(decided(RetryPolicy(retry_on="none")), DeadLetter)


@pytest.mark.parametrize(
    ("retry_on", "what", "words"),
    [
        ("none", failure(), ': retry_on="none" retries nothing, though it counts as retryable (a test)'),
        (
            "none",
            failure(taxonomy.BUG_CODE),
            ': retry_on="none" retries nothing, and it counts as permanent (a test)',
        ),
        ([429], failure(), ": the list retry_on does not name it, though it counts as retryable (a test)"),
        (
            "all",
            failure(taxonomy.BUG_CODE),
            ': retry_on="all" retries whatever fails, though it counts as permanent',
        ),
        ("all", failure(), ': retry_on="all" retries whatever fails, and it counts as retryable'),
        (
            [OSError],
            failure(taxonomy.BUG_CODE),
            ": the list retry_on names it, though it counts as permanent",
        ),
    ],
)
def test_a_sentence_says_when_retry_on_decided(retry_on: RetryOn, what: Failure, words: str) -> None:
    assert str(sentence_of(decided(RetryPolicy(retry_on=retry_on), what))).endswith(words)


@pytest.mark.parametrize(
    ("retry_on", "what"),
    [
        ("classified", failure()),
        ("classified", failure(taxonomy.BUG_CODE)),
        ([OSError], failure(taxonomy.AUTH_DENIED, http_status=403)),
        ([OSError], failure(taxonomy.UPSTREAM_ERROR, http_status=500)),
        ("none", failure(taxonomy.RETRY_ASKED, signal=SignalKind.RETRY)),
    ],
    ids=["heals", "stays", "permanent answer", "passing answer", "asked"],
)
def test_a_sentence_is_silent_about_retry_on_when_something_else_decided(
    retry_on: RetryOn, what: Failure
) -> None:
    decision = decided(RetryPolicy(retry_on=retry_on), what)

    assert "retry_on" not in str(sentence_of(decision))


@pytest.mark.parametrize(
    ("triggers", "what", "retries"),
    [
        ([403], failure(taxonomy.AUTH_DENIED, http_status=403), True),
        ([429], failure(taxonomy.NETWORK_TIMEOUT), False),
        (["AUTH_DENIED"], failure(taxonomy.AUTH_DENIED), True),
        (["GW_5XX"], failure(taxonomy.NETWORK_TIMEOUT, code="GW_5XX"), True),
        (["NETWORK_TIMEOUT"], failure(taxonomy.NETWORK_TIMEOUT, code="GW_5XX"), True),
        (["slow_down"], failure(taxonomy.BUG_CODE, provider_code="slow_down"), True),
        ([Category.AUTH], failure(taxonomy.AUTH_INVALID), True),
        ([OSError], failure(taxonomy.BUG_CODE), True),
        ([OSError], failure(taxonomy.AUTH_DENIED, http_status=403), False),
        ([OSError], failure(taxonomy.AUTH_DENIED, provider_code="denied"), False),
        ([OSError], failure(taxonomy.UPSTREAM_ERROR, http_status=500), True),
        ([KeyError], failure(taxonomy.NETWORK_TIMEOUT), False),
        ([], failure(taxonomy.NETWORK_TIMEOUT), False),
    ],
)
def test_a_list_replaces_the_classifier(triggers: list[object], what: Failure, retries: bool) -> None:
    policy = RetryPolicy(retry_on=triggers)  # type: ignore[arg-type]

    assert isinstance(decided(policy, what), RetryAt if retries else DeadLetter)


@pytest.mark.parametrize(
    ("what", "retries"),
    [
        (failure(taxonomy.SCHEMA_INVALID), True),
        (failure(taxonomy.NETWORK_TIMEOUT), True),
        (failure(taxonomy.AUTH_DENIED), False),
    ],
)
def test_also_adds_to_the_classifier(what: Failure, retries: bool) -> None:
    policy = RetryPolicy(5, retry_on=also("SCHEMA_INVALID"))

    assert isinstance(decided(policy, what), RetryAt) is retries


def test_a_sentence_says_what_also_decided_and_nothing_about_what_it_left_to_the_classifier() -> None:
    policy = RetryPolicy(5, retry_on=also("SCHEMA_INVALID"))

    added = decided(policy, failure(taxonomy.SCHEMA_INVALID))
    plain = decided(policy, failure(taxonomy.NETWORK_TIMEOUT))
    permanent = decided(policy, failure(taxonomy.AUTH_DENIED))

    assert "the list retry_on names it, though it counts as permanent" in str(sentence_of(added))
    assert "retry_on" not in str(sentence_of(plain)) + str(sentence_of(permanent))


@pytest.mark.parametrize("wrong", ["SCHEMA_INVALD", 42, "", None])
def test_what_also_cannot_add_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigurationError):
        RetryPolicy(5, retry_on=also(wrong))  # type: ignore[arg-type]


def test_give_up_on_wins_over_everything() -> None:
    policy = RetryPolicy(retry_on="all", give_up_on=[OSError, 500, "RATE_LIMITED"])

    for what in (failure(), failure(http_status=500, lineage=()), failure(taxonomy.RATE_LIMITED, lineage=())):
        decision = decided(policy, what)
        assert isinstance(decision, DeadLetter)
        assert decision.reason is Reason.GIVEN_UP
        assert decision.is_retried_otherwise
        assert str(sentence_of(decision)).endswith("which it would have retried")


def test_giving_up_on_what_is_not_retried_anyway_says_so() -> None:
    decision = decided(RetryPolicy(give_up_on=["BUG_CODE"]), failure(taxonomy.BUG_CODE))

    assert sentence_of(decision) == "the policy gives up on BUG_CODE, which it does not retry anyway"


def test_a_code_with_a_limit_of_its_own_gets_no_more_attempts_than_that() -> None:
    policy = RetryPolicy(5, STEADY.backoff, per_code_max_attempts={"IO_ERROR": 2})
    what = failure(taxonomy.IO_ERROR)

    first = decided(policy, what, attempt=3, failures_by_code={"NETWORK_TIMEOUT": 2})
    second = decided(policy, what, attempt=4, failures_by_code={"NETWORK_TIMEOUT": 2, "IO_ERROR": 1})

    assert isinstance(first, RetryAt)
    assert isinstance(second, DeadLetter)
    assert second.reason is Reason.CODE_EXHAUSTED


def test_a_codes_own_limit_holds_unless_the_policy_names_another() -> None:
    what = failure(taxonomy.IO_ERROR, max_attempts=1)

    assert isinstance(decided(what=what), DeadLetter)
    assert isinstance(decided(RetryPolicy(per_code_max_attempts={"IO_ERROR": 3}), what), RetryAt)


def test_an_own_code_has_the_limit_of_its_canonical_code_unless_it_has_one_itself() -> None:
    what = failure(taxonomy.IO_ERROR, code="DISK_FULL", max_attempts=5)
    earlier = {"DISK_FULL": 1}
    canonical = RetryPolicy(9, per_code_max_attempts={"IO_ERROR": 2})
    both = RetryPolicy(9, per_code_max_attempts={"IO_ERROR": 2, "DISK_FULL": 3})

    assert isinstance(decided(canonical, what, attempt=2, failures_by_code=earlier), DeadLetter)
    assert isinstance(decided(both, what, attempt=2, failures_by_code=earlier), RetryAt)


def test_no_retry_is_planned_beyond_the_deadline() -> None:
    assert isinstance(decided(attempt=3, deadline_at=105.0), RetryAt)
    decision = decided(attempt=3, deadline_at=104.0)

    assert isinstance(decision, DeadLetter)
    assert decision.reason is Reason.DEADLINE


HOLDING = Breaker("api", consecutive=1, open_for=60)


@pytest.mark.parametrize("state", [step.opened(90), step.admit(HOLDING, step.opened(0), 90, "p")[0]])
def test_a_counting_failure_while_the_breaker_is_not_closed_is_a_hold(state: BreakerState) -> None:
    decision = decided(RetryPolicy(1), standing=BreakerStatus(HOLDING, state))

    assert isinstance(decision, Hold)
    assert decision.until == 150
    assert decision.reason is Reason.BREAKER
    assert not decision.burned


@pytest.mark.parametrize(("told", "until"), [(20.0, 150), (70.0, 170), (301.0, 400)])
def test_a_hold_lasts_until_the_breaker_opens_and_not_less_than_the_told_delay(
    told: float, until: float
) -> None:
    decision = decided(what=failure(retry_after=told), standing=BreakerStatus(HOLDING, step.opened(90)))

    assert isinstance(decision, Hold)
    assert decision.until == until


def test_a_call_that_the_breaker_refused_is_a_hold() -> None:
    """It was never made, so it is no evidence about the dependency either."""
    refused = failure(taxonomy.BREAKER_OPEN, is_reachability=False)
    decision = decided(what=refused, standing=BreakerStatus(HOLDING, step.opened(90)))

    assert isinstance(decision, Hold)
    assert decision.reason is Reason.BREAKER


def test_an_isolated_breaker_holds_without_an_end() -> None:
    decision = decided(standing=BreakerStatus(HOLDING, step.isolated(0)))

    assert isinstance(decision, Hold)
    assert decision.until is None


@pytest.mark.parametrize(
    ("what", "standing"),
    [
        (failure(taxonomy.RATE_LIMITED, http_status=429), BreakerStatus(HOLDING, step.opened(90))),
        (failure(), BreakerStatus(HOLDING, BreakerState())),
        (failure(), BreakerStatus(Breaker("api", consecutive=1, mode="fail_fast"), step.opened(90))),
    ],
    ids=["not counting", "closed", "fail-fast"],
)
def test_without_a_holding_breaker_the_policy_decides(what: Failure, standing: BreakerStatus) -> None:
    assert isinstance(decided(what=what, standing=standing), RetryAt)


def test_signals_of_the_stage_come_before_everything_else() -> None:
    everything = RetryPolicy(5, STEADY.backoff, retry_on="all", retry_after_cap=5)
    down = BreakerStatus(HOLDING, step.opened(90))

    cancel = decided(everything, failure(signal=SignalKind.CANCEL), down)
    snooze = decided(everything, failure(signal=SignalKind.SNOOZE, retry_after=7.0), down)
    fail = decided(everything, failure(signal=SignalKind.FAIL, is_reachability=False))
    skip = decided(everything, failure(signal=SignalKind.SKIP), down)

    assert isinstance(cancel, Cancel)
    assert isinstance(skip, Skip)
    assert isinstance(snooze, Hold)
    assert snooze.until == 107
    assert isinstance(fail, DeadLetter)
    assert fail.reason is Reason.ASKED


def test_a_stage_that_asks_to_be_tried_again_is_even_where_nothing_retries() -> None:
    asked = failure(taxonomy.RETRY_ASKED, signal=SignalKind.RETRY, retry_after=400.0)
    never = RetryPolicy(5, STEADY.backoff, retry_on="none")

    for wish, delay in ((400.0, 400.0), (0.0, 0.0), (None, 1.0)):
        decision = decided(never, replace(asked, retry_after=wish))
        assert isinstance(decision, RetryAt)
        assert (decision.delay, decision.reason) == (delay, Reason.ASKED)
    assert isinstance(decided(never, asked, attempt=5), DeadLetter)


def test_snoozing_is_bounded() -> None:
    policy = RetryPolicy(snooze_max=2)
    what = failure(signal=SignalKind.SNOOZE)

    assert isinstance(decided(policy, what, snoozes=1), Hold)
    decision = decided(policy, what, snoozes=2)
    assert isinstance(decision, DeadLetter)
    assert decision.reason is Reason.SNOOZES_EXHAUSTED


def test_a_stage_does_not_snooze_beyond_the_deadline() -> None:
    what = failure(signal=SignalKind.SNOOZE, retry_after=7.0)

    assert isinstance(decided(what=what, deadline_at=108.0), Hold)
    decision = decided(what=what, deadline_at=107.0)
    assert isinstance(decision, DeadLetter)
    assert decision.reason is Reason.DEADLINE


codes = st.sampled_from(list(taxonomy.CODES.values()))
tolds = st.one_of(st.none(), st.floats(min_value=0, max_value=1e7))
policies = st.builds(
    lambda most, retry_on, cap: RetryPolicy(most, retry_on=retry_on, retry_after_cap=cap),
    st.integers(1, 20),
    st.sampled_from(["classified", "all", "none", [429], ["NETWORK_TIMEOUT"], [OSError]]),
    st.floats(min_value=0, max_value=1e4),
)
draws = st.floats(min_value=0, max_value=1, exclude_max=True)


@pytest.mark.untraced
@given(policies, codes, tolds, st.integers(1, 10_000), st.floats(-1e9, 1e12), draws)
def test_decide_is_total_pure_and_never_goes_beyond_the_last_attempt(
    policy: RetryPolicy, code: Code, told: float | None, attempt: int, now: float, draw: float
) -> None:
    what = failure(code, retry_after=told)
    history = History(attempt=attempt)

    decision = decide(policy, what, history, now, draw)

    assert decision == decide(policy, what, history, now, draw)
    assert sentence_of(decision)
    assert decode_decision(encode_decision(decision)) == decision
    if isinstance(decision, RetryAt):
        assert attempt < policy.max_attempts
        assert decision.at == now + decision.delay
        assert decision.delay <= max(policy.backoff.cap, float(policy.retry_after_cap))  # type: ignore[arg-type]
        assert told is None or decision.delay >= min(told, float(policy.retry_after_cap))  # type: ignore[arg-type]


@given(codes, st.integers(1, 50), st.integers(1, 50), draws)
def test_more_attempts_allowed_never_turns_a_retry_into_a_dead_letter(
    code: Code, attempt: int, most: int, draw: float
) -> None:
    fewer = decide(RetryPolicy(most), failure(code), History(attempt=attempt), 0, draw)
    more = decide(RetryPolicy(most + 1), failure(code), History(attempt=attempt), 0, draw)

    assert not isinstance(fewer, RetryAt) or isinstance(more, RetryAt)


@pytest.mark.untraced
@given(codes, st.integers(1, 50), tolds, tolds, draws)
def test_a_longer_told_delay_never_shortens_the_wait(
    code: Code, attempt: int, first: float | None, second: float | None, draw: float
) -> None:
    short, long = sorted((first or 0.0, second or 0.0))
    waits = [
        decide(
            RetryPolicy(100, retry_on="all"),
            failure(code, retry_after=told),
            History(attempt=attempt),
            0,
            draw,
        )
        for told in (short, long)
    ]

    assert isinstance(waits[0], RetryAt)
    assert isinstance(waits[1], RetryAt)
    assert waits[0].delay <= waits[1].delay


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": -3}, "max_attempts"),
        ({"max_attempts": 2.5}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"backoff": 5}, "backoff"),
        ({"retry_on": "sometimes"}, "retry_on"),
        ({"retry_on": 429}, "retry_on"),
        ({"retry_on": [42]}, "retry_on"),
        ({"retry_on": [True]}, "retry_on"),
        ({"retry_on": [int]}, "retry_on"),
        ({"retry_on": [""]}, "retry_on"),
        ({"give_up_on": "AUTH_DENIED"}, "give_up_on"),
        ({"give_up_on": [object()]}, "give_up_on"),
        ({"per_code_max_attempts": {"IO_ERROR": 0}}, "IO_ERROR"),
        ({"per_code_max_attempts": 5}, "per_code_max_attempts"),
        ({"respect_retry_after": "false"}, "respect_retry_after"),
        ({"retry_after_cap": -1}, "retry_after_cap"),
        ({"snooze_max": -1}, "snooze_max"),
    ],
)
def test_a_wrong_policy_is_refused_by_name(options: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RetryPolicy(**options)  # type: ignore[arg-type]

    assert field in refused.value.field
    assert refused.value.fix


@pytest.mark.parametrize(
    "options",
    [
        {"retry_on": ["NETWORK_TIMOUT"]},
        {"give_up_on": [429, "NETWORK_TIMOUT"]},
        {"per_code_max_attempts": {"NETWORK_TIMOUT": 2}},
    ],
)
def test_a_mistyped_code_is_refused_with_the_nearest(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean NETWORK_TIMEOUT") as refused:
        RetryPolicy(**options)  # type: ignore[arg-type]

    assert next(iter(options)) in refused.value.field


def test_names_of_providers_categories_and_own_codes_are_no_mistakes() -> None:
    names = ["ThrottlingException", "rate_limit_exceeded", "40001", "network", "GW_5XX", "UNAVAILABLE"]

    policy = RetryPolicy(retry_on=names, give_up_on=names, per_code_max_attempts={"GW_5XX": 2})
    policy.check_codes("stage(fetch).retry", ["GW_5XX"])

    assert policy.retry_on == tuple(names)


@pytest.mark.parametrize(
    ("options", "near"),
    [
        ({"retry_on": ["GW_5X"]}, "GW_5XX"),
        ({"give_up_on": ["RATE_LIMIT"]}, "RATE_LIMITED"),
        ({"per_code_max_attempts": {"GW_5X": 2}}, "GW_5XX"),
        ({"per_code_max_attempts": {"ThrottlingException": 2}}, "docs/failures.md"),
    ],
)
def test_a_mistyped_own_code_is_refused_where_the_own_codes_are_known(
    options: dict[str, object], near: str
) -> None:
    policy = RetryPolicy(**options)  # type: ignore[arg-type]

    with pytest.raises(ConfigurationError, match=near) as refused:
        policy.check_codes("stage(fetch).retry", ["GW_5XX", "GW_DOWN"])

    assert refused.value.field.startswith("stage(fetch).retry.")


def test_policies_are_values() -> None:
    assert RetryPolicy(3) == RetryPolicy()
    assert RetryPolicy(3) != RetryPolicy(4)
    assert "max_attempts=3" in repr(RetryPolicy())
