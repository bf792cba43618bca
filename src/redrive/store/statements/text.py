# SPDX-License-Identifier: Apache-2.0
"""The texts of the named statements, from the SQL files of each dialect: `-- name: claim` starts one, a semicolon ends it.

`-- part: candidates` starts text that several statements share; they include it as `{candidates}`. A part may include others.
A statement with `{rows}` takes as many rows at once as it is built for: one step of the database instead of one per row,
which matters twice, because between two steps every other thread may take the interpreter.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from itertools import count
from typing import Final

FILES: Final = (
    "jobs",
    "workers",
    "settlement",
    "runs",
    "reports",
    "operations",
    "letters",
    "triage",
    "transfer",
    "replays",
    "release",
    "outbox",
    "upkeep",
)
ROW: Final = "-- row: "
_BLOCK: Final = re.compile(
    r"^-- (name|part): (\w+)\n(.*?)(?=^-- (?:name|part): |\Z)", re.MULTILINE | re.DOTALL
)
_TERM: Final = re.compile(r"\?(\d+)")
_PLACE: Final = re.compile(r"\{(\w+)\}")


@cache
def text_of(dialect: str, name: str) -> str:
    """Return a whole SQL file of a dialect."""
    return files("redrive.store").joinpath(dialect, f"{name}.sql").read_text(encoding="utf-8")


@cache
def statements_of(dialect: str) -> dict[str, str]:
    """Return the named statements of a dialect."""
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    for file in FILES:
        for block in _BLOCK.finditer(text_of(dialect, file)):
            kind, name, body = block.groups()
            if name in found[kind]:
                raise KeyError(name)
            found[kind][name] = body.strip().rstrip(";")
    statements, parts = found["name"], found["part"]
    return {name: _expanded(statement, parts) for name, statement in statements.items()}


def _expanded(text: str, parts: dict[str, str]) -> str:
    """Put parts in their places; a part may name others."""
    return _PLACE.sub(
        lambda place: _expanded(parts[place[1]], parts) if place[1] in parts else place[0], text
    )


@cache
def for_rows(statement: str, rows: int) -> str:
    """Return a statement with `{rows}` made for so many rows."""
    described = next(line for line in statement.splitlines() if line.startswith(ROW))
    # Numbered, because what is the same for all rows may be used before or after them.
    numbers = count(1 + max((int(number) for number in _TERM.findall(statement)), default=0))
    row = described.split(",")
    made = ("(" + ", ".join(f"?{next(numbers)}" for _ in row) + ")" for _ in range(rows))
    return statement.replace("{rows}", ", ".join(made))
