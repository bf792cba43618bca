# SPDX-License-Identifier: Apache-2.0
"""What is traced for coverage: tests but for those that say so, and the programs only of tests that say so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CONFTEST = "from tests.tracing import register as pytest_configure"
CODE = "\n".join(
    f"def {name}():\n    return 1" for name in ("here", "again", "started", "started_again", "after")
)
TESTS = """
import subprocess, sys, threading, pytest

def start(name):
    subprocess.run([sys.executable, "-c", f"import code_under_test as code; code.{name}()"], check=True)

def test_here():
    import code_under_test as code
    code.here()
    start("started")

@pytest.mark.untraced
def test_again():
    import code_under_test as code
    thread = threading.Thread(target=code.again)
    thread.start()
    thread.join()
    code.again()

@pytest.mark.traced_programs
def test_programs():
    import code_under_test as code
    thread = threading.Thread(target=code.after)
    thread.start()
    thread.join()
    start("started_again")
"""
SETTINGS = "[run]\nparallel = true\nsource = .\npatch = subprocess\n"


def test_marks_decide_what_is_traced(tmp_path: Path) -> None:
    for name, text in {
        "conftest.py": CONFTEST,
        "code_under_test.py": CODE,
        "test_it.py": TESTS,
        ".coveragerc": SETTINGS,
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    plain = ("-p", "no:randomly", "-p", "no:cacheprovider", "-n", "0", "-c", "/dev/null", "--rootdir", ".")
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"}

    def run(*words: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return ended.stdout

    assert "3 passed" in run("coverage", "run", "-m", "pytest", "-q", *plain, "test_it.py")
    run("coverage", "combine", "-q")
    found = json.loads(run("coverage", "json", "-q", "-o", "-"))

    assert found["files"]["code_under_test.py"]["missing_lines"] == [4, 6]
