# SPDX-License-Identifier: Apache-2.0
"""Programs without a guard around what they do: nothing of them happens twice, whatever becomes of their jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from redrive import connect

STAGES = """
import os
from redrive import Pipeline, stage

@stage
def where(number: int) -> int:
    return os.getpid()

@stage(process=True)
def apart(number: int) -> int:
    return os.getpid()
"""
PROGRAM = """
import os
from pathlib import Path
from redrive import Pipeline, connect, stage
{stages}

with Path("runs").open("a") as runs:
    runs.write("run\\n")

flow = Pipeline("pages", [{stage}])
with connect("jobs.db") as rd:
    job = rd.submit(flow, 1)
    rd.store._db.execute("UPDATE jobs SET suspect_count = 2")
    rd.work([flow], until_idle=True)
    print(job.status, job.result() == os.getpid())
"""


def run(folder: Path, *, stages: str, stage: str) -> subprocess.CompletedProcess[str]:
    (folder / "flows.py").write_text(STAGES)
    (folder / "program.py").write_text(PROGRAM.format(stages=stages, stage=stage))
    return subprocess.run(
        [sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def jobs_in(folder: Path) -> int:
    with connect(folder / "jobs.db") as rd:
        return sum(rd.jobs.counts().values())


@pytest.mark.parametrize(
    ("stages", "stage", "is_here"),
    [
        (STAGES, "where", True),
        ("from flows import where", "where", False),
        ("from flows import apart", "apart", False),
    ],
    ids=["a stage of the program", "a suspect of a module", "a process stage of a module"],
)
def test_a_suspect_does_not_run_the_program_again(
    tmp_path: Path, stages: str, stage: str, is_here: bool
) -> None:
    ended = run(tmp_path, stages=stages, stage=stage)

    assert (ended.stdout.strip(), ended.stderr) == (f"complete {is_here}", "")
    assert (tmp_path / "runs").read_text() == "run\n"
    assert jobs_in(tmp_path) == 1


def test_a_process_stage_of_the_program_is_refused(tmp_path: Path) -> None:
    ended = run(tmp_path, stages=STAGES, stage="apart")

    assert "stage(apart).process" in ended.stderr
    assert "this one is of the program that was started" in ended.stderr
    assert (tmp_path / "runs").read_text() == "run\n"
