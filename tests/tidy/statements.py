# SPDX-License-Identifier: Apache-2.0
"""The named SQL statements of a store: each has a caller, and no two are the same text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from tests.tidy.tree import Source

_STATEMENT = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- (?:name|part): |\Z)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"--.*")
_BUILT_MIN = 4
"""So many letters of a name must be written where the rest of it is filled in: `f"count_by_{index}"` names a family."""


def named(text: str) -> dict[str, str]:
    """Return the statements of an SQL file by name, without comments and line breaks."""
    return {name: " ".join(_COMMENT.sub("", body).split()) for name, body in _STATEMENT.findall(text)}


def uncalled(files: Iterable[tuple[str, str]], callers: Iterable[Source]) -> list[str]:
    """Every statement is named, called, or built from its parts, somewhere in the code that runs it."""
    written: set[str] = set()
    built: set[str] = set()
    for node in (node for source in callers for node in source.nodes):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            written.add(node.value)
        elif isinstance(node, ast.Attribute):
            written.add(node.attr)
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
            if sum(len(part) for part in parts if isinstance(part, str)) >= _BUILT_MIN:
                built.add("".join(r"\w+" if part is None else re.escape(str(part)) for part in parts))
    family = re.compile("|".join(sorted(built)) or r"(?!)")
    return [
        f"{path}: nothing runs the statement {name}"
        for path, text in files
        for name in named(text)
        if name not in written and not family.fullmatch(name)
    ]


def doubled(files: Iterable[tuple[str, str]]) -> list[str]:
    """No two statements of one dialect have the same text."""
    first: dict[tuple[str, str], str] = {}
    found: list[str] = []
    for path, text in files:
        for name, body in named(text).items():
            before = first.setdefault((path.rpartition("/")[0], body), name)
            if before != name:
                found.append(f"{path}: {name} is the same statement as {before}")
    return found
