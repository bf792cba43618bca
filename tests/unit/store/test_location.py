# SPDX-License-Identifier: Apache-2.0
"""Where the jobs live: what is read of a database before it is opened."""

from __future__ import annotations

from pathlib import Path

from redrive import connect
from redrive.store import location


def test_the_version_of_a_database_is_read_without_changing_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    assert location.version_of(path) == 0
    connect(path).close()
    before = path.read_bytes()

    assert location.version_of(path) >= 1
    assert path.read_bytes() == before
