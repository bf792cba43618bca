# SPDX-License-Identifier: Apache-2.0
"""What is taken for a placeholder, and what only looks like one."""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path

import pytest

from redrive import redaction
from redrive.redaction import Literals, process, redact_text
from redrive.redaction.placeholders import KINDS, placeholder

from .drawn_secrets import ALNUM, body
from .people import PERSONAL

SECRET = "janeroe.ward7"
FOLDER = Path(redaction.__file__).parent


@pytest.mark.parametrize(
    "text",
    [
        "<payload:$>",
        "<payload:*>",
        "<payload:$.0>",
        "<payload:$[3].12[0]>",
        f"<payload:${'[0]' * 120}>",
        "<redacted:jwt>",
        "<redacted:url-credentials>",
    ],
)
def test_a_placeholder_of_ours_is_never_read(text: str) -> None:
    literals = {text[1:-1]: "<redacted:secret>", text[2:]: "<redacted:secret>"}

    assert redact_text(f"a {text} b", Literals(literals)) == f"a {text} b"


def test_every_kind_is_known_again() -> None:
    parts = {
        kind: Literals(dict.fromkeys((f":{kind}>", f"redacted:{kind}"), "<redacted:secret>"))
        for kind in KINDS
    }
    shown = {kind: redact_text(placeholder(kind), literals) for kind, literals in parts.items()}

    assert shown == {kind: placeholder(kind) for kind in KINDS}


@pytest.mark.parametrize(
    "text",
    [f"<payload:{SECRET}>", f"<payload:$.{SECRET}>", f"<payload:$.1.{SECRET}>", f"<redacted:{SECRET}>"],
)
def test_a_known_secret_in_a_forged_placeholder_is_hidden(text: str) -> None:
    redacted = redact_text(f"got {text}", Literals({SECRET: "<payload:$.0>"}))

    assert redacted == f"got {text}".replace(SECRET, "<payload:$.0>")


def test_words_in_a_forged_placeholder_are_hidden_where_they_are_known() -> None:
    literals = {"correct-horse": "<payload:$.0>"}

    assert redact_text("<redacted:correct-horse>", Literals(literals)) == "<redacted:<payload:$.0>>"


def test_tokens_and_numbers_in_a_forged_placeholder_are_hidden() -> None:
    token = "ghp_" + body(random.Random(3), ALNUM, 36)

    assert redact_text(f"<payload:{token}>") == "<payload:<redacted:github>>"
    assert redact_text("<payload:$[4111111111111111]>") == "<payload:$[<redacted:card>]>"


def _named() -> set[str]:
    """Return every kind that a module of the redactor names in a call."""
    calls = (
        node
        for path in FOLDER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
    )
    return {
        str(call.args[0].value)  # type: ignore[attr-defined]
        for call in calls
        if isinstance(call.func, ast.Attribute | ast.Name)
        and (call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id)
        in ("redacted", "placeholder", "NameMeaning")
    }


def test_every_kind_that_is_written_is_known() -> None:
    written = _named()

    assert {"password", "private-key", "unstable", "cookie"} <= written
    assert written <= KINDS


@pytest.mark.parametrize("kind", sorted(PERSONAL))
def test_the_kinds_of_personal_facts_are_known(kind: str) -> None:
    redacted = redact_text(f"value {PERSONAL[kind](random.Random(5))} end")

    assert set(re.findall(r"<redacted:([^>]*)>", redacted)) <= KINDS


@pytest.mark.parametrize(
    "literal",
    [
        "Ada (<redacted:email>) has a rash",
        "<payload:$.0> and her file",
        "her file, <redacted:phone>",
        "a <redacted:email> b <redacted:email> c dddd",
        "q" * 300 + "<redacted:email>" + "r" * 300,
    ],
)
def test_a_literal_that_contains_a_placeholder_is_hidden(literal: str) -> None:
    shown = {literal: "<payload:$.7>"}

    once = redact_text(f"bad: {literal}!", Literals(shown))

    assert once == "bad: <payload:$.7>!"
    assert redact_text(once, Literals(shown)) == once


@pytest.mark.parametrize(
    "literal", ["redacted", "<redacted:email>", "payload:", "(<redacted:email>)", "email> !"]
)
def test_a_literal_never_changes_a_placeholder_alone(literal: str) -> None:
    text = "to (<redacted:email>) !"

    assert redact_text(text, Literals({literal: "<payload:$.7>"})) == text


def test_a_registered_secret_that_contains_a_placeholder_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_known", process._known)  # pyright: ignore[reportPrivateUsage]
    process.register_secret("opensesame <redacted:email> opensesame")

    assert process.redact("saw opensesame <redacted:email> opensesame") == "saw <redacted:secret>"


def test_pieces_of_a_long_literal_around_a_placeholder_are_hidden() -> None:
    literal = "".join(f"line {place} of the file <redacted:email> " for place in range(2_000))

    shown = process.redact_start(f"bad: {literal}", {literal: "<payload:$.7>"}, read=4_000)

    assert "of the file" not in shown
