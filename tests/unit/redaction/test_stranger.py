# SPDX-License-Identifier: Apache-2.0
"""The redactor against corpora written by somebody who had not seen the others, and what that look brought up."""

from __future__ import annotations

from collections import namedtuple
from urllib.parse import quote

import pytest

from redrive.redaction import redact_text, redact_value
from redrive.redaction.literals.search import Literals
from redrive.redaction.process import redact
from tests.unit.redaction.stranger import cases
from tests.unit.redaction.stranger_keep import KEEP

CASES = cases()
SHOWN = "<redacted:secret>"


def _survives(secret: str, text: str) -> bool:
    """Tell whether more than a fifth of the secret is still readable in one piece."""
    size = max(4, len(secret) // 5 + 1)
    return any(secret[at : at + size] in text for at in range(len(secret) - size + 1))


@pytest.mark.parametrize("kind", list(dict.fromkeys(case[0] for case in CASES)))
def test_hides_every_secret_of_the_corpus(kind: str) -> None:
    texts = [(text, secret) for other, text, secret in CASES if other == kind]

    assert [text for text, secret in texts if _survives(secret, redact_text(text))] == []


def test_redacts_the_corpus_once_and_for_all() -> None:
    redacted = [redact_text(text) for _, text, _ in CASES]

    assert [redact_text(text) for text in redacted] == redacted


def test_keeps_everyday_text_whole() -> None:
    assert [text for text in KEEP if redact_text(text) != text] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_PASSWORD", "hunter2"),
        ("API_TOKEN", "abcd1234efgh"),
        ("MY_KEY", "someplainkeyvalue"),
        ("MY_KEY", "abcd-1234"),
        ("REDIS_AUTH", "ada:sesame99"),
        ("GITHUB_PAT", "likevalue-without-prefix"),
        ("SENTRY_DSN", "https://abcdef@errors.example.org/3"),
        ("SERVICE_CONNECTION_STRING", "Endpoint=sb://bus.example.org/;Name=n;Thing=abcdef"),
        ("CREDENTIALS_JSON", '{"a": "longvalue"}'),
        ("REGEX_SECRET", "a.*b(c)[d]$^|?"),
        ("SIGNING_KEY", "line one\nline two\n"),
    ],
)
def test_hides_values_of_the_environment(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)

    assert redact(f"saw [{value}] here") == f"saw [{SHOWN}] here"
    assert value not in redact(f"saw [{quote(value, safe='').lower()}] here")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_PASSWORD", "abc12"),
        ("DB_PASSWORD", "postgres"),
        ("MY_KEY", "two words 12"),
        ("MY_KEY", "created_at"),
        ("MY_KEY", "/etc/app/key.pem"),
        ("DB_PASSWORD", "8675309123"),
        ("TOKEN_ENDPOINT", "https://auth.example.org"),
        ("TOKEN_HOME", "somewhere12"),
        ("CLIENT_SECRET", "https://auth.example.org/x"),
    ],
)
def test_keeps_ordinary_values_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    assert redact(f"saw [{value}] here") == f"saw [{value}] here"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one-two-three-four", SHOWN),
        ("one-two-three", SHOWN),
        ("one-two", SHOWN),
        ("one-two one-two", f"{SHOWN} {SHOWN}"),
        ("one-two-thre", f"{SHOWN}-thre"),
        ("line one\r\nline two", SHOWN),
        ("a &lt;b&gt; &amp; c", SHOWN),
        ("x%2fy%2bz%3d", SHOWN),
    ],
)
def test_hides_overlapping_and_encoded_literals(text: str, expected: str) -> None:
    known = ("one-two", "one-two-three", "three-four", "four", "line one\nline two", "a <b> & c", "x/y+z=")

    assert redact_text(text, Literals(dict.fromkeys(known, SHOWN))) == expected


def test_hides_the_random_lines_of_a_literal_written_with_another_indent() -> None:
    lines = ["head", "q8Zr1Kx0Lm4Nb7Vc2", "T5yU9iO3pA6sD1fG4"]

    redacted = redact_text("\n    ".join(lines), Literals({"\n".join(lines): SHOWN}))

    assert redacted == f"head\n    {SHOWN}\n    {SHOWN}"


def test_hides_each_of_a_hundred_literals() -> None:
    known = [f"literal-{number:03}-value" for number in range(100)]

    redacted = redact_text(" ".join(known), Literals(dict.fromkeys(known, SHOWN)))

    assert redacted == " ".join([SHOWN] * 100)


def test_knows_the_names_of_a_named_tuple() -> None:
    login = namedtuple("login", "user password")  # noqa: PYI024 - the untyped form is what old code hands over.

    assert redact_value(login("ada", "hunter22")) == ("ada", "<redacted:password>")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["x", "--password", "hunter22", "-v"], ["x", "--password", "<redacted:password>", "-v"]),
        (["--list-secrets", "--password", "--verbose"], ["--list-secrets", "--password", "--verbose"]),
        (["--token", 3], ["--token", 3]),
        ({"phone": "4155550123"}, {"phone": "<redacted:phone>"}),
        ({"mobile": 4155550123}, {"mobile": "<redacted:phone>"}),
        ({"order": "4155550123", 7: "4155550123"}, {"order": "4155550123", 7: "4155550123"}),
        ({"tokens": ["abc", "q8Zr1Kx0Lm4Nb7Vc2"]}, {"tokens": ["abc", "<redacted:secret>"]}),
        ({"api_key_header": "X-Api-Key"}, {"api_key_header": "X-Api-Key"}),
        ({"password": "/run/secrets/db"}, {"password": "/run/secrets/db"}),
    ],
)
def test_walks_structures_by_their_names(value: object, expected: object) -> None:
    assert redact_value(value) == expected


@pytest.mark.parametrize(
    "text",
    [
        "secret: /q8Zr1Kx0Lm4Nb/T5yU9iO3pA6sD1fG4.pem",
        "password=/run",
        "password: X-Ray-9",
        "password=:opensesame",
    ],
)
def test_a_name_of_something_has_to_be_one(text: str) -> None:
    assert redact_text(text) != text
