# SPDX-License-Identifier: Apache-2.0
"""Where the jobs of an installation are: in a file of its own, or in the database that REDRIVE_DATABASE_URL names."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

SCHEMES = ("postgresql://", "postgres://")


def database_of(file: Path) -> Path | str:
    """Return the database of the jobs; `file` unless the environment names another."""
    return os.environ.get("REDRIVE_DATABASE_URL") or file


def server_address() -> str | None:
    """Return the address of the PostgreSQL server that the environment names; None when it names none."""
    named = os.environ.get("REDRIVE_DATABASE_URL", "")
    return named if named.startswith(SCHEMES) else None


def with_schema(address: str, schema: str) -> str:
    """Return the address of another schema on the same server."""
    parts = urlsplit(address)
    options = [(name, value) for name, value in parse_qsl(parts.query) if name != "schema"]
    return parts._replace(query=urlencode([*options, ("schema", schema)], quote_via=quote)).geturl()
