# SPDX-License-Identifier: Apache-2.0
"""What a wrapper means when real exceptions are raised from, during, and together with each other."""

from __future__ import annotations

import json
import urllib.error

import pytest

from redrive.engine.classifier import classify
from tests.wire_store.catching import failure_of


class StepFailedError(Exception):
    """A user's own wrapper."""


def refuse() -> None:
    raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("wrapper", [RuntimeError, Exception, ValueError, StepFailedError])
@pytest.mark.req("CR-1.1")
def test_a_wrapper_is_what_it_was_raised_from(wrapper: type[Exception]) -> None:
    def work() -> None:
        try:
            refuse()
        except OSError as exc:
            raise wrapper("step failed") from exc

    failure = failure_of(work)

    assert (failure.code, failure.retryable) == ("NETWORK_REFUSED", True)
    assert failure.message == "step failed"


@pytest.mark.parametrize("wrapper", [RuntimeError, Exception, StepFailedError])
def test_a_wrapper_raised_while_handling_a_failure_is_that_failure(wrapper: type[Exception]) -> None:
    def work() -> None:
        try:
            refuse()
        except OSError:
            raise wrapper("step failed")  # noqa: B904 - the missing `from` is what is tested.

    assert failure_of(work).code == "NETWORK_REFUSED"


def test_a_mistake_made_while_handling_a_failure_is_a_bug_all_the_same() -> None:
    def work() -> None:
        try:
            refuse()
        except OSError as exc:
            len(exc)  # type: ignore[arg-type]

    failure = failure_of(work)

    assert (failure.code, failure.retryable) == ("BUG_CODE", False)


def test_raising_from_none_hides_what_was_before() -> None:
    def work() -> None:
        try:
            refuse()
        except OSError:
            raise StepFailedError from None

    failure = failure_of(work)

    assert (failure.code, failure.is_unknown) == ("BUG_UNKNOWN", True)


def test_the_outermost_exception_with_a_rule_wins() -> None:
    def work() -> None:
        try:
            refuse()
        except OSError as exc:
            raise json.JSONDecodeError("no answer", "", 0) from exc

    assert failure_of(work).code == "SCHEMA_INVALID"


def test_a_subclass_of_a_known_class_inherits_its_meaning() -> None:
    class GatewayTimeoutError(TimeoutError):
        pass

    assert classify(GatewayTimeoutError("slow")).code == "NETWORK_TIMEOUT"


def test_what_urllib_met_is_the_networks_trouble_unless_it_is_a_text_about_the_address() -> None:
    assert classify(urllib.error.URLError(ConnectionResetError(104, "reset"))).code == "NETWORK_RESET"
    assert classify(urllib.error.URLError(OSError("what?"))).code == "NETWORK_ERROR"
    assert classify(urllib.error.URLError("unknown url type: foo")).code == "CONFIG_INVALID"


def test_a_users_class_that_shares_a_name_with_a_known_one_is_not_mistaken_for_it() -> None:
    class JSONDecodeError(Exception):
        pass

    assert classify(JSONDecodeError()).code == "BUG_UNKNOWN"


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ([ConnectionRefusedError(), ConnectionResetError()], "NETWORK_REFUSED"),
        ([ConnectionRefusedError(), json.JSONDecodeError("x", "", 0)], "SCHEMA_INVALID"),
        ([json.JSONDecodeError("x", "", 0), TypeError("x")], "BUG_CODE"),
        ([TimeoutError(), ExceptionGroup("inner", [MemoryError()])], "OUT_OF_MEMORY"),
    ],
)
def test_a_group_is_as_bad_as_its_worst_member(members: list[Exception], code: str) -> None:
    assert classify(ExceptionGroup("all of them", members)).code == code
