# SPDX-License-Identifier: Apache-2.0
"""Secrets after a secret name in text that quotes carelessly: quotes within the same quotes, brackets, escapes, no balance."""

from __future__ import annotations

import pytest

from redrive.redaction import redact_text

QUOTES = ("'", '"', "`", "\\'", '\\"')
NAMES = ("password", "API_KEY", "token", "client_secret", "db.password", "X-Auth-Token")
VALUES = ("s3cr3t", "hunter22", "Tr0ub4dor&3", "aB3dE5fG7hJ9kL1mN2pQ")

# Q is a quote, N a name, V a secret.
TEMPLATES = (
    "msg=QN=QVQQ",
    "{QdetailQ: QQNQ: QVQQ}",
    "ApiError(QConfig(N=QVQ)Q)",
    "ApiError(Qlogin(user=QadaQ, N=QVQ)Q)",
    "ApiError(Qlogin(N=QVQ, user=QadaQ)Q)",
    "Q{QNQ:QVQ}Q",
    "bQ{QNQ: QVQ, QportQ: 1}Q",
    "N=QQQVQQQ",
    "N=QQVQQ",
    "N=(QVQ)",
    "N: [QVQ]",
    "N={QVQ}",
    "N=(V)",
    "N=[V]",
    "failed: QN: VQ",
    "failed: QN=VQ, retrying",
    "level=error msg=Qcannot connect: N=QVQ host=dbQ",
    "QNQ => QVQ",
    "(QNQ, QVQ)",
    "raise TypeError(QN=QVQQ)",
    "N=QV",
    "N: QV\nnext: 1",
)


@pytest.mark.parametrize("template", TEMPLATES)
def test_hides_the_value_whatever_quotes_surround_it(template: str) -> None:
    cases = [
        (value, template.replace("Q", quote).replace("N", name).replace("V", value))
        for quote in QUOTES
        for name in NAMES
        for value in VALUES
    ]

    assert [text for value, text in cases if value in redact_text(text)] == []
    for _, text in cases:
        once = redact_text(text)
        assert redact_text(once) == once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("msg='API_KEY='s3cr3t''", "msg='API_KEY='<redacted:secret>''"),
        ('{"detail": ""token": "s3cr3t""}', '{"detail": ""token": "<redacted:secret>""}'),
        ("ApiError('Config(password='x')')", "ApiError('Config(password='<redacted:password>')')"),
        ("password='it's hunter22'", "password='<redacted:password>'"),
        ('password="ab"cd"', 'password="<redacted:password>"'),
        ("password=ab'cd", "password=<redacted:password>"),
    ],
)
def test_a_quote_ends_a_value_only_before_a_delimiter(text: str, expected: str) -> None:
    assert redact_text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        'print("token=" + token)',
        'log("password=", password)',
        "'token=' % value",
        'raise ValueError("missing password=")',
        'url = base + "?token=" + quote(x)',
        "With `secret=`, the header `X-Signature` is `sha256=` and a digest.",
        "password=''",
        'password=""',
        'password="", user="ada"',
        "password=()",
        "tokens=[1, 2, 3]",
        "token: [Token, Other]",
        'password: ["This field is required."]',
        'errors = {"password": ["too short", "too common"]}',
        '{"token": {"type": "string"}}',
        "token=<Token object at 0x7f3a>",
        "password=<password>",
        "password=[REDACTED]",
        "password=(none)",
        "secret=[secret_name]",
    ],
)
def test_keeps_code_and_messages_around_a_name(text: str) -> None:
    assert redact_text(text) == text
