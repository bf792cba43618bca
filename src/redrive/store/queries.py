# SPDX-License-Identifier: Apache-2.0
"""Named SQL statements from the files beside this module: `-- name: claim` starts one, a semicolon ends it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def text_of(dialect: str, name: str) -> str:
    """Return a whole SQL file of a dialect."""
    return files("redrive.store").joinpath("sql", dialect, f"{name}.sql").read_text(encoding="utf-8")


@cache
def statements_of(dialect: str) -> dict[str, str]:
    """Return the named statements of a dialect."""
    statements: dict[str, str] = {}
    for block in text_of(dialect, "queries").split("-- name: ")[1:]:
        name, _, body = block.partition("\n")
        statements[name.strip()] = body.strip().rstrip(";")
    return statements
