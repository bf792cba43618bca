# SPDX-License-Identifier: Apache-2.0
"""Exceptions that are broken, or built by hand without what their library puts into them: there is an answer all the same."""

from __future__ import annotations

import pytest
import requests
import sqlalchemy.exc

from redrive import classify
from redrive.rules import find

HOMELESS = type("HomelessError", (Exception,), {"__module__": None})


def test_a_class_that_lives_in_no_module_has_no_rule_and_does_no_harm() -> None:
    assert find(HOMELESS) == ()
    assert classify(HOMELESS("where am I?")).is_unknown


def test_a_class_that_lives_in_no_module_may_derive_from_a_known_one() -> None:
    homeless = type("HomelessTimeoutError", (TimeoutError,), {"__module__": None})

    assert classify(homeless("timed out")).code == "NETWORK_TIMEOUT"
    assert classify(type("HomelessOSError", (OSError,), {"__module__": None})("what?")).is_unknown


def test_a_class_that_lives_in_no_module_may_be_inside_of_others() -> None:
    inside = HOMELESS("inside")
    caused = requests.ConnectionError("no")
    caused.__cause__ = inside

    assert classify(requests.ConnectionError(inside)).code == "NETWORK_ERROR"
    assert classify(caused).code == "NETWORK_ERROR"
    assert classify(sqlalchemy.exc.OperationalError("select 1", {}, inside)).code == "UPSTREAM_ERROR"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (requests.ConnectTimeout, "NETWORK_TIMEOUT"),
        (requests.ReadTimeout, "NETWORK_TIMEOUT"),
        (requests.ConnectionError, "NETWORK_ERROR"),
        (requests.HTTPError, "REQUEST_INVALID"),
    ],
)
def test_an_exception_of_requests_built_by_hand_is_known_by_its_class(
    kind: type[Exception], code: str
) -> None:
    assert classify(kind()).code == code


def test_a_told_delay_that_cannot_be_read_is_none() -> None:
    class Length:
        @property
        def seconds(self) -> float:
            raise RuntimeError("no")

    class LimitedError(Exception):
        retry_after = Length()

    assert classify(LimitedError("slow down")).retry_after is None
