# SPDX-License-Identifier: Apache-2.0
"""Known secrets, in all the forms in which they turn up."""

from __future__ import annotations

import base64
import json
import random
from urllib.parse import quote, quote_plus

import pytest

from redrive.redaction import Literals, redact_text
from tests.unit.redaction.drawn_secrets import ALNUM, body

SECRET = 'hunter two/"&= é'
SHOWN = "<redacted:secret>"


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(SECRET))[3:-3],
        repr(SECRET)[1:-1],
    ],
)
def test_every_encoding_is_found(form: str) -> None:
    assert redact_text(f"a {form} b", Literals({SECRET: SHOWN})) == f"a {SHOWN} b"


@pytest.mark.parametrize("prefix", ["", "u", "us", "user:", "some-user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_is_found_at_every_alignment_and_goes_whole(prefix: str, encode: object) -> None:
    assert callable(encode)
    form = encode(f"{prefix}{SECRET}".encode()).decode()

    assert redact_text(f"a {form} b", Literals({SECRET: SHOWN})) == f"a {SHOWN} b"
    assert redact_text(f"a {form} {form} b", Literals({SECRET: SHOWN})) == f"a {SHOWN} {SHOWN} b"


def test_the_longest_literal_wins() -> None:
    literals = {"abcdefgh": "<payload:short>", "abcdefghijkl": "<payload:long>"}

    assert redact_text("abcdefghijkl abcdefghi", Literals(literals)) == "<payload:long> <payload:short>i"


def test_very_long_literals_that_repeat_themselves_are_found_whole() -> None:
    long = "one long value, again and again; " * 10_000

    assert redact_text(f"a {long} b", Literals({long: SHOWN, long[::-1]: SHOWN})) == f"a {SHOWN} b"


def test_short_literals_are_ignored() -> None:
    assert redact_text("abc", Literals({"abc": SHOWN, "": SHOWN})) == "abc"
    assert redact_text("abcd", Literals({"abcd": SHOWN})) == SHOWN


def test_placeholders_are_never_touched_again() -> None:
    literals = {"redacted": SHOWN, "secret": SHOWN, "payload:": SHOWN}

    once = redact_text("a redacted secret", Literals(literals))

    assert once == f"a {SHOWN} {SHOWN}"
    assert redact_text(once, Literals(literals)) == once


def test_a_placeholder_that_holds_its_own_literal_ends_safely() -> None:
    assert (
        redact_text("xx hunter2hunter2", Literals({"hunter2hunter2": "[hunter2hunter2]"}))
        == "<redacted:unstable>"
    )


@pytest.mark.parametrize("count", [10, 2000])
def test_few_and_many_literals_are_found_alike(count: int) -> None:
    draw = random.Random(count)
    secrets = [body(draw, ALNUM, draw.randrange(8, 40)) for _ in range(count)] + ["ab7"]
    literals = Literals({secret: f"<payload:p{number}>" for number, secret in enumerate(secrets)})
    planted = secrets[: min(count, 200)]
    text = "; ".join(f"{'x' * draw.randrange(7)}{secret}" for secret in planted)

    redacted = redact_text(text, literals)

    assert not any(secret in redacted for secret in planted)
    assert redacted.count("<payload:") == len(planted)
    assert redact_text("nothing to see", literals) == "nothing to see"


def test_literals_that_share_their_head_are_told_apart() -> None:
    literals = {
        f"https-//host/{number:04d}/x{'y' * (number % 5)}": f"<payload:p{number}>" for number in range(500)
    }

    assert (
        redact_text("https-//host/0007/xyy! https-//host/0003/x", Literals(literals))
        == "<payload:p7>! https-//host/0003/x"
    )


def test_private_characters_of_the_text_are_kept() -> None:
    text = "\U000f0000 \U000f0001 hunter2hunter2 \U000f0002"

    assert (
        redact_text(text, Literals({"hunter2hunter2": SHOWN})) == f"\U000f0000 \U000f0001 {SHOWN} \U000f0002"
    )
