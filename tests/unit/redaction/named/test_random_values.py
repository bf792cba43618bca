# SPDX-License-Identifier: Apache-2.0
"""Values without a format of their own, known by the last word of their name; and text that only looks like that."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable

import pytest

from redrive.redaction import redact_text
from tests.unit.redaction.held_out import LINES

LOWER = string.ascii_lowercase + string.digits
ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
NAMES = {
    "adafruit_api_key": (LOWER + "_-", 32),
    "algolia_api_key": (LOWER, 32),
    "asana_client_secret": (LOWER, 32),
    "bitbucket_client_secret": (LOWER + "=_-", 64),
    "build_key": (ALNUM, 24),
    "client_key": (HEX, 32),
    "coinbase_access_token": (LOWER + "_-", 64),
    "data_key": (ALNUM, 32),
    "datadog_access_token": (LOWER, 40),
    "encryption_key": (ALNUM + "+/", 43),
    "etsy_access_token": (LOWER, 24),
    "fastly_api_token": (LOWER + "=_-", 32),
    "kraken_access_token": (LOWER + "/=_+-", 84),
    "looker_client_secret": (LOWER, 24),
    "mattermost_access_token": (LOWER, 26),
    "my_credential": (ALNUM, 32),
    "node_key": (ALNUM + "_-", 43),
    "svc_auth": (ALNUM, 32),
    "tenant_key": (ALNUM, 24),
    "write_key": (ALNUM, 32),
}
CONTEXTS: dict[str, Callable[[str, str], str]] = {
    "bare": lambda name, secret: f"{name}={secret}",
    "sentence": lambda name, secret: f"The {name} is {secret}, rotate it.",
    "double quotes": lambda name, secret: f'{name}="{secret}"',
    "single quotes": lambda name, secret: f"{name} = '{secret}'",
    "json": lambda name, secret: json.dumps({"a": 1, name: secret}),
    "traceback": lambda name, secret: (
        f'  File "a.py", line 3, in f\n    f({name}="{secret}")\nValueError: bad {name}: {secret}\n'
    ),
    "log line": lambda name, secret: f"2026-01-02T03:04:05Z ERROR settings {name.upper()}={secret} attempt=3",
}
DRAWS = 20


@pytest.mark.parametrize("context", CONTEXTS)
def test_hides_a_random_value_after_a_name_of_a_key_or_token(context: str) -> None:
    draw = random.Random(context)
    cases = [
        (secret, CONTEXTS[context](name, secret))
        for name, (signs, count) in NAMES.items()
        for secret in ("".join(draw.choices(signs, k=count)) for _ in range(DRAWS))
    ]

    missed = [text for secret, text in cases if secret in redact_text(text)]

    assert len(missed) <= 0.02 * len(cases), missed


def test_keeps_ordinary_text() -> None:
    changed = [line for line in LINES if redact_text(line) != line]

    assert len(LINES) >= 100
    assert len(changed) <= 0.01 * len(LINES), changed


def test_keeps_ordinary_text_in_one_piece() -> None:
    text = "\n".join(line for line in LINES if redact_text(line) == line)

    assert redact_text(text) == text
