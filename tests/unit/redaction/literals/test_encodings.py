# SPDX-License-Identifier: Apache-2.0
"""Known secrets that are no Unicode, that have several lines, and that others wrote in less common ways."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from redrive.redaction import Literals, redact_text
from redrive.redaction.literals.encodings import encodings_of

SHOWN = "<redacted:secret>"
NAME = "Zoë Müller, ward seven"
HALF = "caf\udce9-pass-word-123"
"""What Python makes of the bytes of a variable that are no UTF-8."""
BYTES = b"caf\xe9-pass-word-123"
LETTER = (
    "Dear Dr Smith, the patient Joan\nwas seen on ward seven today\n  }\n--------\nand told us of her divorce"
)


@pytest.mark.parametrize(
    "form",
    [
        HALF,
        "caf\\udce9-pass-word-123",
        "caf\ufffd-pass-word-123",
        "caf?-pass-word-123",
        BYTES.decode("latin-1"),
        repr(BYTES)[2:-1],
        quote(BYTES),
        quote(BYTES).lower(),
        quote(HALF, errors="surrogatepass"),
        base64.b64encode(BYTES).decode(),
        base64.b64encode(b"user:" + BYTES).decode(),
        json.dumps(HALF)[1:-1],
    ],
)
def test_a_secret_that_is_no_unicode_is_found_as_it_is_as_its_bytes_and_as_stores_spell_it(form: str) -> None:
    assert redact_text(f"a {form} b", Literals({HALF: SHOWN})) == f"a {SHOWN} b"


@pytest.mark.parametrize(
    "secret", ["first \ud800 half", "other \udfff half", "pa\udce9ssword99", "\ud83d\ude00 pair"]
)
def test_half_a_pair_never_stops_the_redactor(secret: str) -> None:
    stored = secret.encode("utf-8", "backslashreplace").decode()

    assert redact_text(f"a {secret} b {stored} c", Literals({secret: SHOWN})) == f"a {SHOWN} b {SHOWN} c"


@pytest.mark.parametrize(
    "form",
    [
        repr(NAME.encode())[2:-1],
        ascii(NAME)[1:-1],
        json.dumps(NAME)[1:-1],
        json.dumps(NAME)[1:-1].replace("\\u00eb", "\\u00EB"),
        json.dumps(NAME)[1:-1].replace("\\u00eb", "\\u00EB").replace("\\u00fc", "\\u00FC"),
        quote(NAME).replace("%C3", "%c3"),
        json.dumps(json.dumps(NAME).replace("\\u00eb", "\\u00EB").replace("\\u00fc", "\\u00FC"))[3:-3],
    ],
)
def test_the_escapes_of_other_writers_are_found(form: str) -> None:
    assert redact_text(f"a {form} b", Literals({NAME: SHOWN})) == f"a {SHOWN} b"


def test_what_follows_a_percent_sign_need_not_be_an_escape() -> None:
    assert redact_text(
        "at 100%AB3dE5gH7 of \\uFACE2facing", Literals({"AB3dE5gH7": SHOWN, "FACE2facing": SHOWN})
    ) == (f"at 100%{SHOWN} of \\u{SHOWN}")


@pytest.mark.parametrize("columns", [64, 76])
@pytest.mark.parametrize("prefix", ["", "u", "some-user:"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\\n", "\n    | "])
def test_base64_in_rows_goes_whole(columns: int, prefix: str, end: str) -> None:
    secret = "Jane Roe of ward seven, divorced; " * 7
    encoded = base64.b64encode(f"{prefix}{secret}".encode()).decode()
    rows = end.join(encoded[at : at + columns] for at in range(0, len(encoded), columns))

    assert redact_text(f"body: {rows}, refused", Literals({secret: SHOWN})) == f"body: {SHOWN}, refused"


def test_a_short_secret_across_the_end_of_a_row_is_found() -> None:
    secret = "quite unlikely words"
    encoded = base64.encodebytes(b"x" * 50 + secret.encode() + b"y" * 60).decode()

    assert redact_text(f"body: {encoded}", Literals({secret: SHOWN})) == f"body: {SHOWN}\n"


def test_base64_in_rows_without_a_secret_is_kept() -> None:
    rows = base64.encodebytes(b"nothing to see here, " * 20).decode()

    assert redact_text(f"body: {rows}", Literals({"quite unlikely words": SHOWN})) == f"body: {rows}"


@pytest.mark.parametrize("margin", ["    | ", "  | | | ", "> ", "\t"])
def test_the_lines_of_a_value_are_hidden_behind_any_margin(margin: str) -> None:
    text = f"ValueError: cannot take {LETTER}!".replace("\n", f"\n{margin}")

    assert redact_text(text, Literals({LETTER: SHOWN})) == (
        f"ValueError: cannot take {SHOWN}\n{margin}{SHOWN}\n{margin}  }}\n{margin}--------\n{margin}{SHOWN}!"
    )


@pytest.mark.parametrize("value", [LETTER, LETTER.replace("\n", "\r\n"), LETTER.replace("\n", "\r")])
def test_one_line_of_a_value_is_hidden_wherever_it_is_quoted(value: str) -> None:
    assert (
        redact_text("line 2: 'was seen on ward seven today'", Literals({value: SHOWN}))
        == f"line 2: '{SHOWN}'"
    )


@pytest.mark.parametrize("value", [LETTER, LETTER.replace("\n", "\r\n")])
def test_line_ends_do_not_matter(value: str) -> None:
    for end in ("\n", "\r\n"):
        assert redact_text(f"a {end.join(LETTER.splitlines())} b", Literals({value: SHOWN})) == f"a {SHOWN} b"


@pytest.mark.parametrize(
    "line", ["} ) ] ; {", "====================", "-=-=-=-=-=-=", "pass", "a  b   c    d"]
)
def test_lines_that_stand_in_every_text_are_not_looked_for(line: str) -> None:
    assert (
        redact_text(f"before {line} after", Literals({f"{line}\nsomething else": SHOWN}))
        == f"before {line} after"
    )


def test_a_value_that_holds_a_stack_does_not_take_the_titles_of_ours() -> None:
    title = "Traceback (most recent call last):"
    text = f'{title}\n  File "/srv/app.py", line 3, in run\n    send(report)\nValueError: refused\n'

    told = redact_text(text, Literals({f"{title}\n    import shop\nKeyError: 'Jane Roe'": SHOWN}))

    assert told == text


def test_a_plain_word_has_no_other_forms() -> None:
    assert list(encodings_of("plain_word-1.0~")) == []
    assert set(encodings_of("two words")) == {"two%20words", "two+words"}
