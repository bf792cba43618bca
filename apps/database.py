# SPDX-License-Identifier: Apache-2.0
"""Where the jobs of an installation are: in a file of its own, or in the database that REDRIVE_DATABASE_URL names."""

from __future__ import annotations

import os
from pathlib import Path


def database_of(file: Path) -> Path | str:
    """Return the database of the jobs; `file` unless the environment names another."""
    return os.environ.get("REDRIVE_DATABASE_URL") or file
