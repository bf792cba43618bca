# SPDX-License-Identifier: Apache-2.0
"""What must be hidden: every documented format, in every carrier, measured per kind."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from redrive.redaction import redact_text

from . import carried, carriers, odd
from .drawn_secrets import ALNUM, BASE64, HEX, NAMED, TOKENS, Format, joined, of
from .people import PERSONAL, PERSONAL_CARRIERS

RECALL_MIN = 0.99
DRAWS = 3
TAIL = 8

PASSWORDS = ("hunter2", "Tr0ub4dor&3", "p@ssw0rd!", "S3cr3t-Pa55", "correct1horse", "x7#kQ9$z")


def survives(secret: str, text: str) -> bool:
    """Tell whether the secret, or the end of it, can still be read."""
    return secret in text or secret[-TAIL:] in text


def recall(cases: Iterator[tuple[str, str]]) -> tuple[float, list[str]]:
    """Return the share of (secret, text) cases that are hidden, and the texts that are not."""
    count = 0
    missed = []
    for secret, text in cases:
        count += 1
        redacted = redact_text(text)
        if survives(secret, redacted):
            missed.append(redacted)
        assert redact_text(redacted) == redacted
    return 1 - len(missed) / count, missed


def token_cases(token: Format, seed: str) -> Iterator[tuple[str, str]]:
    """Yield a token in every carrier."""
    draw = random.Random(seed)
    for carrier in carriers.BARE.values():
        for _ in range(DRAWS):
            secret = token(draw)
            yield secret, carrier(secret)


@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_is_known_by_its_shape(kind: str) -> None:
    share, missed = recall(token_cases(TOKENS[kind], kind))

    assert share >= RECALL_MIN, missed


@pytest.mark.parametrize("kind", NAMED)
def test_a_secret_without_a_shape_is_known_by_its_name(kind: str) -> None:
    name, value = NAMED[kind]
    draw = random.Random(kind)

    def cases() -> Iterator[tuple[str, str]]:
        for carrier in carriers.NAMED.values():
            for _ in range(DRAWS):
                secret = value(draw)
                yield secret, carrier(name, secret)

    share, missed = recall(cases())

    assert share >= RECALL_MIN, missed


@pytest.mark.parametrize("kind", PERSONAL)
def test_a_personal_fact_is_replaced_and_nothing_else(kind: str) -> None:
    draw = random.Random(kind)
    wrong = []

    for template in PERSONAL_CARRIERS.values():
        for _ in range(40):
            secret = PERSONAL[kind](draw)
            redacted = redact_text(template.format(secret))
            start = redacted.find("<redacted:")
            shown = redacted[start : redacted.find(">", start) + 1]
            if redacted != template.format(shown) or start < 0:
                wrong.append(redacted)

    assert len(wrong) <= (1 - RECALL_MIN) * 40 * len(PERSONAL_CARRIERS), wrong


VALUES: dict[str, Format] = {
    "letters and digits": of(ALNUM, 24),
    "hexadecimal": of(HEX, 40),
    "base64": joined(of(BASE64, 42), "=="),
    "password": lambda draw: draw.choice(PASSWORDS),
}


def carried_cases(block: str, values: list[str]) -> Iterator[tuple[str, str]]:
    """Yield every template of a block, filled in."""
    draw = random.Random(block[:40])
    for template in carried.templates(block):
        for kind in values:
            secret = VALUES[kind](draw)
            yield secret, template.format(*[secret] * template.count("{}"))


@pytest.mark.parametrize(
    ("block", "values"),
    [
        (carried.AUTHORIZATION, ["letters and digits", "hexadecimal", "base64"]),
        (carried.COOKIES, ["letters and digits", "hexadecimal", "base64"]),
        (carried.URLS, ["letters and digits", "hexadecimal"]),
        (carried.ASSIGNED, list(VALUES)),
        (odd.CERTAIN, ["letters and digits", "hexadecimal", "password"]),
        (odd.RANDOM, ["letters and digits", "hexadecimal"]),
    ],
    ids=["authorization", "cookies", "urls", "assigned", "odd", "odd and random"],
)
def test_a_secret_is_hidden_where_it_really_turns_up(block: str, values: list[str]) -> None:
    share, missed = recall(carried_cases(block, values))

    assert share >= RECALL_MIN, missed


PRIVATE = "PRIVATE" + " KEY"


@pytest.mark.parametrize("label", ["", "RSA ", "EC ", "DSA ", "ENCRYPTED ", "OPENSSH ", "PGP "])
def test_a_private_key_block_goes_whole(label: str) -> None:
    draw = random.Random(label)
    rows = [of(BASE64, 64)(draw) for _ in range(6)]
    tail = " BLOCK" if label == "PGP " else ""
    begin, end = f"-----BEGIN {label}{PRIVATE}{tail}-----", f"-----END {label}{PRIVATE}{tail}-----"
    block = "\n".join([begin, *rows, end])
    escaped = block.replace("\n", "\\n")
    indented = block.replace("\n", "\n        ")

    assert redact_text(f"before\n{block}\nafter") == "before\n<redacted:private-key>\nafter"
    assert redact_text(f'{{"pem": "{escaped}\\n"}}') == '{"pem": "<redacted:private-key>\\n"}'
    assert redact_text(f"key: |\n        {indented}\nafter: 1").endswith("\nafter: 1")
    for text in (
        block,
        escaped,
        indented,
        block.removesuffix(end),
        escaped.removesuffix(end),
        block.removeprefix(begin),
    ):
        assert not any(survives(row, redact_text(text)) for row in rows), text


def test_a_legacy_putty_key_loses_its_private_lines() -> None:
    rows = "\n".join(of(BASE64, 64)(random.Random(1)) for _ in range(3))
    text = f"PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 3\n{rows}\nPrivate-MAC: 1"

    assert (
        redact_text(text)
        == "PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 3\n<redacted:private-key>\nPrivate-MAC: 1"
    )
