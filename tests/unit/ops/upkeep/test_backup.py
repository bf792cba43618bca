# SPDX-License-Identifier: Apache-2.0
"""Backups: sound and whole, or there is no file of that name."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from redrive import ConfigurationError, Redrive, connect
from redrive.errors import StoreUnavailableError
from redrive.ops.upkeep.backup import backup
from redrive.store.sqlite import backup as backups
from tests.unit.ops.test_pipelines import ANN, SHOP, log


@pytest.mark.sqlite
def test_a_backup_that_is_not_sound_gets_no_name(
    filed: Redrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damage(_source: Path, partial: Path, _on_pages: object) -> None:
        partial.write_text("this is no database, and long enough to be told so", encoding="utf-8")

    monkeypatch.setattr(backups, "_copy", damage)

    with pytest.raises(StoreUnavailableError, match="not a database"):
        backup(filed.store, tmp_path / "copy.db", ANN)
    assert sorted(path.name for path in tmp_path.glob("copy*")) == []
    assert log(filed) == []


@pytest.mark.sqlite
def test_a_backup_whose_check_fails_gets_no_name(
    filed: Redrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unsound:
        def execute(self, _sql: str) -> Unsound:
            return self

        def fetchone(self) -> tuple[str]:
            return ("page 3 is missing",)

        def close(self) -> None:
            pass

    filed.submit(SHOP, 1)
    monkeypatch.setattr(backups, "_copy", lambda *_: None)
    monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: Unsound())

    with pytest.raises(StoreUnavailableError, match="page 3 is missing"):
        backup(filed.store, tmp_path / "copy.db", ANN)
    assert sorted(path.name for path in tmp_path.glob("copy*")) == []


@pytest.mark.sqlite
def test_a_backup_does_not_replace_a_file_that_appears_meanwhile(
    filed: Redrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy.db"
    link = os.link

    def slow(source: Path, to: Path) -> None:
        to.write_text("precious", encoding="utf-8")
        link(source, to)

    monkeypatch.setattr(os, "link", slow)

    with pytest.raises(ConfigurationError, match="never overwrites"):
        backup(filed.store, target, ANN)
    assert target.read_text(encoding="utf-8") == "precious"


@pytest.mark.sqlite
def test_two_backups_to_one_name_do_not_mix(filed: Redrive, tmp_path: Path) -> None:
    (tmp_path / "copy.db.partial").write_text("another one at work", encoding="utf-8")

    with pytest.raises(ConfigurationError, match="partial"):
        backup(filed.store, tmp_path / "copy.db", ANN)
    assert (tmp_path / "copy.db.partial").exists()


@pytest.mark.sqlite
def test_a_backup_tells_how_far_it_is_and_needs_a_file(filed: Redrive, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    report = backup(filed.store, tmp_path / "copy.db", ANN, on_pages=lambda *pages: told.append(pages))

    assert told[-1][0] == told[-1][1] > 0
    assert report.bytes == (tmp_path / "copy.db").stat().st_size
    with connect(":memory:") as memory, pytest.raises(ConfigurationError, match="database in a file"):
        backup(memory.store, tmp_path / "other.db", ANN)
