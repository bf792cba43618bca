# SPDX-License-Identifier: Apache-2.0
"""The corners of single modules that no corpus reaches by itself."""

from __future__ import annotations

import base64

import pytest

from redrive.redaction import Literals, redact_text
from redrive.redaction.placeholders import Sentinels

SHOWN = "<redacted:secret>"


def test_marks_run_out_without_harm() -> None:
    marks = Sentinels("\U000f0000")
    marks._next = 0xFFFFD

    first, second = marks.put("<a>"), marks.put("<b>")

    assert (len(first), second) == (1, "<b>")
    assert marks.show(f"{first} {second} \U000f0000") == "<a> <b> \U000f0000"


def test_two_known_secrets_in_one_base64_text_are_one_placeholder() -> None:
    secret = "quite-unlikely-words"
    form = base64.b64encode(f"{secret}:xyz{secret}".encode()).decode()

    assert redact_text(f"a {form} b", Literals({secret: SHOWN})) == f"a {SHOWN} b"


def test_short_literals_are_found_among_many() -> None:
    literals = {f"literal-number-{number:04d}": SHOWN for number in range(200)} | {
        "a b!": SHOWN,
        "ab12": SHOWN,
    }

    assert (
        redact_text("x a b! y ab12 z literal-number-0007", Literals(literals))
        == f"x {SHOWN} y {SHOWN} z {SHOWN}"
    )


def test_a_marker_without_a_key_is_no_key() -> None:
    text = 'MARKS = ("-----BEGIN RSA PRIVATE' + ' KEY-----", "-----END RSA PRIVATE' + ' KEY-----")'

    assert redact_text(text) == text


@pytest.mark.parametrize("length", [300, 5000, 40_000])
def test_a_value_of_any_length_goes_whole(length: int) -> None:
    secret = "aB3-" * (length // 4) + "endOfSecret"

    for text in (
        f"password={secret} x",
        f"password='{secret}' x",
        f"password='{secret}",
        f"Authorization: Bearer {secret}",
    ):
        assert "endOfSecret" not in redact_text(text), text[:40]
        assert "aB3-aB3-" not in redact_text(text), text[:40]


def test_a_long_cookie_line_goes_whole() -> None:
    line = "Cookie: " + "; ".join(f"c{number}=value{number}" for number in range(600))

    assert redact_text(line + "\nHost: x") == "Cookie: <redacted:cookie>\nHost: x"


def test_a_percent_encoded_url_hides_its_password() -> None:
    assert (
        redact_text("next=postgres%3A%2F%2Fapp%3Ahunter2%40db%2Fapp")
        == "next=postgres%3A%2F%2Fapp%3A<redacted:url-credentials>%40db%2Fapp"
    )


def test_a_password_with_a_slash_is_seen_in_a_database_url_only() -> None:
    assert redact_text("postgres://app:pa/ss@db/app") == "postgres://app:<redacted:url-credentials>@db/app"
    assert redact_text("https://host:8080/path/@user") == "https://host:8080/path/@user"
    assert redact_text("postgres://db:5432/a@b") == "postgres://db:5432/a@b"


def test_a_percent_encoded_address_is_hidden() -> None:
    assert redact_text("to=bob%40example.com&x=1") == "to=<redacted:email>&x=1"


def test_an_address_whose_host_was_hidden_loses_its_name_too() -> None:
    assert (
        redact_text("mail bob@internal-host", Literals({"internal-host": "<payload:host>"}))
        == "mail <redacted:email>@<payload:host>"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GB82 WEST 1234 5698 7654 32 1", "<redacted:iban> 1"),
        ("GB82WEST12345698765432X", "GB82WEST12345698765432X"),
        ("(415) 555-0123", "<redacted:phone>"),
        ("see (415-555-0123)", "see (<redacted:phone>)"),
        ("curl -u bob:1234 x", "curl -u bob:1234 x"),
        ("- password: correct horse battery staple", "- password: <redacted:password>"),
        ("password: correct1 horse, user: bob", "password: <redacted:password> horse, user: bob"),
        ("Cookie: <RequestsCookieJar[]>", "Cookie: <RequestsCookieJar[]>"),
        ("authorization: {'a': 1}", "authorization: {'a': 1}"),
        ("password: |\n  one\n  two\n", "password: |\n  <redacted:password>\n"),
        ("token=", "token="),
        ("connect(password=chosen)", "connect(password=chosen)"),
        ("token=https://h.example.com/x", "token=https://h.example.com/x"),
        ("if token == 3:", "if token == 3:"),
        ("connect(password=hunter2)", "connect(password=<redacted:password>)"),
        ("Cookie: a=b  \nHost: x", "Cookie: <redacted:cookie>  \nHost: x"),
        ("ssn 123 45 6789 and 123 45 6789", "ssn <redacted:national-id> and 123 45 6789"),
        ("<redacted:jwt> <redacted:not a kind>", "<redacted:jwt> <redacted:not a kind>"),
    ],
)
def test_single_cases(text: str, expected: str) -> None:
    assert redact_text(text) == expected


@pytest.mark.parametrize(
    "line",
    [
        "user=bob password={} host=db",
        "PGPASSWORD={} psql -h db",
        "host=db dbname=x password={}",
    ],
)
def test_a_password_that_is_a_plain_word_is_hidden_among_settings(line: str) -> None:
    assert "letmein" not in redact_text(line.format("letmein"))


@pytest.mark.parametrize(
    "line", ["lexer: token=IDENT line=3", "password is required when x", "the password must match"]
)
def test_a_plain_word_of_a_sentence_or_a_lexer_stays(line: str) -> None:
    assert redact_text(line) == line


def test_credentials_after_a_scheme_are_hidden_without_a_header_name() -> None:
    basic = base64.b64encode(b"bob:letmein1").decode()

    assert redact_text(f"sent Basic {basic} to proxy") == "sent Basic <redacted:authorization> to proxy"
    assert redact_text("sent Bearer abc.def.ghi") == "sent Bearer <redacted:authorization>"
    for line in ("HTTP Basic authentication required", "Bearer token missing", "Basic auth"):
        assert redact_text(line) == line


def test_a_pre_shared_key_is_a_secret() -> None:
    assert redact_text("psk=abcd1234efgh") == "psk=<redacted:secret>"


@pytest.mark.parametrize(
    "line",
    ["password={}", "PASSWORD={}", "?password={}&x=1", "--password={}", "export DB_PASSWORD={}", "pwd={};"],
)
def test_a_password_that_reads_like_a_name_is_hidden_in_a_setting(line: str) -> None:
    assert "secret" not in redact_text(line.format("secret"))


@pytest.mark.parametrize(
    "line", ["connect(password=secret)", "f(password=secret, x=1)", "password = secret", "token=token"]
)
def test_a_name_in_code_stays(line: str) -> None:
    assert redact_text(line) == line


def test_a_token_may_be_told_by_a_digit_that_stands_after_it() -> None:
    text = "qn_token_vAoOvuCaPiKeYpriVaTe-key810"

    assert redact_text(text) == "<redacted:token>-key810"


def test_what_follows_the_end_of_an_element_is_not_its_value() -> None:
    assert redact_text("<password>r0sebud-9</password>afterwards") == (
        "<password><redacted:password></password>afterwards"
    )
