# SPDX-License-Identifier: Apache-2.0
"""Transactions that commit out of the order of their ids: nothing that comes late is passed over, or counted before it is there."""

from __future__ import annotations

from collections.abc import Generator

import psycopg
import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, stage
from redrive.engine.replay import driver as replay_driver
from redrive.engine.replay.driver import ReplayDriver
from redrive.engine.replay.filter import LetterFilter
from redrive.ops.letters.freeze import freeze
from redrive.store.postgres.store import PostgresStore
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import replays as replay_sql
from redrive.store.statements import reports as report_sql
from redrive.store.statements import runs as run_sql
from redrive.testing import VirtualClock
from tests.databases import Schemas
from tests.embedded import changing
from tests.inline import at_once


@stage(retry=RetryPolicy(1))
def divide(number: int) -> float:
    return 1 / number


FLOW = Pipeline("shares", [divide], replay=ReplayRules(evidence="optional"))
LATE_ATTEMPT = (
    "INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned)"
    " SELECT job_id, 9, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned FROM attempts LIMIT 1"
)
LATE_LETTER = (
    "INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, first_failure_at, last_failure_at)"
    " SELECT 99, lane_id, group_id, round, 'open', first_failure_at, last_failure_at FROM dead_letters LIMIT 1"
)

LATE_JOB = """
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, payload, created_at, finished_at, error_code)
SELECT pipeline, lane_id, status, priority, run_at, payload, created_at, finished_at, error_code FROM jobs WHERE id = 1;
INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, first_failure_at, last_failure_at)
SELECT currval('jobs_id_seq'), lane_id, group_id, round, state, first_failure_at, last_failure_at FROM dead_letters WHERE id = 1;
INSERT INTO letter_facts
SELECT currval('dead_letters_id_seq'), code, category, is_retryable, exception, reason, message, context, stack
FROM letter_facts WHERE letter_id = 1;
"""


IN_ORDER = {
    "breaker_changes": "(at, breaker, before, after, cause, actor) VALUES (1, 'api', 'closed', 'open', 'operator', 'ann')",
    "edits": "(letter_id, job_id, part, at, actor) VALUES (1, 1, 'input', 1, 'ann')",
    "operations": "(at, actor, verb, subject_kind, subject_id) VALUES (1, 'ann', 'pause', 'pipeline', 'shares')",
}
"""Rare rows, each with what is added."""


@pytest.fixture
def rd(schemas: Schemas, clock: VirtualClock) -> Generator[Redrive]:
    with Redrive(PostgresStore(schemas.address("frontier"), clock="caller")) as made:
        made.submit(FLOW, 0)
        made.work([FLOW], until_idle=True)
        yield made


def test_the_log_of_a_run_waits_for_attempts_that_are_committed_late(rd: Redrive) -> None:
    run = rd.runs.open(FLOW, [1]).id
    with changing(rd) as other:
        other.execute(LATE_ATTEMPT)
        rd.work([FLOW], until_idle=True)

        assert rd.store.query(run_sql.run_log(run=run, after=0, limit=10)) == []
        assert rd.store.query(report_sql.newest_attempt())[0][0] == 1

    assert [row[0] for row in rd.store.query(run_sql.run_log(run=run, after=0, limit=10))] == [3]
    assert rd.store.query(report_sql.newest_attempt())[0][0] == 3


def test_of_several_transactions_the_one_that_began_first_holds_back_what_came_later(rd: Redrive) -> None:
    with changing(rd) as first:
        first.execute(LATE_ATTEMPT)
        with changing(rd) as second:
            second.execute(LATE_ATTEMPT.replace("job_id, 9", "job_id, 8"))
            assert rd.store.query(job_sql.last_event()) == [1]
        assert rd.store.query(job_sql.last_event()) == [1]

    assert rd.store.query(job_sql.last_event()) == [3]


def test_a_letter_that_is_committed_late_does_not_belong_to_a_set_that_was_frozen_before(rd: Redrive) -> None:
    # There are more attempts than letters: their numbers are not those of each other.
    rd.submit(FLOW, 1)
    rd.work([FLOW], until_idle=True)
    with changing(rd) as other:
        other.execute(LATE_LETTER)
        rd.submit(FLOW, 0)
        rd.work([FLOW], until_idle=True)
        frozen = freeze(rd.store, LetterFilter())

    assert (frozen.cutoff, frozen.counts) == (1, {("shares", "open"): 1})
    assert freeze(rd.store, LetterFilter()).counts == {("shares", "open"): 3}


@pytest.mark.parametrize("is_marked_first", [True, False])
def test_a_window_of_marking_goes_no_further_than_the_letters_that_were_visible_at_the_start(
    rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, is_marked_first: bool
) -> None:
    """Whether the letter that comes late is committed after the marking or before it: what was shown is what is replayed."""
    monkeypatch.setattr(replay_driver, "MARK_WINDOW", 1)
    driver = ReplayDriver(rd.store, [FLOW], clock, name=lambda: "w1", ask_store=at_once)
    rd.submit(FLOW, 0)
    rd.work([FLOW], until_idle=True)
    with changing(rd) as other:
        other.execute(LATE_JOB)
        rd.submit(FLOW, 0)
        rd.work([FLOW], until_idle=True)
        first = rd.replays.start(pipeline="shares", canary=())
        while is_marked_first and rd.replays.status(first.id).status == "marking":
            driver.drive()
    while rd.replays.status(first.id).status == "marking":
        driver.drive()

    marked = {letter.id: letter.replay for letter in rd.letters.list().letters}
    assert marked == {1: first.id, 2: first.id, 3: None, 4: None}
    assert (first.letters, rd.replays.status(first.id).waiting) == (2, 2)

    # Nothing was passed over: the rest belongs to the next replay, the late one with it.
    second = rd.replays.start(pipeline="shares", canary=())
    while rd.replays.status(second.id).status == "marking":
        driver.drive()
    marked = {letter.id: letter.replay for letter in rd.letters.list().letters}
    assert marked == {1: first.id, 2: first.id, 3: second.id, 4: second.id}
    assert rd.store.query(replay_sql.wrong_replay_tallies(limit=5)) == []


@pytest.mark.parametrize("table", IN_ORDER)
def test_a_rare_row_waits_for_the_one_before_it_to_be_committed(rd: Redrive, table: str) -> None:
    """So that whoever reads on from an id passes none over."""
    adding = f"INSERT INTO {table} {IN_ORDER[table]}"
    with changing(rd) as first:
        first.execute(adding)
        with pytest.raises(psycopg.errors.LockNotAvailable), changing(rd) as second:
            second.execute("SET LOCAL lock_timeout = '1ms'")
            second.execute(adding)


def test_what_is_not_committed_in_another_database_holds_nothing_back(schemas: Schemas) -> None:
    attempt = (
        "INSERT INTO redrive.attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned)"
        " VALUES (1, 1, 1, 1, 1, 'w', 0, 1, 'ok', 1)"
    )
    with schemas.database() as here, schemas.database() as there:
        for address in (here, there):
            PostgresStore(address).close()
        with psycopg.connect(here, autocommit=True) as mine, psycopg.connect(there) as other:
            other.execute(attempt)
            mine.execute(attempt)

            assert mine.execute("SELECT redrive.attempts_frontier()").fetchone() == (1,)
