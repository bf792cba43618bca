# SPDX-License-Identifier: Apache-2.0
"""What is certain of a redacted part of a text: what lies next to the cut may be some of a value that goes on beyond it."""

from __future__ import annotations

import pytest

from redrive.redaction.literals.truncation import REST_MAX, certain

LONG = "x" * REST_MAX


@pytest.mark.parametrize(
    ("is_start", "part", "kept"),
    [
        (True, "no mark at all", "no mark at all"),
        (True, "a <payload:$.0> b <redacted:token> some of it", "a <payload:$.0> b <redacted:token>"),
        (True, f"a <payload:$.0>{LONG}", f"a <payload:$.0>{LONG}"),
        (False, "no mark at all", "no mark at all"),
        (False, "some of it <payload:$.0> b <redacted:token> c", "<payload:$.0> b <redacted:token> c"),
        (False, f"{LONG}<payload:$.0> c", f"{LONG}<payload:$.0> c"),
    ],
)
def test_what_lies_between_the_cut_and_the_next_mark_is_not_certain(
    is_start: bool, part: str, kept: str
) -> None:
    assert certain(part, is_start=is_start) == kept
