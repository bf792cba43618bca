# SPDX-License-Identifier: Apache-2.0
"""Texts that want to command the terminal: whoever makes a job fail chooses its message, and whoever exports a letter its words."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.shell import Shell

HOSTILE = "\x1b[31m\x1b]0;t\x07\x9b1m\x08\r\u202e\u2066[red]x[/red]"
VISIBLE = r"\x1b[31m\x1b]0;t\x07\x9b1m\x08\x0d\u202e\u2066[red]x[/red]"
COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
FLOWS = f"""
import logging
from redrive import Pipeline, RetryPolicy, stage

@stage(retry=RetryPolicy(1))
def burn(number: int) -> int:
    logging.getLogger("fires").warning({HOSTILE!r})
    raise RuntimeError({HOSTILE!r})

fires = Pipeline("fires", [burn])
"""
LOOKS = (
    ("dlq", "list"),
    ("dlq", "groups"),
    ("dlq", "show", "1"),
    ("job", "show", "1"),
    ("job", "explain", "1"),
    ("job", "timeline", "1"),
    ("job", "list"),
    ("events",),
    ("events", "--operations"),
)


@pytest.fixture
def burnt(shell: Shell) -> Shell:
    """One failed job whose message and key are hostile, and an act whose reason is."""
    (shell.folder / "fires.py").write_text(FLOWS, encoding="utf-8")
    shell("submit", "fires:fires", "1", "--key", f"key{HOSTILE}")
    shell("worker", "fires:fires", "--until-idle")
    shell("dlq", "note", "1", "--text", f"said {HOSTILE}", "--actor", f"ann{HOSTILE}", "--yes")
    return shell


def test_no_control_character_of_a_text_reaches_the_terminal(burnt: Shell) -> None:
    for look in LOOKS:
        ended = burnt(*look)
        programs = burnt(*look, "-o", "json")

        assert (ended.code, programs.code) == (0, 0), look
        assert COMMANDS.findall(ended.out + ended.err + programs.out) == [], look


def test_such_a_text_is_shown_and_not_dropped(burnt: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")

    letter, acts = burnt("dlq", "show", "1").out, burnt("events", "--operations").out

    assert f"RuntimeError: {VISIBLE}" in letter
    assert f"ann{VISIBLE}" in acts
    assert burnt.json("dlq", "show", "1")["message"] == HOSTILE


def test_a_letter_of_another_installation_commands_nothing_either(burnt: Shell) -> None:
    line = json.loads(burnt("dlq", "export").out)
    line["letter"]["exception"] = f"Odd{HOSTILE}"
    line["job"]["key"] = f"other{HOSTILE}"
    burnt.write("letters.jsonl", json.dumps(line, ensure_ascii=False), f"[{HOSTILE}")
    other = ("--database-url", "other.db")
    burnt("migrate", *other)

    taken = burnt("dlq", "import", "letters.jsonl", "--yes", *other)
    seen = [burnt(*look, *other) for look in LOOKS]

    assert "made" in taken.out
    assert COMMANDS.findall("".join(each.out + each.err for each in (taken, *seen))) == []
    assert any(f"Odd{VISIBLE}" in each.out for each in seen)


def test_log_lines_command_nothing(burnt: Shell) -> None:
    burnt("submit", "fires:fires", "2")

    logged = burnt("worker", "fires:fires", "--until-idle").err

    assert VISIBLE in logged
    assert COMMANDS.findall(logged) == []
