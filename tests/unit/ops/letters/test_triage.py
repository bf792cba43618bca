# SPDX-License-Identifier: Apache-2.0
"""Frozen sets of dead letters, and what people decide about them: exactly these, as the lifecycle allows, and on record."""

from __future__ import annotations

from typing import Any, cast

import pytest

from redrive import ConfigurationError, Pipeline, Redrive, RetryPolicy, stage
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import LetterNotFoundError, StoreUnavailableError
from redrive.ops.audit import Actor, operations
from redrive.ops.letters import triage
from redrive.ops.letters.details import get_letter
from redrive.ops.letters.freeze import FrozenSet, freeze, frozen_steps
from redrive.ops.letters.preview import Reason
from redrive.ops.letters.triage import ActResult
from redrive.store.records import Call, Step
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import replays as replay_sql
from redrive.testing import VirtualClock
from tests.embedded import change_rows, table_rows

ANN = Actor("ann", "a test")
ALL = LetterFilter()


@stage(retry=RetryPolicy(1))
def fetch(number: int) -> int:
    if number < 0:
        raise ConnectionResetError(104, "reset")
    return 10 // number


SHOP = Pipeline("shop", [fetch])
MILL = Pipeline("mill", [fetch])


def fail(rd: Redrive, *numbers: int, pipeline: Pipeline = SHOP, **options: Any) -> None:
    for number in numbers:
        rd.submit(pipeline, number, **options)
    rd.work([pipeline], until_idle=True, concurrency=1)


def states(rd: Redrive) -> dict[int, str]:
    found = rd.store.query(letter_sql.letter_lines(ids=[*range(1, 100)]))
    return {each.id: each.state for each in found}


def letter(rd: Redrive, number: int = 1) -> dict[str, object]:
    found = get_letter(rd.store, number)
    return {name: getattr(found, name) for name in "state diagnosis evidence is_safe assignee replay".split()}


def log(rd: Redrive) -> list[tuple[Any, ...]]:
    return [(each.verb, each.subject, each.reason, each.letters) for each in operations(rd.store)]


def changes(rd: Redrive) -> list[dict[str, dict[str, object]]]:
    return [cast("dict[str, dict[str, object]]", each.change) for each in operations(rd.store)]


def only(rd: Redrive, *ids: int) -> FrozenSet:
    return freeze(rd.store, LetterFilter(ids=ids))


def stamp(rd: Redrive, *ids: int) -> int:
    """Let a replay that waits take letters, as the engine does."""
    row = ("shop", b"{}", b"{}", 9, 9, len(ids), b"{}", "bob", 1.0, 0)
    made = cast("list[list[tuple[int]]]", rd.store.apply(Step("add_replay", row)))[0][0][0]
    for each in ids:
        change_rows(rd, "UPDATE dead_letters SET replay_id = ? WHERE id = ?", (made, each))
    return made


def test_a_frozen_set_is_counted_exactly_by_state(rd: Redrive) -> None:
    fail(rd, 0, 0, -1, 5)
    fail(rd, 0, pipeline=MILL)
    triage.discard(rd.store, only(rd, 2), ANN)

    every = freeze(rd.store, ALL)
    group = get_letter(rd.store, 1).group

    assert (every.count, every.cutoff, every.by_state) == (4, 4, {"open": 3, "discarded": 1})
    assert freeze(rd.store, LetterFilter(pipeline="mill")).count == 1
    assert freeze(rd.store, LetterFilter(group=group, pipeline="shop")).by_state == {
        "open": 1,
        "discarded": 1,
    }
    assert freeze(rd.store, LetterFilter(code="NETWORK_RESET", state="open")).count == 1
    assert freeze(rd.store, LetterFilter(stage="nowhere")).by_state == {}


def test_any_filter_counts_what_it_then_walks_over(rd: Redrive, clock: VirtualClock) -> None:
    fail(rd, 0, 0, owner="ann", key="k1")
    clock.advance(100)
    now = clock.wall()
    fail(rd, -1, owner="ann")
    fail(rd, 0, key="k2")

    for which, ids in (
        (LetterFilter(owner="ann"), [1, 2]),
        (LetterFilter(owner="ann", code="NETWORK_RESET"), [2]),
        (LetterFilter(owner="ann", since=now), [2]),
        (LetterFilter(key="k1"), [1]),
        (LetterFilter(key="k2", state="triaged"), []),
        (LetterFilter(since=now), [2, 3]),
        (LetterFilter(until=now, pipeline="shop"), [1]),
        (LetterFilter(ids=(3, 1)), [1, 3]),
        (LetterFilter(ids=(3, 1), owner="ann"), [1]),
        (ALL, [1, 2, 3]),
    ):
        frozen = freeze(rd.store, which)
        assert [each for step in frozen_steps(rd.store, frozen) for each in step] == ids
        assert frozen.count == len(ids)


