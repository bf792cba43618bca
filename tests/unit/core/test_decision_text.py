# SPDX-License-Identifier: Apache-2.0
"""Decisions as they are stored and read again."""

from __future__ import annotations

import pytest

from redrive.core.decide import Finish, OldDecision, Reason, Recorded, Skip
from redrive.core.decision_text import decode_decision, encode_decision, reason_and_sentence


def test_a_stored_decision_is_read_as_it_was() -> None:
    decision = OldDecision(reason="exhausted", text="attempt 3 of 3 failed with IO_ERROR: none is left")

    assert decode_decision(encode_decision(decision)) == decision
    assert reason_and_sentence(encode_decision(decision)) == (decision.reason, decision.text)


@pytest.mark.parametrize(
    ("decision", "sentence"),
    [
        (Skip(reason=Reason.ASKED), "the stage skipped it"),
        (Finish(stages_left=1), "the stage finished the job: 1 stage was left and did not run"),
        (Finish(stages_left=2), "the stage finished the job: 2 stages were left and did not run"),
    ],
)
def test_a_skip_and_a_finish_are_stored_and_read_as_a_sentence(decision: Recorded, sentence: str) -> None:
    assert decode_decision(encode_decision(decision)) == decision
    assert reason_and_sentence(encode_decision(decision)) == ("asked", sentence)


@pytest.mark.parametrize(
    "text", [None, "", "{", '{"kind": "of a later version"}', '{"kind": "retry"}', "[" * 9_999]
)
def test_what_is_no_decision_is_none(text: str | None) -> None:
    assert decode_decision(text) is None
    assert reason_and_sentence(text) == (None, None)
