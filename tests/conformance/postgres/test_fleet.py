# SPDX-License-Identifier: Apache-2.0
"""Many workers on one server: whose clock decides, who waits for whom, and what whoever follows sees of commits in another order."""

from __future__ import annotations

from contextlib import closing

import psycopg

from redrive.client.connection import Redrive
from redrive.engine.runs.runs import RunOptions, keep_run
from redrive.store.postgres.connection import Server
from redrive.store.postgres.session import SQL
from redrive.store.postgres.store import PostgresStore
from redrive.store.records import ClaimRequest, ExchangeRequest, StateChange
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import runs as run_sql
from redrive.store.statements import upkeep as upkeep_sql
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
        want, swap = ClaimRequest((), 0), StateChange(b"2", "api", b"1")
        answer = store.exchange(
            ExchangeRequest("w1", [settlement(one)], want, now=NOW, token=9, breakers=[swap])
        )

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
