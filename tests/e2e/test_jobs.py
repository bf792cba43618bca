# SPDX-License-Identifier: Apache-2.0
"""Submitting and working from the command line, as separate programs on one file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from redrive import Pipeline, stage

@stage
def halve(number: int) -> float:
    return 10 / number

orders = Pipeline("orders", [halve])
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "flows.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


def redrive(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from redrive.cli.app import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=here,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )


def test_submit_work_and_look(here: Path) -> None:
    (here / "items.jsonl").write_text("1\n2\n\n0\n", encoding="utf-8")

    submitted = redrive(here, "submit", "flows:orders", "--file", "items.jsonl", "-o", "json")
    worked = redrive(here, "worker", "flows:orders", "--until-idle")
    stats = redrive(here, "stats", "-o", "json")
    shown = redrive(here, "job", "show", "3", "-o", "json")

    assert json.loads(submitted.stdout) == {"submitted": 3, "first": 1, "last": 3}
    assert (worked.returncode, worked.stderr) == (0, "")
    assert json.loads(stats.stdout) == {"complete": 2, "failed": 1, "total": 3}
    assert json.loads(shown.stdout)["error_code"] == "BUG_CODE"
    assert "BUG_CODE" in redrive(here, "job", "show", "3").stdout


def test_one_payload_with_a_key_is_submitted_once(here: Path) -> None:
    for _ in range(2):
        assert redrive(here, "submit", "flows:orders", "5", "--key", "a").returncode == 0

    assert json.loads(redrive(here, "stats", "-o", "json").stdout) == {"queued": 1, "total": 1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["submit", "flows", "1"], "must name a module and a pipeline"),
        (["submit", "nowhere:orders", "1"], "cannot be imported"),
        (["submit", "flows:ordres", "1"], "Its pipelines: orders"),
        (["submit", "flows:orders"], "exactly one of the two"),
        (["submit", "flows:orders", "1", "--file", "x"], "exactly one of the two"),
        (["submit", "flows:orders", "{"], "must be JSON"),
        (["submit", "flows:orders", '"five"'], "Expected `int`"),
        (["submit", "flows:orders", "--file", "missing.jsonl"], "cannot be read"),
        (["job", "show", "7"], "there is no job 7"),
        (["worker", "flows:orders", "--concurrency", "0"], "at least 1"),
        (["stats", "--database-url", "postgresql://u:secret@h/d"], "must be a path"),
    ],
)
def test_wrong_input_is_refused_with_a_hint_and_exit_code_2(
    here: Path, arguments: list[str], words: str
) -> None:
    ran = redrive(here, *arguments)

    assert ran.returncode == 2
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "secret@" not in ran.stderr


def test_a_bad_line_of_a_file_is_named(here: Path) -> None:
    (here / "items.jsonl").write_text("1\n{oops\n", encoding="utf-8")

    ran = redrive(here, "submit", "flows:orders", "--file", "items.jsonl")

    assert ran.returncode == 2
    assert "line 2" in ran.stderr
