# SPDX-License-Identifier: Apache-2.0
"""The checkup: everything that is looked at, and what follows from it. It changes nothing and repairs nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from redrive.engine.pipeline.pipeline import Pipeline
from redrive.errors import RedriveError
from redrive.ops.checkup.file import Limits, check_deep, check_file
from redrive.ops.checkup.findings import Finding, problem
from redrive.ops.checkup.letters import check_replays, recount_letters
from redrive.ops.checkup.work import check_work
from redrive.ops.upkeep.migrations import schema_state
from redrive.store.protocol import Store


def examine(
    store: Store,
    *,
    known: Collection[Pipeline] = (),
    is_deep: bool = False,
    limits: Limits | None = None,
) -> list[Finding]:
    """Return every finding, in the order of the checks; `is_deep` reads the whole database."""
    found = [*check_file(store, limits or Limits()), *check_work(store, known), *check_replays(store)]
    return [*found, *check_deep(store), *recount_letters(store)] if is_deep else found


def unopened(path: Path) -> Finding | None:
    """Say why a database cannot even be opened, or should not be; None when it can."""
    if not path.exists():
        return problem(
            "database",
            f"there is no database at {path}",
            "Give --database-url or set REDRIVE_DATABASE_URL; `redrive migrate` makes a new one.",
        )
    try:
        state = schema_state(path)
    except RedriveError as error:
        about = "schema" if error.code == "schema-mismatch" else "database"
        return problem(about, str(error), error.hint)
    if state.found < state.known:
        return problem(
            "schema",
            f"{path} has schema version {state.found}, and this redrive knows {state.known}",
            "Stop older workers, make a backup, then: redrive migrate (--print shows the SQL).",
        )
    return None


def has_problems(findings: Iterable[Finding]) -> bool:
    """Say whether anything found stops work or endangers what is stored."""
    return any(finding.level == "problem" for finding in findings)
