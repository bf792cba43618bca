# SPDX-License-Identifier: Apache-2.0
"""One edit of many letters: counted first, every letter checked, kept and logged by itself, and continued by the same edit again."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from redrive import ConfigurationError, Redrive, connect
from redrive.errors import ReplayRefusedError, SerializationError
from redrive.ops.letters import bulk_edit
from redrive.ops.letters.freeze import FrozenSet
from redrive.ops.letters.preview import Reason
from redrive.store.statements import letters as letter_sql
from tests.databases import Address
from tests.embedded import changing
from tests.unit.ops.letters.edited_orders import SHOP, Order

PATCH = b'[{"op": "replace", "path": "/amount", "value": 5}]'
LETTERS = 5


@pytest.fixture
def chosen(rd: Redrive) -> FrozenSet:
    # One at a time: the tests name a letter by the number of its order.
    for n in range(LETTERS):
        rd.submit(SHOP, Order(0, note=f"order {n}"))
        rd.work([SHOP], until_idle=True)
    return rd.letters.choose(pipeline="shop")


def mend(order: Any) -> object:
    order["amount"] = 5
    return order


def raising(order: Any) -> object:
    if order["note"] == "order 3":
        raise ValueError(f"no price for {order['email']}")
    return mend(order)


def growing(order: Any) -> object:
    raise ValueError(int(order["note"].split()[1]))


def unfit(problem: str) -> Reason:
    return Reason("unfit", problem=problem)


def edited(rd: Redrive) -> list[int]:
    """Return the edited letters, in the order of the edits."""
    letters = [each.id for each in rd.letters.list().letters]
    found = [
        (edit.id, each)
        for each in letters
        for edit in rd.store.query(letter_sql.edits_of_letter(letter=each))
    ]
    return [each for _, each in sorted(found)]


@pytest.mark.parametrize("change", [{"patch": PATCH}, {"function": mend}])
def test_every_letter_is_edited_and_logged_by_itself(
    rd: Redrive, chosen: FrozenSet, change: dict[str, Any]
) -> None:
    counted = rd.letters.edit_many(chosen, dry_run=True, pipeline=SHOP, **change)
    before = edited(rd)
    done = rd.letters.edit_many(chosen, pipeline=SHOP, actor="ann", reason="prices", **change)

    assert before == []
    assert done == counted
    assert (done.changed, done.unchanged, done.left) == (LETTERS, 0, {})
    assert list(done.sample) == [1, 2, 3]
    assert '+  "amount": 5,' in done.sample[1]
    assert "ann@example.com" not in done.sample[1]
    assert edited(rd) == [1, 2, 3, 4, 5]
    log = [(each.verb, each.subject, each.actor, each.reason) for each in rd.events.operations()]
    assert log == [("edit", f"letter {n}", "ann", "prices") for n in range(1, LETTERS + 1)]
    assert json.loads(rd.letters.edits(4).originals["input"])["amount"] == 0


def test_the_same_edit_again_does_the_rest_and_no_more(rd: Redrive, chosen: FrozenSet) -> None:
    rd.letters.edit(2, patch=PATCH)

    first = rd.letters.edit_many(chosen, patch=PATCH)
    again = rd.letters.edit_many(chosen, patch=PATCH)

    assert (first.changed, first.unchanged) == (LETTERS - 1, 1)
    assert (again.changed, again.unchanged, again.sample) == (0, LETTERS, {})
    assert edited(rd) == [2, 1, 3, 4, 5]


def test_all_of_it_is_taken_back_at_once(rd: Redrive, chosen: FrozenSet) -> None:
    rd.letters.edit_many(rd.letters.choose(ids=[1, 2]), patch=PATCH)

    back = rd.letters.edit_many(chosen, original=True)

    assert (back.changed, back.left) == (2, {unfit("it was never edited"): 3})
    assert json.loads(rd.letters.value(1))["amount"] == 0


def test_a_letter_whose_function_raises_is_left_alone_and_the_value_stays_hidden(
    rd: Redrive, chosen: FrozenSet
) -> None:
    done = rd.letters.edit_many(chosen, function=raising)

    ((why, letters),) = done.left.items()
    assert (done.changed, letters) == (LETTERS - 1, 1)
    assert "ValueError: no price for" in str(why)
    assert "ann@example.com" not in str(why)
    assert edited(rd) == [1, 2, 3, 5]


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "function must return the new value, got None"),
        (object(), "Encoding objects of type object is unsupported"),
        (
            {"amount": "five"},
            "shop.pay: the new value does not fit: Expected `int`, got `str` - at `$.amount`",
        ),
        ({"amount": 5, "note": "<redacted:email>"}, "still has a placeholder"),
    ],
)
def test_what_a_function_returns_has_to_fit(
    rd: Redrive, chosen: FrozenSet, returned: object, words: str
) -> None:
    done = rd.letters.edit_many(chosen, function=lambda _: returned, pipeline=SHOP)

    ((why, letters),) = done.left.items()
    assert (done.changed, letters) == (0, LETTERS)
    assert words in str(why)
    assert edited(rd) == []


def test_a_function_that_changes_nothing_edits_nothing(rd: Redrive, chosen: FrozenSet) -> None:
    done = rd.letters.edit_many(chosen, function=lambda order: order, pipeline=SHOP)

    assert (done.changed, done.unchanged, done.left) == (0, LETTERS, {})


def test_a_patch_that_does_not_apply_is_counted_once_per_letter(rd: Redrive, chosen: FrozenSet) -> None:
    done = rd.letters.edit_many(chosen, patch=b'[{"op": "remove", "path": "/price"}]')

    ((why, letters),) = done.left.items()
    assert letters == LETTERS
    assert str(why).startswith("patch cannot be applied, got ")


def test_many_different_problems_are_counted_together(
    rd: Redrive, chosen: FrozenSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_edit, "KINDS_MAX", 2)

    done = rd.letters.edit_many(chosen, function=growing)

    assert sorted(done.left.values()) == [1, 1, 3]
    assert done.left[unfit("other problems")] == 3


def test_fields_that_no_stage_sees_are_counted(rd: Redrive, chosen: FrozenSet) -> None:
    done = rd.letters.edit_many(
        chosen, dry_run=True, function=lambda order: {**cast("Any", order), "colour": "red"}, pipeline=SHOP
    )

    assert list(done.unknown_fields.values()) == [LETTERS]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"value": b"{}"},
        {"value": b"{}", "patch": PATCH},
        {"patch": PATCH, "function": mend},
        {"patch": b'[{"op": "hop", "path": ""}]'},
        {"patch": PATCH, "part": "result"},
    ],
)
def test_what_is_wrong_for_every_letter_is_refused_at_once(
    rd: Redrive, chosen: FrozenSet, change: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError):
        rd.letters.edit_many(chosen, **change)
    with pytest.raises(SerializationError):
        rd.letters.edit_many(chosen, patch=b"[")
    assert edited(rd) == []


def test_letters_that_have_ended_came_later_or_are_gone_are_left_alone(
    rd: Redrive, chosen: FrozenSet
) -> None:
    rd.letters.discard(rd.letters.choose(ids=[1]))
    rd.submit(SHOP, Order(0))
    rd.work([SHOP], until_idle=True)
    with changing(rd) as tables:
        tables.execute("DELETE FROM dead_letters WHERE id = 2")

    done = rd.letters.edit_many(chosen, patch=PATCH)

    assert done.left == {Reason("state", "discarded"): 1, Reason("gone"): 1}
    assert edited(rd) == [3, 4, 5]


def test_a_letter_that_somebody_else_moves_meanwhile_is_left_alone(rd: Redrive, chosen: FrozenSet) -> None:
    def meddling(order: Any) -> object:
        if order["note"] == "order 1":
            rd.letters.edit(2, patch=b'[{"op": "replace", "path": "/note", "value": "mine"}]')
        if order["note"] == "order 2":
            rd.letters.discard(rd.letters.choose(ids=[4]))
            with changing(rd) as tables:
                tables.execute("DELETE FROM dead_letters WHERE id = 5")
        return mend(order)

    done = rd.letters.edit_many(chosen, function=meddling)

    assert done.changed == 2
    assert done.left == {
        unfit("somebody else has edited it meanwhile"): 1,
        unfit("it is discarded"): 1,
        Reason("pruned"): 1,
    }


def test_a_value_is_read_by_name_and_that_is_logged(rd: Redrive, chosen: FrozenSet) -> None:
    rd.letters.edit(1, patch=PATCH)
    rd.letters.discard(rd.letters.choose(ids=[2]))

    read = [
        json.loads(rd.letters.value(1, actor="ann", reason="about ann@example.com"))["amount"],
        json.loads(rd.letters.value(1, part="payload"))["amount"],
        json.loads(rd.letters.value(2))["amount"],
    ]

    assert read == [5, 0, 0]
    (first, second, third) = rd.events.operations()[-3:]
    assert (first.verb, first.subject, first.actor) == ("read input", "letter 1", "ann")
    assert "ann@example.com" not in str(first.reason)
    assert (second.verb, third.subject) == ("read payload", "letter 2")


def test_only_a_value_that_a_replay_may_start_with_is_read(
    rd: Redrive, chosen: FrozenSet, address: Address
) -> None:
    lines = list(rd.letters.export(ids=[3]))
    rd.jobs.erase(1)
    second = rd.letters.choose(ids=[2])
    rd.letters.remediate(second, evidence="a test", is_safe=True, diagnosis="data")
    rd.jobs.retry(2)

    with pytest.raises(ReplayRefusedError, match="were erased"):
        rd.letters.value(1)
    with pytest.raises(ReplayRefusedError, match="is queued"):
        rd.letters.value(2)
    with pytest.raises(ConfigurationError, match="part"):
        rd.letters.value(3, part=cast("Any", "result"))
    assert "read" not in " ".join(each.verb for each in rd.events.operations())
    with connect(address("there")) as there:
        there.letters.import_(lines)
        with pytest.raises(ReplayRefusedError, match="imported without values"):
            there.letters.value(1)
        left = there.letters.edit_many(there.letters.choose(ids=[1]), function=mend).left
    assert left == {unfit("it was imported without values"): 1}
