# SPDX-License-Identifier: Apache-2.0
"""Literals that overlap each other or themselves: nothing of any occurrence is left, and the cost stays small."""

from __future__ import annotations

import base64
import random
import string
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.redaction import Literals, redact_text
from redrive.redaction.literals.search import ONE_BY_ONE_MAX, SAMPLED_MAX
from redrive.redaction.placeholders import Sentinels

# Many inputs for few lines.
pytestmark = pytest.mark.untraced

SHOWN = "<payload:$>"
MANY = {f"{number:04d} is not there": SHOWN for number in range(ONE_BY_ONE_MAX + 1)}
"""So many further literals that all of them are found by samples."""


def covered(text: str, values: list[str]) -> str:
    """Return what is left of a text without any occurrence of any value, found in the simplest way."""
    hidden = [False] * len(text)
    for value in values:
        at = text.find(value)
        while at >= 0:
            hidden[at : at + len(value)] = [True] * len(value)
            at = text.find(value, at + 1)
    return "".join(sign for sign, is_hidden in zip(text, hidden, strict=True) if not is_hidden)


def left_of(text: str, literals: dict[str, str]) -> str:
    marks = Sentinels(text)
    return marks.show(Literals(literals).replace(text, marks)).replace(SHOWN, "")


@pytest.mark.parametrize("others", [{}, MANY], ids=["few", "many"])
def test_a_value_that_repeats_itself_goes_whole(others: dict[str, str]) -> None:
    row = "Jane Roe, ward 7, divorced; "

    assert redact_text(f"a {row}{row * 4} b", Literals({row * 4: SHOWN, **others})) == f"a {SHOWN} b"
    assert redact_text(f"a {row * 9} b", Literals({row * 4: SHOWN, **others})) == f"a {SHOWN} b"


@pytest.mark.parametrize("others", [{}, MANY], ids=["few", "many"])
def test_three_values_of_which_each_begins_in_the_one_before_go_whole(others: dict[str, str]) -> None:
    first, second, third = "abcdwxyz1234", "1234efghijkl", "ghijklmnopqrst"
    literals = {first: "<payload:$.1>", second: "<payload:$.2>", third: "<payload:$.3>", **others}

    assert redact_text("abcdwxyz1234efghijklmnopqrst!", Literals(literals)) == "<payload:$.1>!"


def test_values_that_only_touch_keep_a_placeholder_each() -> None:
    literals = {"first value": "<payload:$.1>", "other value": "<payload:$.2>"}

    assert redact_text("first valueother value", Literals(literals)) == "<payload:$.1><payload:$.2>"
    assert redact_text("first valuefirst value", Literals(literals)) == "<payload:$.1><payload:$.1>"


PLACES = st.lists(st.tuples(st.integers(0, 40), st.integers(10, 20)), min_size=2, max_size=4)


@given(st.text("ab", min_size=40, max_size=60), PLACES, st.booleans())
@settings(max_examples=300)
def test_every_whole_occurrence_is_covered_and_nothing_else(
    text: str, places: list[tuple[int, int]], is_many: bool
) -> None:
    values = [value for start, size in places if len(value := text[start : start + size]) >= 8]
    literals = {**dict.fromkeys(values, SHOWN), **(MANY if is_many else {})}

    assert left_of(f"!! {text} !!", literals) == covered(f"!! {text} !!", values)


@pytest.mark.parametrize("others", [{}, MANY], ids=["few", "many"])
@pytest.mark.parametrize("size", [300, 1_900, 5_000])
def test_base64_of_a_long_value_known_by_its_pieces_goes_whole(size: int, others: dict[str, str]) -> None:
    value = "".join(random.Random(size).choices(string.ascii_letters + "   ", k=size))
    pieces = {value[start:end]: SHOWN for start, end in pairwise([*range(0, size, 256), size])}
    encoded = base64.b64encode(value.encode()).decode()

    assert redact_text(f"a {encoded} b", Literals({**pieces, **others})) == f"a {SHOWN} b"


def test_base64_around_a_secret_goes_as_far_from_the_last_as_from_the_first() -> None:
    secret = b"quite unlikely words"
    encoded = base64.b64encode(secret + b"x" * 370 + secret + b"y" * 370).decode()

    assert redact_text(f"a {encoded} b", Literals({secret.decode(): SHOWN})) == f"a {SHOWN} b"


def test_a_very_long_literal_is_found_among_many() -> None:
    value = "".join(random.Random(1).choices(string.ascii_letters, k=SAMPLED_MAX + 1))

    assert redact_text(f"a {value} b", Literals({value: SHOWN, **MANY})) == f"a {SHOWN} b"


HOSTILE = {
    "one head, every length": ["a" * (8 + 40 * number) + "b" for number in range(200)],
    "each the beginning of the next": ["a" * (8 + number) for number in range(1_500)],
    "long and periodic": ["a" * (1_000 * number) for number in range(1, 15)],
    "nearly periodic": ["a" * (1_500 + number) + "!" + "a" * 1_500 for number in range(8)],
    "many of one head": [f"aaaaaaaa{number:05d}" for number in range(20_000)],
}


@pytest.mark.parametrize("values", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "text",
    ["a" * 30_000, "aaaaaaaaz" * 3_300, base64.b64encode(b"a" * 22_500).decode()],
    ids=["one run", "short runs", "base64"],
)
def test_literals_that_look_alike_cost_no_more_than_others(values: list[str], text: str) -> None:
    literals = Literals(dict.fromkeys(values, SHOWN))

    start = time.process_time()
    literals.replace(text, Sentinels(text))
    seconds = time.process_time() - start

    # A few hundredths on an idle machine; one slice for each length, or one step for each place, takes many seconds.
    assert seconds < 1.0
