# SPDX-License-Identifier: Apache-2.0
"""Classification apart from any library's rules: chains, wrappers, groups, signals, user rules, the safe default."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from redrive import (
    Cancel,
    Classifier,
    ConfigurationError,
    Fail,
    Finish,
    Retry,
    Rule,
    Skip,
    Snooze,
    Verdict,
    add_rule,
    classify,
)
from redrive.core import taxonomy
from redrive.core.classify import CHAIN_MAX, DEPTH_MAX, MEMBERS_MAX, MESSAGE_MAX
from redrive.core.failure import SignalKind
from redrive.engine import classifier as classifier_module

from .build import ruleless


class Odd(Exception):
    """A type nobody knows."""


class Wrapped(Exception):
    """A user's own wrapper."""


def raised(
    outer: BaseException, *, cause: BaseException | None = None, during: BaseException | None = None
) -> BaseException:
    """Raise for real, so that Python sets cause and context itself."""
    try:
        if during is not None:
            try:
                raise during
            except BaseException:
                raise outer  # noqa: B904 - the context without a cause is what is tested.
        raise outer from cause
    except BaseException as exc:
        return exc


def test_what_nobody_knows_is_a_bug_is_not_retried_and_is_warned_of_once_per_type(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = Classifier()
    with caplog.at_level(logging.WARNING, logger="redrive.classify"):
        failures = [own.classify(Odd("x")) for _ in range(3)]

    assert {(f.code, f.retryable, f.is_unknown) for f in failures} == {("BUG_UNKNOWN", False, True)}
    assert len(caplog.records) == 1
    assert "Odd" in caplog.text
    assert "redrive.Rule(Odd" in caplog.text


@pytest.mark.parametrize(
    "exc",
    [TypeError("x"), KeyError("x"), ZeroDivisionError(), AssertionError(), ValueError("x"), NameError("n")],
)
def test_a_bug_is_a_bug(exc: Exception) -> None:
    failure = classify(exc)

    assert (failure.code, failure.category, failure.retryable, failure.severity) == (
        "BUG_CODE",
        "bug",
        False,
        "critical",
    )


@pytest.mark.req("CR-1.1")
@pytest.mark.parametrize("wrapper", [RuntimeError("w"), Wrapped("w"), ValueError("w"), Exception("w")])
def test_a_wrapper_raised_from_a_known_failure_is_that_failure(wrapper: Exception) -> None:
    failure = classify(raised(wrapper, cause=ConnectionRefusedError(111, "refused")))

    assert (failure.code, failure.retryable) == ("NETWORK_REFUSED", True)
    assert failure.message == "w"
    assert "ConnectionRefusedError" in failure.rule
    assert "ConnectionRefusedError" in failure.lineage


def test_the_outermost_exception_with_a_rule_wins() -> None:
    import json

    malformed = json.JSONDecodeError("bad", "x", 0)

    assert classify(raised(malformed, cause=ConnectionResetError())).code == "SCHEMA_INVALID"
    assert classify(raised(TypeError("bug"), cause=ConnectionResetError())).code == "BUG_CODE"


def test_context_counts_only_for_an_unknown_type_that_is_no_bug_type() -> None:
    for wrapper in (RuntimeError(), Exception(), Wrapped()):
        assert classify(raised(wrapper, during=ConnectionResetError())).code == "NETWORK_RESET"
    assert classify(raised(TypeError(), during=ConnectionResetError())).code == "BUG_CODE"
    assert classify(raised(ValueError(), during=ConnectionResetError())).code == "BUG_CODE"


def test_a_suppressed_context_does_not_count() -> None:
    wrapped = raised(Wrapped(), during=ConnectionResetError())
    wrapped.__suppress_context__ = True

    assert classify(wrapped).is_unknown


def test_a_users_own_bug_type_passes_on_its_cause_but_not_its_context() -> None:
    class Invalid(ValueError):
        pass

    assert classify(raised(Invalid(), cause=TimeoutError())).retryable
    assert not classify(raised(Invalid(), during=TimeoutError())).retryable


def test_a_group_is_as_bad_as_its_worst_member() -> None:
    heals = ExceptionGroup("g", [TimeoutError(), ExceptionGroup("h", [ConnectionResetError()])])
    bug = ExceptionGroup("g", [TimeoutError(), KeyError("k"), ConnectionResetError()])

    assert classify(heals).retryable
    assert classify(bug).code == "BUG_CODE"
    assert classify(raised(Wrapped(), cause=bug)).code == "BUG_CODE"
    assert "worst of ExceptionGroup" in classify(bug).rule


def test_a_group_waits_as_long_as_its_most_patient_member_asks() -> None:
    first, second = TimeoutError(), TimeoutError()
    first.retry_after = 5  # type: ignore[attr-defined]
    second.retry_after = 9  # type: ignore[attr-defined]

    assert classify(ExceptionGroup("g", [first, second])).retry_after == 9


def test_exceptions_that_contain_each_other_come_to_an_end() -> None:
    first = RuntimeError("first")
    first.__cause__ = ExceptionGroup("g", [first])
    second, third = RuntimeError("second"), RuntimeError("third")
    second.__cause__, third.__cause__ = third, second

    assert classify(first).is_unknown
    assert classify(second).is_unknown


def test_an_endless_chain_is_read_up_to_a_limit() -> None:
    outer = inner = RuntimeError("0")
    for _ in range(CHAIN_MAX + 10):
        inner.__cause__ = inner = RuntimeError("n")
    inner.__cause__ = TimeoutError()

    assert classify(outer).is_unknown


def test_members_that_share_objects_are_no_riddle() -> None:
    reset = ConnectionResetError(104, "reset")
    wrappers = [raised(Wrapped(str(n)), cause=reset) for n in range(2)]

    assert classify(ExceptionGroup("g", [reset, reset])).code == "NETWORK_RESET"
    assert classify(ExceptionGroup("g", wrappers)).code == "NETWORK_RESET"  # type: ignore[type-var]


def test_very_many_members_and_very_deep_groups_are_read_as_far_as_they_matter() -> None:
    many = ExceptionGroup("g", [ConnectionResetError(104, str(n)) for n in range(MEMBERS_MAX * 2)])
    deep: Exception = ConnectionResetError(104, "reset")
    for _ in range(2_000):
        deep = ExceptionGroup("g", [deep])
    beneath: Exception = ConnectionResetError(104, "reset")
    for _ in range(DEPTH_MAX + 5):
        wrapper = Wrapped()
        wrapper.__cause__ = ExceptionGroup("g", [beneath])
        beneath = wrapper

    assert classify(many).code == "NETWORK_RESET"
    assert classify(deep).code == "NETWORK_RESET"
    assert classify(beneath).is_unknown


def test_an_unknown_member_of_a_group_is_what_the_warning_names(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="redrive.classify"):
        Classifier().classify(ExceptionGroup("g", [Odd()]))

    assert "redrive.Rule(Odd" in caplog.text


def test_a_broken_message_does_not_hide_the_failure() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert "cannot be read" in classify(Mute()).message


def test_a_huge_message_is_cut() -> None:
    assert len(ruleless(Odd("x" * 1_000_000)).message) <= MESSAGE_MAX + 3


def test_signals_are_read_as_what_the_stage_asked_for() -> None:
    retry, snooze = classify(Retry(5, message="again")), classify(Snooze(7))
    cancel, fail, own = (
        classify(Cancel("enough")),
        classify(Fail("NOT_FOUND")),
        classify(Fail("NOT_PDF", "no PDF")),
    )

    assert (retry.signal, retry.retry_after, retry.retryable, retry.message) == (
        SignalKind.RETRY,
        5.0,
        True,
        "again",
    )
    assert (snooze.signal, snooze.retry_after) == (SignalKind.SNOOZE, 7.0)
    assert (cancel.signal, cancel.retryable, cancel.message) == (SignalKind.CANCEL, False, "enough")
    assert (fail.code, fail.canonical, fail.retryable) == ("NOT_FOUND", "NOT_FOUND", False)
    assert (own.code, own.canonical, own.message) == ("NOT_PDF", "STAGE_FAILED", "no PDF")


def test_a_skip_is_read_as_one_and_a_finish_in_a_group_as_a_mistake() -> None:
    skip, finish = classify(Skip("no text")), classify(ExceptionGroup("both", [Finish(1)]))

    assert (skip.signal, skip.code, skip.retryable, skip.message) == (
        SignalKind.SKIP,
        "SKIPPED",
        False,
        "no text",
    )
    assert (finish.signal, finish.code, finish.retryable) == (None, "CONFIG_INVALID", False)


def test_a_stages_own_delay_is_taken_as_it_is() -> None:
    assert classify(Snooze(timedelta(days=400))).retry_after == 400 * 86_400


def test_retry_without_a_delay_leaves_it_to_the_policy() -> None:
    assert classify(Retry()).retry_after is None
    assert all(str(signal) for signal in (Retry(), Snooze(1), Fail("X")))


@pytest.mark.parametrize("build", [lambda: Retry(-1), lambda: Snooze(-1), lambda: Snooze("soon")])  # type: ignore[arg-type]
def test_a_wrong_delay_is_refused(build: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError, match="delay"):
        build()


def test_user_rules_come_first_and_the_newest_before_older_ones() -> None:
    own = Classifier([Rule(TimeoutError, "NOT_FOUND")])
    assert own.classify(TimeoutError()).code == "NOT_FOUND"

    own.add(Rule(TimeoutError, taxonomy.REJECTED_POLICY))
    assert own.classify(TimeoutError()).code == "REJECTED_POLICY"
    assert classify(TimeoutError("timed out")).code == "NETWORK_TIMEOUT"


def test_a_rule_may_be_a_function_that_passes() -> None:
    def read(exc: BaseException) -> Verdict | str | None:
        if "limit" in str(exc):
            return Verdict(code=taxonomy.RATE_LIMITED, http_status=429, retry_after=3)
        return "CONFLICT" if "race" in str(exc) else None

    own = Classifier([Rule(Odd, read, name="odd ones")])

    limited = own.classify(Odd("limit"))
    assert (limited.code, limited.http_status, limited.retry_after) == ("RATE_LIMITED", 429, 3)
    assert "odd ones" in limited.rule
    assert own.classify(Odd("race"), idempotent=True).retryable
    assert not own.classify(Odd("race")).retryable
    assert own.classify(Odd("else")).is_unknown


def test_a_rule_may_name_a_class_by_its_dotted_name_and_covers_subclasses() -> None:
    class Odder(Odd):
        pass

    own = Classifier([Rule(f"{Odd.__module__}.Odd", "RATE_LIMITED")])

    assert own.classify(Odder()).code == "RATE_LIMITED"


def test_a_rule_added_while_another_thread_classifies_is_not_lost() -> None:
    own = Classifier([Rule(Odd, "CONFLICT")])
    rules, cache = own._found
    own.add(Rule(Odd, "NOT_FOUND"))
    cache[Odd] = own._lookup(
        Odd
    )  # What a slower thread would still write: into the cache that nobody reads any more.

    assert own.classify(Odd()).code == "NOT_FOUND"
    assert len(rules) == 1


def test_a_verdict_may_name_its_code() -> None:
    own = Classifier([Rule(Odd, lambda _exc: Verdict.of("RATE_LIMITED", retry_after=12))])
    failure = own.classify(Odd())

    assert (failure.code, failure.retry_after) == ("RATE_LIMITED", 12.0)
    assert isinstance(failure.retry_after, float)


def test_add_rule_teaches_the_default_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier_module.DEFAULT, "_found", ((), {}))

    add_rule(Rule(Odd, "RATE_LIMITED"))

    assert classify(Odd()).retryable


