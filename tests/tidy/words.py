# SPDX-License-Identifier: Apache-2.0
"""Words: docstrings, licence line, words that names do not use, TODOs, suppressions, and what test files may not call."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.tidy.tree import FunctionNode, Source, classes, dotted, functions, is_declared, is_public, methods

SPDX = "# SPDX-License-Identifier: Apache-2.0"
MODULE_DOC_MAX = 8
TRIVIAL_LINES = 100

BANNED_WORDS = {"manager", "managers", "helper", "helpers", "util", "utils", "data", "info", "do"}
# As nouns these are fine ("process pool", a job's handle in prose); as the verb of a name they say nothing.
BANNED_VERBS = {"process", "handle"}
# Identifier -> why it may use a word we otherwise do without.
ALLOWED_NAMES = {
    "process": "the redactor's module for what this process knows",
    "ProcessPool": "a pool of processes",
    "do_GET": "the name http.server looks for",
    "do_POST": "the name http.server looks for",
    "_error_info": "reads google.rpc's message ErrorInfo",
    "_retry_info": "reads google.rpc's message RetryInfo",
    "_request_info": "reads google.rpc's message RequestInfo",
}

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(\w[\w -]*\): \S)")
_IGNORE = re.compile(r"#\s*(noqa|type:\s*ignore|pyright:\s*ignore)(?P<rest>.*)")
_CODE_AND_REASON = re.compile(r"^(:\s*[A-Z]+\d+(, ?[A-Z]+\d+)*|\[[\w, -]+\])\s*(#|-)\s*\S.{8,}")
_CODE = re.compile(r"^(:\s*[A-Z]+\d+|\[[\w, -]+\])")
# Most files have none of these, and need not be parsed.
_DODGE_OR_SLEEP = re.compile(r"skip|xfail|sleep")
_DODGES = {
    *(
        "pytest.skip",
        "pytest.xfail",
        "pytest.importorskip",
        "pytest.mark.skip",
        "pytest.mark.skipif",
        "pytest.mark.xfail",
    ),
    *("unittest.skip", "unittest.skipIf", "unittest.skipUnless"),
}


def licence_line(source: Source) -> list[str]:
    """Every file starts with its licence; an empty file, which only makes a folder a package, needs none."""
    return [] if source.lines[:1] in ([], [SPDX]) else [source.at(1, f"the first line must be: {SPDX}")]


def module_docstring(source: Source) -> list[str]:
    """Every module has a docstring of a few lines; an indented block (a diagram) and blank lines are not counted."""
    text = ast.get_docstring(source.tree)
    if text is None:
        return [source.at(1, "the module has no docstring")]
    count = sum(1 for line in text.splitlines() if line and not line.startswith(" "))
    if count > MODULE_DOC_MAX:
        return [source.at(1, f"the module docstring has {count} lines; {MODULE_DOC_MAX} is the most")]
    if count < 2 and len(source.lines) > TRIVIAL_LINES:
        return [
            source.at(
                1,
                "the module docstring should also state what the module is not, or which invariant it keeps",
            )
        ]
    return []


def name_docstrings(source: Source) -> list[str]:
    """Every public class and function, and every public method of a public class, has a docstring."""
    top = [
        node
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    inner = [
        method
        for node in top
        if isinstance(node, ast.ClassDef) and is_public(node.name)
        for method in methods(node)
    ]
    return [
        source.at(node, f"{node.name} has no docstring")
        for node in (*top, *inner)
        if is_public(node.name)
        and ast.get_docstring(node) is None
        and not _is_repeated(node)
        and not is_declared(source, node)
    ]


def _is_repeated(node: FunctionNode | ast.ClassDef) -> bool:
    """Overloads and setters are described where the function itself is."""
    names = [dotted(mark) for mark in node.decorator_list]
    return any(name.endswith(("overload", ".setter", ".deleter", "override")) for name in names)


def vocabulary(source: Source) -> list[str]:
    stem = source.module.rpartition(".")[2]
    named: list[tuple[ast.AST | int, str]] = [(1, stem)]
    named += [(node, node.name) for node in (*classes(source), *functions(source))]
    found = [source.at(node, f"{name!r}: {why}") for node, name in named if (why := _banned(name))]
    if len(stem) < 3:
        found.append(source.at(1, f"a module named {stem!r} says nothing"))
    return found


def _banned(name: str) -> str:
    words = [word.lower() for word in _WORD.findall(name)]
    if name in ALLOWED_NAMES or not words:
        return ""
    used = BANNED_WORDS.intersection(words)
    if used:
        return f"the word {min(used)!r} is not in our vocabulary"
    return f"{words[0]!r} as a verb is not in our vocabulary" if words[0] in BANNED_VERBS else ""


def unowned_todos(source: Source) -> list[str]:
    return [
        source.at(line, f"{found.group(1)} needs an owner: {found.group(1)}(name): what")
        for line, text in source.comments_with(_UNFINISHED)
        if (found := _UNFINISHED.search(text))
    ]


def unexplained_suppressions(source: Source, *, with_reason: bool) -> list[str]:
    """Every suppression names its rule; in the package it also gives its reason after a dash."""
    wanted = _CODE_AND_REASON if with_reason else _CODE
    say = "its rule and, after a dash, its reason" if with_reason else "its rule"
    return [
        source.at(line, f"a suppression must name {say}")
        for line, text in source.comments_with(_IGNORE)
        if (found := _IGNORE.search(text)) and not wanted.match(found.group("rest"))
    ]


def type_ignores(source: Source) -> list[str]:
    return [
        source.at(line, "the core has no type suppressions")
        for line, text in source.comments_with(_IGNORE)
        if re.search(r"(type|pyright):\s*ignore", text)
    ]


def skips_and_sleeps(source: Source) -> list[str]:
    """A missing component fails a test: tests skip nothing, and do not wait in real time."""
    found: list[str] = []
    for node in source.nodes if _DODGE_OR_SLEEP.search(source.text) else ():
        name = dotted(node) if isinstance(node, ast.Attribute) else ""
        if name in _DODGES:
            found.append(source.at(node, f"{name}: a test runs, or is not there"))
        if (
            isinstance(node, ast.Call)
            and dotted(node.func) in {"time.sleep", "asyncio.sleep"}
            and not _is_zero(node)
        ):
            found.append(
                source.at(
                    node, f"{dotted(node.func)}: wait on a signal, or let a virtual clock pass the time"
                )
            )
    return found


def _is_zero(node: ast.Call) -> bool:
    """`sleep(0)` only yields to other tasks."""
    return len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0


def error_codes(*sources: Source) -> list[str]:
    """Each error has a code of its own, ends in Error, and shares its code with nobody in any of the files."""
    found: list[str] = []
    owners: dict[str, str] = {}
    for source, node in ((file, node) for file in sources for node in classes(file)):
        codes = [
            str(child.value.value)
            for child in node.body
            if isinstance(child, ast.Assign | ast.AnnAssign)
            and isinstance(child.value, ast.Constant)
            and "code"
            in {
                dotted(target)
                for target in (child.targets if isinstance(child, ast.Assign) else [child.target])
            }
        ]
        if not codes:
            found.append(source.at(node, f"{node.name} has no code of its own"))
        if not node.name.endswith("Error"):
            found.append(source.at(node, f"{node.name} must end in Error"))
        found += [
            source.at(node, f"the code {code!r} is used twice, first by {owners[code]}")
            for code in codes
            if code in owners
        ]
        owners |= dict.fromkeys(codes, node.name)
    return found


def unexplained_rules(pyproject: str) -> list[str]:
    """Every rule that ruff ignores is on its own line, with a reason behind it."""
    found: list[str] = []
    section = is_list = ""
    for number, line in enumerate(pyproject.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            section = stripped
        opens = (
            re.match(r'^(ignore|"[^"]+")\s*=\s*\[(.*)$', stripped)
            if section.startswith("[tool.ruff.lint")
            else None
        )
        if opens and opens.group(2).strip():
            found.append(f"pyproject.toml:{number}: write one rule per line, each with its reason")
        elif opens:
            is_list = "yes"
        elif is_list and stripped.startswith("]"):
            is_list = ""
        elif is_list and stripped.startswith('"') and not re.match(r'^"[A-Z]+\d*",?\s+# \S.{5,}', stripped):
            found.append(f"pyproject.toml:{number}: {stripped.split(',')[0]} is ignored without a reason")
    return found


def hosts_in(path: Path) -> list[str]:
    """A pinned file has packages, versions and hashes; the index they come from is a setting of the machine."""
    pattern = re.compile(r"://|^\s*-(?!-hash=sha256:[0-9a-f]{64}(?: \\)?$)|file:")
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [f"{path.name}:{number}: {line}" for number, line in lines if pattern.search(line)]
