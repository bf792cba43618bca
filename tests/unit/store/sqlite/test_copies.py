# SPDX-License-Identifier: Apache-2.0
"""Copies of a database file: other work never gets the idempotency key of work that was done before."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from redrive import Context, Pipeline, connect, stage


def keys_of(database: Path, *amounts: int) -> list[str]:
    """Submit jobs, and return the keys under which all that was queued had its effect, by amount: the order is that of threads."""
    keys: dict[int, str] = {}

    @stage(name="pay")
    def noted(amount: int, ctx: Context) -> int:
        keys[amount] = ctx.idempotency_key
        return amount

    flow = Pipeline("shop", [noted])
    with connect(database) as rd:
        for amount in amounts:
            rd.submit(flow, amount)
        rd.work([flow], until_idle=True)
    return [keys[amount] for amount in sorted(keys)]


@stage
def pay(amount: int) -> int:
    return amount


def submit(database: Path, *amounts: int) -> None:
    with connect(database) as rd:
        flow = Pipeline("shop", [pay])
        for amount in amounts:
            rd.submit(flow, amount)


def installations(database: Path) -> int:
    with closing(sqlite3.connect(database)) as db:
        return int(db.execute("SELECT count(*) FROM installations").fetchone()[0])


def test_new_jobs_of_a_copy_have_keys_of_their_own_and_old_ones_keep_theirs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, copy = tmp_path / "jobs.db", tmp_path / "copy.db"
    submit(first, 1)
    shutil.copy(first, copy)

    old, new = keys_of(first, 2)
    old_there, new_there = keys_of(copy, 2)

    assert old == old_there
    assert new != new_there
    assert "copy.db is a copy of another database" in caplog.text
    keys_of(copy, 3)
    assert (installations(first), installations(copy)) == (1, 2)


def test_so_have_those_of_a_file_that_was_put_back_in_place(tmp_path: Path) -> None:
    database, saved = tmp_path / "jobs.db", tmp_path / "saved"
    submit(database, 1)
    shutil.copy(database, saved)
    _, lost = keys_of(database, 2)

    # The same file, with what it contained before.
    shutil.copy(saved, database)
    _, new = keys_of(database, 3)

    assert new != lost
    keys_of(database, 4)
    assert installations(database) == 2


def test_a_file_that_is_moved_stays_the_same_installation(tmp_path: Path) -> None:
    submit(tmp_path / "jobs.db", 1)
    (tmp_path / "jobs.db").rename(tmp_path / "moved.db")

    keys_of(tmp_path / "moved.db", 2)

    assert installations(tmp_path / "moved.db") == 1


def test_looking_at_a_copy_changes_nothing(tmp_path: Path) -> None:
    first, copy = tmp_path / "jobs.db", tmp_path / "copy.db"
    submit(first, 1)
    shutil.copy(first, copy)
    copy.chmod(0o600)
    before = copy.read_bytes()

    with connect(copy) as rd:
        assert rd.jobs.counts() == {"queued": 1}

    assert copy.read_bytes() == before


def test_a_first_write_that_fails_leaves_the_copy_to_be_recognised(tmp_path: Path) -> None:
    first, copy = tmp_path / "jobs.db", tmp_path / "copy.db"
    submit(first, 1)
    shutil.copy(first, copy)
    with connect(copy) as rd:
        with pytest.raises(RuntimeError), rd.store._writing():  # type: ignore[attr-defined]
            raise RuntimeError
        assert installations(copy) == 1
        rd.jobs.cancel(1)

    assert installations(copy) == 2
