# SPDX-License-Identifier: Apache-2.0
"""The versions of the schema; the stores have the same tables, and so the same version."""

from __future__ import annotations

from typing import Literal

Older = Literal["refuse", "migrate", "keep"]
"""What to do about a database with an older schema: refuse it, migrate it, or leave it as it is, to be copied."""

MIGRATIONS: list[str] = ["migration_2", "migration_3", "migration_4", "migration_5"]
"""The files after version 1, in order; each dialect has its own."""


def newest() -> int:
    """Return the version that this redrive works with."""
    return 1 + len(MIGRATIONS)


def migrations_after(version: int) -> list[tuple[int, str]]:
    """Return the versions after this one, each with the name of the file that leads to it."""
    return [(number, MIGRATIONS[number - 2]) for number in range(version + 1, newest() + 1)]
