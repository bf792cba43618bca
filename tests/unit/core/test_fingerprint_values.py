# SPDX-License-Identifier: Apache-2.0
"""Values of a job that a message quotes make no groups, however long or short they are; what the program says does."""

from __future__ import annotations

import string
import time

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from redrive.core.normalise import QUOTED, normalise, short_values, without_values
from redrive.engine.classifier import DEFAULT
from redrive.engine.worker.dead_letter import LITERAL_MIN, FailedAttempt, JobRedactor, letter_of
from redrive.store.records import Letter
from tests.unit.engine.worker.letters_made import DECISION, claimed


def letter_for(
    message: str, value: object, *, payload: object = None, encoded: bytes | None = None
) -> Letter:
    """Return the letter of a job with this input whose stage said this."""
    job = msgspec.structs.replace(
        claimed(),
        input=msgspec.json.encode(value) if encoded is None else encoded,
        payload=None if payload is None else msgspec.json.encode(payload),
    )
    try:
        raise PermissionError(message)
    except PermissionError as exc:
        return letter_of(FailedAttempt(DEFAULT.classify(exc), exc), JobRedactor(job), "price", DECISION, None)


def groups(template: str, *values: object) -> int:
    """Count the groups of jobs that each quote their value in the same words."""
    return len({letter_for(template.format(value), {"id": value}).fingerprint for value in values})


IDS = "cust-9 cust-99 cust-999 cust-1000 abc abcdefgh Müller Schmidt Katzenberger DE".split()
TEMPLATES = [
    "customer {} is not allowed",
    "{}",
    "{} is not allowed",
    "not allowed: {}",
    "not allowed:{}, nor is anybody else",
    "customer #{} ({}) is not allowed",
    "customer={} is not allowed",
    "customer '{}' is not allowed",
    "bad field '{}'",
    'unknown code "{}"',
    "status {}",
    "GET https://{}.example.test/orders failed",
    "cannot open /srv/in/{}/x.csv",
    "cannot open {}.csv",
    "order-{}-x is stuck",
    "rows {}, {} and {} clash",
    "{} > {}\n\n<{}>",
]


@pytest.mark.untraced
@pytest.mark.parametrize("template", TEMPLATES)
def test_values_of_any_length_are_one_group(template: str) -> None:
    assert groups(template.replace("{}", "{0}"), *IDS) == 1


def test_numbers_and_names_in_the_same_place_are_one_group() -> None:
    assert groups("customer {} is not allowed", 17, "17", "abc", 12345678, "12345678", "x" * 40, 1.5) == 1


def test_what_was_taken_out_as_personal_is_a_value_as_well() -> None:
    assert "<redacted:email>" in letter_for("mail to a@b.cd bounced", ["a@b.cd"]).message
    assert groups("mail to {} bounced", "a@b.cd", "annabel.lee@example.org", "Ann") == 1


def test_the_shown_message_keeps_its_short_values() -> None:
    assert letter_for("customer abc is not allowed", ["abc"]).message == "customer abc is not allowed"


def test_a_value_of_the_first_input_is_one_in_a_later_stage_too() -> None:
    one, other = (
        letter_for(f"no room for {name}", 1, payload=[name]).fingerprint for name in ("Ann", "Katzenberger")
    )

    assert one == other


def test_an_input_that_nobody_can_read_makes_a_letter_all_the_same() -> None:
    one, other = (letter_for("no room", None, encoded=encoded).fingerprint for encoded in (b"{", b"\xff"))

    assert one == other


@pytest.mark.untraced
def test_a_letter_of_very_many_values_is_written_at_once() -> None:
    values = [f"v{number:x}" for number in range(100_000)]
    started = time.process_time()
    one = letter_for("cannot take v1 and v2", values)

    # Most of it is reading the payload; looking each value up in the message, or each word in a list, takes many times that.
    assert time.process_time() - started < 2.0
    assert one.fingerprint == letter_for("cannot take Ann and Bob", ["Ann", "Bob"]).fingerprint


# Without vowels none of them is a word that a message or the redactor knows.
VALUES = st.text(alphabet="bcdfghjkmnpqrstvwxzßñ", min_size=2, max_size=40)


@pytest.mark.untraced
@given(VALUES, VALUES)
def test_no_value_of_a_job_parts_its_letter_from_the_others(one: str, other: str) -> None:
    assert groups("customer {0} is not allowed ({0})", one, other) == 1


QUOTABLE = st.text(
    alphabet=string.ascii_letters + string.digits + "ÄÖÜäöüß-_.:/#@ '", min_size=2, max_size=40
).filter(lambda text: text == text.strip() and short_values(text, shorter_than=41) == {text})
WORDS = st.lists(st.sampled_from(["alpha", "omega!", "(kappa)", "tau,", "'rho'"]), max_size=4).map(" ".join)


def grouped(template: str, value: str) -> str:
    """Return what a fingerprint knows of a message that quotes a value, as the redactor leaves it."""
    shown = value if len(value) < LITERAL_MIN else "<payload:$.0>"
    return normalise(
        without_values(template.replace("{}", shown), short_values([value], shorter_than=LITERAL_MIN))
    )


