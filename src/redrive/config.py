# SPDX-License-Identifier: Apache-2.0
"""What redrive reads from its surroundings; the only module, besides the clock's, that looks at the environment.

Nothing is read at import: a variable that changes between two calls is seen as it is at the call. Reading is cached by
comparison with the last look, never by time.
"""

from __future__ import annotations

import os
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Final, cast

from redrive.errors import ConfigurationError
from redrive.redaction import redact_value

KNOWN: Final = ("database_url",)
"""What a file may say."""


def database_url() -> str | None:
    """Return where the jobs live by the environment, or else by a file of the present folder; None when neither says so.

    The files are `redrive.toml`, and the table `[tool.redrive]` of `pyproject.toml`; a path in them starts at the present folder.

    Raises:
        ConfigurationError: an address that is blank or no text, a file that is no TOML, or says something that nobody understands.
    """
    told = os.environ.get("REDRIVE_DATABASE_URL")
    return _address("REDRIVE_DATABASE_URL", told) if told else _from_files()


def _address(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(
            field=field, value=redact_value(value), rule="must be an address", fix='"jobs.db", say.'
        )
    return value


def _from_files() -> str | None:
    where, said = _said_in_files()
    for name in said:
        if name not in KNOWN:
            near = get_close_matches(name, KNOWN, 1, cutoff=0.5)
            meant = f"Did you mean {near[0]}?" if near else f"There is {', '.join(KNOWN)}."
            raise ConfigurationError(field=where, value=name, rule="has a setting nobody knows", fix=meant)
    return _address(f"database_url in {where}", said["database_url"]) if "database_url" in said else None


def _said_in_files() -> tuple[str, dict[str, object]]:
    """Return what the first file says that says anything, and its name."""
    own = _table_in("redrive.toml")
    if own:
        return "redrive.toml", own
    where = "[tool.redrive] of pyproject.toml"
    tools = (_table_in("pyproject.toml") or {}).get("tool")
    table: object = cast("dict[str, object]", tools).get("redrive", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        fix = 'Write [tool.redrive] on a line of its own, and database_url = "jobs.db", say, below it.'
        raise ConfigurationError(field=where, value=redact_value(table), rule="must be a table", fix=fix)
    return where, cast("dict[str, object]", table)


def _table_in(file: str) -> dict[str, object] | None:
    """Return what a file of the present folder says; None when there is none."""
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(
            field="file", value=file, rule=f"cannot be read ({error})", fix="Mend it, or name the database."
        ) from error
