# SPDX-License-Identifier: Apache-2.0
"""Classes that a fourth corpus of strangers' texts showed: what was missed, and what was taken by mistake."""

from __future__ import annotations

import pytest

from redrive.redaction import Literals, redact_text

BASE64 = "/PykwXq8+Zr3tB6uN0sLd5fGh2jKmVc9xW1eYaQ7iOoT4pRzUlHnSgJbFwDvCkEyM6rA0tX8sQ2hL5fGdKj=="
HIDDEN = [
    (f"azure_storage_key: {BASE64}", BASE64),
    (".example.com\tTRUE\t/\tTRUE\t1765432100\tsession\tabc123DEFghi", "abc123DEFghi"),
    ("#HttpOnly_example.com\tFALSE\t/app\tFALSE\t0\tlang\ten-x9\nnext", "en-x9"),
    ('$p = ConvertTo-SecureString "Hunter2 x!" -AsPlainText -Force', "Hunter2 x!"),
    ("ConvertTo-SecureString -String Hunter2x -AsPlainText", "Hunter2x"),
    ("db_password = <<EOT\ncorrect horse 9\nEOT\nnext = 1", "correct horse 9"),
    ("db_password = <<-EOT\n    s3cr3tValue\n  EOT\n", "s3cr3tValue"),
    ("tel: 999013195", "999013195"),
    ("Telefon: 999013195", "999013195"),
    ("mysql --password hunter mydb", "hunter"),
]
KEPT = [
    "storage_key: /usr/lib/x86_64-linux-gnu/libfoo",
    "storage_key: /orders/by/customer/number/and/month=",
    ".example.com\tTRUE\t/\tTRUE\t1765432100\tsession\tnone",
    "ConvertTo-SecureString -String $Plain -AsPlainText",
    'ConvertTo-SecureString "$env:PLAIN" -AsPlainText',
    "db_password = <<EOT\n${var.password}\nEOT",
    "db_password = <<EOT",
    "Bestellnummer: 999013195",
    "GET /search?q=reset+password HTTP/1.1",
    "Using --password via the CLI is insecure",
]


@pytest.mark.parametrize(("text", "secret"), HIDDEN)
def test_a_class_that_was_missed_is_hidden(text: str, secret: str) -> None:
    redacted = redact_text(text)

    assert secret not in redacted
    assert redact_text(redacted) == redacted


@pytest.mark.parametrize("text", KEPT)
def test_a_class_that_was_taken_by_mistake_stays(text: str) -> None:
    assert redact_text(text) == text


def test_a_long_run_of_stems_is_no_name() -> None:
    text = "key" * 400

    assert redact_text(f"{text} password=hunter2x {text}") == f"{text} password=<redacted:password> {text}"


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("secrets:\n a: b9c8d7E\n", "b9c8d7E"),
        ("db:5432:app:ada:b9c8d7E\n", "b9c8d7E"),
        ("curl -u ada:b9c8d7E https://x.example\n", "b9c8d7E"),
        ("echo ada:b9c8d7E | chpasswd\n", "b9c8d7E"),
        ("redis://ada:b9c8d7E@cache/0\n", "b9c8d7E"),
        ("ada:b9c8d7E@cache:6379\n", "b9c8d7E"),
    ],
)
def test_the_same_line_is_read_the_same_way_every_time(line: str, secret: str) -> None:
    redacted = redact_text(line)

    assert secret not in redacted
    assert redact_text(line * 3) == redacted * 3


@pytest.mark.parametrize(
    "line",
    [
        "7z x a.7z -hpb9c8d7E",
        "keytool -newkeypass b9c8d7E",
        "['expdp', 'scott/b9c8d7E']",
        "npm config\tset _auth b9c8d7E",
        "htpasswd -ib users ada b9c8d7E",
    ],
)
def test_a_command_needs_no_other_line_to_be_known(line: str) -> None:
    assert "b9c8d7E" not in redact_text(line)


def test_a_placeholder_that_holds_a_mark_is_shown_as_it_is() -> None:
    known = {"first-known": "<\U000f0001>", "second-known": "<redacted:secret>"}

    assert redact_text("first-known second-known", Literals(known)) == "<\U000f0001> <redacted:secret>"


def test_many_kinds_of_placeholders_are_shown() -> None:
    known = {f"known-{number}-known": f"<payload:$.{number}>" for number in range(9)}

    assert redact_text(" ".join(known), Literals(known)) == " ".join(known.values())
