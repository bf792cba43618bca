# SPDX-License-Identifier: Apache-2.0
"""What an act would come to is told before it is done, and no more is done than was told."""

from __future__ import annotations

import pytest

from redrive import Redrive
from redrive.engine.replay.driver import unmark
from redrive.engine.replay.filter import LetterFilter
from redrive.ops.letters import triage
from redrive.ops.letters.freeze import freeze
from redrive.ops.letters.preview import Reason, Verb, preview
from redrive.ops.letters.triage import ActResult
from tests.embedded import change_rows
from tests.unit.ops.letters.test_triage import ALL, ANN, fail, only, stamp, states

EARLY = Reason("untriaged", "open")


def mixed(rd: Redrive) -> None:
    """Seven letters: two open, one triaged, one ready, one discarded, one resolved, one taken by replay 1."""
    fail(rd, *[0] * 7, owner="ann")
    triage.triage(rd.store, only(rd, 3, 4), ANN, diagnosis="data")
    triage.remediate(rd.store, only(rd, 4), ANN, evidence="e", is_safe=True)
    triage.discard(rd.store, only(rd, 5), ANN)
    change_rows(
        rd, "UPDATE dead_letters SET state = 'resolved', outcome = 'completed', closed_at = 1.0 WHERE id = 6"
    )
    stamp(rd, 7)


@pytest.mark.untraced
@pytest.mark.parametrize("which", [ALL, LetterFilter(owner="ann"), LetterFilter(pipeline="shop", since=0.0)])
@pytest.mark.parametrize(
    ("verb", "changes", "stays"),
    [
        (
            "triage",
            {"open": 2, "triaged": 1, "ready": 1},
            {Reason("taken", replay=1): 1, Reason("state", "discarded"): 1, Reason("state", "resolved"): 1},
        ),
        (
            "remediate",
            {"triaged": 1},
            {
                EARLY: 3,
                Reason("state", "ready"): 1,
                Reason("state", "discarded"): 1,
                Reason("state", "resolved"): 1,
            },
        ),
        (
            "discard",
            {"open": 3, "triaged": 1, "ready": 1},
            {Reason("state", "discarded"): 1, Reason("state", "resolved"): 1},
        ),
        (
            "restore",
            {"discarded": 1},
            {
                Reason("state", "open"): 3,
                Reason("state", "triaged"): 1,
                Reason("state", "ready"): 1,
                Reason("state", "resolved"): 1,
            },
        ),
        ("assign", {"open": 3, "triaged": 1, "ready": 1, "discarded": 1}, {Reason("state", "resolved"): 1}),
        ("note", {"open": 3, "triaged": 1, "ready": 1, "discarded": 1, "resolved": 1}, {}),
    ],
)
def test_what_will_change_and_what_stays_is_told_for_every_act(
    rd: Redrive, which: LetterFilter, verb: Verb, changes: dict[str, int], stays: dict[Reason, int]
) -> None:
    mixed(rd)

    told = preview(rd.store, freeze(rd.store, which), verb)

    assert dict(told.changes) == changes
    assert told.stays == stays
    assert told.changing == 7 - sum(stays.values())


@pytest.mark.untraced
@pytest.mark.parametrize("verb", ["triage", "discard", "restore"])
def test_what_was_told_is_what_is_done(rd: Redrive, verb: Verb) -> None:
    mixed(rd)
    told = preview(rd.store, freeze(rd.store, ALL), verb)

    if verb == "triage":
        done = triage.triage(rd.store, told.frozen, ANN, diagnosis="transient")
    else:
        done = getattr(triage, verb)(rd.store, told.frozen, ANN)

    assert done == ActResult(changed=told.changing, left=told.stays)


def test_letters_that_become_able_while_somebody_thinks_are_left_alone(rd: Redrive) -> None:
    fail(rd, 0, 0, 0)
    triage.triage(rd.store, only(rd, 1), ANN, diagnosis="data")
    told = preview(rd.store, freeze(rd.store, ALL), "remediate")
    triage.triage(rd.store, only(rd, 2), ANN, diagnosis="data")

    done = triage.remediate(rd.store, told.frozen, ANN, evidence="e", is_safe=True)

    assert told.changing == 1
    assert done == ActResult(changed=1, left={Reason("came_later", "triaged"): 1, EARLY: 1})
    assert states(rd) == {1: "ready", 2: "triaged", 3: "open"}


def test_letters_that_come_into_a_state_nobody_was_in_are_left_alone(rd: Redrive) -> None:
    fail(rd, 0, 0)
    triage.discard(rd.store, only(rd, 2), ANN)
    told = preview(rd.store, freeze(rd.store, ALL), "discard")
    triage.restore(rd.store, only(rd, 2), ANN)
    triage.triage(rd.store, only(rd, 2), ANN, diagnosis="data")

    done = triage.discard(rd.store, told.frozen, ANN)

    assert done == ActResult(changed=1, left={Reason("came_later", "triaged"): 1})


def test_letters_that_a_replay_lets_go_of_meanwhile_are_left_alone(rd: Redrive) -> None:
    fail(rd, 0, 0)
    replay = stamp(rd, 2)
    told = preview(rd.store, freeze(rd.store, ALL), "triage")
    unmark(rd.store, replay, 1.0)

    done = triage.triage(rd.store, told.frozen, ANN, diagnosis="data")

    assert told.changing == 1
    assert done == ActResult(changed=1, left={Reason("released_later"): 1})


def test_two_acts_on_one_set_are_no_surprise_to_a_program(rd: Redrive) -> None:
    """Only who was told a number is held to it: a program may triage what it chose, and go on with the same set."""
    fail(rd, 0, 0)
    which = freeze(rd.store, ALL)
    triage.triage(rd.store, which, ANN, diagnosis="data")

    assert triage.remediate(rd.store, which, ANN, evidence="e", is_safe=True).changed == 2
