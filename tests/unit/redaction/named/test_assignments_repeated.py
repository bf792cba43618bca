# SPDX-License-Identifier: Apache-2.0
"""Long texts full of telling names are judged window by window, with the same result as name by name."""

from __future__ import annotations

import random

import pytest

from redrive.redaction import redact_text
from redrive.redaction.named import assignments
from redrive.redaction.named.assignments import AHEAD, LONG_MIN
from tests.unit.redaction.keep import CODE, MESSAGES, THINGS

# Many inputs for few lines.
pytestmark = pytest.mark.untraced

KEEP = [line for block in (CODE, MESSAGES, THINGS) for line in block.splitlines() if line]
NOISE = "password: token=,\n" * (LONG_MIN // 16)


def name_by_name(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as patched:
        patched.setattr(assignments, "LONG_MIN", 10**9)
        return redact_text(text)


def secrets_in_lines(seed: int) -> list[str]:
    chance = random.Random(seed)
    letters = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"

    def drawn() -> str:
        return "".join(chance.choice(letters) for _ in range(chance.choice([6, 12, 24, 60, 300, 900])))

    forms = (
        "password={}",
        'password="{}"',
        "'token': '{}'",
        "('Authorization', 'Bearer {}')",
        "secret: {}",
        "key {}",
        "--api-key {}",
    )
    return [chance.choice(forms).format(drawn()) for _ in range(60)]


@pytest.mark.parametrize("seed", range(8))
def test_the_result_is_the_same_as_without_windows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    lines = secrets_in_lines(seed) + chance.sample(KEEP, 40)
    chance.shuffle(lines)
    text = NOISE + chance.choice(["\n", " ", "; "]).join(lines) + NOISE

    assert redact_text(text) == name_by_name(text, monkeypatch)


@pytest.mark.parametrize(
    "form", ['password="{}"', "password={}", "('Authorization', '{}')", 'password=\\"{}\\"']
)
@pytest.mark.parametrize("length", [AHEAD - 300, AHEAD - 20, AHEAD, AHEAD + 300, 5_000])
def test_a_value_that_reaches_beyond_its_window_is_taken_whole(form: str, length: int) -> None:
    secret = ("q7" + "Zk3x" * length)[:length]
    text = NOISE + form.format(secret) + "\n" + NOISE

    redacted = redact_text(text)

    assert "Zk3x" not in redacted
    assert redacted.count("<redacted:") >= 1


def test_a_quote_that_never_closes_hides_nothing_that_follows_its_line() -> None:
    text = NOISE + 'password="' + "x y " * 400 + "\nplain words stay\n" + NOISE

    assert "plain words stay" in redact_text(text)
