# SPDX-License-Identifier: Apache-2.0
"""Read settings from the environment and from configuration files; and make the one setting that a library reads there.

Nothing is read at import; every call sees the values of that moment.
"""

from __future__ import annotations

import os
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Final, cast

from redrive.errors import ConfigurationError
from redrive.redaction import redact_value

SETTINGS: Final = ("database_url",)
"""The settings a file may contain."""


def database_url() -> str | None:
    """Return the database address from the environment, else from a file in the current directory, else None.

    The files are `redrive.toml`, and the table `[tool.redrive]` of `pyproject.toml`. A relative path starts at the current
    directory.

    Raises:
        ConfigurationError: the address is blank or not a string, or a file is not valid TOML or has an unknown setting.
    """
    address = os.environ.get("REDRIVE_DATABASE_URL")
    return _address("REDRIVE_DATABASE_URL", address) if address else _from_files()


def variable(name: str) -> str | None:
    """Return a variable that a library reads by itself, to know what it will find; None if it is empty or not set."""
    return os.environ.get(name) or None


def count_in(folder: str) -> None:
    """Let prometheus-client, which reads this when it is imported, count in files of a folder that processes share."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder


def _address(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(
            field=field,
            value=redact_value(value),
            rule="must be a path or URL",
            fix='Write "jobs.db", for example.',
        )
    return value


def _from_files() -> str | None:
    where, settings = _settings_in_files()
    for name in settings:
        if name not in SETTINGS:
            similar = get_close_matches(name, SETTINGS, 1, cutoff=0.5)
            fix = f"Did you mean {similar[0]}?" if similar else f"Known settings: {', '.join(SETTINGS)}."
            raise ConfigurationError(field=where, value=name, rule="has an unknown setting", fix=fix)
    if "database_url" not in settings:
        return None
    return _address(f"database_url in {where}", settings["database_url"])


def _settings_in_files() -> tuple[str, dict[str, object]]:
    """Return the name of the first file with settings, and the settings."""
    own = _table_in("redrive.toml")
    if own:
        return "redrive.toml", own
    where = "[tool.redrive] of pyproject.toml"
    tools = (_table_in("pyproject.toml") or {}).get("tool")
    table: object = cast("dict[str, object]", tools).get("redrive", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        fix = (
            'Write [tool.redrive] on a line of its own, and below it, for example, database_url = "jobs.db".'
        )
        raise ConfigurationError(field=where, value=redact_value(table), rule="must be a table", fix=fix)
    return where, cast("dict[str, object]", table)


def _table_in(file: str) -> dict[str, object] | None:
    """Return the contents of a file in the current directory; None when there is none."""
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        problem = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise ConfigurationError(
            field="file",
            value=file,
            rule=f"cannot be read ({problem})",
            fix="Correct the file, or set REDRIVE_DATABASE_URL.",
        ) from error