@pytest.mark.untraced
@given(WORDS, WORDS, QUOTABLE, QUOTABLE)
@example("", "", "ab", "a" * 40)
@example("", "", "O'B", "long enough")
def test_what_is_left_of_a_message_does_not_depend_on_its_values(
    before: str, after: str, one: str, other: str
) -> None:
    words = f"{before} {after}".split()
    assume(all(value not in word for word in words for value in (one, other)))
    template = f"{before} {{}} {after}"

    assert grouped(template, one) == grouped(template, other)


PIECES = st.text(alphabet="ab0-. <", max_size=7)


@pytest.mark.untraced
@given(st.text(max_size=200), st.lists(PIECES), st.sets(PIECES))
def test_taking_values_out_is_total_and_leaves_none(text: str, pieces: list[str], values: set[str]) -> None:
    known = short_values([*pieces[::2], *values], shorter_than=8)
    left = without_values("".join(pieces) + text, known)

    assert without_values(left, known) == left


DIFFERENT = [
    ("customer {} is not allowed", "customer {} is not known"),
    ("missing field 'email' for {}", "missing field 'phone' for {}"),
    ("API returned 404 for {}", "API returned 500 for {}"),
    ("{} is too old", "{} is too new"),
    ("no connection", "no answer"),
]


@pytest.mark.untraced
@pytest.mark.parametrize(("one", "other"), DIFFERENT)
@pytest.mark.parametrize("value", IDS)
def test_other_words_of_the_program_are_another_group(one: str, other: str, value: str) -> None:
    assert (
        letter_for(one.format(value), [value]).fingerprint
        != letter_for(other.format(value), [value]).fingerprint
    )


@pytest.mark.untraced
@given(st.lists(st.sampled_from("alpha beta gamma delta".split()), min_size=1, max_size=5), VALUES)
def test_constant_messages_that_differ_stay_different(words: list[str], value: str) -> None:
    told = letter_for(" ".join(words), [value]).fingerprint

    assert told != letter_for(" ".join([*words, "omega"]), [value]).fingerprint


@pytest.mark.parametrize("word", ["not", "Not", "is", "failed", "the"])
def test_words_that_messages_are_made_of_are_never_taken_for_values(word: str) -> None:
    message = "Not found: the payment is not valid, it failed"

    assert letter_for(message, [word]).fingerprint == letter_for(message, ["abc"]).fingerprint


def test_in_capitals_such_a_word_is_a_value() -> None:
    assert groups("country {} is closed", "NO", "IS", "DE") == 1


@pytest.mark.parametrize("value", ["404", 404, "-3"])
def test_a_status_that_is_also_in_the_payload_stays_a_status(value: object) -> None:
    assert groups("API returned {}", value, 500) == 2


@pytest.mark.parametrize(
    ("message", "values", "left"),
    [
        ("abc, abcd, xabc, abc_d, ab", {"abc"}, f"{QUOTED}, abcd, xabc, abc_d, ab"),
        ("abc-d abc", {"abc", "abc-d"}, f"{QUOTED} {QUOTED}"),
        ("a+b is #x", {"a+b", "#x"}, f"{QUOTED} is {QUOTED}"),
        ("x.y.", {"y."}, f"x.{QUOTED}"),
        ("New York", {"New Y", "York"}, f"New {QUOTED}"),
        ("in New York", {"New York", "York"}, f"in {QUOTED}"),
        ("abc<payload:$.0>abc", {"abc", "payload"}, QUOTED * 3),
        ("by <redacted:email> in <payload>", {"email", "payload"}, f"by {QUOTED} in {QUOTED}"),
        ("<payload:$.0", {"other"}, "<payload:$.0"),
        ("", {"abc"}, ""),
        ("abc", set[str](), "abc"),
    ],
)
def test_a_value_is_taken_out_only_as_a_whole_word(message: str, values: set[str], left: str) -> None:
    many = {f"zz{number}" for number in range(100)}

    assert without_values(message, values) == left
    assert without_values(message, values | many) == left


def test_values_are_the_short_strings_that_no_number_and_no_common_word_is() -> None:
    value = {
        "key": [
            "abc",
            " de ",
            "long enough",
            "eightish",
            "x",
            "",
            "--",
            "12",
            "-12",
            "1.5",
            "the",
            17,
            None,
            True,
        ]
    }

    assert short_values(value, shorter_than=8) == {"abc", "de", "1.5"}


@pytest.mark.untraced
@pytest.mark.parametrize("message", ["ab " * 30_000, "<payload:" * 10_000, "<" * 90_000, "a" * 90_000])
def test_a_hostile_message_costs_little(message: str) -> None:
    values = {f"{number:x}" for number in range(100_000)} | {"ab " * 2, "aaaa"}
    started = time.process_time()
    without_values(message, values)

    assert time.process_time() - started < 2.0
