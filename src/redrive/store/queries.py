# SPDX-License-Identifier: Apache-2.0
"""Named SQL statements from the files beside this module: `-- name: claim` starts one, a semicolon ends it.

A statement with `{rows}` takes as many rows at once as it is made for: one step of the database instead of one per row, which
matters twice, because between two steps every other thread may take the interpreter.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

FILES: Final = (
    "queries",
    "inspecting",
    "changing",
    "operating",
    "letters",
    "replaying",
    "sinking",
    "judging",
)
ROW: Final = "-- row: "


@cache
def text_of(dialect: str, name: str) -> str:
    """Return a whole SQL file of a dialect."""
    return files("redrive.store").joinpath("sql", dialect, f"{name}.sql").read_text(encoding="utf-8")


@cache
def statements_of(dialect: str) -> dict[str, str]:
    """Return the named statements of a dialect."""
    statements: dict[str, str] = {}
    for file in FILES:
        for block in text_of(dialect, file).split("-- name: ")[1:]:
            name, _, body = block.partition("\n")
            if name.strip() in statements:
                raise KeyError(name.strip())
            statements[name.strip()] = body.strip().rstrip(";")
    return statements


@cache
def for_rows(statement: str, rows: int) -> str:
    """Return a statement with `{rows}` made for so many rows."""
    described = next(line for line in statement.splitlines() if line.startswith(ROW))
    row = "(" + ", ".join("?" for _ in described.split(",")) + ")"
    return statement.replace("{rows}", ", ".join([row] * rows))
