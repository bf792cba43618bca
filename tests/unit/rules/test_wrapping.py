# SPDX-License-Identifier: Apache-2.0
"""What exceptions mean by the class they derive from, by what they hold, and together; chains are in the tests of the core."""

from __future__ import annotations

import json
import urllib.error

import pytest

from redrive.engine.classifier import classify


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
