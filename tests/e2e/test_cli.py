# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: version, help, completion, exit codes, errors; and the shell its other tests type into."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from redrive.cli import app
from redrive.errors import ConfigurationError, StoreUnavailableError

FLOWS = """
from redrive import Backoff, Breaker, Pipeline, RetryPolicy, Snooze, stage

@stage(retry=RetryPolicy(2, Backoff.fixed(0.01)))
def fetch(number: int) -> int:
    if number == 13:
        raise ConnectionResetError(104, "reset")
    return number

@stage
def halve(number: int) -> float:
    return 10 / number

@stage
def later(number: int) -> int:
    if number < 10:
        raise KeyError(number)
    raise Snooze(3600)

@stage(breaker=Breaker("model", consecutive=2, open_for=60))
def ask(number: int) -> int:
    return number

orders = Pipeline("orders", [fetch, halve])
sleepers = Pipeline("sleepers", [later])
asking = Pipeline("asking", [ask])
"""
PROGRAM = "import sys; sys.argv[0] = 'redrive'; from redrive.cli.app import main; main()"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Types commands in a folder of its own, in this process, as `redrive` would get them."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, stdin: str = "") -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["redrive", *arguments])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        self._capsys.readouterr()
        code = 0
        try:
            app.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        out, err = self._capsys.readouterr()
        assert "Traceback (most recent call last)" not in err
        return Ended(code, out, err)

    def json(self, *arguments: str) -> Any:
        """Ask for JSON, of a command that must succeed."""
        ended = self(*arguments, "-o", "json")
        assert ended.code == 0, ended.err
        return ended.json

    def write(self, name: str, *lines: object) -> str:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return name

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command as a program of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive.cli", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.started.append(process)
        return process


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Generator[Shell]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("REDRIVE_DATABASE_URL", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "flows.py").write_text(FLOWS, encoding="utf-8")
    opened = Shell(tmp_path, monkeypatch, capsys)
    yield opened
    for process in opened.started:
        process.kill()
        process.communicate(timeout=60)
    for name in [name for name, module in sys.modules.items() if _is_from(module, tmp_path)]:
        del sys.modules[name]
    root.handlers[:], root.level = before


def _is_from(module: object, folder: Path) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(str(folder))


def until(holds: Callable[[], bool], running: subprocess.Popen[str] | None = None) -> None:
    """Look until another process has come so far; not for ever, and not once it has ended."""
    deadline = time.monotonic() + 60
    while not holds():
        if running is not None and running.poll() is not None:
            pytest.fail(f"it ended with {running.returncode}: {running.communicate()}")
        if time.monotonic() > deadline:
            pytest.fail("it has not come so far within a minute")


def program(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **env},
    )


def test_the_version_is_shown() -> None:
    assert program("--version").stdout.startswith("redrive 0.")


def test_without_arguments_the_help_names_every_command(shell: Shell) -> None:
    shown = shell().out

    nouns = "submit worker run schedule job pipeline breaker events stats doctor backup prune migrate demo"
    assert [noun for noun in nouns.split() if noun not in shown] == []


def test_a_wrong_command_is_refused_with_exit_code_2() -> None:
    ran = program("dmeo")

    assert ran.returncode == 2
    assert "dmeo" in ran.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError(field="x", value=1, rule="must be 2", fix="Write [2]."), 2),
        (StoreUnavailableError(database="x must be 2", cause="[disk] full"), 1),
    ],
)
def test_an_error_of_redrive_ends_as_a_message_with_a_hint(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise error

    monkeypatch.setattr(app, "app", refuse)
    with pytest.raises(SystemExit) as ended:
        app.main()

    shown = capsys.readouterr().err
    assert ended.value.code == code
    assert shown.startswith("error: ")
    assert "x must be 2" in shown
    assert "[" in shown, "what looks like markup is shown as it is"
    assert shown.count("Write [2].") <= 1, "a hint that the message holds already is not said twice"


def test_the_shell_completes_commands_and_names_from_the_database(shell: Shell) -> None:
    shell("submit", "flows:orders", "1")
    shell("breaker", "isolate", "model", "--new", "--yes")

    def complete(words: str, count: int) -> list[str]:
        asked = {"_REDRIVE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
        return program(cwd=shell.folder, **asked).stdout.split()

    assert complete("redrive pi", 1) == ["pipeline"]
    assert complete("redrive pipeline pause ", 3) == ["orders"]
    assert complete("redrive breaker close mo", 3) == ["model"]
    assert complete("redrive job list --status comp", 4) == ["complete"]


def test_completion_without_a_database_offers_nothing_and_makes_none(shell: Shell) -> None:
    asked = {
        "_REDRIVE_COMPLETE": "complete_bash",
        "COMP_WORDS": "redrive pipeline pause ",
        "COMP_CWORD": "3",
    }

    assert program(cwd=shell.folder, **asked).stdout.split() == []
    assert not (shell.folder / "redrive.db").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["stats"],
        ["job", "list"],
        ["job", "show", "1"],
        ["run", "list"],
        ["pipeline", "list"],
        ["breaker", "list"],
        ["events"],
        ["schedule", "list"],
        ["prune", "--complete", "1d"],
        ["backup", "copy.db"],
    ],
)
def test_a_command_that_only_looks_makes_no_database(shell: Shell, command: list[str]) -> None:
    ended = shell(*command)

    assert ended.code == 2
    assert "names no database that is there" in ended.err
    assert [path.name for path in shell.folder.glob("*.db*")] == []