def test_newcomers_are_never_touched(rd: Redrive) -> None:
    fail(rd, 0, 0)
    frozen = freeze(rd.store, LetterFilter(pipeline="shop"))
    fail(rd, 0)

    assert triage.discard(rd.store, frozen, ANN) == ActResult(changed=2, left={})
    assert states(rd) == {1: "discarded", 2: "discarded", 3: "open"}


def test_a_set_that_was_frozen_before_there_were_letters_has_none(rd: Redrive) -> None:
    frozen = freeze(rd.store, ALL)
    fail(rd, 0)

    assert (frozen.cutoff, [*frozen_steps(rd.store, frozen)]) == (0, [])


def test_a_large_set_is_walked_in_small_transactions(rd: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(rd, *[0] * 7)
    monkeypatch.setattr("redrive.ops.letters.freeze.WINDOW", 3)
    assert list(frozen_steps(rd.store, freeze(rd.store, ALL), step=2)) == [[1, 2], [3], [4, 5], [6], [7]]

    done = triage.note(rd.store, freeze(rd.store, ALL), ANN, text="seen")

    assert done.changed == 7
    assert log(rd) == [("note", "filter all", "seen", n) for n in (3, 3, 1)]


def test_what_nobody_knows_is_refused_with_what_is_near(rd: Redrive) -> None:
    fail(rd, 0, 0)

    with pytest.raises(LetterNotFoundError) as far:
        only(rd, 1, 4)
    assert "1, 2" in far.value.hint
    for wrong in (0, -1, 2**70):
        with pytest.raises(LetterNotFoundError):
            only(rd, wrong)
    with pytest.raises(ConfigurationError, match=r"open or triaged or ready .* Did you mean open"):
        freeze(rd.store, LetterFilter(state="opened"))


def test_triage_records_the_diagnosis_and_what_it_was_about(rd: Redrive) -> None:
    fail(rd, 0)

    assert triage.triage(rd.store, only(rd, 1), ANN, diagnosis="code_defect").changed == 1

    assert (letter(rd)["state"], letter(rd)["diagnosis"]) == ("triaged", "code_defect")
    assert log(rd) == [("triage", "letter 1", "a test", 1)]
    (change,) = changes(rd)
    assert change["after"] == {"state": "triaged", "diagnosis": "code_defect"}
    assert (change["before"]["state"], change["before"]["stage"]) == ("open", "fetch")
    assert change["before"]["exception"] == "ZeroDivisionError"
    assert change["before"]["reason"]


def test_another_diagnosis_takes_the_evidence_back(rd: Redrive) -> None:
    fail(rd, 0)
    triage.remediate(rd.store, only(rd, 1), ANN, evidence="fixed", is_safe=True, diagnosis="data")

    triage.triage(rd.store, only(rd, 1), ANN, diagnosis="transient")

    assert letter(rd) == {
        "state": "triaged",
        "diagnosis": "transient",
        "evidence": None,
        "is_safe": 0,
        "assignee": None,
        "replay": None,
    }
    assert changes(rd)[-1]["before"]["evidence"] == "fixed"


def test_evidence_makes_triaged_letters_ready(rd: Redrive) -> None:
    fail(rd, 0, 0)
    triage.triage(rd.store, only(rd, 1), ANN, diagnosis="data")

    done = triage.remediate(rd.store, freeze(rd.store, ALL), ANN, evidence=" deployed 1.2 ", is_safe=True)

    assert done == ActResult(changed=1, left={Reason("untriaged", "open"): 1})
    assert (letter(rd)["state"], letter(rd)["evidence"], letter(rd)["is_safe"]) == (
        "ready",
        "deployed 1.2",
        1,
    )
    assert triage.remediate(rd.store, only(rd, 1), ANN, evidence="again", is_safe=True) == ActResult(
        changed=0, left={Reason("state", "ready"): 1}
    )


def test_a_diagnosis_with_the_evidence_is_two_moves_on_record(rd: Redrive) -> None:
    fail(rd, 0, 0)
    triage.triage(rd.store, only(rd, 2), ANN, diagnosis="data")
    which = freeze(rd.store, LetterFilter(pipeline="shop"))

    done = triage.remediate(rd.store, which, ANN, evidence="e", is_safe=True, diagnosis="transient")

    assert done.changed == 2
    assert states(rd) == {1: "ready", 2: "ready"}
    assert [verb for verb, *_ in log(rd)][1:] == ["triage", "remediate"]
    assert changes(rd)[1]["before"] == {"states": {"open": 1, "triaged": 1}}
    assert changes(rd)[2]["before"] == {"states": {"triaged": 2}}
    assert freeze(rd.store, ALL).by_state == {"ready": 2}


@pytest.mark.parametrize("evidence", ["", "  \n", "x" * 8_193])
def test_evidence_has_to_say_something(rd: Redrive, evidence: str) -> None:
    fail(rd, 0)

    with pytest.raises(ConfigurationError, match="evidence must be a text"):
        triage.remediate(rd.store, only(rd, 1), ANN, evidence=evidence, is_safe=True, diagnosis="data")
    assert states(rd) == {1: "open"}
    assert log(rd) == []


def test_nobody_gets_ready_without_the_word_that_it_is_safe(rd: Redrive) -> None:
    fail(rd, 0)

    with pytest.raises(ConfigurationError, match="idempotent, or harmless"):
        triage.remediate(rd.store, only(rd, 1), ANN, evidence="e", is_safe=False, diagnosis="data")
    with pytest.raises(ConfigurationError, match="diagnosis must be transient or data"):
        triage.triage(rd.store, only(rd, 1), ANN, diagnosis="bad luck")
    assert states(rd) == {1: "open"}


def test_what_people_write_is_redacted(rd: Redrive) -> None:
    fail(rd, 0)
    secret = "password=hunter2hunter2"

    triage.remediate(
        rd.store, only(rd, 1), Actor("ann", secret), evidence=secret, is_safe=True, diagnosis="data"
    )
    triage.note(rd.store, only(rd, 1), ANN, text=secret)

    stored = f"{table_rows(rd, 'dead_letters')} {table_rows(rd, 'operations')}"
    assert "hunter2" not in stored
    assert stored.count("<redacted:password>") >= 4


def test_discarding_and_restoring_begin_anew(rd: Redrive) -> None:
    fail(rd, 0)
    triage.remediate(rd.store, only(rd, 1), ANN, evidence="e", is_safe=True, diagnosis="data")

    assert triage.restore(rd.store, only(rd, 1), ANN).left == {Reason("state", "ready"): 1}
    assert triage.discard(rd.store, only(rd, 1), ANN).changed == 1
    assert triage.discard(rd.store, only(rd, 1), ANN).left == {Reason("state", "discarded"): 1}
    assert triage.restore(rd.store, only(rd, 1), ANN).changed == 1

    assert (letter(rd)["state"], letter(rd)["diagnosis"], letter(rd)["is_safe"]) == ("open", None, 0)
    assert [verb for verb, *_ in log(rd)] == ["triage", "remediate", "discard", "restore"]


def test_a_letter_that_a_replay_has_taken_keeps_its_diagnosis_but_may_be_discarded(rd: Redrive) -> None:
    fail(rd, 0, 0)
    triage.remediate(rd.store, freeze(rd.store, ALL), ANN, evidence="e", is_safe=True, diagnosis="data")
    replay = stamp(rd, 1)

    kept = triage.triage(rd.store, freeze(rd.store, ALL), ANN, diagnosis="transient")
    gone = triage.discard(rd.store, only(rd, 1), ANN)

    assert kept == ActResult(changed=1, left={Reason("taken", replay=replay): 1})
    assert gone.changed == 1
    assert letter(rd)["replay"] is None
    assert rd.store.query(replay_sql.replay_skips(replay=replay)) == [("discarded", 1)]
    assert rd.store.query(replay_sql.replay_counts(replay=replay)) == [("waiting", 0)]
    assert freeze(rd.store, ALL).by_state == {"triaged": 1, "discarded": 1}


def test_a_replaying_letter_cannot_be_discarded(rd: Redrive) -> None:
    fail(rd, 0)
    change_rows(rd, "UPDATE dead_letters SET state = 'replaying'")

    assert triage.discard(rd.store, only(rd, 1), ANN) == ActResult(
        changed=0, left={Reason("state", "replaying"): 1}
    )
    assert log(rd) == []


def test_letters_are_given_to_somebody_and_taken_back(rd: Redrive) -> None:
    fail(rd, 0, 0)

    triage.assign(rd.store, freeze(rd.store, LetterFilter(pipeline="shop")), ANN, assignee="bob")
    assert letter(rd, 2)["assignee"] == "bob"
    triage.assign(rd.store, only(rd, 2), ANN, assignee=None)

    assert (letter(rd, 1)["assignee"], letter(rd, 2)["assignee"]) == ("bob", None)
    assert log(rd)[0] == ("assign", "filter pipeline=shop", "a test", 2)
    assert changes(rd)[1]["after"] == {"assignee": None}
    with pytest.raises(ConfigurationError, match="assignee must be a text"):
        triage.assign(rd.store, only(rd, 2), ANN, assignee=" ")


def test_an_act_on_a_group_is_logged_under_its_name(rd: Redrive) -> None:
    fail(rd, 0)
    group = get_letter(rd.store, 1).group

    triage.note(rd.store, freeze(rd.store, LetterFilter(group=group)), ANN, text="seen")

    assert log(rd) == [("note", f"group {group}", "seen", 1)]


def test_a_letter_that_somebody_moves_meanwhile_is_looked_at_again(rd: Redrive) -> None:
    fail(rd, 0, 0)
    which, asked = freeze(rd.store, ALL), rd.store.query
    seen: list[str] = []

    def interrupted(call: Call[object]) -> list[object]:
        found = asked(call)
        if call.name == "letters_to_triage" and call.name not in seen:
            change_rows(rd, "UPDATE dead_letters SET state = 'replaying' WHERE id = 2")
        seen.append(call.name)
        return found

    rd.store.query = interrupted  # type: ignore[method-assign, assignment]  # somebody between our two questions
    done = triage.discard(rd.store, which, ANN)

    assert done == ActResult(changed=1, left={Reason("state", "replaying"): 1})
    assert log(rd)[0][3] == 1


def test_letters_that_never_stand_still_are_given_up(rd: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(rd, 0)
    which = freeze(rd.store, ALL)
    monkeypatch.setattr(rd.store, "apply", lambda *_: None)

    with pytest.raises(StoreUnavailableError, match="20 times in a row"):
        triage.discard(rd.store, which, ANN)


def test_what_left_the_set_meanwhile_is_counted(rd: Redrive) -> None:
    fail(rd, 0, 0)
    which = freeze(rd.store, LetterFilter(state="open"))
    triage.discard(rd.store, only(rd, 2), ANN)

    assert triage.triage(rd.store, which, ANN, diagnosis="data") == ActResult(
        changed=1, left={Reason("gone"): 1}
    )


def test_several_named_letters_are_logged_by_their_number(rd: Redrive) -> None:
    fail(rd, 0, 0, 0)

    triage.note(rd.store, only(rd, 1, 3), ANN, text="seen")

    assert log(rd) == [("note", "filter ids=2 named", "seen", 2)]


def test_closed_letters_need_nobody(rd: Redrive) -> None:
    fail(rd, 0)
    change_rows(rd, "UPDATE dead_letters SET state = 'resolved', outcome = 'completed', closed_at = 1.0")

    assert triage.assign(rd.store, only(rd, 1), ANN, assignee="bob").left == {Reason("state", "resolved"): 1}
    assert triage.triage(rd.store, only(rd, 1), ANN, diagnosis="data").left == {
        Reason("state", "resolved"): 1
    }


def test_a_letter_that_is_pruned_between_two_questions_is_counted(rd: Redrive) -> None:
    fail(rd, 0, 0)
    which, asked = freeze(rd.store, ALL), rd.store.query

    def interrupted(call: Call[object]) -> list[object]:
        if call.name == "letters_to_triage":
            change_rows(rd, "DELETE FROM dead_letters WHERE id = 2")
        return asked(call)

    rd.store.query = interrupted  # type: ignore[method-assign, assignment]  # somebody between our two questions

    assert triage.discard(rd.store, which, ANN) == ActResult(changed=1, left={Reason("pruned"): 1})


def test_a_letter_that_left_the_state_asked_for_is_left_alone(rd: Redrive) -> None:
    fail(rd, 0, 0)
    which, asked = freeze(rd.store, LetterFilter(state="open")), rd.store.query

    def interrupted(call: Call[object]) -> list[object]:
        if call.name == "letters_to_triage":
            change_rows(rd, "UPDATE dead_letters SET state = 'triaged' WHERE id = 2")
        return asked(call)

    rd.store.query = interrupted  # type: ignore[method-assign, assignment]  # somebody between our two questions

    assert triage.discard(rd.store, which, ANN) == ActResult(
        changed=1, left={Reason("left_state", "triaged"): 1}
    )
