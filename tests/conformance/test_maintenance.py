# SPDX-License-Identifier: Apache-2.0
"""What can be asked about the database of any store as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.errors import ConfigurationError
from redrive.store.protocol import Store
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import upkeep as upkeep_sql
from redrive.store.versions import newest


def test_a_new_database_is_sound_and_of_the_version_that_is_needed(store: Store) -> None:
    assert store.query(upkeep_sql.schema_version()) == [newest()]
    assert store.query(upkeep_sql.integrity()) == ["ok"]
    assert store.query(upkeep_sql.broken_references()) == []
    assert store.query(upkeep_sql.database_size())[0] > 0


def test_only_a_file_can_be_copied(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    if store.maintenance.file is None:
        with pytest.raises(ConfigurationError, match="needs a database in a file"):
            store.maintenance.backup(target)
        return

    assert store.maintenance.backup(target) == 0

    copy = SqliteStore(target)
    assert copy.query(upkeep_sql.schema_version()) == store.query(upkeep_sql.schema_version())
    copy.close()
