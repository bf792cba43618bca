# SPDX-License-Identifier: Apache-2.0
"""Run the tests that belong to what changed: `python -m tools.changed_tests`, arguments for pytest after it.

What changed is everything that differs from the common ancestor with origin/HEAD, uncommitted and new files included. Tests mirror
the tree, so that a file of `src/redrive/<room>` belongs to `tests/unit/<room>`; what is not mirrored is in the tables below.
Imports are not followed: `make test` runs everything.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BASES: Final = ("origin/HEAD", "origin/main", "HEAD")
# Room of the package -> the tests that drive it from outside.
OUTSIDE: Final = {
    "cli": ("tests/e2e",),
    "client": ("tests/e2e",),
    "core": ("tests/requirements",),
    "engine": ("tests/simulation", "tests/requirements"),
    "ops": ("tests/e2e",),
    "rules": ("tests/wire", "tests/wire_store"),
    "sinks": ("tests/wire_store",),
    "store": ("tests/conformance", "tests/simulation"),
    "testing/conformance": ("tests/conformance",),
}
# Rooms that are tested as a whole: a test above a folder, or in another one, is about this folder as well.
WHOLE: Final = ("redaction", "store")
TIDY: Final = "tests/test_tidy.py"
EVERYTHING: Final = ("apps", "tests")
# Folder at the root -> the tests of what is in it.
FOLDERS: Final = {
    "bench": ("tests/unit/repository/test_bench.py",),
    "requirements": EVERYTHING,
    "tools": ("tests/unit/repository",),
}
# File -> the tests that read it.
FILES: Final = {
    "Makefile": ("tests/test_docs.py",),
    "pyproject.toml": EVERYTHING,
    "src/redrive/__init__.py": ("tests/test_exports.py",),
}


def changed_files(root: Path) -> list[str]:
    """Return the paths that differ from the common ancestor with the first of `BASES` that exists; deleted ones too."""
    ancestors = (_git(root, "merge-base", base, "HEAD") for base in BASES)
    ancestor = next((lines[0] for lines in ancestors if lines), None)
    tracked = [] if ancestor is None else _git(root, "diff", "--name-only", "--no-renames", ancestor)
    return sorted({*tracked, *_git(root, "ls-files", "--others", "--exclude-standard")})


def _git(root: Path, *arguments: str) -> list[str]:
    """Return the lines that git prints, none when it fails."""
    ran = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return ran.stdout.splitlines() if ran.returncode == 0 else []


def tests_for(path: str, root: Path) -> set[str]:
    """Return the test files and folders, as far as they exist, that belong to one path."""
    parts = PurePosixPath(path).parts
    found = {*FILES.get(path, ()), *FOLDERS.get(parts[0], ())}
    match parts:
        case ("src", "redrive", *folders, _):
            found |= _mirror(folders, PurePosixPath(path).stem, root)
            for depth in range(1, len(folders) + 1):
                found.update(OUTSIDE.get("/".join(folders[:depth]), ()))
        case ("apps", _):
            # What all applications share.
            found |= {
                "tests/apps",
                *(each.relative_to(root).as_posix() for each in root.glob("apps/*/tests")),
            }
        case ("apps", app, *_):
            found.add(f"apps/{app}/tests")
        case ("tests", *inside):
            found |= _beside(path, inside, root)
        case _:
            pass
    if path.endswith(".md"):
        found.add("tests/test_docs.py")
    if path.endswith((".py", ".sql", "glossary.md")):
        found.add(TIDY)
    return {each for each in found if (root / each).exists()}


def _mirror(folders: Sequence[str], stem: str, root: Path) -> set[str]:
    """Return the innermost folder of tests for a module of the package, or the files named after it or its room."""
    unit = PurePosixPath("tests/unit")
    folder = unit.joinpath(*folders[:1] if folders and folders[0] in WHOLE else folders)
    while not (root / folder).is_dir():
        folder = folder.parent
    if folder != unit:
        return {folder.as_posix()}
    named = (root / unit).glob(f"test_{folders[0] if folders else stem}*.py")
    return {each.relative_to(root).as_posix() for each in named}


def _beside(path: str, inside: Sequence[str], root: Path) -> set[str]:
    """Return a test itself, or for what tests share those that are nearest to it."""
    match inside:
        case (*_, name) if name.startswith("test_"):
            return {path}
        case ("tidy", _):
            return {TIDY, "tests/unit/repository"}
        case (_,):
            # Fixtures and builders that all tests share; the unit tests notice first.
            return {"tests/unit"}
        case _:
            # Data may stand in a folder of its own, below the tests that read it.
            above = [each for each in PurePosixPath(path).parents if len(each.parts) > 1]
            return {*[each.as_posix() for each in above if any((root / each).rglob("test_*.py"))][:1]}


def choose(paths: Iterable[str], root: Path) -> list[str]:
    """Return the tests that belong to these paths, none of them inside another."""
    found = {each for path in paths for each in tests_for(path, root)}
    return sorted(
        each
        for each in found
        if not any(parent.as_posix() in found for parent in PurePosixPath(each).parents)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was chosen and run it; return pytest's exit status, 0 when nothing changed."""
    paths = changed_files(ROOT)
    chosen = choose(paths, ROOT)
    print(f"{len(paths)} files changed; their tests: {' '.join(chosen) or 'none'}", flush=True)
    if not chosen:
        return 0
    options = sys.argv[1:] if arguments is None else list(arguments)
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen], cwd=ROOT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
