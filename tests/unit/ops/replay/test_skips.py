# SPDX-License-Identifier: Apache-2.0
"""The report of a replay names the letters it left out, and the job that has the key of one."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, stage
from redrive.engine.replay.release import Obstacle
from redrive.ops.replay import progress
from redrive.ops.replay.progress import report_of
from redrive.store.statements import replays as replay_sql
from redrive.testing import VirtualClock
from tests.embedded import changing

BROKEN: list[bool] = []


@stage(retry=RetryPolicy(1))
def pay(order: int) -> int:
    if BROKEN:
        raise PermissionError("the key has expired")
    return order


SHOP = Pipeline("shop", [pay], replay=ReplayRules(evidence="optional"))


@pytest.fixture(autouse=True)
def _working_again() -> Generator[None]:
    yield
    BROKEN.clear()


def left_out(rd: Redrive) -> int:
    """Replay ten letters: two have lost their keys to jobs 11 and 12, one its values, and seven recover."""
    BROKEN.append(True)
    for number in range(10):
        rd.submit(SHOP, number, key=f"order-{number}")
    rd.work([SHOP], until_idle=True, concurrency=1)
    BROKEN.clear()
    rd.submit(SHOP, 2, key="order-2")
    rd.submit(SHOP, 4, key="order-4")
    rd.jobs.erase(6)
    begun = rd.replays.start(pipeline="shop", canary=())
    rd.work([SHOP], until_idle=True, concurrency=1)
    return begun.id


def test_the_first_letters_of_every_reason_are_named_with_the_job_that_has_the_key(rd: Redrive) -> None:
    report = rd.replays.status(left_out(rd))

    keys, erased = report.skips
    assert (keys, erased[1], report.recovered) == (("key", 2), 1, 7)
    assert report.first_skipped["key"] == [(3, Obstacle("key", job=11)), (5, Obstacle("key", job=12))]
    assert report.skipped_letters[0][1].text == "a newer job has its key (job 11)"
    assert [letter for letter, _ in report.first_skipped["erased"]] == [6]
    assert [letter for letter, _ in report.skipped_letters] == [3, 5, 6]


def test_a_replay_that_is_paused_before_its_letters_are_marked_leaves_none_out(rd: Redrive) -> None:
    BROKEN.append(True)
    rd.submit_many(SHOP, range(3))
    rd.work([SHOP], until_idle=True)
    begun = rd.replays.start(pipeline="shop")

    rd.replays.pause(begun.id)

    report = rd.replays.status(begun.id)
    assert (report.status, report.letters, report.waiting, report.left_out) == ("paused", 3, 3, 0)


def test_what_a_cancelled_replay_did_not_release_is_left_out_and_not_skipped(rd: Redrive) -> None:
    BROKEN.append(True)
    rd.submit_many(SHOP, range(3))
    rd.work([SHOP], until_idle=True, concurrency=1)
    rd.jobs.erase(1)
    begun = rd.replays.start(pipeline="shop", canary=(1, 2))
    rd.work([SHOP], until_idle=True, concurrency=1)

    rd.replays.cancel(begun.id)

    report = rd.replays.status(begun.id)
    assert (report.letters, report.skipped, report.failed_again_same, report.left_out) == (3, 1, 1, 1)


def test_a_reason_whose_letters_come_late_is_named_as_well(
    rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = left_out(rd)
    monkeypatch.setattr(progress, "FIRST_MAX", 1)

    report = report_of(rd.store, replay, skipped_max=2)

    assert [letter for letter, _ in report.skipped_letters] == [3, 5]
    assert [[letter for letter, _ in named] for named in report.first_skipped.values()] == [[3], [6]]


def test_why_a_letter_was_skipped_is_stored_as_values(rd: Redrive) -> None:
    replay = left_out(rd)

    rows = rd.store.query(replay_sql.skipped_letters(replay=replay, limit=10))

    assert rows == [(3, "key", 11, None, None), (5, "key", 12, None, None), (6, "erased", None, None, None)]
    assert rd.store.query(replay_sql.replay_skips(replay=replay)) == [("key", 2), ("erased", 1)]


def test_letters_with_different_problems_of_one_kind_are_counted_together(rd: Redrive) -> None:
    BROKEN.append(True)
    for number in range(2):
        rd.submit(SHOP, number)
    rd.work([SHOP], until_idle=True, concurrency=1)
    BROKEN.clear()
    with changing(rd) as db:
        for job, value in ((1, b'"one"'), (2, b"[2]")):
            db.execute("UPDATE jobs SET input = ? WHERE id = ?", (value, job))

    begun = rd.replays.start(pipeline="shop", canary=())
    rd.work([SHOP], until_idle=True, concurrency=1)

    report = rd.replays.status(begun.id)
    assert report.skips == [("type", 2)]
    assert len({obstacle.detail for _, obstacle in report.skipped_letters}) == 2


def test_the_report_of_a_replay_stays_when_its_letters_are_pruned(rd: Redrive, clock: VirtualClock) -> None:
    replay = left_out(rd)
    clock.advance(100)

    pruned = rd.prune(complete=50, failed=50)

    report = rd.replays.status(replay)
    assert pruned == {"complete": 9, "failed": 3}
    assert (report.letters, report.recovered, report.waiting) == (10, 7, 0)
    assert report.skips == [("key", 2), ("erased", 1)]
    assert [letter for letter, _ in report.skipped_letters] == [3, 5, 6]
