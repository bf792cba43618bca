# SPDX-License-Identifier: Apache-2.0
"""What tests of the command line share: running a command in this process or in its own, and the pipelines they use."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from redrive.cli import app
from redrive.ops.audit import present_user

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
ORDERS = """
import dataclasses
from redrive import Pipeline, RetryPolicy, stage
from redrive.core.replay import ReplayRules

@dataclasses.dataclass
class Order:
    amount: int
    email: str

@stage(retry=RetryPolicy(1))
def pay(order: Order) -> float:
    return 10 / order.amount

shop = Pipeline("shop", [pay])
open_shop = Pipeline("shop", [pay], replay=ReplayRules(export="include"))
"""
REVIEWS = """
import os
from pathlib import Path
from redrive import Pipeline, RetryPolicy, stage
from redrive.core.replay import ReplayRules

def record(line: str) -> None:
    with open("ledger", "a", encoding="utf-8") as file:
        file.write(line + "\\n")

@stage
def fetch(change: dict[str, str]) -> str:
    record(f"fetch {change['id']}")
    return change["id"]

@stage(retry=RetryPolicy(1))
def llm(change: str) -> str:
    record(f"llm {change}")
    if not Path("fixed").exists() or change in Path("fixed").read_text(encoding="utf-8").split():
        raise PermissionError(f"the key of {change} has expired, api_key={os.environ.get('MODEL_KEY', '')}")
    return change

@stage
def notify(change: str) -> str:
    record(f"notify {change}")
    return change

reviews = Pipeline("reviews", [fetch, llm, notify])
samples = Pipeline("samples", [fetch, llm, notify], replay=ReplayRules(evidence="optional"))
uploads = Pipeline("uploads", [fetch, llm, notify], replay=ReplayRules(owner_retry=True))
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
        # What is waited for needs the processor more.
        threading.Event().wait(0.01)


def free_ports(count: int) -> int:
    """Return the first of some ports in a row that were free just now."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
        if first + count < 65_536:
            return first


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


def letter(shell: Shell, number: int = 1) -> dict[str, Any]:
    """Return one dead letter as `dlq show` prints it."""
    shown: dict[str, Any] = shell.json("dlq", "show", str(number))
    return shown


def work(shell: Shell, pipeline: str = "reviews") -> None:
    assert shell("worker", f"reviews_flow:{pipeline}", "--until-idle").code == 0


def prepared(shell: Shell, pipeline: str, changes: int) -> Shell:
    Path(shell.folder, "reviews_flow.py").write_text(REVIEWS, encoding="utf-8")
    shell.write("items.jsonl", *(f'{{"id": "change-{place}"}}' for place in range(changes)))
    shell("submit", f"reviews_flow:{pipeline}", "--file", "items.jsonl")
    work(shell, pipeline)
    return shell


ANN = f"ann (user {present_user()})"
"""How the operator log names whoever claims to be ann."""
