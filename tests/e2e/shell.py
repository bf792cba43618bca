# SPDX-License-Identifier: Apache-2.0
"""What tests of the command line share: running a command in this process or in its own, and the pipelines they use."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from redrive.cli import app

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
    """Runs commands in its own folder, in this process, as `redrive` would get them."""

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
        """Run a command that must succeed, and return its JSON output."""
        ended = self(*arguments, "-o", "json")
        assert ended.code == 0, ended.err
        return ended.json

    def write(self, name: str, *lines: object) -> str:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return name

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in its own process; for signals, kills, and what runs beside other commands."""
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


def until(holds: Callable[[], bool], running: subprocess.Popen[str] | None = None) -> None:
    """Poll until another process has got so far; fail when it ends before, or after a minute."""
    deadline = time.monotonic() + 60
    while not holds():
        if running is not None and running.poll() is not None:
            pytest.fail(f"it ended with {running.returncode}: {running.communicate()}")
        if time.monotonic() > deadline:
            pytest.fail("it has not got so far within a minute")


def program(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `redrive` in its own process, to its end."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **env},
    )
