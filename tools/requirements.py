# SPDX-License-Identifier: Apache-2.0
"""Which requirement is proved by which tests: `python -m tools.requirements`.

The ids come from docs/requirements.md, the results from test runs: one made here, over the marked tests only, or those that
`make test` has made already (`--results`). With `--open` the rows without proof must be exactly those in that file, and the file
may only have become shorter since the last commit. A row is proved when at least one test carries its id and all that do passed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = Path("docs/requirements.md")
MARKS_MAX: Final = 3
_REQUIREMENT_ROW: Final = re.compile(r"^\| ([A-Z]{2}-\d+\.\d+) \| \S", re.MULTILINE)
_DECISION_ROW: Final = re.compile(r"^\| (D-\d+) \| \S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """The ids docs/requirements.md defines, in its order."""

    requirements: tuple[str, ...]
    decisions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """How one marked test ended."""

    test: str
    ids: tuple[str, ...]
    outcome: str


def read_page(root: Path) -> Page:
    """Return the ids of the page, or refuse a page that defines one twice."""
    text = (root / PAGE).read_text(encoding="utf-8")
    page = Page(tuple(_REQUIREMENT_ROW.findall(text)), tuple(_DECISION_ROW.findall(text)))
    for ids in (page.requirements, page.decisions):
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            message = f"{PAGE} defines {', '.join(twice)} more than once"
            raise ValueError(message)
    return page


def read_results(*paths: Path) -> list[Result]:
    """Return what test runs wrote down; no test is in two of them."""
    entries = {
        test: entry for path in paths for test, entry in json.loads(path.read_text(encoding="utf-8")).items()
    }
    return [Result(test, tuple(entry["ids"]), entry["outcome"]) for test, entry in sorted(entries.items())]


def by_id(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Return id -> the tests that carry it."""
    table: dict[str, list[Result]] = {}
    for result in results:
        for name in result.ids:
            table.setdefault(name, []).append(result)
    return table


def proved(ids: Iterable[str], table: Mapping[str, Sequence[Result]]) -> set[str]:
    """Return the ids that have a test and whose tests all passed."""
    return {
        name for name in ids if table.get(name) and all(result.outcome == "passed" for result in table[name])
    }


def mistakes_in(page: Page, results: Iterable[Result]) -> list[str]:
    """Return which tests name too much, or what does not exist."""
    known = {*page.requirements, *page.decisions}
    wrong: list[str] = []
    for result in results:
        unknown = [name for name in result.ids if name not in known]
        wrong.extend(f"{result.test} names the unknown requirement {name}" for name in unknown)
        count = sum(1 for name in result.ids if name not in page.decisions)
        if count > MARKS_MAX:
            wrong.append(f"{result.test} names {count} requirements; {MARKS_MAX} is the most")
    return wrong


def lines_of(page: Page, table: Mapping[str, Sequence[Result]]) -> list[str]:
    """Return the table, one line per test, and the count at its end."""
    lines: list[str] = []
    for name in (*page.requirements, *page.decisions):
        found = table.get(name, ())
        if not found:
            lines.append(f"{name:<8} -       no test")
        lines.extend(f"{name:<8} {result.outcome:<7} {result.test}" for result in found)
    count = len(proved(page.requirements, table))
    lines.append(f"{count} of {len(page.requirements)} requirements proved")
    return lines


def read_open(text: str) -> list[str]:
    """Return the ids an open list holds; everything after `#` is comment."""
    stripped = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in stripped if line]


def compare(page: Page, done: set[str], listed: Sequence[str], before: Sequence[str] | None) -> list[str]:
    """Return where the list of open rows is wrong.

    Args:
        page: The ids there are.
        done: The ids that are proved.
        listed: What the list holds now.
        before: What the last commit of it held, or None when there is none to compare with.
    """
    wrong = [
        f"{name} is listed as open but is no requirement: remove it"
        for name in listed
        if name not in page.requirements
    ]
    wrong += [
        f"{name} is listed as open more than once"
        for name in sorted({n for n in listed if listed.count(n) > 1})
    ]
    wrong += [
        f"{name} is proved: remove it from the list of open requirements" for name in listed if name in done
    ]
    wrong += [
        f"{name} is not proved, and is not listed as open"
        for name in page.requirements
        if name not in done | {*listed}
    ]
    if before is not None:
        grown = [name for name in listed if name not in before]
        wrong += [f"{name} was not open before: the list may only shrink" for name in grown]
    return wrong


def committed(path: Path) -> list[str] | None:
    """Return what the last commit of a list holds, or None outside a repository and for a list that is new."""
    try:
        shown = subprocess.run(
            ["git", "show", f"HEAD:./{path.name}"],
            cwd=path.parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    return read_open(shown.stdout) if shown.returncode == 0 else None


def run_tests(arguments: Sequence[str]) -> tuple[list[Result], int]:
    """Run the marked tests; return how each ended, and pytest's own exit status."""
    folders = [name for name in ("tests", "apps") if (ROOT / name).is_dir()]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        environment = {**os.environ, "REDRIVE_REQUIREMENT_RESULTS": str(results)}
        command = [sys.executable, "-m", "pytest", "-m", "req", *arguments, *folders]
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        return (read_results(results) if results.exists() else []), status


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 while something is missing or wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.requirements", description="Which requirement is proved by which tests."
    )
    parser.add_argument(
        "--results",
        type=Path,
        nargs="+",
        default=(),
        help="what test runs wrote, instead of running the marked tests",
    )
    parser.add_argument(
        "--open", type=Path, help="compare with this list of open rows, and print only what is wrong"
    )
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    given = parser.parse_args(arguments)
    page = read_page(ROOT)
    missing = [path for path in given.results if not path.exists()]
    if missing:
        print(f"error: there is no {missing[0]}; run `make test`", file=sys.stderr)
        return 2
    results, status = (read_results(*given.results), 0) if given.results else run_tests(given.pytest)
    table = by_id(results)
    done = proved(page.requirements, table)
    wrong = mistakes_in(page, results)
    lines = lines_of(page, table)
    if given.open is None:
        print("\n".join(lines))
        is_bad = bool(wrong) or len(done) < len(page.requirements) or status != 0
    else:
        listed = read_open(given.open.read_text(encoding="utf-8"))
        wrong += compare(page, done, listed, committed(given.open.resolve()))
        print(lines[-1])
        is_bad = bool(wrong)
    for mistake in wrong:
        print(f"error: {mistake}", file=sys.stderr)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
