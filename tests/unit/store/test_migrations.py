# SPDX-License-Identifier: Apache-2.0
"""Which databases are opened, made, brought up to date or refused; what is refused is left as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from redrive import Pipeline, connect, stage
from redrive.cli.input.options import as_it_is
from redrive.errors import SchemaMismatchError, StoreRefusedError
from redrive.ops.audit import Actor
from redrive.ops.upkeep.backup import backup
from redrive.ops.upkeep.migrations import migrate
from redrive.store.sqlite import migrations
from redrive.store.sqlite.store import SCHEMA_VERSION
from redrive.store.statements import text_of

ANN = Actor("ann", "a test")


@stage
def double(number: int) -> int:
    return number * 2


SHOP = Pipeline("shop", [double])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def older(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with a job, made before the present version was."""
    with connect(path) as rd:
        rd.submit(SHOP, 1)
    release(monkeypatch, "ALTER TABLE jobs ADD COLUMN mood TEXT;")
    return path


def release(monkeypatch: pytest.MonkeyPatch, *later: str) -> None:
    """Let there be later versions of the schema."""
    texts = {f"later {place}": text for place, text in enumerate(later)}
    before = text_of
    monkeypatch.setitem(migrations.VERSIONS, "sqlite", (*migrations.VERSIONS["sqlite"], *texts))
    monkeypatch.setattr("redrive.store.sqlite.store.SCHEMA_VERSION", SCHEMA_VERSION + len(later))
    monkeypatch.setattr(migrations, "text_of", lambda dialect, name: texts.get(name) or before(dialect, name))


def facts(path: Path) -> tuple[int, bool]:
    """Return the version of a database, and whether its jobs have a mood."""
    with closing(sqlite3.connect(path)) as db:
        columns = {row[1] for row in db.execute("PRAGMA table_info(jobs)")}
        return int(db.execute("PRAGMA user_version").fetchone()[0]), "mood" in columns


@pytest.mark.parametrize("is_there", [False, True])
def test_a_database_that_is_not_there_or_empty_is_made_at_once(path: Path, is_there: bool) -> None:
    if is_there:
        path.touch()

    with connect(path) as rd:
        assert rd.submit(SHOP, 1).status == "queued"

    assert facts(path) == (SCHEMA_VERSION, False)


def test_an_older_database_is_refused_and_left_as_it_is(older: Path) -> None:
    with pytest.raises(SchemaMismatchError) as refused:
        connect(older)

    assert (refused.value.found, refused.value.known) == (SCHEMA_VERSION, SCHEMA_VERSION + 1)
    assert "redrive migrate" in refused.value.hint
    assert facts(older) == (SCHEMA_VERSION, False)


def test_an_older_database_is_opened_once_it_was_migrated(older: Path) -> None:
    before = migrate(older, ANN)

    assert (before.found, before.known) == (SCHEMA_VERSION, SCHEMA_VERSION + 1)
    assert facts(older) == (SCHEMA_VERSION + 1, True)
    with connect(older) as rd:
        assert rd.counts() == {"queued": 1}
        assert [(row[2], row[3]) for row in rd.store.query("operations", 5)] == [
            ("ann", "migrate"),
        ]


def test_a_migration_is_done_as_a_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(path).close()
    release(monkeypatch, "ALTER TABLE jobs ADD COLUMN mood TEXT;", "ALTER TABLE nowhere ADD COLUMN x TEXT;")

    with pytest.raises(Exception, match="nowhere"):
        migrate(path, ANN)

    assert facts(path) == (SCHEMA_VERSION, False)


def test_an_older_database_can_be_copied_before_it_is_migrated(older: Path, tmp_path: Path) -> None:
    with as_it_is(str(older)) as rd:
        report = backup(rd.store, tmp_path / "copy.db", ANN)

    assert report.jobs == 1
    assert facts(older) == facts(tmp_path / "copy.db") == (SCHEMA_VERSION, False)


def test_a_newer_database_is_refused_even_to_be_copied(path: Path) -> None:
    connect(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")

    with pytest.raises(SchemaMismatchError, match="has schema version") as refused, as_it_is(str(path)):
        pass
    assert "a newer one" in refused.value.hint


def test_the_database_of_another_program_is_refused_and_not_touched(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE jobs (id INTEGER)")
        db.commit()
    before = path.read_bytes()

    with pytest.raises(StoreRefusedError, match="none of redrive's"):
        connect(path)
    with pytest.raises(StoreRefusedError, match="none of redrive's"):
        migrate(path, ANN)

    assert path.read_bytes() == before
