# SPDX-License-Identifier: Apache-2.0
"""The files the tidiness checks look at, parsed once. A check is a function of a `Source` that returns complaints."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Source:
    """One Python file: where it is, and what it says."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def module(self) -> str:
        """The dotted name of a file under src/, or of a file under the root."""
        parts = list(Path(self.path).with_suffix("").parts)
        parts = parts[1:] if parts[0] == "src" else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def is_package(self) -> bool:
        return Path(self.path).name == "__init__.py"

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        """Every comment with its line number; what stands in a string is none."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]

    def comments_with(self, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
        """Return the comments of a file that has the pattern somewhere; most files have it nowhere, and are not taken apart."""
        return self.comments if pattern.search(self.text) else []

    def at(self, node: ast.AST | int, complaint: str) -> str:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.path}:{line}: {complaint}"


def sources(*folders: str) -> list[Source]:
    """Return the Python files under these folders of the repository, in order."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [_read(path) for path in paths]


@cache
def _read(path: Path) -> Source:
    return Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: Source) -> Iterator[FunctionNode]:
    """Every function and method, nested ones too."""
    return (node for node in source.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def classes(source: Source) -> Iterator[ast.ClassDef]:
    return (node for node in source.nodes if isinstance(node, ast.ClassDef))


def methods(node: ast.ClassDef) -> Iterator[FunctionNode]:
    return (child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def is_declared(source: Source, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Return whether this declares a statement of a store, or its rows: those are explained beside the text of the statement."""
    if not source.module.startswith("redrive.store.statements."):
        return False
    names = node.bases if isinstance(node, ast.ClassDef) else node.decorator_list
    return [dotted(name) for name in names] in (["NamedTuple"], ["statement"])


def is_public(name: str) -> bool:
    return not name.startswith("_")


def dotted(node: ast.AST) -> str:
    """Return `a.b.c` for a chain of attributes, or an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""
