# SPDX-License-Identifier: Apache-2.0
"""Every row of the table of formats, drawn at random, in the six contexts where secrets are found."""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Callable

import pytest

from redrive.redaction import redact_text
from redrive.redaction.formats.token_search import TokenEntry, formats

ROWS_MIN = 200
RECALL_MIN = 0.98

CONTEXTS: dict[str, Callable[[str], str]] = {
    "bare": lambda secret: secret,
    "sentence": lambda secret: f"The upstream refused {secret}, so we stopped.",
    "double quotes": lambda secret: f'rejected "{secret}" at once',
    "single quotes": lambda secret: f"rejected '{secret}' at once",
    "json": lambda secret: json.dumps({"a": 1, "note": secret, "b": [True]}),
    "traceback": lambda secret: (
        f'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g("{secret}")\nValueError: bad {secret}\n'
    ),
    "log line": lambda secret: f"2026-01-02T03:04:05Z ERROR [worker-3] value={secret} attempt=3",
}

ALPHABETS = {
    "digit": string.digits,
    "hex": "0123456789abcdef",
    "upper_hex": "0123456789ABCDEF",
    "lower": string.ascii_lowercase + string.digits,
    "upper": string.ascii_uppercase + string.digits,
    "alnum": string.ascii_letters + string.digits,
    "letters": string.ascii_lowercase,
    "base32": string.ascii_uppercase + "234567",
    "base58": "".join(sorted(set(string.ascii_letters + string.digits) - set("0OIl"))),
    "url": string.ascii_letters + string.digits + "_-",
    "dotted": string.ascii_letters + string.digits + "_-.",
    "padded": string.ascii_letters + string.digits + "_-.=",
    "base64": string.ascii_letters + string.digits + "+/",
}
_PART = re.compile(rf"({'|'.join(ALPHABETS)})\{{([0-9]+)(?:,[0-9]*)?\}}|uuid|.")


def drawn(row: TokenEntry, draw: random.Random) -> str:
    """Return a token of the row, a little longer than its shortest, with what its checks ask for."""

    def body(part: re.Match[str]) -> str:
        if part[0] == "uuid":
            return "-".join("".join(draw.choices(ALPHABETS["hex"], k=k)) for k in (8, 4, 4, 4, 12))
        if not part[1]:
            return part[0]
        count = int(part[2]) + (draw.randrange(4, 16) if part[0].endswith(",}") else 0)
        signs = draw.choices(ALPHABETS[part[1]], k=count)
        plain = [sign for sign in ALPHABETS[part[1]] if sign.isalnum()]
        for place, sign in enumerate("7A3" if "mixed" in row.checks or "three" in row.checks else ""):
            signs[1 + place : 2 + place] = sign
        if "digit" in row.checks or "two" in row.checks:
            signs[1:3] = "42"
        if signs:
            signs[0], signs[-1] = draw.choice(plain), draw.choice(plain)
        return "".join(signs)

    return row.prefix + _PART.sub(body, row.body)


def survives(secret: str, text: str) -> bool:
    """Return whether the secret, or more than a third of it in one piece, can still be read."""
    size = max(8, len(secret) // 3)
    return any(secret[at : at + size] in text for at in range(len(secret) - size + 1))


def test_the_table_has_enough_rows_and_no_row_twice() -> None:
    rows = [(row.prefix, row.body) for row in formats()]

    assert len(rows) >= ROWS_MIN
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("context", CONTEXTS)
def test_hides_the_formats_of_the_table(context: str) -> None:
    draw = random.Random(context)
    secrets = [drawn(row, draw) for row in formats() for _ in range(3)]

    missed = [secret for secret in secrets if survives(secret, redact_text(CONTEXTS[context](secret)))]

    assert len(missed) <= (1 - RECALL_MIN) * len(secrets), missed


def test_a_full_stop_after_a_token_stays() -> None:
    rows = [row for row in formats() if row.body.endswith(",}")]
    texts = {row.prefix: f"We rotated {drawn(row, random.Random(row.prefix))}." for row in rows}

    assert texts
    assert [prefix for prefix, text in texts.items() if not redact_text(text).endswith(">.")] == []
