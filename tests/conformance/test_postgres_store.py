# SPDX-License-Identifier: Apache-2.0
"""What is particular to the store on a server: its constraints, its clock, the order of commits, its connections and their loss."""

from __future__ import annotations

import functools
import os
import select
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from redrive import connect
from redrive.client.connection import Redrive
from redrive.engine.runs.runs import RunOptions, keep_run
from redrive.errors import (
    ConfigurationError,
    SchemaMismatchError,
    StoreDamagedError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from redrive.ops.upkeep.migrations import schema_state
from redrive.store.postgres.connection import Server, address_of, error_of
from redrive.store.postgres.session import SQL
from redrive.store.postgres.store import PostgresStore
from redrive.store.records import BreakerSwap, ClaimRequest
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import runs as run_sql
from redrive.store.statements import upkeep as upkeep_sql
from redrive.store.statements import workers as worker_sql
from redrive.store.steps import lease_time
from redrive.testing.clock import VirtualClock, virtual_time
from redrive.testing.conformance.build import (
    LEASE,
    LETTER,
    NOW,
    attempts,
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


@pytest.fixture
def url(schemas: Schemas) -> str:
    return schemas.address("own")


@pytest.fixture
def store(url: str) -> Generator[PostgresStore]:
    with closing(PostgresStore(url, clock="caller")) as made:
        made.start_worker("w1", NOW, LEASE)
        made.start_worker("w2", NOW, LEASE)
        yield made


@pytest.fixture
def db(schemas: Schemas, store: PostgresStore) -> Generator[psycopg.Connection[tuple[object, ...]]]:
    """Another connection to the same schema."""
    with psycopg.connect(schemas.server, autocommit=True) as link:
        link.execute(f"SET search_path TO {store.address.schema}")
        yield link


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


def test_workers_whose_clocks_are_an_hour_apart_keep_their_leases(url: str) -> None:
    with closing(PostgresStore(url)) as store:
        store.start_worker("slow", NOW - 3_600, LEASE)
        store.start_worker("fast", NOW + 3_600, LEASE)

        assert store.reap(NOW + 3_600) == 0
        assert store.renew("slow", NOW - 3_600, LEASE).is_known
        assert store.reap(NOW + 10_000_000_000) == 0
        assert store.renew("fast", NOW, LEASE).is_known


def test_a_lease_ends_by_the_clock_of_the_server(
    url: str, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    with closing(PostgresStore(url)) as store:
        store.start_worker("late", NOW, LEASE)
        db.execute(
            "UPDATE workers SET expires_at = extract(epoch FROM clock_timestamp()) - 1 WHERE id = 'late'"
        )

        store.reap(0)

        assert not store.renew("late", NOW, LEASE).is_known


def test_who_is_an_hour_ahead_takes_nothing_that_others_hold(url: str) -> None:
    """A run that is driven is left alone, and a living worker is listed as one."""
    with closing(PostgresStore(url)) as store:
        now = lease_time(store, 0)
        store.start_worker("w1", 0, LEASE)
        rd = Redrive(store)
        run = rd.runs.add("shop", RunOptions(), 0.0)
        keep_run(store, run, now - 7_200)
        with virtual_time(clock=VirtualClock(wall=now + 3_600)) as ahead:
            assert store.query(run_sql.live_runs(now=lease_time(store, ahead.wall()))) == []
            assert [worker.is_live for worker in rd.pipelines.workers()] == [True]


def test_a_worker_that_is_committing_is_not_declared_dead(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    one = taken(store)
    with db.transaction():
        db.execute("SELECT 1 FROM workers WHERE id = 'w1' FOR KEY SHARE")
        assert store.reap(NOW + LEASE + 1) == 0
    assert store.reap(NOW + LEASE + 1) == 1
    assert attempts(store, one.id, "outcome") == [("crashed",)]


def test_what_is_committed_late_is_not_passed_over_by_whoever_follows(
    store: PostgresStore, url: str, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 2, NOW)
    first, second = claim(store, lane, 2)
    with db.transaction():
        db.execute(
            "INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned)"
            " VALUES (%s, 1, %s, 1, 1, 'w2', 1, 1, 'crashed', 0)",
            (first.id, lane),
        )
        exchange(store, "w1", [settlement(second)])
        # The second attempt is visible, and comes after one that is not.
        assert len(attempts(store, second.id, "outcome")) == 1
        assert store.query(job_sql.events(after=0, job=None, pipeline=None, limit=10)) == []
        assert store.query(job_sql.last_event()) == [0]

    seen = store.query(job_sql.events(after=0, job=None, pipeline=None, limit=10))
    assert [row.job for row in seen] == [first.id, second.id]
    assert store.query(job_sql.last_event()) == [seen[-1].seq]


def test_the_cut_off_of_a_set_of_letters_is_below_those_that_are_not_visible_yet(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 2, NOW)
    first, second = claim(store, lane, 2)
    exchange(store, "w1", [burial(first)])
    before = store.read("SELECT letters_frontier()")
    with db.transaction():
        db.execute("SELECT nextval('dead_letters_id_seq')")
        db.execute(
            "INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, first_failure_at, last_failure_at)"
            " VALUES (99, %s, 1, 1, 'open', 1, 1)",
            (lane,),
        )
        exchange(store, "w1", [burial(second)])
        assert store.read("SELECT letters_frontier() < 4") == [(1,)]
        assert store.read("SELECT max(id) FROM dead_letters") == [(4,)]
    assert before == [(1,)]
    assert store.read("SELECT letters_frontier()") == [(4,)]


def test_two_that_settle_at_once_do_not_wait_for_the_same_counter(
    store: PostgresStore, url: str, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 3, NOW)
    first, second, third = claim(store, lane, 3)
    exchange(store, "w1", [settlement(first)])
    db.execute("SET lock_timeout = '5s'")
    with db.transaction():
        db.execute(
            "UPDATE jobs SET status = 'complete', result = '1', finished_at = 1, lease_token = NULL, worker_id = NULL WHERE id = %s",
            (second.id,),
        )
        assert exchange(store, "w1", [settlement(third)]).lost == ()

    assert statuses(store) == {"complete": 3}
    assert statuses(store, from_rows=True) == statuses(store)


def test_a_commit_does_not_wait_for_a_breaker_that_another_is_about_to_change(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    one = taken(store)
    store.swap_breaker("api", None, b"1")
    with db.transaction():
        db.execute("UPDATE breakers SET state = state")
        want, swap = ClaimRequest((), 0), BreakerSwap(b"2", "api", b"1")
        answer = store.exchange("w1", [settlement(one)], want, now=NOW, token=9, breakers=[swap])

    assert (answer.lost, answer.swapped) == ((), ())
    assert store.breaker("api") == b"1"


def test_two_that_bury_jobs_of_the_same_failure_do_not_wait_for_each_other(store: PostgresStore) -> None:
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 2, NOW)
    first, second = claim(store, lane, 2)
    exchange(store, "w1", [burial(first, ended_at=NOW)])
    group = [[LETTER.fingerprint], [lane], [LETTER.code], [LETTER.category], [LETTER.exception], [NOW]]
    with Server(store.address).connect() as other, other.transaction():
        other.execute(SQL["touch_groups"], group)
        assert exchange(store, "w1", [burial(second, ended_at=NOW + 60)]).lost == ()

    ((row,),) = store.read("SELECT id FROM letter_groups")
    (found,) = store.query(letter_sql.letter_groups(ids=[int(str(row))]))
    assert (found.first_at, found.last_at) == (NOW, NOW + 60)


def test_counters_of_connections_that_have_gone_are_added_up(
    store: PostgresStore, db: psycopg.Connection[tuple[object, ...]]
) -> None:
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 4, NOW)
    dead, *done = claim(store, lane, 4)
    exchange(store, "w1", [burial(dead), *(settlement(one) for one in done)])
    for table in ("tallies", "letter_tallies", "letter_trend"):
        db.execute(f"UPDATE {table} SET part = 2000000000")

    store.start_worker("w3", NOW, LEASE)
    exchange(store, "w1", [])

    for table in ("tallies", "letter_tallies", "letter_trend"):
        assert store.read(f"SELECT DISTINCT part FROM {table}") == [(0,)]
    assert statuses(store) == {"complete": 3, "failed": 1}
    assert store.query(upkeep_sql.wrong_letter_tallies(limit=5)) == []


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
