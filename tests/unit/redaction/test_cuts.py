# SPDX-License-Identifier: Apache-2.0
"""What is certain of a redacted part of a text: what lies next to the cut may be some of a value that goes on beyond it."""

from __future__ import annotations

import pytest

from redrive.redaction.literals.truncation import REST_MAX, certain

LONG = "x" * REST_MAX


@pytest.mark.parametrize(
    ("part", "kept"),
    [
        ("no mark at all", "no mark at all"),
        ("a <payload:$.0> b <redacted:token> some of it", "a <payload:$.0> b <redacted:token>"),
        (f"a <payload:$.0>{LONG}", f"a <payload:$.0>{LONG}"),
    ],
)
def test_what_follows_the_last_mark_of_a_beginning_is_not_certain(part: str, kept: str) -> None:
    assert certain(part, is_start=True) == kept


@pytest.mark.parametrize(
    ("part", "kept"),
    [
        ("no mark at all", "no mark at all"),
        ("some of it <payload:$.0> b <redacted:token> c", "<payload:$.0> b <redacted:token> c"),
        (f"{LONG}<payload:$.0> c", f"{LONG}<payload:$.0> c"),
    ],
)
def test_what_comes_before_the_first_mark_of_an_end_is_not_certain(part: str, kept: str) -> None:
    assert certain(part, is_start=False) == kept
