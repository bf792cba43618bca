# SPDX-License-Identifier: Apache-2.0
"""The built-in reviewer: ruff on the changed lines of Python files. It needs no key and no network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import msgspec

from apps.criticizer.change import Change, ChangedFile
from apps.criticizer.review import Review, review_of
from redrive import Context

SECONDS_MAX: Final = 60.0
RULES: Final = "E7,E9,F,B,S,PLE,PERF"
"""Rules about bugs and security, not about layout."""

_KINDS: Final = {
    "PERF": ("note", "performance"),
    "E7": ("note", "style"),
    "B": ("warning", "bug"),
    "S": ("warning", "security"),
}
"""Severity and category by the start of a rule's name; all others find bugs."""
_MISTAKE: Final = ("error", "bug")


class _Place(msgspec.Struct):
    row: int


class _Remark(msgspec.Struct):
    """One entry of ruff's JSON output."""

    code: str | None
    location: _Place
    message: str


# Made once: msgspec reads a type when it is first used, and crashes when several threads do that at the same time.
_REMARKS: Final = msgspec.json.Decoder(list[_Remark])


class LocalReviewer:
    """Reviews with a linter."""

    def review(self, change: Change, ctx: Context) -> Review:
        """Return the linter's remarks about the new lines; it reads whole files, and remarks about other lines are dropped."""
        sources = [file for file in change.files if file.path.endswith(".py")]
        ctx.note("files_not_read", sum(file.content is None for file in sources))
        findings = [finding for file in sources for finding in _findings(file)]
        return review_of(change, findings, reviewer="local")

    def close(self) -> None:
        """Nothing to close."""


def _findings(file: ChangedFile) -> Iterator[dict[str, object]]:
    if file.content is None:
        return
    last = max(1, file.content.count("\n"))
    for remark in _lint(file.path, file.content):
        # A remark about the end of a file is on the line after the last one.
        line = min(remark.location.row, last)
        if line not in file.added:
            continue
        code = remark.code or "syntax"
        severity, category = next(
            (kind for begin, kind in _KINDS.items() if code.startswith(begin)), _MISTAKE
        )
        message = f"{remark.message} ({code})"
        yield {
            "severity": severity,
            "category": category,
            "file": file.path,
            "line": line,
            "message": message,
        }


def _lint(path: str, content: str) -> list[_Remark]:
    """Run ruff on one file, isolated from any configuration files."""
    command = "ruff check --isolated --no-cache --quiet --exit-zero --output-format=json".split()
    done = subprocess.run(  # noqa: S603 - an argument list; the path is only a label.
        [sys.executable, "-m", *command, f"--select={RULES}", f"--stdin-filename={path}", "-"],
        input=content.encode(),
        capture_output=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    return _REMARKS.decode(done.stdout)
