# SPDX-License-Identifier: Apache-2.0
"""Copies of a database on a server: each is an installation of its own."""

from __future__ import annotations

import threading
from contextlib import closing

import psycopg
import pytest

from redrive import Context, Pipeline, RetryPolicy, connect, stage
from redrive.errors import StoreDamagedError
from redrive.store.postgres.store import PostgresStore
from tests.databases import Schemas


def test_new_jobs_of_a_copied_database_have_other_keys_and_what_was_in_it_keeps_its_own(
    schemas: Schemas,
) -> None:
    """Copied as a whole, with every row, sequence and id; as a restored dump is."""
    keys: list[str] = []

    @stage
    def note(number: int, ctx: Context) -> None:
        keys.append(ctx.idempotency_key)

    flow = Pipeline("flow", [note])

    def work(address: str) -> list[str]:
        keys.clear()
        with connect(address) as rd:
            rd.submit(flow, 1)
            rd.work([flow], until_idle=True, concurrency=1)
        return keys.copy()

    with schemas.database() as original:
        with connect(original) as rd:
            rd.submit(flow, 1)
        with schemas.database(original) as copy:
            (old, first), (also_old, second) = work(original), work(copy)

            assert old == also_old
            assert first != second
            assert work(copy)[0].split("-")[0] == second.split("-")[0]


def test_a_worker_stops_when_a_copy_has_taken_the_place_of_its_database(schemas: Schemas) -> None:
    with schemas.database() as address, closing(PostgresStore(address)) as store:
        store.start_worker("w1", 0.0, 30.0)
        with psycopg.connect(address, autocommit=True) as db:
            # Nothing of a copy differs but where it is.
            db.execute("ALTER FUNCTION redrive.place() RENAME TO true_place")
            db.execute("CREATE FUNCTION redrive.place() RETURNS bigint LANGUAGE sql AS 'SELECT 1'")

        with pytest.raises(StoreDamagedError, match="another database"):
            store.renew("w1", 0.0, 30.0)


def test_a_copied_database_takes_its_own_letters_for_known_and_later_ones_for_new(schemas: Schemas) -> None:
    @stage(retry=RetryPolicy(1))
    def divide(number: int) -> float:
        return 1 / number

    flow = Pipeline("flow", [divide])

    def fail(address: str) -> None:
        with connect(address) as rd:
            rd.submit(flow, 0)
            rd.work([flow], until_idle=True, concurrency=1)

    with schemas.database() as original:
        fail(original)
        with schemas.database(original) as copy:
            fail(original)
            fail(copy)
            with connect(original) as rd:
                lines = list(rd.letters.export(actor="ops"))
            with connect(copy) as rd:
                imported = rd.letters.import_(lines, actor="ops")

    assert (imported.known, imported.made) == (1, 1)


def test_a_copy_that_two_open_at_once_is_one_installation(schemas: Schemas) -> None:
    with schemas.database() as address:
        PostgresStore(address).close()
        with (
            psycopg.connect(address, autocommit=True) as first,
            psycopg.connect(address, autocommit=True) as second,
        ):
            # Nothing of a copy differs but where it is.
            first.execute("UPDATE redrive.installations SET file = 1")
            second_waits = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
            thread = threading.Thread(target=second.execute, args=("SELECT redrive.identify()",))
            with first.transaction():
                first.execute("SELECT redrive.identify()")
                thread.start()
                # One that does not wait ends, and what it did is judged.
                while thread.is_alive() and first.execute(
                    second_waits, (second.info.backend_pid,)
                ).fetchone() == (False,):
                    pass
            thread.join()

            assert first.execute("SELECT count(*) FROM redrive.installations").fetchone() == (2,)


def test_who_may_only_submit_submits_to_a_copy_by_its_own_name(schemas: Schemas) -> None:
    with schemas.database() as address:
        PostgresStore(address).close()
        with psycopg.connect(address, autocommit=True, options="-c search_path=redrive") as db:
            db.execute("UPDATE installations SET file = 1")
            db.execute("SELECT identify()")

            rows = db.execute("SELECT submit_jobs(id, '[]') FROM installations ORDER BY number").fetchall()

    assert rows == [(None,), ("[]",)]
