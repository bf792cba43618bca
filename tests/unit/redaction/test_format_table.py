# SPDX-License-Identifier: Apache-2.0
"""Every row of the table of formats, drawn at random, in the six contexts where secrets are found; and formats written by hand."""

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
    "lower": string.ascii_lowercase + string.digits,
    "upper": string.ascii_uppercase + string.digits,
    "alnum": string.ascii_letters + string.digits,
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


def _of(prefix: str, signs: str, count: int, suffix: str = "") -> Callable[[random.Random], str]:
    return lambda draw: prefix + "".join(draw.choices(signs, k=count)) + suffix


LOWER, UPPER, ALNUM = ALPHABETS["lower"], ALPHABETS["upper"], ALPHABETS["alnum"]
BY_HAND: dict[str, Callable[[random.Random], str]] = {
    "1Password key": lambda draw: (
        "A3-" + "-".join("".join(draw.choices(UPPER, k=k)) for k in (6, 6, 5, 5, 5, 5))
    ),
    "1Password service account": _of("ops_eyJ", ALPHABETS["base64"], 260, "="),
    "Artifactory key": _of("AKCp", ALNUM, 69),
    "Artifactory reference": _of("cmVmd", ALNUM, 59),
    "Bedrock, long": _of("ABSK", ALPHABETS["base64"], 120, "=="),
    "Bedrock, short": _of("bedrock-api-key-", ALNUM, 28),
    "Dynatrace": lambda draw: f"dt0c01.{_of('', LOWER, 24)(draw)}.{_of('', LOWER, 64)(draw)}",
    "Flutterwave": _of("FLWSECK_TEST-", "abcdefgh0123456789", 32, "-X"),
    "Flutterwave encryption": _of("FLWSECK_TEST-", "abcdefgh0123456789", 12),
    "Frame.io": _of("fio-u-", LOWER + "-_=", 64),
    "Harness": lambda draw: (
        f"pat.{_of('', ALNUM, 22)(draw)}.{_of('', ALNUM, 24)(draw)}.{_of('', ALNUM, 20)(draw)}"
    ),
    "Terraform Cloud": lambda draw: f"{_of('', LOWER, 14)(draw)}.atlasv1.{_of('', LOWER + '-_=', 62)(draw)}",
    "Okta": _of("00", ALNUM + "_-=", 39, "a"),
    "SendGrid": _of("SG.", LOWER + "=_-.", 65, "a"),
    "SettleMint": _of("sm_pat_", ALNUM, 16),
    "Square": _of("EAAA", ALNUM + "_-", 59, "a"),
    "Square, short": _of("sq0atp-", ALNUM + "_-", 22),
    "Twilio": _of("SK", "0123456789abcdefABCDEF", 32),
    "Vault, legacy": _of("s.", LOWER, 24),
    "Doppler": _of("dp.pt.", LOWER, 43),
    "Azure AD": lambda draw: f"{_of('', ALNUM, 3)(draw)}8Q~{_of('', ALNUM + '_~.-', 33)(draw)}a",
    "MaxMind": lambda draw: f"{_of('', ALNUM, 6)(draw)}_{_of('', ALNUM, 29)(draw)}_mmk",
    "Authress": lambda draw: (
        f"sc_{_of('', LOWER, 20)(draw)}.{_of('', LOWER, 4)(draw)}.acc_{_of('', LOWER, 16)(draw)}.{_of('', ALNUM, 60)(draw)}"
    ),
}


@pytest.mark.parametrize("kind", BY_HAND)
def test_hides_formats_that_leaked_once(kind: str) -> None:
    draw = random.Random(kind)
    secrets = [BY_HAND[kind](draw) for _ in range(30)]
    texts = [(secret, carrier(secret)) for secret in secrets for carrier in CONTEXTS.values()]

    missed = [text for secret, text in texts if survives(secret, redact_text(text))]

    assert len(missed) <= 0.01 * len(texts), missed


@pytest.mark.parametrize(
    "row", [row for row in formats() if row.body.endswith(",}")], ids=lambda row: row.prefix
)
def test_a_full_stop_after_a_token_stays(row: TokenEntry) -> None:
    secret = drawn(row, random.Random(row.prefix))

    assert redact_text(f"We rotated {secret}.").endswith(">.")
