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

from redrive import redaction
from redrive.core.decide import DeadLetter, Reason
from redrive.core.fingerprint import fingerprint
from redrive.core.redact.literals import Literals
from redrive.core.redact.text import redact_with
from redrive.engine import hooks, letters
from redrive.engine.classifier import DEFAULT
from redrive.engine.context import NOTE_MAX, SAID_MAX
from redrive.engine.letters import (
    MESSAGE_MAX,
    STACK_MAX,
    Trouble,
    letter_of,
    safe_message,
    safe_notes,
    safe_text,
)
from redrive.engine.story import Story
from redrive.store.protocol import Claimed, JobId, LaneId, Letter

SHOWN_MIN = 12
"""So many characters in a row of a secret are a part of it that shows."""
KEY = "".join(random.Random(5).choices(string.ascii_letters + string.digits, k=48))
TOKENS = (
    f"sk-ant-api03-{KEY}",
    f"ghp_{KEY[:36]}",
    f"https://user:{KEY}@host.example",
    f"-----BEGIN PRIVATE KEY-----\n{KEY}\n{KEY}\n{KEY}\n-----END PRIVATE KEY-----",
)
DECISION = DeadLetter(reason=Reason.PERMANENT, sentence="given up")


def claimed(*values: str) -> Claimed:
    return Claimed(
        id=JobId(1),
        token=1,
        dispatch=1,
        lane=LaneId(1),
        attempt=1,
        round=1,
        snoozes=0,
        suspects=0,
        crashes=0,
        restarts=0,
        cancel_asked=0,
        expires_at=None,
        codes=None,
        input=msgspec.json.encode(values),
    )


def prose(seed: int, length: int, alphabet: str = string.ascii_lowercase) -> str:
    """Make words that stand nowhere else."""
    draw = random.Random(seed)
    return "".join(draw.choices(alphabet + "   ", k=length))


def letter_for(message: str, job: Claimed) -> Letter:
    try:
        raise ValueError(message)
    except ValueError as exc:
        return letter_of(Trouble(DEFAULT.classify(exc), exc), job, "fetch", DECISION, None)


