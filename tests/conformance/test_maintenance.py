# SPDX-License-Identifier: Apache-2.0
"""What can be asked about the database of any store as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.errors import ConfigurationError
from redrive.store.protocol import Store
from redrive.store.sqlite.store import SqliteStore
from redrive.store.versions import newest


def test_a_new_database_is_sound_and_of_the_version_that_is_needed(store: Store) -> None:
    asked = store.maintenance

    assert (asked.version, asked.damage(), asked.broken_references()) == (newest(), [], [])
    assert asked.size > 0


def test_only_a_file_can_be_copied(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    if store.maintenance.file is None:
        with pytest.raises(ConfigurationError, match="needs a database in a file"):
            store.maintenance.backup(target)
        return

    assert store.maintenance.backup(target) == 0

    copy = SqliteStore(target)
    assert copy.maintenance.version == store.maintenance.version
    copy.close()
