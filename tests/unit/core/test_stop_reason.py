# SPDX-License-Identifier: Apache-2.0
"""Why a replay or a run was stopped, from the value that is stored to the sentence that people read."""

from __future__ import annotations

import json

import pytest

from redrive.core.stop_reason import (
    BudgetExceeded,
    Interruption,
    LongHold,
    MostFailures,
    OperatorStop,
    SameFailures,
    StopReason,
    TextReason,
    encode_stop_reason,
    stop_sentence,
    stop_sentence_in,
)

REASONS: list[tuple[StopReason, str, str]] = [
    (SameFailures(same=1, ended=5), "same_failures", "1 of 5 failed again with the same failure"),
    (
        SameFailures(same=3, ended=125, share_max=0.02),
        "same_failures",
        "3 of 125 failed again with the same failure, more than 2%",
    ),
    (
        MostFailures(failed=5, ended=6, other=4),
        "most_failures",
        "5 of 6 failed again, 4 of them with another failure",
    ),
    (
        BudgetExceeded(dead=101, finished=1000, max_rate=0.1),
        "budget",
        "101 of 1000 finished jobs failed (10.1%), the budget is 10.0%",
    ),
    (Interruption(error="OSError"), "interruption", "it was interrupted by OSError"),
    (Interruption(error="OSError", item=0), "interruption", "it was interrupted by OSError at item 0"),
    (LongHold(seconds=3600.0), "long_hold", "all remaining items have been held for 3600 s"),
    (OperatorStop(act="paused", actor="ann"), "operator", "paused by ann"),
    (OperatorStop(act="cancelled", actor="ann"), "operator", "cancelled by ann"),
    (TextReason("it was stopped"), "text", "it was stopped"),
]


@pytest.mark.parametrize(("reason", "kind", "sentence"), REASONS)
def test_a_reason_is_stored_with_its_kind_and_read_as_a_sentence(
    reason: StopReason, kind: str, sentence: str
) -> None:
    stored = encode_stop_reason(reason)

    assert json.loads(stored)["kind"] == kind
    assert (stop_sentence_in(stored), stop_sentence(reason)) == (sentence, sentence)


@pytest.mark.parametrize("stored", [None, "", "paused by ann", '{"kind":"weather"}', '{"kind":"budget"}'])
def test_of_what_cannot_be_read_there_is_no_sentence(stored: str | None) -> None:
    assert stop_sentence_in(stored) is None
