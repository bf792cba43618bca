# SPDX-License-Identifier: Apache-2.0
"""The transition tables: exactly the moves the design allows, and clear refusals of all others."""

from __future__ import annotations

import itertools

import pytest

from redrive.core.lifecycle import JOB_MOVES, LETTER_MOVES, JobState, LetterState, move_job, move_letter
from redrive.errors import IllegalTransitionError


def test_a_job_moves_along_exactly_these_arrows() -> None:
    arrows = {(move.source, move.target) for move in JOB_MOVES}

    assert arrows == {
        (None, "queued"),
        ("queued", "processing"),
        ("processing", "queued"),
        ("processing", "complete"),
        ("processing", "failed"),
        ("queued", "failed"),
        ("queued", "cancelled"),
        ("processing", "cancelled"),
        ("failed", "queued"),
    }


def test_a_dead_letter_can_always_be_brought_to_an_end_and_a_discard_undone() -> None:
    arrows = {(move.source, move.target) for move in LETTER_MOVES}

    assert {source for source, target in arrows if target == "discarded"} == {"open", "triaged", "ready"}
    assert ("discarded", "open") in arrows
    assert {source for source, target in arrows if target == "resolved"} == {"replaying"}
    assert not [arrow for arrow in arrows if arrow[0] == "resolved"]


@pytest.mark.parametrize(
    ("state", "verb"), list(itertools.product([None, *JobState], sorted({move.verb for move in JOB_MOVES})))
)
def test_every_other_move_of_a_job_is_refused(state: JobState | None, verb: str) -> None:
    known = [move for move in JOB_MOVES if (move.source, move.verb) == (state, verb)]

    if known:
        assert [move_job(state, verb)] == [move.target for move in known]
    else:
        with pytest.raises(IllegalTransitionError, match=verb):
            move_job(state, verb)


def test_states_may_be_given_as_plain_text() -> None:
    assert move_job("queued", "claim") is JobState.PROCESSING  # type: ignore[arg-type]


def test_every_move_of_a_letter_has_one_target() -> None:
    for move in LETTER_MOVES:
        assert move_letter(move.source, move.verb) is move.target


def test_a_refusal_says_what_is_possible_instead() -> None:
    with pytest.raises(IllegalTransitionError) as refused:
        move_letter(LetterState.RESOLVED, "discard")
    with pytest.raises(IllegalTransitionError) as other:
        move_letter(LetterState.OPEN, "resolve")

    assert "nothing" in refused.value.hint
    assert "triage" in other.value.hint
    assert other.value.allowed == ("triage", "retry", "discard")
