# SPDX-License-Identifier: Apache-2.0
"""The README is true: its commands are run as they stand there, and say what it says they do."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from apps.criticizer import cli
from apps.criticizer.settings import Settings
from redrive import connect
from redrive.cli.app import main as redrive_cli

README = Path(__file__).parents[1] / "README.md"
ROOT = Path(__file__).parents[3]


def commands() -> list[tuple[str, int, list[str]]]:
    """Return each command with its exit code and the lines it is said to print."""
    found: list[tuple[str, int, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                command, _, remark = line[2:].partition("   # ")
                found.append((command, 1 if remark == "exits with 1" else 0, []))
            else:
                found[-1][2].append(line)
    return found


class Terminal:
    """Types commands in a folder; those of redrive and Criticizer run in this process, which spares starting Python each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, command: str) -> tuple[int, str]:
        match shlex.split(command):
            case ["export", setting]:
                self._monkeypatch.setenv(*setting.split("=", 1))
                return 0, ""
            case ["python", "-m", "apps.criticizer", *words]:
                return self._call(cli.main, "criticizer", words)
            case ["redrive", *words]:
                return self._call(redrive_cli, "redrive", words)
            case words:
                return subprocess.run(words, check=False).returncode, ""

    def _call(self, program: Callable[[], None], name: str, words: list[str]) -> tuple[int, str]:
        self._monkeypatch.setattr(sys, "argv", [name, *words])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            program()
        said = self._capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err


@pytest.mark.req("CR-5.1", "CR-5.2", "CR-6.1")
def test_the_commands_of_the_readme_do_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    terminal = Terminal(monkeypatch, capsys)
    told = commands()
    for command, code, lines in told:
        ended, said = terminal.run(command)
        assert ended == code, f"{command}: {said}"
        assert all(line in said for line in lines), f"{command}: {said}"

    assert len(told) == 22
    with connect(tmp_path / "reviews.db") as rd:
        first, second, third = (rd.letters.show(number).letter for number in (1, 2, 3))
        assert (first.state, first.outcome, first.diagnosis) == ("resolved", "completed", "data")
        assert first.evidence == "tag v2 is pushed, ticket 42"
        assert (second.state, second.outcome) == ("returned", "same")
        assert (third.state, third.is_escalated, third.follows) == ("open", True, 2)


def test_the_first_command_of_the_readme_runs_as_a_program_of_its_own(tmp_path: Path) -> None:
    command, _, lines = commands()[0]
    words = [sys.executable, *shlex.split(command)[1:]]

    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert all(line in done.stdout for line in lines)


def test_the_readme_names_every_setting() -> None:
    text = README.read_text(encoding="utf-8")
    names = {name.upper() for name in Settings.__dataclass_fields__} - {"TIMEOUT_SECONDS"}
    defaults = Settings()

    assert {name for name in names if f"`CRITICIZER_{name}`" not in text} == set()
    assert all(
        f"`{value}`" in text
        for value in (defaults.llm_url, defaults.llm_model, defaults.smtp_url, defaults.mail_from)
    )
