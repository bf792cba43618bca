# SPDX-License-Identifier: Apache-2.0
"""Runs all checks of a database. Changes nothing and repairs nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from redrive.engine.pipeline.pipeline import Pipeline
from redrive.errors import RedriveError
from redrive.ops.checkup.file import Limits, check_file
from redrive.ops.checkup.findings import Finding, problem
from redrive.ops.checkup.integrity import check_integrity
from redrive.ops.checkup.work import check_work
from redrive.ops.upkeep.migrations import schema_state
from redrive.store.location import Database
from redrive.store.protocol import Store


def examine(
    store: Store,
    *,
    known: Collection[Pipeline] = (),
    is_deep: bool = False,
    limits: Limits | None = None,
) -> list[Finding]:
    """Return every finding, in the order of the checks; `is_deep` reads the whole database."""
    found = [*check_file(store, limits or Limits()), *check_work(store, known)]
    return [*found, *check_integrity(store)] if is_deep else found


def unopened(database: Database) -> Finding | None:
    """Return why a database cannot or should not be opened; None when it can."""
    if isinstance(database, Path) and not database.exists():
        return problem(
            "database",
            f"{database} does not exist",
            "Give --database-url or set REDRIVE_DATABASE_URL; `redrive migrate` creates a new one.",
        )
    try:
        state = schema_state(database)
    except RedriveError as error:
        about = "schema" if error.code == "schema-mismatch" else "database"
        return problem(about, str(error), error.hint)
    if state.found < state.known:
        return problem(
            "schema",
            f"{state.database} has schema version {state.found}; this redrive needs {state.known}",
            "Stop older workers, make a backup, then: redrive migrate (--print shows the SQL).",
        )
    return None


def has_problems(findings: Iterable[Finding]) -> bool:
    """Return whether any finding stops work or endangers stored data."""
    return any(finding.level == "problem" for finding in findings)
