# SPDX-License-Identifier: Apache-2.0
"""The texts of the named statements, from SQL files: `-- name: claim` starts one, a semicolon ends it.

What both databases understand stands once, in this folder, as PostgreSQL takes it; SQLite gets it translated. A comment such as
`/* INDEXED BY jobs_leased */` is a hint for SQLite. A statement that has to differ stands in the folder of each dialect.
`-- part: candidates` starts text that several statements share; they include it as `{candidates}`. A part may include others.
`-- each priority: due_jobs` starts a part that stands once for every `{priority}`, joined by UNION ALL: one probe of an index each.
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
SAME: Final = frozenset({"outbox", "transfer", "triage"})
"""Files of which no statement has to differ."""
ROW: Final = "-- row: "
FOR_SQLITE: Final = tuple(
    (re.compile(pattern), becomes)
    for pattern, becomes in (
        (r"/\* (CROSS|INDEXED BY \w+|NOT INDEXED) \*/", r"\1"),
        (r"\$(\d+)", r"?\1"),
        (r"::(?:double precision|\w+)(?:\[\])?", ""),
        (r"\bgreatest\(", "max("),
        (r"\bleast\(", "min("),
        (r"\bIS NOT DISTINCT FROM\b", "IS"),
        (r"\bIS DISTINCT FROM\b", "IS NOT"),
        (r"\bjsonb?_build_(object|array)\(", r"json_\1("),
        (r"\bSELECT json_array_elements_text\((\?\d+)\)", r"SELECT value FROM json_each(\1)"),
        # An index is searched for the members of an array by one, and of a subquery by the other.
        (r"= ANY \(ARRAY\((SELECT value FROM json_each\(\?\d+\)|\{\w+\})\)\)", r"IN (\1)"),
        # As a subquery: it is asked once, and an index can be searched for the answer.
        (r"\(SELECT currval\(pg_get_serial_sequence\([^()]*\)\)\)", "last_insert_rowid()"),
        # A writer blocks all other writers.
        (r"\s+FOR (?:UPDATE|SHARE)(?: SKIP LOCKED)?\b", ""),
    )
)
"""What PostgreSQL takes, and what SQLite takes instead."""
_BLOCK: Final = re.compile(
    r"^-- (name|part|each priority): (\w+)\n(.*?)(?=^-- (?:name|part|each priority): |\Z)",
    re.MULTILINE | re.DOTALL,
)
_TERM: Final = re.compile(r"\?(\d+)")
_PLACE: Final = re.compile(r"\{(\w+)\}")


@cache
def text_of(dialect: str, name: str) -> str:
    """Return a whole SQL file of a dialect, or of what both have in common."""
    return files("redrive.store").joinpath(dialect, f"{name}.sql").read_text(encoding="utf-8")


@cache
def schema_of(dialect: str) -> str:
    """Return what an empty database gets."""
    return f"{text_of(dialect, 'schema')}\n{_shared(dialect, 'schema')}"


def blocks_of(dialect: str, file: str) -> list[tuple[str, str, str]]:
    """Return kind, name and body of what stands in a file, as a dialect takes it: what both have in common, and its own."""
    own = [] if file in SAME else _BLOCK.findall(text_of(dialect, file))
    return _BLOCK.findall(_shared(dialect, file)) + own


def _shared(dialect: str, name: str) -> str:
    """Return what both dialects have in common, as one takes it."""
    text = text_of("statements", name)
    for pattern, becomes in FOR_SQLITE if dialect == "sqlite" else ():
        text = pattern.sub(becomes, text)
    return text


@cache
def statements_of(dialect: str) -> dict[str, str]:
    """Return the named statements of a dialect."""
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}, "each priority": {}}
    for file in FILES:
        for kind, name, body in blocks_of(dialect, file):
            if name in found[kind]:
                raise KeyError(name)
            found[kind][name] = body.strip().rstrip(";")
    statements, parts = found["name"], found["part"]
    for name, body in found["each priority"].items():
        parts[name] = "\nUNION ALL ".join(body.replace("{priority}", str(each)) for each in range(10))
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
