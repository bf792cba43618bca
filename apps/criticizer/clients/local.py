# SPDX-License-Identifier: Apache-2.0
"""The built-in reviewer: ruff on the changed lines of Python files, for whoever has no key. It needs no network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from apps.criticizer.change import Change, ChangedFile
from apps.criticizer.review import Finding, Review, review_of
from redrive import Context

SECONDS_MAX: Final = 60.0
RULES: Final = "E7,E9,F,B,S,PLE,PERF"
"""Mistakes and dangers, no matters of layout."""

Severity = Literal["error", "warning", "note"]
Category = Literal["bug", "security", "performance", "style"]

_MISTAKE: Final[tuple[Severity, Category]] = ("error", "bug")
_KINDS: Final[tuple[tuple[str, Severity, Category], ...]] = (
    ("PERF", "note", "performance"),
    ("E7", "note", "style"),
    ("B", "warning", "bug"),
    ("S", "warning", "security"),
)


class _Place(msgspec.Struct):
    row: int


class _Remark(msgspec.Struct):
    """One entry of ruff's JSON output."""

    code: str | None
    location: _Place
    message: str


class LocalReviewer:
    """Reviews with a linter."""

    def review(self, change: Change, ctx: Context) -> Review:
        """Return what the linter says about the new lines; it reads whole files, and the rest of what it says is left out."""
        unread = [file.path for file in change.files if file.path.endswith(".py") and file.content is None]
        ctx.note("files_not_read", len(unread))
        remarks = [
            msgspec.json.encode(each)
            for file in change.files
            if file.path.endswith(".py") and file.content is not None
            for each in _findings(file)
        ]
        return review_of(change, remarks, reviewer="local")

    def close(self) -> None:
        """Nothing to close."""


def _findings(file: ChangedFile) -> Iterator[Finding]:
    added = file.added
    last = max(1, (file.content or "").count("\n"))
    for remark in _lint(file):
        # What is missing at the end of a file is missed one line below it.
        line = min(remark.location.row, last)
        if line in added:
            code = remark.code or "syntax"
            severity, category = next((kind[1:] for kind in _KINDS if code.startswith(kind[0])), _MISTAKE)
            message = f"{remark.message} ({code})"
            yield Finding(severity=severity, category=category, file=file.path, line=line, message=message)


def _lint(file: ChangedFile) -> list[_Remark]:
    """Run ruff on one file, isolated from whatever settings lie about."""
    options = (
        "--isolated",
        "--no-cache",
        "--quiet",
        "--exit-zero",
        "--output-format=json",
        f"--select={RULES}",
    )
    done = subprocess.run(  # noqa: S603 - an argument list; the path is only a label.
        [sys.executable, "-m", "ruff", "check", *options, f"--stdin-filename={file.path}", "-"],
        input=(file.content or "").encode(),
        capture_output=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=list[_Remark])
