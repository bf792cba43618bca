# SPDX-License-Identifier: Apache-2.0
"""What another policy would have done with the attempts on record, and what nobody can know."""

from __future__ import annotations

import pytest

from redrive import Backoff, Fail, Jitter, Redrive, RetryPolicy
from redrive.errors import UnknownNameError
from redrive.lab.history import HistoryReport, replay_history, rows_of
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import STEADY, one_stage, work

FIXED = Backoff.fixed(10, jitter=Jitter.none())


@pytest.fixture(name="recorded")
def _recorded(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> SqliteStore:
    """Jobs that need one, two and three attempts, one that never succeeds, and one that cannot."""
    tries: dict[int, int] = {}

    def flaky(number: int) -> int:
        tries[number] = tries.get(number, 0) + 1
        if number == 9:
            raise Fail("NOT_FOUND")
        if tries[number] < number:
            raise ConnectionResetError(104, "reset")
        return number

    pipeline = one_stage(flaky, retry=STEADY, name="flaky")
    rd.submit_many(pipeline, [1, 2, 3, 7, 9])
    work(store, pipeline)
    return store


def figures(report: HistoryReport) -> tuple[object, ...]:
    return (report.would_retries, report.would_delay, report.would_dead, report.would_succeed, report.unknown)


def test_the_record_itself_is_counted(recorded: SqliteStore) -> None:
    report = replay_history(recorded, RetryPolicy(3, FIXED))

    assert (report.stages, report.retries, report.dead) == (5, 5, 2)
    assert report.delay == pytest.approx(1 + 3 + 3)


def test_the_same_number_of_attempts_ends_as_it_did(recorded: SqliteStore) -> None:
    assert figures(replay_history(recorded, RetryPolicy(3, FIXED))) == (5, 50, 2, 3, 0)


def test_fewer_attempts_are_known_to_give_up_earlier(recorded: SqliteStore) -> None:
    assert figures(replay_history(recorded, RetryPolicy(1, FIXED))) == (0, 0, 4, 1, 0)
    assert figures(replay_history(recorded, RetryPolicy(9, FIXED, retry_on="none"))) == (0, 0, 4, 1, 0)


def test_an_attempt_that_never_happened_is_unknown(recorded: SqliteStore) -> None:
    assert figures(replay_history(recorded, RetryPolicy(5, FIXED)))[2:] == (1, 3, 1)


def test_a_limit_for_a_code_counts(recorded: SqliteStore) -> None:
    policy = RetryPolicy(5, FIXED, per_code_max_attempts={"NETWORK_RESET": 2})

    assert figures(replay_history(recorded, policy))[2:] == (3, 2, 0)


def test_only_the_named_pipeline_and_stage_are_read(recorded: SqliteStore) -> None:
    policy = RetryPolicy(3, FIXED)

    assert replay_history(recorded, policy, pipeline="shop", stage="flaky").stages == 5
    assert replay_history(recorded, policy, stage="other").stages == 0
    with pytest.raises(UnknownNameError):
        replay_history(recorded, policy, pipeline="shpo")
    assert [row["dead"] for row in rows_of(replay_history(recorded, policy))] == [2, 2]
