# SPDX-License-Identifier: Apache-2.0
"""One edit of many letters from the command line: counts and diffs first, then the question, then every letter by itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.shell import ANN, Shell

PATCH = '[{"op": "replace", "path": "/amount", "value": 5}]'
FIXES = """
def mend(order):
    return {**order, "amount": 5}

def same(order):
    return order

def forgets(order):
    order["amount"] = 5

def raises(order):
    raise LookupError("no price for " + order["email"])

def words(order):
    return {**order, "amount": "five"}

async def later(order):
    return order

number = 5
"""


@pytest.fixture
def fixes(shop: Shell) -> Shell:
    shop.write("fixes.py", FIXES)
    shop.write("fix.json", PATCH)
    return shop


def edits(shell: Shell) -> list[Any]:
    return [each for letter in "12" for each in shell.json("dlq", "edits", letter)["edits"]]


@pytest.mark.parametrize("way", [("--patch", "fix.json"), ("--with", "fixes:mend")])
def test_many_letters_are_counted_shown_asked_about_and_edited(fixes: Shell, way: tuple[str, str]) -> None:
    command = ("dlq", "edit", "--pipeline", "shop", *way, "--target", "orders:shop")

    refused = fixes(*command, stdin="n\n")
    before = edits(fixes)
    done = fixes(*command, "--reason", "prices", stdin="y\n")
    again = fixes(*command, "--yes", "-o", "json")

    assert (refused.code, before) == (1, [])
    assert "Edit the input of 2 of 2 dead letters?" in refused.err
    assert "2 will change, 0 are unchanged" in refused.err
    assert "letter 2:\n" in refused.out
    assert '+  "amount": 5,' in refused.out
    assert "ann@example.com" not in refused.out + refused.err
    assert done.code == 0
    assert len(edits(fixes)) == 2
    log = fixes.json("events", "--operations")
    assert [(each["verb"], each["subject"], each["reason"]) for each in log] == [
        ("edit", "letter 1", "prices"),
        ("edit", "letter 2", "prices"),
    ]
    assert again.code == 1
    assert "nothing was changed" in again.err
    assert again.json == {
        "subject": "filter pipeline=shop",
        "count": 2,
        "changed": 0,
        "unchanged": 2,
        "left": {},
        "unknown_fields": {},
    }


def test_all_edits_are_taken_back_at_once(fixes: Shell) -> None:
    fixes("dlq", "edit", "--code", "BUG_CODE", "--patch", "fix.json", "--yes")
    back = fixes("dlq", "edit", "--pipeline", "shop", "--original", "--yes", "-o", "json")

    assert back.json["changed"] == 2
    assert '+  "amount": 0,' in back.err


@pytest.mark.parametrize(
    ("way", "code", "words"),
    [
        (("--with", "fixes:same"), 1, "0 will change, 2 are unchanged"),
        (
            ("--with", "fixes:forgets"),
            1,
            "2 will be left alone: function must return the new value, got None",
        ),
        (("--with", "fixes:raises"), 1, "LookupError: no price for <"),
        (("--with", "fixes:words"), 1, "2 will be left alone: shop.pay: the new value does not fit"),
        (("--patch", "none.json"), 2, "--patch cannot be read"),
        (("--patch", "fixes.py"), 2, "the patch: JSON does not fit"),
        (("--patch", "test.json"), 1, "2 will be left alone: patch cannot be applied"),
        (("--input", "fix.json"), 2, "takes a JSON Patch, a function or the original, got 'a whole value'"),
        ((), 2, "takes a JSON Patch, a function or the original, got 'none'"),
        (("--with", "fixes:later"), 2, "is not a function of fixes that can be called without await"),
        (("--with", "fixes:number"), 2, "Its functions: mend, same, forgets, raises, words, later."),
        (("--with", "fixes"), 2, "--with must name a module and a function"),
        (("--with", "absent:mend"), 2, "--with cannot be imported"),
    ],
)
def test_a_wrong_edit_changes_nothing_and_says_why(
    fixes: Shell, way: tuple[str, ...], code: int, words: str
) -> None:
    fixes.write("test.json", '[{"op": "test", "path": "/amount", "value": 1}]')

    ended = fixes("dlq", "edit", "--pipeline", "shop", "--target", "orders:shop", *way, "--yes")

    assert (ended.code, words in ended.err) == (code, True), ended.err
    assert "ann@example.com" not in ended.out + ended.err
    assert edits(fixes) == []


def test_letters_that_are_closed_or_ignore_a_field_are_counted(fixes: Shell) -> None:
    fixes("dlq", "discard", "1", "--yes")
    fixes.write("more.json", '[{"op": "add", "path": "/colour", "value": "red"}]')

    done = fixes(
        "dlq", "edit", "--pipeline", "shop", "--patch", "more.json", "--target", "orders:shop", "--yes"
    )

    assert done.code == 0
    assert "1 will be left alone: it is discarded" in done.err
    assert "unknown fields, which the stage will ignore: " in done.err
    assert len(edits(fixes)) == 1


def test_one_letter_takes_a_function_too_and_not_a_filter_as_well(fixes: Shell) -> None:
    done = fixes("dlq", "edit", "1", "--with", "fixes:mend", "--yes", "-o", "json")
    both = fixes("dlq", "edit", "1", "--pipeline", "shop", "--with", "fixes:mend", "--yes")
    none = fixes("dlq", "edit", "--with", "fixes:mend", "--yes")

    assert (done.code, done.json["edit"]) == (0, 1)
    assert (both.code, "cannot be combined with a filter" in both.err) == (2, True)
    assert (none.code, "or a filter is required" in none.err) == (2, True)


def test_who_opens_the_raw_value_in_an_editor_is_logged(fixes: Shell) -> None:
    fixes("dlq", "edit", "1", "--show-values", "--editor", "true", "--actor", "ann", "--yes")

    (read,) = fixes.json("events", "--operations")
    assert (read["verb"], read["subject"], read["actor"]) == ("read input", "letter 1", ANN)
