# SPDX-License-Identifier: Apache-2.0
"""Messages and stacks that are far longer than what is kept of them: read only in part, and no secret shows by half."""

from __future__ import annotations

import random
import string
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.fingerprint import fingerprint
from redrive.engine.classifier import DEFAULT
from redrive.engine.error_text import error_text
from redrive.engine.guard.events import CallHistory
from redrive.engine.pipeline.context import NOTE_MAX, TEXT_MAX
from redrive.engine.worker import dead_letter
from redrive.engine.worker.dead_letter import (
    MESSAGE_MAX,
    STACK_MAX,
    FailedAttempt,
    JobRedactor,
    letter_of,
    literals_of,
    safe_notes,
    safe_text,
)
from redrive.redaction import process
from redrive.redaction.literals.search import Literals
from redrive.redaction.text import redact_text
from tests.unit.engine.worker.letters_made import DECISION, KEY, claimed, letter_for, prose, shown_of

# Many inputs for few lines.
pytestmark = pytest.mark.untraced

TOKENS = (
    f"sk-ant-api03-{KEY}",
    f"ghp_{KEY[:36]}",
    f"https://user:{KEY}@host.example",
    f"-----BEGIN PRIVATE KEY-----\n{KEY}\n{KEY}\n{KEY}\n-----END PRIVATE KEY-----",
)

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "as Python shows it": repr,
    "as JSON": lambda text: msgspec.json.encode(text).decode(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", [300, 3_000, 9_000, 50_000])
@pytest.mark.parametrize("before", [0, 500, 8_000])
def test_a_long_value_of_the_job_is_hidden_although_only_a_part_of_it_is_read(
    form: str, length: int, before: int
) -> None:
    value = prose(1, length, string.ascii_letters + "'\"\n\\é")
    message = f"{'x ' * (before // 2)}cannot take {FORMS[form](value)} here"
    letter = letter_for(message, claimed(value))

    inside = FORMS[form](value)[1:-1]
    assert shown_of(inside, letter.message) == []
    assert shown_of(inside, letter.stack) == []


@settings(max_examples=40, deadline=None)
@given(
    secret=st.sampled_from(TOKENS),
    cut=st.sampled_from([dead_letter.MESSAGE_READ, dead_letter.MESSAGE_READ // 2]),
    place=st.integers(-400, 50),
    swallowed=st.sampled_from([0, 1_000, 3_600, 7_700]),
    behind=st.sampled_from([0, 10_000, 60_000]),
)
def test_a_secret_around_a_place_where_a_message_is_cut_never_shows(
    secret: str, cut: int, place: int, swallowed: int, behind: int
) -> None:
    """What stands before it may be a value that is replaced by a short mark, so that the cut comes to be shown."""
    value = prose(2, swallowed)
    start = max(0, cut + place - len(value))
    message = f"{value}{'. ' * (start // 2)}\n{secret}\n{'y ' * behind}"
    letter = letter_for(message, claimed(value))
    short = JobRedactor(claimed(value)).message(DEFAULT.classify(ValueError(message)))[:MESSAGE_MAX]

    assert shown_of(KEY, letter.message) == []
    assert shown_of(KEY, short) == []
    assert shown_of(KEY, letter.stack) == []


@settings(max_examples=40, deadline=None)
@given(
    secret=st.sampled_from(TOKENS),
    cut=st.sampled_from([dead_letter.STACK_READ, dead_letter.STACK_READ // 2]),
    place=st.integers(-50, 400),
    swallowed=st.sampled_from([0, 1_000, 16_000, 32_000]),
)
def test_a_secret_around_a_place_where_a_stack_is_cut_never_shows(
    secret: str, cut: int, place: int, swallowed: int
) -> None:
    value = prose(3, swallowed, string.ascii_letters + "'\"")
    rest = max(0, cut - place - len(value))
    # As Python shows it, so that it is not found as a whole before the stack is cut.
    message = f"{'y ' * 20_000}\n{secret}\n{'. ' * (rest // 2)}{value!r}"
    letter = letter_for(message, claimed(value))

    assert shown_of(KEY, letter.stack) == []


@settings(max_examples=40, deadline=None)
@given(
    length=st.integers(300, 12_000), place=st.integers(-12_000, 100), swallowed=st.sampled_from([0, 4_000])
)
def test_a_value_of_the_job_around_the_cut_never_shows(length: int, place: int, swallowed: int) -> None:
    before, value = prose(4, swallowed), prose(5, length)
    for read in (dead_letter.MESSAGE_READ, dead_letter.STACK_READ):
        start = max(0, read + place - len(before))
        message = f"{before}{'. ' * (start // 2)}{value}{'. ' * 20_000}"
        letter = letter_for(message, claimed(before, value))
        backwards = letter_for(message[::-1], claimed(before[::-1], value[::-1]))

        assert shown_of(value, letter.message) + shown_of(value, letter.stack) == []
        assert shown_of(value[::-1], backwards.message) + shown_of(value[::-1], backwards.stack) == []


@pytest.mark.parametrize("length", [258, 500, 780, 788, 1_000, 5_000])
def test_values_that_begin_or_end_alike_do_not_keep_each_other_from_being_hidden(length: int) -> None:
    value = prose(11, 40_000)
    for other in (value[:length], value[-length:], value[100 : 100 + length]):
        letter = letter_for(f"cannot take {value!r}: {'. ' * 9_000}", claimed(other, value))

        assert shown_of(value, letter.message) + shown_of(value, letter.stack) == []


def test_a_long_secret_of_the_process_is_hidden_although_only_a_part_of_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = prose(6, 30_000)
    monkeypatch.setenv("SHOP_PASSWORD", secret)
    letter = letter_for(f"refused {secret}", claimed("plain enough"))

    assert shown_of(secret, letter.message) + shown_of(KEY, letter.stack) == []


def test_notes_and_progress_hide_a_value_that_is_longer_than_what_is_looked_at() -> None:
    value = prose(7, 3 * TEXT_MAX)
    job = claimed(value)

    assert shown_of(value, safe_text(value[:TEXT_MAX], literals_of(job))) == []
    assert shown_of(value, safe_notes({"seen": value[:TEXT_MAX]}, JobRedactor(job)) or "") == []


def test_what_is_kept_of_a_long_message_is_its_beginning_and_of_a_long_stack_its_end() -> None:
    message = "".join(f"row {n} is bad. " for n in range(300_000))
    letter = letter_for(message, claimed("plain enough"))
    failure = DEFAULT.classify(ValueError(message))

    assert (
        letter.message
        == message[:MESSAGE_MAX]
        == JobRedactor(claimed("plain enough")).message(failure)[:MESSAGE_MAX]
    )
    assert letter.stack == f"{message}\n"[-STACK_MAX:]
    longer = message[: STACK_MAX + 100]
    assert letter_for(longer, claimed("plain enough")).stack == f"{longer}\n"[-STACK_MAX:]
    assert safe_text(message[:TEXT_MAX], literals_of(claimed("plain enough"))) == message[:NOTE_MAX]


@pytest.mark.parametrize("before", range(56, 98, 4))
def test_half_a_secret_at_the_end_of_a_cut_message_shows_in_no_note_and_no_log(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classifier cuts messages, and a value before the secret may give way to a short mark."""
    value = prose(12, dead_letter.MESSAGE_READ - 100)
    monkeypatch.setenv("SHOP_PASSWORD", value)
    error = ValueError(f"{value} {'.' * before} ghp_{KEY[:36]} {'y ' * 9_000}")
    failure = DEFAULT.classify(error)
    history = CallHistory("call", {})
    history.add(failure, DECISION, 0.0)
    history.add(failure, DECISION, 1.0)
    history.attach(error, 2, 2.0, DECISION)

    assert shown_of(KEY, "".join(error.__notes__)) + shown_of(value, "".join(error.__notes__)) == []
    assert shown_of(KEY, error_text(error)) + shown_of(value, error_text(error)) == []


def test_the_frames_of_a_stack_are_kept_when_its_message_is_one_long_value_of_the_job() -> None:
    value = prose(10, 500_000)
    letter = letter_for(f"cannot take {value}", claimed(value))

    assert "in letter_for\n" in letter.stack
    assert letter.stack.endswith("ValueError: cannot take <payload:$[0]>\n")


def test_a_message_of_inputs_that_are_taken_out_is_still_one_that_was_cut() -> None:
    """Pydantic quotes inputs; without them what is left of a message may look as if it had never been cut."""
    quoted = "".join(f"input_value={prose(n, 900)}, input_type=str " for n in range(8))
    padding = dead_letter.MESSAGE_READ - len(quoted) - len(KEY)
    letter = letter_for(
        f"{quoted}{'. ' * (padding // 2)}\nghp_{KEY[:36]} {'y ' * 9_000}", claimed("plain enough")
    )

    assert letter.message.startswith("input_value=<payload>, input_type=str input_value=<payload>")
    assert shown_of(KEY, letter.message) == []


def test_a_long_message_falls_into_the_group_of_its_beginning() -> None:
    """The same as ever: only the first two thousand characters were looked at for that."""
    message = "cannot read the row. " * 100_000
    failure = DEFAULT.classify(ValueError(message))
    short = msgspec.structs.replace(failure, message=message[:MESSAGE_MAX])
    letter = letter_of(FailedAttempt(failure), JobRedactor(claimed("plain enough")), "fetch", DECISION, None)

    assert letter.fingerprint == fingerprint(short, "fetch")


def test_of_a_long_text_no_more_is_read_than_may_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def measured(text: str, *known: Literals) -> str:
        read.append(len(text))
        return redact_text(text, *known)

    monkeypatch.setattr(process, "redact_text", measured)
    value = prose(8, 100_000)
    letter_for(f"cannot take {value}: {'this and that ' * 100_000}", claimed(value))

    assert read
    assert max(read) <= dead_letter.STACK_READ


def long_secret(kind: str, length: int) -> tuple[str, str]:
    """Return a secret that is known by its shape or its name, with what it stands in."""
    key = "".join(random.Random(length).choices(string.ascii_letters + string.digits, k=length))
    words = " ".join(key[at : at + 6].lower() for at in range(0, length, 6))
    rows = "\n".join(key[at : at + 64] for at in range(0, length, 64))
    return {
        "token": (key, f"eyJhbGciOiJIUzI1NiJ9.eyJ{key[: length // 2]}.{key[length // 2 :]}"),
        "header": (key, f"Authorization: Bearer {key}"),
        "private key": (key, f"-----BEGIN RSA PRIVATE KEY-----\n{rows}\n-----END RSA PRIVATE KEY-----"),
        "assignment": (key, f"password={key}"),
        "JSON": (key, f'{{"password": "{key}"}}'),
        "cookie": (key, f"Cookie: session={key}; other=1"),
        "cookies": (words.replace(" ", "; a="), f"Cookie: a={words.replace(' ', '; a=')}"),
        "words": (words, f'{{"user": "x", "password": "{words}"}}'),
        "JSON in JSON": (words, f'{{\\"password\\": \\"{words}\\"}}'),
    }[kind]


@pytest.mark.parametrize("length", [600, 20_000, 40_000])
@pytest.mark.parametrize(
    "kind",
    [
        *("token", "header", "private key", "assignment", "JSON", "cookie", "cookies", "words"),
        "JSON in JSON",
    ],
)
def test_a_secret_that_began_before_a_stack_is_read_shows_no_end_of_it(kind: str, length: int) -> None:
    secret, text = long_secret(kind, length)
    for behind in (0, 100, 8_000, 16_380, 30_000):
        letter = letter_for(f"{'x ' * 20_000}{text}\nfine{' y' * (behind // 2)}", claimed("plain enough"))

        assert shown_of(secret, letter.stack) == []
        assert letter.stack.endswith(f"fine{' y' * (behind // 2)}\n"[-16_000:])


def test_a_long_quoted_text_that_is_no_secret_is_kept() -> None:
    rows = "".join(f"row {n} isn't good. " for n in range(10_000))
    letter = letter_for(f'cannot take "{rows}", "password" is good', claimed("plain enough"))

    assert letter.stack == f'{rows}", "password" is good\n'[-STACK_MAX:]


def test_of_a_stack_that_may_be_all_secret_its_mark_is_left() -> None:
    assert letter_for(f"password={'Ab1' * 20_000}", claimed("plain enough")).stack == "<redacted:unjudged>\n"


@pytest.mark.parametrize("more", [0, 100, 200])
def test_a_value_of_rows_as_long_as_its_pieces_shows_no_part_of_a_row(more: int) -> None:
    row = prose(3, 510) + "\n"
    value = row * 117

    letter = letter_for(f"cannot take {value!r} here{'.' * more}", claimed(value))

    assert shown_of(row, letter.message) == []
    assert shown_of(row, letter.stack) == []
