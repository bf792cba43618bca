# SPDX-License-Identifier: Apache-2.0
"""How answers are shown: tables for people, JSON for programs. What is shown is decided by the command, not here.

JSON is one document per answer, with ISO instants in UTC; texts from the store are never read as markup, nor as commands of a
terminal (`screen`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Final, cast

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from redrive.cli.input.options import Format
from redrive.cli.output.terminal import Screen, harmless, shown
from redrive.engine.runtime import CURRENT
from redrive.ops.checkup.findings import age

_STYLES: Final = {
    "complete": "green",
    "completed": "green",
    "ok": "green",
    "closed": "green",
    "failed": "red",
    "dead": "red",
    "problem": "red",
    "aborted": "red",
    "open": "red",
    "isolated": "red",
    "crashed": "red",
    "retry": "yellow",
    "hold": "cyan",
    "warn": "yellow",
    "partial_success": "yellow",
    "paused": "yellow",
    "half_open": "yellow",
    "processing": "cyan",
    "running": "cyan",
    "cancelled": "dim",
}


def console() -> Screen:
    """Return where answers for people go."""
    return Screen(highlight=False, markup=False, emoji=False)


def say(line: str) -> None:
    """Say a line to people, beside the answer."""
    Screen(stderr=True, highlight=False, markup=False, emoji=False).print(line, soft_wrap=True)


def is_interactive() -> bool:
    """Say whether somebody watches."""
    return sys.stderr.isatty()


def answer_json(answer: object) -> None:
    """Write one JSON document."""
    typer.echo(harmless(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()))


def answer_line(answer: object) -> None:
    """Write one JSON document on one line, at once."""
    typer.echo(harmless(msgspec.json.encode(answer).decode()))


def answer_rows(rows: Sequence[object], columns: Sequence[str], output: Format, *, empty: str) -> None:
    """Show a list: the named columns as a table, everything as JSON."""
    if output == "json":
        answer_json(rows)
    elif rows:
        console().print(table_of((_mapping(row) for row in rows), columns))
    else:
        say(empty)


def answer_facts(facts: Mapping[str, object], output: Format) -> None:
    """Show the facts about one thing."""
    if output == "json":
        answer_json(facts)
        return
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), text_of(value))
    console().print(table)


def table_of(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> Table:
    """Return rows as a table."""
    given = list(rows)
    table = Table(header_style="bold")
    for column in columns:
        is_number = all(isinstance(row.get(column), int) for row in given)
        table.add_column(column.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in given:
        table.add_row(*(text_of(row.get(column)) for column in columns))
    return table


def text_of(value: object) -> Text:
    """Return a value as people read it: an instant by its distance from now, a state in its colour, a text as it is shown."""
    if value is None:
        return Text("")
    if isinstance(value, datetime):
        return Text(f"{value:%Y-%m-%d %H:%M:%S} ({distance(value)})")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, list | tuple):
        return Text(", ".join(text_of(each).plain for each in cast("Sequence[object]", value)))
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return Text(", ".join(f"{shown(str(name))}: {text_of(each).plain}" for name, each in pairs))
    return Text(shown(str(value)), style=_STYLES.get(str(value), ""))


def distance(at: datetime) -> str:
    """Return how far an instant is from now: `3 h ago`, `in 5 min`."""
    passed = CURRENT.get().clock.wall() - at.timestamp()
    return f"{age(passed)} ago" if passed >= 0 else f"in {age(-passed)}"


def _mapping(row: object) -> Mapping[str, object]:
    if isinstance(row, Mapping):
        return cast("Mapping[str, object]", row)
    return asdict(row) if is_dataclass(row) and not isinstance(row, type) else {}
