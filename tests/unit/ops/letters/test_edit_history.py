# SPDX-License-Identifier: Apache-2.0
"""Edits looked at later: who changed what, the way back to the original, and fields that a type does not know."""

from __future__ import annotations

import json
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from redrive import ConfigurationError, Redrive, connect
from redrive.engine.pipeline.codec import codec_for
from redrive.errors import LetterNotFoundError, ReplayRefusedError
from redrive.ops.audit import Actor, operations
from redrive.ops.jobs.erase import erase
from redrive.ops.letters.details import edit_history
from redrive.ops.letters.document import changed_places, unknown_fields
from redrive.ops.letters.edit import edit
from tests.databases import Address
from tests.unit.ops.letters.edited_orders import ANN, SHOP, Order, letter, value

__all__ = ["letter"]


def present(rd: Redrive, letter: int, part: Any = "input") -> Any:
    return json.loads(rd.letters.value(letter, part=part))


def restart(rd: Redrive) -> None:
    rd.letters.remediate(rd.letters.choose(pipeline="shop"), evidence="none", is_safe=True, diagnosis="data")
    rd.jobs.retry(1, from_start=True, pipelines=[SHOP])
    rd.work([SHOP], until_idle=True)


def changes(rd: Redrive) -> list[Any]:
    return [each.change for each in operations(rd.store) if each.verb == "edit"]


def test_edits_tell_who_when_which_part_and_the_redacted_difference(rd: Redrive, letter: int) -> None:
    edit(rd.store, letter, ANN, value=value(amount=2))
    edit(rd.store, letter, Actor("bob"), part="payload", value=value(amount=3, email="bob@example.com"))

    first, second = edit_history(rd.store, letter).edits

    assert (first.actor, first.part, second.actor, second.part) == ("ann", "input", "bob", "payload")
    assert first.diff is not None
    assert '-  "amount": 0,' in first.diff
    assert '+  "amount": 2,' in first.diff
    assert "1 change is redacted: /email" in str(second.diff)
    assert "example.com" not in str(edit_history(rd.store, letter))


def test_the_original_is_shown_redacted_however_often_it_was_edited(rd: Redrive, letter: int) -> None:
    for amount in (2, 3):
        edit(rd.store, letter, ANN, value=value(amount=amount))

    told = edit_history(rd.store, letter).originals

    assert set(told) == {"input"}
    assert json.loads(told["input"]) == {"amount": 0, "email": "<redacted:email>", "note": ""}


def test_going_back_to_the_original_is_an_edit_on_record(rd: Redrive, letter: int) -> None:
    for amount in (2, 3):
        edit(rd.store, letter, ANN, value=value(amount=amount))

    done = rd.letters.edit(letter, original=True, pipeline=SHOP, actor="bob")

    assert '+  "amount": 0,' in done.diff
    assert present(rd, letter) == {"amount": 0, "email": "ann@example.com", "note": ""}
    assert [(each.actor, each.part) for each in rd.letters.edits(letter).edits] == [
        ("ann", "input"),
        ("ann", "input"),
        ("bob", "input"),
    ]
    assert changes(rd)[-1]["after"]["is_original"] is True
    with pytest.raises(ConfigurationError, match="would not change"):
        rd.letters.edit(letter, original=True)


def test_a_value_that_was_never_edited_has_no_other_original(rd: Redrive, letter: int) -> None:
    with pytest.raises(ReplayRefusedError, match="was never edited"):
        rd.letters.edit(letter, original=True)
    with pytest.raises(
        ConfigurationError, match="takes a whole value, a JSON Patch, a function or the original"
    ):
        rd.letters.edit(letter, original=True, patch=b"[]")
    with pytest.raises(LetterNotFoundError):
        rd.letters.edits(9)
    assert edit_history(rd.store, letter).edits == []


def test_a_payload_edited_in_an_earlier_round_is_what_the_next_edit_begins_with(
    rd: Redrive, letter: int
) -> None:
    """A restart takes the last edit of the payload, whichever round it was made in."""
    broken = value(amount=0, email="bob@example.com")
    edit(rd.store, letter, ANN, part="payload", value=broken)
    restart(rd)

    assert present(rd, 2, "payload")["email"] == "bob@example.com"
    assert [each.part for each in edit_history(rd.store, 2).edits] == ["payload"]
    edit(rd.store, 2, ANN, part="payload", original=True)
    assert present(rd, 2, "payload")["email"] == "ann@example.com"
    restart(rd)
    assert present(rd, 3, "input")["email"] == "ann@example.com"


