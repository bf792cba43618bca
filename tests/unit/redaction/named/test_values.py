# SPDX-License-Identifier: Apache-2.0
"""What a value looks like beside a telling name: random, or words that judge another value."""

from __future__ import annotations

import pytest

from redrive.redaction.named import values


@pytest.mark.parametrize(
    "value", ["/aB3dE5gH7jK9mN1pQ3", "sha256:aB3dE5gH7jK9mN1pQ3", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "short1"]
)
def test_paths_digests_and_ids_are_not_random(value: str) -> None:
    assert not values.is_random(value)


def test_the_message_of_a_validator_holds_no_password() -> None:
    assert values.is_validation("This field is required")
    assert not values.is_validation("hunter2 is required here")
    assert not values.is_validation("correct horse battery")
