# SPDX-License-Identifier: Apache-2.0
"""Edits of the value a failed job is replayed with: checked, shown redacted, on record, and taken by the next replay."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redrive import ConfigurationError, Pipeline, Redrive
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.release import batch_of, release_steps
from redrive.errors import LetterNotFoundError, ReplayRefusedError, SerializationError
from redrive.ops.audit import Actor, operations
from redrive.ops.jobs.erase import erase
from redrive.ops.letters import triage
from redrive.ops.letters.document import difference
from redrive.ops.letters.edit import _editable, commit, draft, edit, value_for_edit
from redrive.ops.letters.freeze import freeze
from redrive.store.statements import release as release_sql
from redrive.store.statements import transfer as transfer_sql
from tests.embedded import change_rows
from tests.unit.ops.letters.edited_orders import ANN, SHOP, Order, letter, pay, take, value

__all__ = ["letter"]


def replay(rd: Redrive, *, from_start: bool = False) -> str:
    batch = batch_of(rd.store.query(release_sql.replay_candidates(ids=[1], from_start=from_start)))
    first = rd.store.lanes("shop", ["take", "pay"])[0] if from_start else None
    assert rd.store.apply(*release_steps(rd.store, batch, replay=None, first_lane=first, now=0.0))
    rd.work([SHOP], until_idle=True)
    return rd.job(1).status


def edits(rd: Redrive) -> list[tuple[Any, ...]]:
    found = rd.store.query(transfer_sql.exported_edits(job=1, letter=1))
    return [(each.part, each.before, each.after, each.actor) for each in found]


def test_the_first_view_is_redacted_and_the_raw_one_is_asked_for(rd: Redrive, letter: int) -> None:
    view = value_for_edit(rd.store, letter, "input")

    assert "<redacted:email>" in view
    assert "ann@example.com" not in view
    assert json.loads(rd.letters.value(letter)) == {"amount": 0, "email": "ann@example.com", "note": ""}


def test_an_edit_waits_for_the_replay_that_starts_with_it(rd: Redrive, letter: int) -> None:
    done = edit(rd.store, letter, ANN, value=value(), pipeline=SHOP)

    assert '-  "amount": 0,' in done.diff
    assert '+  "amount": 5,' in done.diff
    assert "ann@example.com" not in done.diff
    ((part, before, after, actor),) = edits(rd)
    assert (part, actor, json.loads(before)["amount"], json.loads(after)["amount"]) == ("input", "ann", 0, 5)
    original = rd.store.query(transfer_sql.exported_values(job=1))[0].input
    assert original is not None
    assert json.loads(original)["amount"] == 0
    assert replay(rd) == "complete"


def test_an_edited_payload_is_taken_by_a_full_restart(rd: Redrive, letter: int) -> None:
    edit(rd.store, letter, ANN, part="payload", value=value(), pipeline=SHOP)

    assert replay(rd, from_start=True) == "complete"


def test_a_large_edit_is_replayed_as_well(rd: Redrive, letter: int) -> None:
    edit(rd.store, letter, ANN, value=value(note="x" * 10_000), pipeline=SHOP)

    assert replay(rd) == "complete"


def test_the_last_of_several_edits_counts_and_is_what_the_next_begins_with(rd: Redrive, letter: int) -> None:
    edit(rd.store, letter, ANN, value=value(amount=2))
    patch = (
        b'[{"op": "test", "path": "/amount", "value": 2}, {"op": "replace", "path": "/amount", "value": 4}]'
    )
    edit(rd.store, letter, Actor("bob"), patch=patch, pipeline=SHOP)

    assert json.loads(value_for_edit(rd.store, letter))["amount"] == 4
    assert [json.loads(row[2])["amount"] for row in edits(rd)] == [2, 4]
    assert json.loads(edits(rd)[1][1])["amount"] == 2
    assert replay(rd) == "complete"
    assert rd.job(1).result() == 2.5


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("operation", "after"),
    [
        (
            {"op": "add", "path": "/note", "value": "n"},
            {"amount": 0, "email": "ann@example.com", "note": "n"},
        ),
        ({"op": "remove", "path": "/note"}, {"amount": 0, "email": "ann@example.com"}),
        (
            {"op": "replace", "path": "/amount", "value": 1},
            {"amount": 1, "email": "ann@example.com", "note": ""},
        ),
        ({"op": "move", "from": "/email", "path": "/note"}, {"amount": 0, "note": "ann@example.com"}),
        (
            {"op": "copy", "from": "/amount", "path": "/twice"},
            {"amount": 0, "email": "ann@example.com", "note": "", "twice": 0},
        ),
        ({"op": "replace", "path": "", "value": [1]}, [1]),
    ],
)
def test_every_operation_of_a_patch_changes_what_it_says(
    rd: Redrive, letter: int, operation: object, after: object
) -> None:
    assert json.loads(draft(rd.store, letter, patch=json.dumps([operation]).encode()).after) == after


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ([{"op": "test", "path": "/email", "value": "bob"}], "one of its tests fails"),
        ([{"op": "remove", "path": "/nothing"}], "nothing"),
        ([{"op": "add", "path": "/note/deep", "value": 1}], "deep"),
        ([{"op": "jump", "path": "/note"}], "$[0].op"),
        ([{"op": "add", "path": "/note"}], "'value'"),
        ([{"op": "add", "path": "note", "value": 1}], "start with /"),
        ({"op": "remove", "path": "/note"}, "Expected `array`"),
        ([7], "$[0]"),
        (7, "Expected `array`"),
        ([{"op": "copy", "from": 1, "path": "/note"}], "$[0].from"),
        ([{"op": "move", "path": "/note"}], "'from'"),
        ([{"op": "remove"}], "path"),
    ],
)
def test_a_patch_that_cannot_be_applied_says_why_and_shows_no_value(
    rd: Redrive, letter: int, patch: object, words: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        edit(rd.store, letter, ANN, patch=json.dumps(patch).encode())

    assert words in str(refused.value)
    assert "ann@example.com" not in str(refused.value)
    assert edits(rd) == []


def test_a_value_that_does_not_fit_names_the_field(rd: Redrive, letter: int) -> None:
    with pytest.raises(SerializationError, match=r"shop\.pay.*\$\.amount"):
        edit(rd.store, letter, ANN, value=value(amount="five"), pipeline=SHOP)
    with pytest.raises(SerializationError, match=r"shop\.take.*\$\.amount"):
        edit(rd.store, letter, ANN, part="payload", value=value(amount=None), pipeline=SHOP)
    for broken in (b'{"amount": 1', b"\xff", b"", b"[" * 100_000):
        with pytest.raises(SerializationError):
            edit(rd.store, letter, ANN, value=broken)
    assert edits(rd) == []


def test_the_code_must_be_that_of_the_letter(rd: Redrive, letter: int) -> None:
    with pytest.raises(ConfigurationError, match="is not the one of this letter, shop"):
        edit(rd.store, letter, ANN, value=value(), pipeline=Pipeline("mill", [pay]))
    with pytest.raises(ConfigurationError, match="stage is not known here, got 'pay'"):
        edit(rd.store, letter, ANN, value=value(), pipeline=Pipeline("shop", [take]))


def test_marks_of_the_redacted_view_are_never_saved(rd: Redrive, letter: int) -> None:
    saved = value_for_edit(rd.store, letter).replace('"amount": 0', '"amount": 3').encode()

    with pytest.raises(ConfigurationError, match=r"<redacted:email>.*Write the real value"):
        edit(rd.store, letter, ANN, value=saved)
    with pytest.raises(ConfigurationError, match="still has a placeholder"):
        edit(rd.store, letter, ANN, patch=b'[{"op": "add", "path": "/note", "value": "<payload:$.1>"}]')


def test_a_mark_that_was_there_before_may_stay(rd: Redrive) -> None:
    rd.submit(SHOP, Order(0, note="<redacted:email>"))
    rd.work([SHOP], until_idle=True)

    edit(rd.store, 1, ANN, patch=b'[{"op": "replace", "path": "/amount", "value": 1}]')

    assert len(edits(rd)) == 1


@pytest.mark.parametrize(
    ("before", "after", "places"),
    [
        (
            {"total": 1, "token": "abcd1234"},
            {"total": 2, "token": "wxyz9876"},
            "1 change is redacted: /token",
        ),
        ({"total": 1, "token": "abcd1234"}, {"total": 2, "token": "abcd1234"}, None),
        ({"token": "abcd1234"}, {"token": None}, None),
        ({"token": {"a": 1}}, {"token": {"a": True}}, "1 change is redacted: /token"),
        (
            {"a/b": [{"password": "one-1234"}, 1], "email": "ann@example.com"},
            {"a/b": [{"password": "two-5678"}, 2], "email": "bob@example.com"},
            "2 changes are redacted: /a~1b/0/password, /email",
        ),
        ({"ann@example.com": 1, "n": 1}, {"bob@example.com": 1, "n": 2}, "is redacted: /<redacted:email>"),
        (
            {"note": "ask ann@example.com at 5"},
            {"note": "ask bob@example.com at 6"},
            "1 change is redacted: /note",
        ),
        ({"note": "ask ann@example.com at 5"}, {"note": "ask ann@example.com at 6"}, None),
        ({"note": "ask ann"}, {"note": "ask ann@example.com"}, None),
        ({"card": 4111111111111111}, {"card": 5500005555555559}, "1 change is redacted: /card"),
        ("ann@example.com", "bob@example.com", "1 change is redacted: the whole value"),
        ([["a", 1]], {"a": 1}, None),
        ({"a": 1, "b": 1}, {"a": True, "b": 1.0}, None),
        ({"note": "5 for ann@example.com or"}, {"note": "6 for bob@example.com or"}, "is redacted: /note"),
        (
            {"token": "abcd1234", 'new\n"line': {"token": "x-1234"}},
            {"token": "abcd1234", 'new\n"line': {"token": "y-5678"}},
            r"1 change is redacted: /new\n\"line/token",
        ),
        (
            {f"k{n}": {"token": f"one-{n}"} for n in range(12)},
            {f"k{n}": {"token": f"two-{n}"} for n in range(12)},
            "/k9/token, and 2 more",
        ),
    ],
)
def test_a_diff_names_the_places_whose_change_it_cannot_show(
    before: object, after: object, places: str | None
) -> None:
    told = difference(json.dumps(before).encode(), json.dumps(after).encode(), "input")

    assert (places or "") in told
    assert ("redacted: " in told) is (places is not None)
    for secret in ("example.com", "1234", "5678", "abcd", "1111", "5555"):
        assert secret not in told


def test_a_diff_of_nothing_but_the_writing_says_so() -> None:
    assert difference(b'{"a":1.0}', b'{"a":1.00}', "input") == "(only the formatting changes)"


def test_a_text_cannot_add_lines_to_a_diff() -> None:
    told = difference(b'{"a":1}', '{"a":"x\u2028y\x85z"}'.encode(), "input")

    assert [line for line in told.split("\n") if line.startswith("+ ")] == ['+  "a": "x\u2028y\x85z"']


def test_what_changes_only_where_it_is_redacted_is_said_without_showing_it(rd: Redrive, letter: int) -> None:
    done = edit(rd.store, letter, ANN, value=value(amount=0, email="bob@example.com"))

    assert done.diff == "(1 change is redacted: /email)"
    (logged,) = operations(rd.store)
    assert (logged.verb, logged.subject, logged.letters) == ("edit", "letter 1", 1)
    assert "example.com" not in str(logged.change)


def test_an_edit_says_what_it_lacks(rd: Redrive, letter: int) -> None:
    both: dict[str, Any] = {"value": value(), "patch": b"[]"}
    for given in ({}, both):
        with pytest.raises(
            ConfigurationError, match="takes a whole value, a JSON Patch, a function or the original"
        ):
            edit(rd.store, letter, ANN, **given)
    with pytest.raises(ConfigurationError, match="would not change"):
        edit(rd.store, letter, ANN, value=value(amount=0))
    with pytest.raises(ConfigurationError, match="part must be payload or input"):
        edit(rd.store, letter, ANN, part="result", value=value())  # type: ignore[arg-type]
    with pytest.raises(LetterNotFoundError) as unknown:
        edit(rd.store, 3, ANN, value=value())
    assert "Close to it are: 1" in unknown.value.hint


def test_closed_running_discarded_and_erased_letters_cannot_be_edited(rd: Redrive, letter: int) -> None:
    which = freeze(rd.store, LetterFilter(ids=(letter,)))
    triage.discard(rd.store, which, ANN)
    with pytest.raises(ReplayRefusedError, match="it is discarded"):
        edit(rd.store, letter, ANN, value=value())
    triage.restore(rd.store, which, ANN)

    edit(rd.store, letter, ANN, value=value())
    assert replay(rd) == "complete"
    with pytest.raises(ReplayRefusedError, match="it is resolved, and its job 1 is complete"):
        edit(rd.store, letter, ANN, value=value())


def test_what_was_erased_cannot_be_edited(rd: Redrive, letter: int) -> None:
    erase(rd.store, 1, ANN)

    with pytest.raises(ReplayRefusedError, match="the values of its job 1 were erased"):
        value_for_edit(rd.store, letter)


def test_two_drafts_of_one_value_do_not_both_become_edits(rd: Redrive, letter: int) -> None:
    mine, theirs = (draft(rd.store, letter, value=value(amount=n)) for n in (1, 2))
    commit(rd.store, theirs, Actor("bob"))

    with pytest.raises(ReplayRefusedError, match="somebody else has edited it meanwhile"):
        commit(rd.store, mine, ANN)


def test_a_letter_that_moves_while_its_edit_is_written_is_left_alone(
    rd: Redrive, letter: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = draft(rd.store, letter, value=value())
    before = _editable(rd.store, letter, "input")
    change_rows(rd, "UPDATE dead_letters SET state = 'replaying'")
    monkeypatch.setattr("redrive.ops.letters.edit._editable", lambda *_: before)

    with pytest.raises(ReplayRefusedError, match="its state has changed meanwhile"):
        commit(rd.store, mine, ANN)
    assert edits(rd) == []


def test_a_letter_whose_job_is_gone_has_nothing_to_edit(rd: Redrive, letter: int) -> None:
    change_rows(rd, "DELETE FROM jobs")

    with pytest.raises(ReplayRefusedError, match="its job was pruned"):
        value_for_edit(rd.store, letter)
