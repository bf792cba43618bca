# SPDX-License-Identifier: Apache-2.0
"""The documentation holds: its examples run, its links lead somewhere, its commands exist, its generated pages are fresh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy import pages
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

# Runs a file as a program, and refuses every connection that leaves the machine.
OFFLINE = """
import runpy, socket, sys
connect = socket.socket.connect
def local_only(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise OSError(f"an example tried to reach {address[0]}")
    return connect(self, address)
socket.socket.connect = local_only
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def name_of(value: object) -> str | None:
    if isinstance(value, Path):
        return value.relative_to(ROOT).as_posix()
    return f"line {value.line}" if isinstance(value, pages.Block) else None


@pytest.mark.parametrize(("page", "block"), EXAMPLES, ids=name_of)
def test_an_example_runs(page: Path, block: pages.Block, tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(block.text, encoding="utf-8")

    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", OFFLINE, str(example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=EXAMPLE_SECONDS_MAX,
        check=False,
    )

    assert run.returncode == 0, f"{page.relative_to(ROOT)}:{block.line} failed:\n{run.stdout}{run.stderr}"


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
        # Decisions are history: they name modules as they were called then.
        *(pages.unknown_modules(text, ROOT) if "adr" not in page.parts else []),
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
