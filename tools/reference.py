# SPDX-License-Identifier: Apache-2.0
"""The reference of public names: every signature, and every member of every public class, read from the code.

A member is documented by its docstring, a field by the string that follows it. What a class inherits from redrive is listed with
it, what it inherits from elsewhere is not.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import Final

import redrive
from tools.exports import groups_in

_PLAIN: Final = (str, int, float, bool, bytes, type(None))
LINE_MAX: Final = 100
"""A longer signature has a line per parameter."""
_LEFT_OUT: Final = frozenset({"mro"})


def reference_page(intro: str) -> str:
    """Return docs/reference/api.md: each public name with its signature and its members, in the groups of `redrive.__all__`."""
    parts = [intro]
    for heading, names in groups_in(inspect.getsource(redrive)):
        parts += [f"## {heading}", *(_section(name, getattr(redrive, name)) for name in names)]
    parts += ["## Nouns of a connection", "What `rd.jobs`, `rd.letters` and the other nouns offer."]
    parts += [_section(f"rd.{name}", kind) for name, kind in _nouns()]
    return "\n\n".join(parts) + "\n"


def _nouns() -> list[tuple[str, type]]:
    """Return the nouns of a connection with their classes."""
    with redrive.connect(":memory:") as rd:
        members = sorted(vars(rd).items())
    return [(name, type(value)) for name, value in members if not name.startswith("_") and name != "store"]


def _section(name: str, value: object) -> str:
    about = inspect.getdoc(value) or ""
    parts = [f"### `{name}`"]
    if inspect.isroutine(value) or _has_constructor(value):
        parts.append(f"```text\n{name}{signature_of(value, is_long=True)}\n```")
    parts.append(about if _is_written(value) else "")
    if inspect.isclass(value):
        rows = [f"- `{shown}`" + (f": {line}" if line else "") for shown, line in members_of(value)]
        parts.append("\n".join(rows))
    return "\n\n".join(part for part in parts if part)


def _has_constructor(value: object) -> bool:
    """Return whether a class is made by calling it; enumerations, errors and nouns are not."""
    if not inspect.isclass(value) or (
        issubclass(value, BaseException) and value.__init__ is Exception.__init__
    ):
        return False
    return not hasattr(value, "__members__") and not value.__module__.startswith("redrive.client")


def _is_written(value: object) -> bool:
    """Return whether somebody wrote its docstring; that of a plain value would be its class's."""
    return inspect.isclass(value) or inspect.isroutine(value)


def members_of(kind: type) -> list[tuple[str, str]]:
    """Return the public members of a class as they are written in code, each with its first sentence."""
    fields = _fields_of(kind)
    rows: list[tuple[str, str]] = []
    for name, annotation, about in fields:
        rows.append((f".{name}: {annotation}" if annotation else f".{name}", about))
    listed = {name for name, *_ in fields} | _LEFT_OUT
    for name, member in inspect.getmembers_static(kind):
        if name.startswith("_") or name in listed or not _is_ours(kind, name):
            continue
        if isinstance(member, property | cached_property):
            getter = member.fget if isinstance(member, property) else member.func
            returned = getter.__annotations__.get("return", "") if getter else ""
            rows.append((f".{name}: {_text(returned)}", _first(inspect.getdoc(member))))
        elif isinstance(member, classmethod | staticmethod):
            bound = getattr(kind, name)
            rows.append((f"{kind.__name__}.{name}{signature_of(bound)}", _first(inspect.getdoc(bound))))
        elif inspect.isfunction(member):
            call = "await " if inspect.iscoroutinefunction(member) else ""
            rows.append((f"{call}.{name}{signature_of(member)}", _first(inspect.getdoc(member))))
    return rows


def _is_ours(kind: type, name: str) -> bool:
    home = next((base for base in kind.__mro__ if name in vars(base)), kind)
    return home.__module__.startswith("redrive")


def _fields_of(kind: type) -> list[tuple[str, str, str]]:
    """Return the annotated fields of a class and of its bases in redrive: name, type, and the string that follows."""
    found: dict[str, tuple[str, str, str]] = {}
    for base in reversed([each for each in kind.__mro__ if each.__module__.startswith("redrive")]):
        body = _body_of(base)
        for node, following in zip(body, [*body[1:], None], strict=False):
            about = _string_in(following)
            match node:
                case ast.AnnAssign(target=ast.Name(id=name)) if (
                    not name.startswith("_") and not name.isupper()
                ):
                    found[name] = (name, ast.unparse(node.annotation), _first(about))
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)) if (
                    name.isupper()
                ):
                    found[name] = (name, repr(value), _first(about))
                case ast.FunctionDef(name="__init__"):
                    found |= {each[0]: each for each in _assigned_in(node)}
                case _:
                    pass
    return list(found.values())


def _body_of(kind: type) -> list[ast.stmt]:
    """Return the statements of a class; an exported one names the package as its module, not where it is written."""
    home = _HOMES.get(kind.__name__, kind.__module__) if kind.__module__ == "redrive" else kind.__module__
    tree = ast.parse(inspect.getsource(importlib.import_module(home)))
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    return next((node.body for node in found), [])


def _homes() -> dict[str, str]:
    """Return the module in which each public name is written, as `redrive` imports it."""
    tree = ast.parse(inspect.getsource(redrive))
    return {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


_HOMES: Final = _homes()


def _assigned_in(init: ast.FunctionDef) -> Iterator[tuple[str, str, str]]:
    """Yield the attributes that a constructor documents."""
    for node, following in zip(init.body, [*init.body[1:], None], strict=False):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)]) if _string_in(
                following
            ):
                yield name, "", _first(_string_in(following))
            case _:
                pass


def _string_in(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
        case _:
            return ""


def signature_of(value: object, *, is_long: bool = False) -> str:
    """Return a signature as code, without `self`: on one line, or with a line per parameter if it is long."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]  # whatever has none is caught below
    except (TypeError, ValueError):
        return "(...)"
    parts: list[str] = []
    is_keyword = False
    for name, each in signature.parameters.items():
        if name in {"self", "cls"}:
            continue
        if each.kind is each.KEYWORD_ONLY and not is_keyword:
            parts.append("*")
        is_keyword |= each.kind in {each.KEYWORD_ONLY, each.VAR_POSITIONAL}
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        text = f"{stars}{name}" + ("" if each.annotation is each.empty else f": {_text(each.annotation)}")
        parts.append(text if each.default is each.empty else f"{text} = {_default(each.default)}")
    returned = signature.return_annotation
    arrow = (
        ""
        if returned in {signature.empty, None, "None"} or inspect.isclass(value)
        else f" -> {_text(returned)}"
    )
    line = f"({', '.join(parts)}){arrow}"
    if not is_long or len(line) <= LINE_MAX:
        return line
    lines = "".join(f"    {part},\n" for part in parts)
    return f"(\n{lines}){arrow}"


def _text(annotation: object) -> str:
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation).replace("typing.", "")


def _default(value: object) -> str:
    """Return a default as code; one that has no short form is three dots."""
    if isinstance(value, _PLAIN):
        return repr(value)
    text = repr(value)
    return text if len(text) <= 40 and "<" not in text and " object" not in text else "..."


def _first(about: str | None) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((about or "").strip().partition("\n\n")[0].split())
