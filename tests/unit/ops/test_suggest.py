# SPDX-License-Identifier: Apache-2.0
"""What is said about a name that nobody knows."""

from __future__ import annotations

from redrive.ops.suggest import unknown


def test_a_name_nobody_knows_is_answered_with_near_ones_or_all() -> None:
    many = [f"name-{place}" for place in range(12)]

    assert "Did you mean orders?" in str(unknown("orderz", ["orders"], kind="pipeline", otherwise="None."))
    assert "and 2 more" in str(unknown("zzz", many, kind="pipeline", otherwise="None."))
    assert "None at all." in str(unknown("zzz", [], kind="pipeline", otherwise="None at all."))
