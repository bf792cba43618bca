# SPDX-License-Identifier: Apache-2.0
"""How results are printed: tables for people, JSON for programs. What is printed is decided by the command, not here.

JSON is one document per command, with ISO instants in UTC. Texts from the store are never read as markup or control sequences.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Final, cast

import msgspec
import typer
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from redrive.cli.input.options import Format
from redrive.cli.output.terminal import SafeConsole, escaped, escaped_json
from redrive.core.units import format_duration
from redrive.engine.runtime import CURRENT
from redrive.ops.jobs.facts import Attempt
from redrive.store.statements.operations import Operation

GAP: Final = 2
"""Blanks between two columns."""
WIDTH_MIN: Final = 8
"""No column is cut to less than this."""
UNLIMITED: Final = 1_000_000
"""The width where there is no terminal, nor the variable COLUMNS."""
_STYLES: Final = {
    **dict.fromkeys(("complete", "completed", "ok", "closed"), "green"),
    **dict.fromkeys(("failed", "dead", "problem", "aborted", "open", "isolated", "crashed"), "red"),
    **dict.fromkeys(("retry", "warn", "partial_success", "paused", "half_open"), "yellow"),
    **dict.fromkeys(("hold", "processing", "running"), "cyan"),
    **dict.fromkeys(("cancelled", "skipped"), "dim"),
}


def console(width: int | None = None) -> SafeConsole:
    """Return the console for results; as wide as the terminal, unless a width is given."""
    return SafeConsole(highlight=False, markup=False, emoji=False, width=width)


def print_message(line: str) -> None:
    """Print a line for people on stderr, beside the result."""
    SafeConsole(stderr=True, highlight=False, markup=False, emoji=False).print(line, soft_wrap=True)


def is_interactive() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr.isatty()


def print_json(result: object) -> None:
    """Print one JSON document."""
    typer.echo(escaped_json(msgspec.json.format(msgspec.json.encode(result), indent=2).decode()))


def print_json_line(result: object) -> None:
    """Print one JSON document on one line."""
    typer.echo(escaped_json(msgspec.json.encode(result).decode()))


def print_rows(rows: Sequence[object], columns: Sequence[str], output: Format, *, empty: str) -> None:
    """Print a list: the named columns as a table, or all of it as JSON."""
    if output == "json":
        print_json(rows)
    elif rows:
        print_table(rows, columns)
    else:
        print_message(empty)


def print_facts(facts: Mapping[str, object], output: Format) -> None:
    """Print the facts about one thing."""
    if output == "json":
        print_json(facts)
        return
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for name, value in facts.items():
        table.add_row(Text(name.replace("_", " "), style="bold"), cell(value))
    console().print(table)


def print_table(rows: Sequence[object], columns: Sequence[str]) -> None:
    """Print rows (mappings or dataclasses) as a table, one line each; nothing when there are none.

    Columns that are empty everywhere are left out. On a terminal that is too narrow the widest texts are cut; elsewhere, in a pipe
    for example, nothing is.
    """
    if not rows:
        return
    given = [_mapping(row) for row in rows]
    used = [each for each in columns if any(row.get(each) not in (None, "", (), []) for row in given)]
    lines = [[_in_line(row.get(column)) for column in used] for row in given]
    titles = [column.removesuffix("_at").replace("_", " ") for column in used]
    cells = zip(*lines, strict=True)
    widths = [
        max(cell_len(title), *(cell_len(each.plain) for each in column))
        for title, column in zip(titles, cells, strict=True)
    ]
    widths = fitting(widths, shutil.get_terminal_size((UNLIMITED, 0)).columns)
    table = Table(header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, title, width in zip(used, titles, widths, strict=True):
        is_number = all(isinstance(row.get(column), int) for row in given)
        table.add_column(title, justify="right" if is_number else "left", width=width, no_wrap=True)
    for line in lines:
        table.add_row(*line)
    console(sum(widths) + GAP * len(widths)).print(table)


def fitting(widths: Sequence[int], limit: int) -> list[int]:
    """Return widths of columns that fit into a line: the widest are cut first, and none below what can still be read."""
    fit = list(widths)
    for _ in range(sum(fit) + GAP * (len(fit) - 1) - limit):
        widest = max(fit)
        if widest <= WIDTH_MIN:
            break
        fit[fit.index(widest)] -= 1
    return fit


def _in_line(value: object) -> Text:
    """Return a value as a cell of a table: on one line, and an instant by its distance from now alone."""
    if isinstance(value, datetime):
        return Text(relative_time(value))
    made = cell(value)
    made.plain = made.plain.replace("\n", " ")
    return made


def print_attempts(attempts: Sequence[Attempt]) -> None:
    """Print attempts with their outcome and why it came so."""
    rows = [
        {
            **asdict(attempt),
            "duration": f"{attempt.duration:.3g} s",
            "sentence": attempt.sentence or attempt.message or attempt.reason,
        }
        for attempt in attempts
    ]
    print_table(rows, ("dispatch", "stage", "round", "attempt", "outcome", "code", "duration", "sentence"))


def print_operations(operations: Sequence[Operation]) -> None:
    """Print what operators did."""
    print_table(operations, ("at", "actor", "verb", "subject", "reason"))


def cell(value: object) -> Text:
    """Return a value as people read it: an instant with its distance from now, a state in its colour, a text escaped."""
    if value is None:
        return Text("")
    if isinstance(value, datetime):
        return Text(f"{value:%Y-%m-%d %H:%M:%S} ({relative_time(value)})")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, list | tuple):
        return Text(", ".join(cell(each).plain for each in cast("Sequence[object]", value)))
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return Text(", ".join(f"{escaped(str(name))}: {cell(each).plain}" for name, each in pairs))
    return Text(escaped(str(value)), style=_STYLES.get(str(value), ""))


def shortened(text: str, length_max: int) -> str:
    """Return the first line of a text that is not blank, cut to a length."""
    line = text.strip().partition("\n")[0].rstrip()
    return line if len(line) <= length_max else f"{line[: length_max - 1]}…"


def relative_time(at: datetime) -> str:
    """Return an instant relative to now: `3 h ago`, `in 5 min`, or `now` within a second."""
    passed = CURRENT.get().clock.wall() - at.timestamp()
    if abs(passed) < 1:
        return "now"
    return f"{format_duration(passed)} ago" if passed >= 0 else f"in {format_duration(-passed)}"


def _mapping(row: object) -> Mapping[str, object]:
    if isinstance(row, Mapping):
        return cast("Mapping[str, object]", row)
    return asdict(row) if is_dataclass(row) and not isinstance(row, type) else {}
