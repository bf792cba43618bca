# SPDX-License-Identifier: Apache-2.0
"""Sizes: lines of a file or function, depth of nesting, number of parameters, methods of a class, modules of a folder."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tests.tidy.tree import FunctionNode, Source, classes, functions, is_public, methods

MODULE_MAX = 500
TEST_FILE_MAX = 500
FOLDER_MAX = 19
"""Modules side by side in one folder, `__init__` not counted; aim for 15."""
TEST_FOLDER_MAX = 20
"""Files of tests side by side in one folder; what they share is not counted."""
# Folder -> why it may hold more.
LISTS = {
    "src/redrive/core": "a flat list of pure values and functions",
    "src/redrive/rules": "one file per client library",
}
UNIT_TESTS = "tests/unit/"
# Folder of unit tests -> what it is about, which is no folder of the package.
NOT_MIRRORED = {"tests/unit/repository": "tools, benchmarks and the checks of this repository"}
FUNCTION_MAX = 60
# Aim for three; the fourth is for loops that are written flat for speed.
NESTING_MAX = 4
PARAMETERS_MAX = 6
POSITIONAL_MAX = 5
PUBLIC_METHODS_MAX = 12
STORE_METHODS_MAX = 17
"""The store has one protocol, so it may have more methods than other classes."""
# Function -> why it may take more by position than others.
WIDE_ON_PURPOSE = {
    "redrive.core.decide.decide": "the design fixes its six arguments, and no two have the same type"
}
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


def long_module(source: Source, limit: int = MODULE_MAX) -> list[str]:
    count = len(source.lines)
    return (
        [source.at(1, f"{count} lines; {limit} is the most, split it by what it is about")]
        if count > limit
        else []
    )


def full_folders(every: Iterable[Source], most: int = FOLDER_MAX) -> list[str]:
    """A folder with more modules than a reader can survey needs subfolders."""
    folders: dict[str, int] = {}
    for source in every:
        folder, _, name = source.path.rpartition("/")
        if not name.startswith("__"):
            folders[folder] = folders.get(folder, 0) + 1
    return [
        f"{folder}: {count} modules; {most} is the most, give it rooms"
        for folder, count in sorted(folders.items())
        if count > most and folder not in LISTS
    ]


def unmirrored(tests: Iterable[Source], package: Iterable[Source]) -> list[str]:
    """A folder of unit tests is named after a folder of the package, or after a module that has many tests."""
    rooms = {source.path.removesuffix(".py").removesuffix("/__init__") for source in package}
    folders = {source.path.rpartition("/")[0] for source in tests if source.path.startswith(UNIT_TESTS)}
    return [
        f"{folder}: there is no {room} in the package"
        for folder in sorted(folders - {UNIT_TESTS.rstrip("/")} - set(NOT_MIRRORED))
        if (room := f"src/redrive/{folder.removeprefix(UNIT_TESTS)}") not in rooms
    ]


def long_functions(source: Source) -> list[str]:
    lengths = ((node, _length(node)) for node in functions(source))
    return [
        source.at(node, f"{node.name} has {length} lines; {FUNCTION_MAX} is the most")
        for node, length in lengths
        if length > FUNCTION_MAX
    ]


def _length(node: FunctionNode) -> int:
    """Lines from `def` to the end, without the docstring."""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        text = node.body[0]
        length -= (text.end_lineno or text.lineno) - text.lineno + 1
    return length


def deep_nesting(source: Source) -> list[str]:
    depths = ((node, max((_depth(child, 0) for child in node.body), default=0)) for node in functions(source))
    return [
        source.at(node, f"{node.name} nests {depth} blocks deep; {NESTING_MAX} is the most")
        for node, depth in depths
        if depth > NESTING_MAX
    ]


def _depth(node: ast.AST, above: int) -> int:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return 0
    if not isinstance(node, _BLOCKS):
        return max((_depth(child, above) for child in ast.iter_child_nodes(node)), default=above)
    # `elif` is an If alone in the else of another; to a reader it is no deeper.
    is_elif = isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
    beside = node.orelse if is_elif and isinstance(node, ast.If) else []
    inner = [child for child in ast.iter_child_nodes(node) if child not in beside]
    depths = [_depth(child, above + 1) for child in inner] + [_depth(child, above) for child in beside]
    return max([above + 1, *depths])


def many_parameters(source: Source) -> list[str]:
    """A constructor may take more by keyword: it only lists what a value holds."""
    found: list[str] = []
    for node in functions(source):
        positional = [
            a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in {"self", "cls"}
        ]
        every = len(positional) + len(node.args.kwonlyargs)
        if every > PARAMETERS_MAX and node.name not in {"__init__", "__new__"} and not _is_value_maker(node):
            found.append(
                source.at(node, f"{node.name} takes {every} parameters; {PARAMETERS_MAX} is the most")
            )
        if len(positional) > POSITIONAL_MAX and f"{source.module}.{node.name}" not in WIDE_ON_PURPOSE:
            found.append(
                source.at(
                    node, f"{node.name} takes {len(positional)} by position; {POSITIONAL_MAX} is the most"
                )
            )
    return found


def _is_value_maker(node: FunctionNode) -> bool:
    """A function whose parameters are all by keyword, but for two, is called like a constructor and may be as wide."""
    positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in {"self", "cls"}]
    return len(positional) <= 2


def many_methods(source: Source) -> list[str]:
    counts = (
        # By name: an overloaded one is one method.
        (node, len({method.name for method in methods(node) if is_public(method.name)}))
        for node in classes(source)
    )
    return [
        source.at(node, f"{node.name} offers {count} methods; {limit} is the most")
        for node, count in counts
        if count > (limit := STORE_METHODS_MAX if node.name.endswith("Store") else PUBLIC_METHODS_MAX)
    ]
