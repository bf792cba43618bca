# SPDX-License-Identifier: Apache-2.0
"""Reads of one moment beside a writer that has not committed: they wait for nobody, and nobody waits for them."""

from __future__ import annotations

from pathlib import Path

import psycopg

from redrive.store.postgres.store import PostgresStore
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import workers as worker_sql
from tests.databases import Schemas

LANES = [("shop", "fetch")]


def test_a_long_writer_in_this_process_does_not_block_a_read_of_a_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    store.lanes("shop", ["fetch"])

    with store._writing() as db:
        db.execute("UPDATE lanes SET stage = 'other'")
        with store.reading() as moment:
            assert moment.query(worker_sql.lane_names()) == LANES

    assert store.query(worker_sql.lane_names()) == [("shop", "other")]
    store.close()


def test_a_long_writer_in_another_process_does_not_block_a_read_of_a_file(tmp_path: Path) -> None:
    store, other = SqliteStore(tmp_path / "jobs.db"), SqliteStore(tmp_path / "jobs.db")
    store.lanes("shop", ["fetch"])

    with other._writing() as db:
        db.execute("UPDATE lanes SET stage = 'other'")
        with store.reading() as moment:
            assert moment.query(worker_sql.lane_names()) == LANES

    store.close()
    other.close()


def test_a_long_writer_does_not_block_a_read_on_a_server(schemas: Schemas) -> None:
    address = schemas.address("jobs")
    store = PostgresStore(address)
    store.lanes("shop", ["fetch"])

    def writing(*_: object) -> None:
        with store.reading() as moment:
            assert moment.query(worker_sql.lane_names()) == LANES

    # In the transaction of the store itself, and beside that of somebody else who has locked every row.
    store._transactions.write(writing)
    with psycopg.connect(schemas.server) as other:
        other.execute(f"UPDATE {store.address.schema}.lanes SET stage = 'other'")
        writing()
        other.rollback()

    store.close()


def test_a_read_whose_connection_was_lost_meanwhile_gets_another(schemas: Schemas) -> None:
    store = PostgresStore(schemas.address("jobs"))
    store.lanes("shop", ["fetch"])
    with store.reading() as moment:
        ((process,),) = moment._connection.execute("SELECT pg_backend_pid()").fetchall()  # type: ignore[attr-defined]  # of this store

    with psycopg.connect(schemas.server, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (process,))
    with store.reading() as moment:
        assert moment.query(worker_sql.lane_names()) == LANES

    store.close()
