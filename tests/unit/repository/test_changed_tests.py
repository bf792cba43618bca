# SPDX-License-Identifier: Apache-2.0
"""Which tests are chosen for which files, and which files count as changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import changed_tests as tool

APPS = [f"apps/{name}/tests" for name in ("collabiq", "criticizer", "fetchbox", "forge", "pdf2xml")]


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        (
            "src/redrive/engine/worker/leases.py",
            ["tests/requirements", "tests/simulation", "tests/test_tidy.py", "tests/unit/engine/worker"],
        ),
        ("src/redrive/core/decide.py", ["tests/requirements", "tests/test_tidy.py", "tests/unit/core"]),
        ("src/redrive/redaction/named/assignments.py", ["tests/test_tidy.py", "tests/unit/redaction"]),
        (
            "src/redrive/store/sqlite/claim.sql",
            ["tests/conformance", "tests/simulation", "tests/test_tidy.py", "tests/unit/store"],
        ),
        ("src/redrive/ops/letters/freeze.py", ["tests/e2e", "tests/test_tidy.py", "tests/unit/ops/letters"]),
        (
            "src/redrive/rules/redis.py",
            ["tests/test_tidy.py", "tests/unit/rules", "tests/wire", "tests/wire_store"],
        ),
        (
            "src/redrive/cli/commands/job.py",
            ["tests/e2e", "tests/test_tidy.py", "tests/unit/cli/commands"],
        ),
        ("src/redrive/sinks/nats.py", ["tests/test_tidy.py", "tests/unit/sinks", "tests/wire_store"]),
        (
            "src/redrive/testing/conformance/claims.py",
            ["tests/conformance", "tests/test_tidy.py", "tests/unit/testing/conformance"],
        ),
        ("src/redrive/testing/clock.py", ["tests/test_tidy.py", "tests/unit/testing"]),
        ("src/redrive/config.py", ["tests/test_tidy.py", "tests/unit/test_config_files.py"]),
        ("src/redrive/errors/tree.py", ["tests/test_tidy.py", "tests/unit/errors"]),
        ("src/redrive/__init__.py", ["tests/test_exports.py", "tests/test_tidy.py"]),
        ("apps/criticizer/llm.py", ["apps/criticizer/tests", "tests/test_tidy.py"]),
        ("apps/collabiq/README.md", ["apps/collabiq/tests", "tests/test_docs.py"]),
        ("apps/conftest.py", [*APPS, "tests/apps", "tests/test_tidy.py"]),
        ("apps/database.py", [*APPS, "tests/apps", "tests/test_tidy.py"]),
        ("bench/herd.py", ["tests/test_tidy.py", "tests/unit/repository/test_bench.py"]),
        ("bench/peers/postgres/requirements.txt", ["tests/unit/repository/test_bench.py"]),
        ("tests/faults/test_kills.py", ["tests/faults/test_kills.py", "tests/test_tidy.py"]),
        ("tests/faults/herd.py", ["tests/faults", "tests/test_tidy.py"]),
        (
            "tests/unit/store/sqlite/version_1/schema.sql",
            ["tests/test_tidy.py", "tests/unit/store/sqlite"],
        ),
        ("tests/typing/usage.py", ["tests/test_tidy.py"]),
        ("tests/tidy/words.py", ["tests/test_tidy.py", "tests/unit/repository"]),
        ("tests/conftest.py", ["tests/test_tidy.py", "tests/unit"]),
        ("docs/concepts/glossary.md", ["tests/test_docs.py", "tests/test_tidy.py"]),
        ("tools/docs.py", ["tests/test_tidy.py", "tests/unit/repository"]),
        ("docs/how-to/guard-a-call.md", ["tests/test_docs.py"]),
        ("Makefile", ["tests/test_docs.py"]),
        ("pyproject.toml", ["apps", "tests"]),
        ("requirements/run.txt", ["apps", "tests"]),
        ("LICENSE", []),
        ("tests/unit/core/test_that_is_gone.py", ["tests/test_tidy.py"]),
        ("apps/gone/flow.py", ["tests/test_tidy.py"]),
    ],
)
def test_a_file_belongs_to_its_tests(path: str, tests: list[str]) -> None:
    assert tool.choose([path], tool.ROOT) == tests


def test_tests_inside_a_chosen_folder_are_not_named_again() -> None:
    paths = ["src/redrive/core/decide.py", "tests/unit/core/test_decide.py", "tests/unit/core/build.py"]

    assert tool.choose(paths, tool.ROOT) == ["tests/requirements", "tests/test_tidy.py", "tests/unit/core"]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a small repository; its origin has one commit."""
    origin, here = tmp_path / "origin", tmp_path / "here"
    origin.mkdir()
    git(origin, "init", "-q", "-b", "main")
    for name in ("kept.py", "edited.py", "deleted.py"):
        (origin / name).write_text("")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "start")
    git(tmp_path, "clone", "-q", "origin", "here")
    return here


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True)


def test_what_was_committed_edited_deleted_and_added_since_the_origin_has_changed(clone: Path) -> None:
    assert tool.changed_files(clone) == []

    (clone / "committed.py").write_text("")
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "more")
    (clone / "edited.py").write_text("x = 1\n")
    (clone / "deleted.py").unlink()
    (clone / "new.py").write_text("")

    assert tool.changed_files(clone) == ["committed.py", "deleted.py", "edited.py", "new.py"]


def test_without_an_origin_the_last_commit_is_compared_with(clone: Path) -> None:
    git(clone, "remote", "remove", "origin")
    (clone / "edited.py").write_text("x = 1\n")

    assert tool.changed_files(clone) == ["edited.py"]


def test_outside_a_repository_nothing_has_changed(tmp_path: Path) -> None:
    assert tool.changed_files(tmp_path) == []


@pytest.mark.parametrize(("paths", "ended"), [([], 0), (["docs/index.md"], 7)])
def test_the_command_names_what_it_chose_and_ends_as_pytest_does(
    paths: list[str], ended: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 7)

    monkeypatch.setattr(tool, "changed_files", lambda _root: paths)
    monkeypatch.setattr(subprocess, "run", run)

    assert tool.main(["-q"]) == ended
    assert capsys.readouterr().out == (
        "1 files changed; their tests: tests/test_docs.py\n"
        if paths
        else "0 files changed; their tests: none\n"
    )
    assert ran == ([[sys.executable, "-m", "pytest", "-q", "tests/test_docs.py"]] if paths else [])
