# SPDX-License-Identifier: Apache-2.0
"""What a package exports, read from its source: the groups of `__all__`, and one line about each name.

Groups are the comments inside `__all__`. The line about a name is the first sentence of its docstring; for a plain value it is
the string that follows its assignment, in the module it is imported from.
"""

from __future__ import annotations

import ast
import inspect
import io
import sys
import tokenize
from types import ModuleType
from typing import Final

UNGROUPED: Final = "Names"


def groups_in(source: str) -> list[tuple[str, list[str]]]:
    """Return the headings of `__all__` with the names under each, in their order."""
    node = _all_node(ast.parse(source))
    if node is None:
        return []
    groups: list[tuple[str, list[str]]] = []
    first, last = node.lineno, node.end_lineno or node.lineno
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if not first <= token.start[0] <= last:
            continue
        if token.type == tokenize.COMMENT:
            groups.append((token.string.lstrip("# ").rstrip(), []))
        elif token.type == tokenize.STRING:
            if not groups:
                groups.append((UNGROUPED, []))
            groups[-1][1].append(str(ast.literal_eval(token.string)))
    return [(heading, names) for heading, names in groups if names]


def line_about(package: ModuleType, name: str) -> str:
    """Return one line about an exported name, or an empty string when nobody has written one."""
    value = getattr(package, name)
    if isinstance(value, ModuleType) or inspect.isclass(value) or inspect.isroutine(value):
        about = inspect.getdoc(value) or ""
    else:
        about = _string_after(_home_of(package, name), name)
    return " ".join(about.strip().partition("\n\n")[0].split())


def _all_node(tree: ast.Module) -> ast.expr | None:
    for node in tree.body:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        if isinstance(node, ast.Assign | ast.AnnAssign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in targets
        ):
            return node.value
    return None


def _home_of(package: ModuleType, name: str) -> ModuleType:
    """Return the module a name is imported from."""
    for node in ast.walk(ast.parse(inspect.getsource(package))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and any((a.asname or a.name) == name for a in node.names)
        ):
            return sys.modules[node.module]
    return package


def _string_after(module: ModuleType, name: str) -> str:
    body = ast.parse(inspect.getsource(module)).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if named and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            return str(following.value.value)
    return ""
