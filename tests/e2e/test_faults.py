# SPDX-License-Identifier: Apache-2.0
"""Real processes that die: kill -9 in the middle of a stage, and a polite SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .test_jobs import redrive

MODULE = """
import os, pathlib
from redrive import Context, Pipeline, stage

@stage
def write(name: str, ctx: Context) -> str:
    with open("ledger", "a") as ledger:
        ledger.write(ctx.idempotency_key + "\\n")
    gate = pathlib.Path("gate")
    if gate.exists():
        gate.unlink()
        os.mkfifo("told")
        pathlib.Path("ready").write_text(str(os.getpid()))
        open("told").read()
    return name

@stage
def end(name: str) -> str:
    return name

flow = Pipeline("flow", [write, end])
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "flows.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "gate").touch()
    return tmp_path


def start_worker(here: Path) -> subprocess.Popen[str]:
    """Start a worker and return when its first stage has begun and waits."""
    program = "from redrive.cli.app import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "worker", "flows:flow", "--lease", "1"],
        cwd=here,
        text=True,
        stderr=subprocess.PIPE,
    )
    while not (here / "ready").exists():
        assert process.poll() is None
        os.sched_yield()
    return process


def counts(here: Path) -> dict[str, int]:
    answer: dict[str, int] = json.loads(redrive(here, "stats", "-o", "json").stdout)
    return answer


def test_after_kill_9_another_worker_takes_over_and_nothing_is_lost(here: Path) -> None:
    (here / "items.jsonl").write_text("".join(f'"item {n}"\n' for n in range(20)), encoding="utf-8")
    redrive(here, "submit", "flows:flow", "--file", "items.jsonl")

    first = start_worker(here)
    first.kill()
    first.communicate()
    second = redrive(here, "worker", "flows:flow", "--until-idle", "--lease", "1")

    assert second.returncode == 0
    assert counts(here) == {"complete": 20, "total": 20}
    ledger = (here / "ledger").read_text(encoding="utf-8").split()
    assert set(ledger) == {f"flow:{n}:write" for n in range(1, 21)}


def test_sigterm_settles_what_runs_and_ends(here: Path) -> None:
    redrive(here, "submit", "flows:flow", '"only"')

    worker = start_worker(here)
    worker.send_signal(signal.SIGTERM)
    (here / "told").open("w").close()
    _, errors = worker.communicate(timeout=30)

    assert (worker.returncode, errors) == (0, "")
    assert counts(here) == {"queued": 1, "total": 1}
    assert (here / "ledger").read_text(encoding="utf-8").split() == ["flow:1:write"]
