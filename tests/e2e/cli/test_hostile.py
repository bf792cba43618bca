# SPDX-License-Identifier: Apache-2.0
"""Texts that want to command the terminal: whoever makes a job fail chooses its message, and whoever exports a letter its words."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from importlib import import_module

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


@pytest.mark.untraced
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


def test_an_export_to_a_terminal_commands_nothing_and_one_to_a_program_is_left_as_it_is(burnt: Shell) -> None:
    piped = burnt("dlq", "export").out
    parent, child = pty.openpty()
    ended = subprocess.run(
        [sys.executable, "-m", "redrive.cli", "dlq", "export"],
        cwd=burnt.folder,
        stdout=child,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    os.close(child)
    shown = b""
    with suppress(OSError):
        while more := os.read(parent, 65_536):
            shown += more
    os.close(parent)
    text = shown.decode().replace("\r\n", "")

    assert ended.returncode == 0
    assert COMMANDS.search(piped.replace("\n", "")) is not None
    assert COMMANDS.search(text) is None
    assert json.loads(text) == json.loads(piped)


@pytest.mark.parametrize("text", ["[" * 5_000, '{"password": "hunter2-and-more" oops'])
def test_what_is_not_json_is_neither_a_traceback_nor_echoed(shell: Shell, text: str) -> None:
    (shell.folder / "fires.py").write_text(FLOWS, encoding="utf-8")
    (shell.folder / "items.jsonl").write_text(text, encoding="utf-8")

    for given in ((text,), ("--file", "items.jsonl")):
        refused = shell("submit", "fires:fires", *given)

        assert refused.code == 2
        assert "must be JSON" in refused.err
        assert "Traceback" not in refused.err
        assert "hunter2" not in refused.err


def test_a_deep_configuration_file_is_no_traceback(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDRIVE_DATABASE_URL", raising=False)
    (shell.folder / "redrive.toml").write_text("a = " + "[" * 5_000, encoding="utf-8")

    refused = shell("stats")

    assert refused.code == 2
    assert "nested too deep" in refused.err


def test_no_command_shows_local_variables() -> None:
    apps = [
        "redrive.cli.app",
        *(f"apps.{name}.cli" for name in ("collabiq", "criticizer", "fetchbox", "forge", "pdf2xml")),
    ]
    for name in apps:
        app = import_module(name).app
        assert not (app.pretty_exceptions_enable and app.pretty_exceptions_show_locals), name