def test_a_rule_that_raises_is_reported_as_wrong_configuration_naming_the_rule() -> None:
    def broken(exc: BaseException) -> str:
        raise LookupError("oops")

    with pytest.raises(ConfigurationError, match="must not raise") as refused:
        Classifier([Rule(Odd, broken)]).classify(Odd())

    assert "broken" in refused.value.field
    assert isinstance(refused.value.__cause__, LookupError)


@pytest.mark.parametrize(
    "act",
    [
        lambda: Rule(int, "CONFLICT"),  # type: ignore[type-var]
        lambda: Classifier(Rule(Odd, "CONFLICT")),  # type: ignore[arg-type]
        lambda: Classifier([Odd]),  # type: ignore[list-item]
        lambda: Classifier([Rule(Odd, lambda _exc: Verdict(code="NOPE"))]).classify(Odd()),  # type: ignore[arg-type]
        lambda: Classifier([Rule(Odd, lambda _exc: Verdict.of("CONFLICT", retry_after="12"))]).classify(  # type: ignore[arg-type]
            Odd()
        ),
        lambda: Verdict.of("NO_SUCH_CODE"),
        lambda: Fail(""),
        lambda: Fail(429),  # type: ignore[arg-type]
        lambda: Rule("", "CONFLICT"),
        lambda: Rule(Odd, "NO_SUCH_CODE"),
        lambda: Rule(Odd, 42),  # type: ignore[arg-type]
        lambda: add_rule("Odd"),  # type: ignore[arg-type]
        lambda: classify("not an exception"),  # type: ignore[arg-type]
        lambda: Classifier([Rule(Odd, lambda _exc: 42)]).classify(Odd()),  # type: ignore[arg-type,return-value]
        lambda: Classifier([Rule(Odd, lambda _exc: "NO_SUCH_CODE")]).classify(Odd()),
    ],
)
def test_wrong_input_is_refused_with_a_fix(act: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        act()

    assert refused.value.fix


def test_the_cache_of_types_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Classifier, "CACHE_MAX", 2)
    own = Classifier()
    for n in range(5):
        own.classify(type(f"E{n}", (Exception,), {})())

    assert len(own._found[1]) == 2
    assert len(own._warned) == 2
