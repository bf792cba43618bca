# SPDX-License-Identifier: Apache-2.0
"""The documentation holds: its examples run, its links lead somewhere, its commands exist, its generated pages are fresh."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.tidy import language, pages
from tests.tidy.tree import ROOT
from tools import docs

EXAMPLE_SECONDS_MAX = 60
PAGES = [path for name in pages.TOP if (path := ROOT / name).exists()] + sorted((ROOT / "docs").rglob("*.md"))
EXAMPLES = [
    (path, block)
    for path in PAGES
    for block in pages.blocks_in(path.read_text(encoding="utf-8"))
    if block.info == "python"
]
FIRST_EXAMPLE_LINES_MAX = 15

# Imports redrive once, and forks a process for each file that it is given to run as a program. A program may reach this machine only
# and takes so long at most; its output goes to a file beside it, and its exit code comes back.
RUNNER = f"""
import os, runpy, signal, socket, sys
from redrive import *

connect = socket.socket.connect

def local_only(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise OSError(f"an example tried to reach {{address[0]}}")
    return connect(self, address)

def run(path):
    signal.alarm({EXAMPLE_SECONDS_MAX})
    os.chdir(os.path.dirname(path))
    output = os.open(path + ".out", os.O_WRONLY | os.O_CREAT)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    socket.socket.connect = local_only
    sys.argv = [path]
    runpy.run_path(path, run_name="__main__")

for line in sys.stdin:
    child = os.fork()
    if not child:
        run(line.strip())
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
Run = Callable[[Path], tuple[int, str]]


@pytest.fixture(scope="module")
def run() -> Generator[Run]:
    """Run a file as a program of its own; return its exit code and its output."""
    command = [sys.executable, "-W", "error", "-c", RUNNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdin is not None
        assert runner.stdout is not None
        asked, answered = runner.stdin, runner.stdout

        def run_file(path: Path) -> tuple[int, str]:
            asked.write(f"{path}\n")
            asked.flush()
            return int(answered.readline()), path.with_suffix(".py.out").read_text(encoding="utf-8")

        yield run_file
        asked.close()


def name_of(value: object) -> str | None:
    if isinstance(value, Path):
        return value.relative_to(ROOT).as_posix()
    return f"line {value.line}" if isinstance(value, pages.Block) else None


@pytest.mark.parametrize(("page", "block"), EXAMPLES, ids=name_of)
def test_an_example_runs(page: Path, block: pages.Block, tmp_path: Path, run: Run) -> None:
    example = tmp_path / "example.py"
    example.write_text(block.text, encoding="utf-8")

    code, output = run(example)

    assert code == 0, f"{page.relative_to(ROOT)}:{block.line} failed:\n{output}"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("1 / 0", 1, "ZeroDivisionError"),
        ("raise SystemExit(3)", 3, ""),
        ("import socket\nsocket.create_connection(('192.0.2.1', 80))", 1, "tried to reach 192.0.2.1"),
        ("import warnings\nwarnings.warn('old')", 1, "UserWarning: old"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGALRM)", -14, ""),
        ("print(redrive)", 1, "NameError"),
    ],
)
def test_an_example_that_is_wrong_fails(tmp_path: Path, run: Run, text: str, code: int, words: str) -> None:
    example = tmp_path / "example.py"
    example.write_text(text, encoding="utf-8")

    ended, output = run(example)

    assert ended == code, output
    assert words in output


def test_the_readme_starts_with_a_short_example() -> None:
    first = next((block for path, block in EXAMPLES if path == ROOT / "README.md"), None)

    assert first is not None, "the README has no python block that runs"
    assert len(first.text.splitlines()) <= FIRST_EXAMPLE_LINES_MAX


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_keeps_the_rules_of_pages(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = pages.targets_in((ROOT / "Makefile").read_text(encoding="utf-8"))

    found = [
        *pages.odd_fences(text),
        *pages.broken_links(page, text, ROOT),
        *pages.unknown_commands(text, targets),
        # Decisions are history: they use the names and words of their time.
        *([] if "adr" in page.parts else pages.unknown_modules(text, ROOT)),
        *(
            []
            if "adr" in page.parts
            else language.private_words_in_page(page.relative_to(ROOT).as_posix(), text)
        ),
    ]

    assert found == []


def test_every_page_is_in_the_table_of_contents() -> None:
    index = ROOT / "docs/index.md"
    linked = {
        (index.parent / target.partition("#")[0]).resolve()
        for target in pages.links_in(index.read_text("utf-8"))
    }

    assert [
        name_of(page)
        for page in PAGES
        if page.relative_to(ROOT).parts[0] == "docs" and page != index and page.resolve() not in linked
    ] == []


def test_the_readme_lists_the_dependencies_that_are_installed() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (listed,) = re.findall(r"^Its only dependencies are (.+)\.$", readme, re.MULTILINE)

    assert sorted(re.split(", | and ", listed)) == sorted(
        re.split("[<>=~!]", each)[0] for each in project["dependencies"]
    )


def test_generated_pages_are_fresh() -> None:
    difference = docs.stale(ROOT)

    assert not difference, "run `make docs`:\n" + "\n".join(difference)


@pytest.mark.req("FB-9.1")
def test_every_code_is_described_on_the_page_of_failures() -> None:
    """The page is compared with the classifier itself, not with the tool that wrote it."""
    from redrive.core.taxonomy import CODES

    text = (ROOT / "docs/failures.md").read_text(encoding="utf-8")
    rows = {
        cells[0].strip("` "): cells
        for line in text.splitlines()
        if len(cells := line.strip("| ").split(" | ")) == 6
    }

    for code in CODES.values():
        _, retried, severity, breaker, line, hint = rows[code.name]
        assert retried.startswith(
            {"yes": "yes", "no": "no", "if_idempotent": "if the stage is idempotent"}[code.retryable]
        )
        assert (severity, line, hint) == (code.severity, code.line, code.hint)
        assert (breaker == "counts") is code.is_reachability
    assert set(rows) - {"Code"} == set(CODES)


def test_the_check_prints_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)

    assert docs.main(["--check"]) == 1
    assert "+# Failures" in capsys.readouterr().out

    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0

    (tmp_path / "docs/failures.md").write_text("old\n")
    assert docs.main(["--check"]) == 1
    assert "-old" in capsys.readouterr().out
