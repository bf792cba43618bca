# SPDX-License-Identifier: Apache-2.0
"""A stack whose frames are known is redacted as one that is read for the first time, only faster."""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterator

import pytest

from redrive.redaction import Literals, redact_text
from redrive.redaction import text as rounds
from redrive.redaction.placeholders import Sentinels
from tests.unit.redaction.keep import KEPT
from tests.unit.redaction.stranger import cases
from tests.unit.redaction.stranger_keep import KEEP
from tests.unit.redaction.test_properties import secret_laden

TITLE = "Traceback (most recent call last):\n"
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"
HARMLESS = [line for line in (*KEPT, *KEEP) if line.isascii() and "\n" not in line]
LEAKING = [text for _, text, _ in cases()]
PLAIN = ["self.run(job)", "return await call(*args)", "yield from self._items(limit - 1)", "^^^^^^^^^^^^"]
SECRET = "token=q8Zr4mN2vX7kP1sT"
HIDDEN = "token=<redacted:secret>"


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    rounds._frames.clear()
    rounds._parts.clear()
    yield
    rounds._frames.clear()
    rounds._parts.clear()


def read_whole(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as patched:
        patched.setattr(rounds, "TEXT_MAX", 0)
        return redact_text(text)


def what_is_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of whatever goes through the passes from now on."""
    read: list[str] = []
    applied = rounds.apply_passes

    def reading(text: str, marks: Sentinels) -> str:
        read.append(text)
        return applied(text, marks)

    monkeypatch.setattr(rounds, "apply_passes", reading)
    return read


def frame(number: int, *source: str) -> str:
    lines = "".join(f"    {line}\n" for line in source)
    return f'  File "/srv/app/worker_{number}.py", line {number}, in step_{number}\n{lines}'


def stack(*message: str, count: int = 12, source: str = "self.run(job)") -> str:
    return TITLE + "".join(frame(number, source) for number in range(count)) + "\n".join(message) + "\n"


def drawn_stack(seed: int) -> str:
    """Return a chain of tracebacks over lines of every corpus, most of them harmless, with all kinds of messages."""
    draw = random.Random(seed)
    told: list[str] = []
    for _ in range(draw.choice([1, 1, 2, 3])):
        lines = PLAIN if draw.random() < 0.5 else HARMLESS
        calls = [
            frame(draw.randrange(900), *draw.choices(lines, k=draw.choice([0, 1, 1, 2])))
            for _ in range(draw.randrange(2, 30))
        ]
        if draw.random() < 0.1:
            calls.insert(draw.randrange(len(calls)), frame(7, draw.choice(LEAKING).split("\n")[0]))
        says = [
            lambda: draw.choice(LEAKING),
            lambda: draw.choice(HARMLESS),
            lambda: secret_laden(draw.randrange(2**32)),
        ]
        message = [draw.choice(says)() for _ in range(draw.randrange(1, 4))]
        last = frame(1, message[0].split("\n")[0]) if draw.random() < 0.5 else frame(1, "raise")
        told.append(TITLE + "".join(calls) + last + draw.choice(["", "ValueError: "]) + "\n".join(message))
    before = draw.choice(["", "", "", "it failed\n", draw.choice(LEAKING) + "\n", draw.choice(LEAKING)])
    return before + f"\n{CHAIN}".join(told) + "\n"


@pytest.mark.parametrize("start", range(0, 100, 25))
def test_the_result_is_the_same_as_when_all_of_it_is_read(
    start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(start, start + 25):
        text = drawn_stack(seed)
        whole = read_whole(text, monkeypatch)

        assert [redact_text(text), redact_text(text), redact_text(whole)] == [whole] * 3


def test_a_secret_in_the_message_is_hidden_when_the_frames_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    first = redact_text(stack("ValueError: refused"))
    read = what_is_read(monkeypatch)

    told = redact_text(stack(f"ValueError: {SECRET}"))

    assert first == stack("ValueError: refused")
    assert told == stack(f"ValueError: {HIDDEN}")
    assert max(map(len, read)) < len(told) / 2


def test_what_stood_there_before_is_not_read_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    text = stack("ValueError: refused")
    redact_text(text)
    monkeypatch.setattr(rounds, "apply_passes", None)

    assert redact_text(text) == text


def test_a_chain_of_tracebacks_is_read_between_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    def chain(said: str) -> str:
        return stack(f"KeyError: {said}") + CHAIN + stack(f"ValueError: {said}", count=15)

    redact_text(chain("one"))
    read = what_is_read(monkeypatch)

    assert redact_text(chain(SECRET)) == chain(HIDDEN)
    assert max(map(len, read)) < len(chain(SECRET)) / 2


def test_frames_with_a_secret_are_not_kept_as_text() -> None:
    leaking = stack("ValueError: refused", source=f"call('{SECRET}')")

    assert redact_text(leaking) == redact_text(leaking) == leaking.replace(SECRET, HIDDEN)
    assert set(rounds._frames.values()) == {None}
    assert rounds._parts == set()


def test_a_mark_in_the_frames_makes_all_of_it_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # A field of a form takes the first word after it, and that is the one the frames start with.
    text = 'Content-Disposition: form-data; name="password"\n\n' + stack(f"E: {SECRET}")
    whole = read_whole(text, monkeypatch)

    assert "<redacted:password> (most recent call last)" in whole
    assert redact_text(text) == redact_text(text) == whole


def test_a_block_that_starts_in_the_last_known_frame_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    text = stack("E: no").replace("step_10\n    self.run(job)\n", "step_10\n    password: |\n")
    whole = read_whole(text, monkeypatch)

    assert "<redacted:password>\nE: no" in whole
    assert redact_text(text) == redact_text(text) == whole


@pytest.mark.parametrize("needle", rounds._FAR)
@pytest.mark.parametrize("place", ["frames", "message"])
def test_what_reaches_far_makes_all_of_it_be_read(
    needle: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = stack(f"E: {needle}") if place == "message" else stack("E: no", source=f"x {needle} y")
    read = what_is_read(monkeypatch)

    redact_text(text)

    assert any(len(one) == len(text) for one in read)


@pytest.mark.parametrize(
    ("source", "message", "secret"),
    [
        # A word in the frames says what stands in the message.
        ("telegram.send(text)", "no bot 110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw9", "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw9"),
        ("read('~/.pgpass')", "db.local:5433:app:ada:tulip4711x", "tulip4711x"),
        # And the other way round.
        ("check('db.local:5433:app:ada:tulip4711x')", "see ~/.pgpass", "tulip4711x"),
    ],
)  # fmt: skip
def test_a_word_far_away_counts(source: str, message: str, secret: str) -> None:
    for _ in range(2):
        assert secret not in redact_text(stack(message, source=source))


def test_a_literal_in_known_frames_is_hidden() -> None:
    text = stack("ValueError: refused", source="call('of-the-payload')")
    redact_text(text)

    told = redact_text(text, Literals({"of-the-payload": "<payload:$.0>"}))

    assert told == text.replace("of-the-payload", "<payload:$.0>")


def test_a_literal_that_reaches_from_the_frames_into_the_message_is_hidden() -> None:
    text = stack("ValueError: refused")
    redact_text(text)
    start = text.index(", in step_3")
    literal = text[start:-4]

    # The lines of the literal that stand before it as well are hidden there too.
    before = text[:start].replace("self.run(job)", "<payload:$.0>")
    assert redact_text(text, Literals({literal: "<payload:$.0>"})) == before + "<payload:$.0>" + text[-4:]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "KEPT_MAX", 3)

    for number in range(8):
        redact_text(stack(f"E: {number}", source=f"run({number})"))
        assert len(rounds._frames) <= 3
        assert len(rounds._parts) <= 3


def test_a_long_message_is_not_kept() -> None:
    redact_text(stack("E: " + "no " * rounds.PART_MAX))

    assert rounds._parts == set()


def test_a_stack_of_this_interpreter_is_known() -> None:
    def descend(depth: int) -> None:
        if depth == 0:
            raise LookupError(SECRET)
        ascend(depth)

    def ascend(depth: int) -> None:
        descend(depth - 1)

    with pytest.raises(LookupError) as caught:
        descend(12)
    text = "".join(traceback.format_exception(caught.value))

    assert redact_text(text) == text.replace(SECRET, HIDDEN)
    assert [kept for kept in rounds._frames.values() if kept and kept in text]
