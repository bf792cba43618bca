# SPDX-License-Identifier: Apache-2.0
"""What is particular to the store on a server: its constraints, its clock, the order of commits, its connections and their loss."""

from __future__ import annotations

import functools
import json
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from redrive import connect
from redrive.errors import (
    ConfigurationError,
    SchemaMismatchError,
    StoreDamagedError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from redrive.ops.upkeep.migrations import schema_state
from redrive.store.postgres.connection import address_of, error_of
from redrive.store.postgres.store import PostgresStore
from redrive.store.records import ClaimRequest
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import workers as worker_sql
from redrive.testing.conformance.build import (
    LEASE,
    NOW,
    burial,
    claim,
    exchange,
    lanes_of,
    new,
    settlement,
    statuses,
    taken,
)
from tests.databases import Schemas

Other = Callable[..., psycopg.Connection[tuple[object, ...]]]


def terminate(db: psycopg.Connection[tuple[object, ...]]) -> None:
    """End every other connection to this schema."""
    db.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = current_schema()"
    )


@pytest.mark.parametrize(
    "breach",
    [
        "UPDATE jobs SET status = 'processing'",
        "UPDATE jobs SET lease_token = 1",
        "UPDATE jobs SET result = '1'",
        "UPDATE jobs SET error_code = 'X'",
        "UPDATE jobs SET status = 'failed', finished_at = 1",
        "UPDATE jobs SET status = 'complete', finished_at = 1",
        "UPDATE jobs SET status = 'cancelled'",
        "UPDATE jobs SET status = 'paused'",
    ],
)
def test_the_database_itself_keeps_the_invariants(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]], breach: str
) -> None:
    store.submit([new(lanes_of(store)[0])], NOW)

    with pytest.raises(psycopg.IntegrityError):
        db.execute(breach)


@pytest.mark.parametrize(
    "breach",
    [
        "state = 'lost'",
        "state = 'ready', is_safe = 1",
        "state = 'ready', evidence = 'fixed'",
        "state = 'resolved', closed_at = 1",
        "state = 'resolved', outcome = 'completed'",
        "outcome = 'completed', closed_at = 1",
        "state = 'discarded', replay_id = 1",
        "closed_at = 1",
    ],
)
def test_the_database_itself_keeps_the_invariants_of_letters(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]], breach: str
) -> None:
    exchange(store, "w1", [burial(taken(store))])

    with pytest.raises(psycopg.IntegrityError):
        db.execute(f"UPDATE dead_letters SET {breach}")


@pytest.mark.parametrize(
    "change", ["UPDATE operations SET reason = 'x'", "DELETE FROM operations", "TRUNCATE operations"]
)
def test_nobody_changes_the_operator_log(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]], change: str
) -> None:
    db.execute(
        "INSERT INTO operations (at, actor, verb, subject_kind, subject_id) VALUES (1, 'me', 'pause', 'pipeline', 'shop')"
    )

    with pytest.raises(psycopg.IntegrityError, match="append-only"):
        db.execute(change)


def test_jobs_of_those_who_may_only_submit_are_announced_and_have_a_key_for_each_pipeline(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    lanes = (*lanes_of(store), *lanes_of(store, pipeline="other"))
    submit = "SELECT submit_jobs((SELECT id FROM installations ORDER BY number DESC LIMIT 1), %s)"
    job = {"priority": 5, "run_at": NOW, "key": "k", "payload": "1", "created_at": NOW}
    signal = store.change_signal()
    assert signal is not None
    with closing(signal):
        signal.clear()

        answers = [
            db.execute(submit, (json.dumps([{"lane": lane, **job}]),)).fetchone() for lane in (*lanes, *lanes)
        ]

        assert select.select([signal], [], [], 30)[0]
    assert answers == [("[[1, false]]",), ("[[2, false]]",), ("[[1, true]]",), ("[[2, true]]",)]


def test_a_batch_with_a_job_that_does_not_fit_is_refused_whole(store: PostgresStore) -> None:
    (lane,) = lanes_of(store)

    with pytest.raises(StoreRefusedError, match="refused"):
        store.submit([new(lane), new(lane, priority=99)], NOW)

    assert statuses(store) == {}


@pytest.mark.parametrize(
    "changes", [{"config": "a\0b"}, {"http_status": 1 << 70}, {"http_status": 1 << 40}, {"notes": "\ud800"}]
)
def test_a_row_that_no_column_takes_is_taken_out_and_the_rest_commits(
    store: PostgresStore, changes: dict[str, object]
) -> None:
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 20, NOW)
    bad, *good = claim(store, lane, 20)

    answer = exchange(store, "w1", [burial(bad, **changes), *(settlement(one) for one in good)])

    assert (answer.lost, answer.broken) == ((), (bad.id,))
    assert statuses(store) == {"complete": 19, "processing": 1}