def shown_of(secret: str, text: str) -> list[str]:
    """Return the parts of a secret that stand in a text."""
    grams = {text[at : at + SHOWN_MIN] for at in range(len(text) - SHOWN_MIN + 1)}
    parts = (secret[at : at + SHOWN_MIN] for at in range(len(secret) - SHOWN_MIN + 1))
    return [part for part in parts if part in grams]


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
    cut=st.sampled_from([letters.MESSAGE_READ, letters.MESSAGE_READ // 2]),
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
    told = letter_for(message, claimed(value))
    short = safe_message(DEFAULT.classify(ValueError(message)), claimed(value))

    assert shown_of(KEY, told.message) == []
    assert shown_of(KEY, short) == []
    assert shown_of(KEY, told.stack) == []


@settings(max_examples=40, deadline=None)
@given(
    secret=st.sampled_from(TOKENS),
    cut=st.sampled_from([letters.STACK_READ, letters.STACK_READ // 2]),
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
    told = letter_for(message, claimed(value))

    assert shown_of(KEY, told.stack) == []


@settings(max_examples=40, deadline=None)
@given(
    length=st.integers(300, 12_000), place=st.integers(-12_000, 100), swallowed=st.sampled_from([0, 4_000])
)
def test_a_value_of_the_job_around_the_cut_never_shows(length: int, place: int, swallowed: int) -> None:
    before, value = prose(4, swallowed), prose(5, length)
    for read in (letters.MESSAGE_READ, letters.STACK_READ):
        start = max(0, read + place - len(before))
        message = f"{before}{'. ' * (start // 2)}{value}{'. ' * 20_000}"
        told = letter_for(message, claimed(before, value))
        backwards = letter_for(message[::-1], claimed(before[::-1], value[::-1]))

        assert shown_of(value, told.message) + shown_of(value, told.stack) == []
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
    told = letter_for(f"refused {secret}", claimed("plain enough"))

    assert shown_of(secret, told.message) + shown_of(KEY, told.stack) == []


def test_notes_and_progress_hide_a_value_that_is_longer_than_what_is_looked_at() -> None:
    value = prose(7, 3 * SAID_MAX)
    job = claimed(value)

    assert shown_of(value, safe_text(value[:SAID_MAX], job)) == []
    assert shown_of(value, safe_notes({"seen": value[:SAID_MAX]}, job) or "") == []


def test_what_is_kept_of_a_long_message_is_its_beginning_and_of_a_long_stack_its_end() -> None:
    message = "".join(f"row {n} is bad. " for n in range(300_000))
    letter = letter_for(message, claimed("plain enough"))
    failure = DEFAULT.classify(ValueError(message))

    assert letter.message == message[:MESSAGE_MAX] == safe_message(failure, claimed("plain enough"))
    assert letter.stack == f"{message}\n"[-STACK_MAX:]
    assert safe_text(message[:SAID_MAX], claimed("plain enough")) == message[:NOTE_MAX]


@pytest.mark.parametrize("before", range(56, 98, 4))
def test_half_a_secret_at_the_end_of_a_cut_message_shows_in_no_note_and_no_log(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classifier cuts messages, and a value before the secret may give way to a short mark."""
    value = prose(12, letters.MESSAGE_READ - 100)
    monkeypatch.setenv("SHOP_PASSWORD", value)
    error = ValueError(f"{value} {'.' * before} ghp_{KEY[:36]} {'y ' * 9_000}")
    failure = DEFAULT.classify(error)
    story = Story("call", {})
    story.note(failure, DECISION, 0.0)
    story.note(failure, DECISION, 1.0)
    story.attach(error, 2, 2.0, "given up")

    assert shown_of(KEY, "".join(error.__notes__)) + shown_of(value, "".join(error.__notes__)) == []
    assert shown_of(KEY, hooks._shown(error)) + shown_of(value, hooks._shown(error)) == []


def test_the_frames_of_a_stack_are_kept_when_its_message_is_one_long_value_of_the_job() -> None:
    value = prose(10, 500_000)
    letter = letter_for(f"cannot take {value}", claimed(value))

    assert "in letter_for\n" in letter.stack
    assert letter.stack.endswith("ValueError: cannot take <payload:$[0]>\n")


def test_a_message_of_inputs_that_are_taken_out_is_still_one_that_was_cut() -> None:
    """Pydantic quotes inputs; without them what is left of a message may look as if it had never been cut."""
    quoted = "".join(f"input_value={prose(n, 900)}, input_type=str " for n in range(8))
    padding = letters.MESSAGE_READ - len(quoted) - len(KEY)
    told = letter_for(
        f"{quoted}{'. ' * (padding // 2)}\nghp_{KEY[:36]} {'y ' * 9_000}", claimed("plain enough")
    )

    assert told.message.startswith("input_value=<payload>, input_type=str input_value=<payload>")
    assert shown_of(KEY, told.message) == []


def test_a_long_message_falls_into_the_group_of_its_beginning() -> None:
    """The same as ever: only the first two thousand characters were looked at for that."""
    message = "cannot read the row. " * 100_000
    failure = DEFAULT.classify(ValueError(message))
    short = msgspec.structs.replace(failure, message=message[:MESSAGE_MAX])
    letter = letter_of(Trouble(failure), claimed("plain enough"), "fetch", DECISION, None)

    assert letter.fingerprint == fingerprint(short, "fetch")


def test_of_a_long_text_no_more_is_read_than_may_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def measured(text: str, known: tuple[Literals, ...]) -> str:
        read.append(len(text))
        return redact_with(text, known)

    monkeypatch.setattr(redaction, "redact_with", measured)
    value = prose(8, 100_000)
    letter_for(f"cannot take {value}: {'this and that ' * 100_000}", claimed(value))

    assert read
    assert max(read) <= letters.STACK_READ