def test_edits_that_were_erased_are_still_told(rd: Redrive, letter: int) -> None:
    edit(rd.store, letter, ANN, value=value())
    erase(rd.store, 1, ANN)

    told = edit_history(rd.store, letter)

    assert [(each.actor, each.part, each.diff) for each in told.edits] == [("ann", "input", None)]
    assert told.originals == {}


def test_what_came_without_values_has_no_original_to_go_back_to(
    rd: Redrive, letter: int, address: Address
) -> None:
    lines = list(rd.letters.export())
    with connect(address("elsewhere")) as there:
        there.letters.import_(lines)
        there.letters.edit(1, value=value())

        with pytest.raises(ReplayRefusedError, match="it was imported without values"):
            there.letters.edit(1, original=True)
        assert there.letters.edits(1).originals == {}


def test_the_operator_log_names_the_places_an_edit_has_changed_and_no_value(rd: Redrive, letter: int) -> None:
    edit(rd.store, letter, ANN, value=value(email="bob@example.com"))

    (change,) = changes(rd)

    assert change["after"]["changed"] == "/amount, /email"
    assert "example.com" not in json.dumps(change)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (b'{"a":{"b":[1,2]}}', b'{"a":{"b":[1,3]},"c":1}', "/a/b/1, /c"),
        (b'{"a":1}', b"{}", "/a"),
        (b'{"a":1}', b"[1]", "the whole value"),
        (None, b"1", "the whole value"),
        (b'{"ann@example.com":1}', b"{}", "/<redacted:email>"),
        (b"[]", json.dumps([*range(12)]).encode(), ", ".join(f"/{n}" for n in range(10)) + ", and 2 more"),
    ],
    ids=["inside", "gone", "another kind", "supplied", "a name that is a secret", "many"],
)
def test_the_places_that_change_are_named(before: bytes | None, after: bytes, told: str) -> None:
    assert changed_places(before, after) == told


class Leaf(msgspec.Struct, omit_defaults=True):
    size: int = 0


class Tree(msgspec.Struct, rename="camel"):
    first_leaf: Leaf
    more: list[Leaf] | None = None
    free: dict[str, Leaf] | None = None
    anything: object = None


class Row(TypedDict):
    name: str


class Inner(pydantic.BaseModel):
    name: str


class Model(pydantic.BaseModel):
    amount: int = pydantic.Field(alias="sum")
    leaf: Inner | None = None


class Lenient(pydantic.BaseModel, extra="allow"):
    amount: int


class TwoNames(pydantic.BaseModel, populate_by_name=True):
    amount: int = pydantic.Field(alias="sum")


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (Order, {"amount": 1, "extra": 1}, ["/extra"]),
        (Tree, {"firstLeaf": {"size": 0, "x": 1}, "first_leaf": 1}, ["/firstLeaf/x", "/first_leaf"]),
        (
            Tree,
            {"firstLeaf": {}, "more": [{}, {"y": 1}], "free": {"any": {"z": 1}}},
            ["/more/1/y", "/free/any/z"],
        ),
        (Tree, {"firstLeaf": {}, "anything": {"whatever": {"comes": 1}}}, []),
        (list[Row], [{"name": "a"}, {"name": "b", "ann@example.com": 1}], ["/1/<redacted:email>"]),
        (Order | int, {"amount": 1, "extra": 1}, ["/extra"]),
        (Model, {"sum": 1, "amount": 2, "leaf": {"name": "a", "w": 1}}, ["/amount", "/leaf/w"]),
        (Lenient, {"amount": 1, "more": 1}, []),
        (TwoNames, {"amount": 1}, []),
        (dict[str, int], {"a": 1}, []),
        (tuple[int, Row], [1, {"name": "a", "v": 1}], ["/1/v"]),
        (None, {"a": 1}, []),
        (object, {"a": 1}, []),
    ],
)
def test_fields_that_a_type_does_not_know_are_named_by_their_place(
    kind: object, given: object, told: list[str]
) -> None:
    assert unknown_fields(codec_for("a value", kind), msgspec.json.encode(given)) == told


def test_an_edit_checked_by_the_code_tells_fields_its_type_does_not_know(rd: Redrive, letter: int) -> None:
    unchecked = edit(rd.store, letter, ANN, value=value(extra=1))
    checked = edit(rd.store, letter, ANN, value=value(extra=2), pipeline=SHOP)

    assert unchecked.unknown_fields == []
    assert checked.unknown_fields == ["/extra"]
