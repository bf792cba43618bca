# SPDX-License-Identifier: Apache-2.0
"""The redactor against what a third stranger wrote down, with the gates that unseen text has to pass."""

from __future__ import annotations

import pytest

from redrive.redaction import redact_text, redact_value
from tests.unit.redaction.stranger_three import KEEP, cases

RECALL_MIN = 0.99
FALSE_MAX = 0.01
CASES = list(cases())


@pytest.mark.parametrize("kind", list(dict.fromkeys(case[0] for case in CASES)))
def test_hides_nearly_every_secret(kind: str) -> None:
    texts = [(text, secret) for other, text, secret in CASES if other == kind]

    missed = [text for text, secret in texts if secret in redact_text(text)]

    assert len(missed) <= len(texts) * (1 - RECALL_MIN), missed


def test_keeps_nearly_every_harmless_text() -> None:
    changed = [text for text in KEEP if redact_text(text) != text]

    assert len(changed) <= len(KEEP) * FALSE_MAX, changed


def test_redacts_once_and_for_all() -> None:
    redacted = [redact_text(text) for _, text, _ in CASES]

    assert [redact_text(text) for text in redacted] == redacted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mysql -uroot -pabc9defg db", "mysql -uroot -p<redacted:password> db"),
        ("echo 'abc9defg' | docker login --password-stdin r", "echo '<redacted:password>' | docker login --password-stdin r"),
        ("smbclient -U 'ada%abc9defg' //s/x", "smbclient -U 'ada%<redacted:password>' //s/x"),
        ("user%5Bpassword%5D=abc9defg&x=1", "user%5Bpassword%5D=<redacted:password>&x=1"),
        ("|password|abc9defg|role|", "|password|<redacted:password>|role|"),
        ("charge(4539 5787 6362 1486, 100)", "charge(<redacted:card>, 100)"),
        ("1234\u00a05678\u00a09012 and 4539\u00a05787\u00a06362\u00a01486", "1234\u00a05678\u00a09012 and <redacted:card>"),
        ("iban gb82 west 1234 5698 7654 32 was paid", "iban <redacted:iban> was paid"),
        ("pay DE89 3704 0044 0532 0130 00 now", "pay <redacted:iban> now"),
        ("nino ab 12 34 56 c on file", "nino <redacted:national-id> on file"),
        ("db:5432:app:ada:abc9defg\nnext", "db:5432:app:ada:<redacted:password>\nnext"),
        ("secrets:\n  a: abc9defG\n  b: 'xyz8Uvwt'\n", "secrets:\n  a: <redacted:secret>\n  b: '<redacted:secret>'\n"),
        ("from ada:abc9defg@db1:5432/x and bob:zyx8wvut@db2:5432", "from ada:<redacted:url-credentials>@db1:5432/x and bob:<redacted:url-credentials>@db2:5432"),
    ],
)  # fmt: skip
def test_hides_the_secret_and_nothing_else(text: str, expected: str) -> None:
    assert redact_text(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"card_pin": "4821"}, {"card_pin": "<redacted:pin>"}),
        ({"led_pin": 13, "pin_x": ["a"]}, {"led_pin": 13, "pin_x": ["a"]}),
        ({"led_pin": "D4"}, {"led_pin": "D4"}),
        ({"пароль": "hunter22"}, {"пароль": "<redacted:password>"}),
    ],
)
def test_walks_structures_by_the_new_names(value: object, expected: object) -> None:
    assert redact_value(value) == expected