def test_two_stores_drain_a_lane_without_giving_a_job_twice(store: PostgresStore, url: str) -> None:
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 300, NOW)
    taken_by: dict[str, list[int]] = {"w1": [], "w2": []}

    def drain(worker: str, mine: PostgresStore) -> None:
        lanes_of(mine)
        while got := exchange(mine, worker, [], ClaimRequest((lane,), 7), NOW).claimed:
            taken_by[worker] += [each.id for each in got]
            exchange(mine, worker, [settlement(each) for each in got])

    with closing(PostgresStore(url, clock="caller")) as other:
        threads = [threading.Thread(target=drain, args=pair) for pair in (("w1", store), ("w2", other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    both = taken_by["w1"] + taken_by["w2"]
    assert len(both) == len(set(both)) == 300
    assert statuses(store) == {"complete": 300}


def test_a_key_that_another_is_just_storing_is_its(
    store: PostgresStore, url: str, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    (lane,) = lanes_of(store)
    made: list[object] = []
    with closing(PostgresStore(url, clock="caller")) as other:
        lanes_of(other)
        with db.transaction():
            row = db.execute(
                "INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, payload, created_at)"
                " VALUES ('shop', %s, 'queued', 5, 1, 'k', '1', 1) RETURNING id",
                (lane,),
            ).fetchone()
            thread = threading.Thread(target=lambda: made.extend(other.submit([new(lane, key="k")], NOW)))
            thread.start()
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = current_schema()"
            while db.execute(waits).fetchone() == (0,):
                db.execute("SELECT pg_sleep(0.01)")
        thread.join()

    assert row is not None
    assert [(one.id, one.is_duplicate) for one in made] == [(row[0], True)]  # type: ignore[attr-defined]


def test_after_a_lost_connection_the_next_call_connects_again(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    (lane,) = lanes_of(store)
    store.submit([new(lane)], NOW)
    terminate(db)

    with pytest.raises(StoreUnavailableError):
        store.query(job_sql.counts())
    assert statuses(store) == {"queued": 1}


def test_a_commit_whose_answer_was_lost_is_not_repeated(
    store: PostgresStore,
    url: str,
    db: psycopg.Connection[tuple[object, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection ends after the server has committed and before it could say so."""
    from redrive.store.postgres.session import Session

    (lane,) = lanes_of(store)
    run = Session.run

    def lose(self: Session, text: str) -> None:
        run(self, text)
        if text == "COMMIT":
            monkeypatch.setattr(Session, "run", run)
            self.sync()
            terminate(db)
            raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(Session, "run", lose)

    (made,) = store.submit([new(lane)], NOW)

    assert not made.is_duplicate
    assert statuses(store) == {"queued": 1}


def test_a_transaction_that_stood_in_anothers_way_is_repeated(
    store: PostgresStore, url: str, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    """Two changes that lock the same rows in opposite orders."""
    store.apply(worker_sql.add_breaker(name="a", state=b"1"), worker_sql.add_breaker(name="b", state=b"1"))
    done: list[object] = []
    steps = [worker_sql.swap_breaker(state=b"2", name=name, before=b"1").touching(1) for name in ("a", "b")]
    with closing(PostgresStore(url, clock="caller")) as other:
        db.execute("SET deadlock_timeout = '10s'")
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM breakers WHERE name = 'b' FOR UPDATE")
        thread = threading.Thread(target=lambda: done.append(other.apply(*steps)))
        thread.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = current_schema()"
        while db.execute(waits).fetchone() == (0,):
            db.execute("SELECT pg_sleep(0.01)")
        # Now each waits for the other; the server ends the one that has waited for longer, and this one continues.
        db.execute("SELECT 1 FROM breakers WHERE name = 'a' FOR UPDATE")
        db.execute("COMMIT")
        thread.join()

    assert done == [[[], []]]
    assert store.breaker("a") == b"2"


def test_a_signal_listens_again_after_its_connection_was_lost(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    signal = store.change_signal()
    assert signal is not None
    with closing(signal):
        terminate(db)
        # It reports the loss, because something may have been missed.
        assert select.select([signal], [], [], 30)[0]
        signal.clear()
        with pytest.raises(StoreUnavailableError):
            store.query(job_sql.counts())
        store.submit([new(lanes_of(store)[0])], NOW)
        assert select.select([signal], [], [], 30)[0]


def test_behind_a_pooler_settings_are_made_in_each_transaction_and_nobody_listens(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler tells a process id of its own; here the connection lies instead."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda _: -1))
    with closing(PostgresStore(url, clock="caller")) as store:
        store.start_worker("w1", NOW, LEASE)
        one = taken(store)
        exchange(store, "w1", [settlement(one)])

        assert statuses(store) == {"complete": 1}
        assert store.change_signal() is None
        assert store.read("SHOW lock_timeout") == [("30s",)]


def test_a_worker_learns_that_another_database_has_taken_the_place_of_its_own(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    before = db.execute("SELECT id FROM installations").fetchone()
    assert before is not None
    db.execute("UPDATE installations SET id = 'another'")
    try:
        with pytest.raises(StoreDamagedError, match="another database"):
            store.renew("w1", NOW, LEASE)
    finally:
        db.execute("UPDATE installations SET id = %s", before)


def test_a_worker_learns_that_its_database_was_migrated_by_a_newer_redrive(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    db.execute("UPDATE installation SET version = version + 1")
    try:
        with pytest.raises(SchemaMismatchError):
            store.renew("w1", NOW, LEASE)
    finally:
        db.execute("UPDATE installation SET version = version - 1")


def test_a_store_is_not_used_after_it_was_closed_or_in_a_process_that_was_forked(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        with pytest.raises(StoreRefusedError, match="forked"):
            store.query(job_sql.counts())
    store.close()
    with pytest.raises(StoreRefusedError, match="closed"):
        store.query(job_sql.counts())


def test_a_server_that_is_too_old_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", property(lambda _: 130_011))

    with pytest.raises(StoreRefusedError, match="PostgreSQL 13, and redrive needs 14") as error:
        PostgresStore(url)
    assert error.value.hint.startswith("Upgrade")


def test_a_connection_to_several_hosts_goes_to_the_one_that_writes(
    schemas: Schemas, store: PostgresStore
) -> None:
    known = conninfo_to_dict(schemas.server)
    twice = {
        name: f"{known.get(name, other)},{known.get(name, other)}"
        for name, other in (("host", ""), ("port", 5432))
    }
    one = {
        "user": known.get("user", ""),
        "password": known.get("password", ""),
        "schema": store.address.schema,
    }
    address = f"postgresql:///{known.get('dbname', '')}?{urlencode(twice | one)}"

    with closing(PostgresStore(address)) as found:
        assert statuses(found) == {}


@pytest.mark.parametrize(
    ("error", "kind", "hint"),
    [
        (psycopg.errors.DataCorrupted("page 7"), StoreDamagedError, "restore a backup"),
        (psycopg.errors.UndefinedTable("jobs"), StoreRefusedError, "redrive migrate"),
        (psycopg.errors.ReadOnlySqlTransaction("standby"), StoreUnavailableError, "server runs"),
        (psycopg.errors.LockNotAvailable("waited"), StoreUnavailableError, "server runs"),
        (psycopg.OperationalError("the connection is lost"), StoreUnavailableError, "server runs"),
        (psycopg.OperationalError("SSL error: unexpected eof"), StoreUnavailableError, "server runs"),
        (psycopg.OperationalError("SSL SYSCALL error: EOF detected"), StoreUnavailableError, "server runs"),
        (psycopg.OperationalError("SSL error: certificate verify failed"), StoreRefusedError, "pg_hba"),
        (psycopg.OperationalError("server does not support SSL, but"), StoreRefusedError, "pg_hba"),
        (OSError(111, "refused"), StoreUnavailableError, "server runs"),
        (psycopg.errors.CheckViolation("row"), StoreRefusedError, "a bug in redrive"),
    ],
)
def test_an_error_of_the_driver_is_one_of_the_store(
    error: Exception, kind: type[StoreError], hint: str
) -> None:
    """What a repetition may cure is unavailable; what it does not is refused."""
    found = error_of(error, address_of("postgresql://ann:secret@db/shop?schema=jobs"))

    assert type(found) is kind
    assert hint in found.hint
    assert "postgresql://ann@db/shop?schema=jobs" in str(found)


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("connection failed: FATAL:  the database system is starting up", "starting"),
        ("FATAL:  the database system is in recovery mode Connection refused", "starting"),
        ("connection failed: port 1 failed: Connection refused", "absent"),
        ("No such file or directory. Is the server accepting connections on that socket?", "absent"),
        ("could not translate host name", None),
    ],
)
def test_why_a_server_cannot_be_reached_is_read_where_its_driver_is(text: str, server: str | None) -> None:
    found = error_of(psycopg.OperationalError(text), address_of("postgresql://db/shop"))

    assert isinstance(found, StoreUnavailableError)
    assert found.server == server


@pytest.mark.parametrize("use", [connect, functools.partial(schema_state, partition_attempts=True)])
def test_without_the_driver_an_address_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[str], object]
) -> None:
    for name in ("store", "connection"):
        monkeypatch.setitem(sys.modules, f"redrive.store.postgres.{name}", None)
        monkeypatch.delattr(f"redrive.store.postgres.{name}", raising=False)

    with pytest.raises(ConfigurationError, match="needs psycopg") as error:
        use("postgresql://ann@db/shop")
    assert "redrive[postgres]" in str(error.value)
