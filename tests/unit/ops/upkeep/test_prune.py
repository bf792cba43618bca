# SPDX-License-Identifier: Apache-2.0
"""Pruning: in bounded steps, on record, and never what somebody still has to be told."""

from __future__ import annotations

import pytest

from redrive import Event, Pipeline, Redrive, stage
from redrive.engine import retention as pruning
from redrive.engine.retention import Retention
from redrive.ops.upkeep.prune import prunable, prune
from redrive.store.records import Call
from redrive.testing import VirtualClock
from tests.embedded import change_rows, table_rows
from tests.unit.ops.test_pipelines import ANN, DAY, SHOP, log


def ended(rd: Redrive, count: int) -> None:
    rd.submit_many(SHOP, range(1, count + 1))
    rd.work([SHOP], until_idle=True)


def rows(rd: Redrive, table: str) -> int:
    return len(table_rows(rd, table))


def test_pruning_takes_bounded_steps_and_leaves_nothing_behind(
    rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "STEP", 4)
    monkeypatch.setattr(pruning, "WINDOW", 7)
    ended(rd, 20)
    rd.submit(SHOP, 0)
    rd.work([SHOP], until_idle=True)
    clock.advance(2 * DAY)
    ended(rd, 3)
    steps: list[int] = []

    would = prunable(rd.store, Retention(complete=DAY))
    done = prune(rd.store, Retention(complete=DAY), ANN, on_step=steps.append)

    assert (would.jobs, would.undelivered) == (done, 0) == ({"complete": 20}, 0)
    assert max(steps) <= 4
    assert sum(steps) == 20
    assert rd.jobs.counts() == {"complete": 3, "failed": 1}
    assert (rows(rd, "jobs"), rows(rd, "dead_letters")) == (4, 1)
    assert rows(rd, "attempts") == 3 * 2 + 1
    assert log(rd) == [("ann", "prune", "jobs complete > 86400 s", "a test")]


def test_pruning_stops_looking_where_everything_is_young(
    rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "WINDOW", 2)
    ended(rd, 2)
    clock.advance(2 * DAY)
    ended(rd, 10)
    asked: list[str] = []
    query = rd.store.query

    def noted(call: Call[object]) -> object:
        asked.append(call.name)
        return query(call)

    monkeypatch.setattr(rd.store, "query", noted)

    assert prunable(rd.store, Retention(complete=DAY)).jobs == {"complete": 2}
    assert len(asked) == 2


def test_large_values_go_with_their_job_and_its_key_is_free_again(rd: Redrive, clock: VirtualClock) -> None:
    @stage
    def copy(text: str) -> str:
        return text

    letters = Pipeline("letters", [copy])
    rd.submit(letters, "x" * 10_000, key="one")
    rd.work([letters], until_idle=True)
    clock.advance(2 * DAY)

    prune(rd.store, Retention(complete=DAY), ANN)

    assert rows(rd, "job_values") == 0
    assert not rd.submit(letters, "y", key="one").is_duplicate


def test_a_job_that_a_hook_was_not_told_of_yet_is_not_pruned(rd: Redrive, clock: VirtualClock) -> None:
    told: list[int] = []
    is_deaf = True

    def on_dead(event: Event) -> None:
        if is_deaf:
            raise ConnectionError("nobody listens")
        told.append(event.job_id)

    shop = Pipeline("shop", SHOP.stages, on_dead=on_dead)
    rd.submit_many(shop, [0, 1])
    rd.work([shop], until_idle=True)
    clock.advance(2 * DAY)
    everything = Retention(complete=DAY, failed=DAY)

    would = prunable(rd.store, everything)
    assert (would.jobs, would.undelivered) == ({"complete": 1, "failed": 0}, 1)
    assert prune(rd.store, everything, ANN) == {"complete": 1, "failed": 0}
    assert (rows(rd, "outbox"), rd.job(1).status) == (1, "failed")

    is_deaf = False
    rd.work([shop], until_idle=True)
    assert told == [1]
    assert prune(rd.store, everything, ANN) == {"complete": 0, "failed": 1}


def test_what_nobody_will_ever_be_told_goes_only_when_that_is_asked_for(
    rd: Redrive, clock: VirtualClock
) -> None:
    def on_dead(_event: Event) -> None:
        raise ConnectionError("nobody listens")

    shop = Pipeline("shop", SHOP.stages, on_dead=on_dead)
    rd.submit(shop, 0)
    rd.work([shop], until_idle=True)
    clock.advance(2 * DAY)

    would = prunable(rd.store, Retention(failed=DAY), with_undelivered=True)
    done = prune(rd.store, Retention(failed=DAY), ANN, with_undelivered=True)

    assert (would.jobs, would.undelivered) == (done, 0) == ({"failed": 1}, 0)
    assert (rows(rd, "outbox"), rows(rd, "jobs"), rows(rd, "dead_letters")) == (0, 0, 0)
    assert log(rd)[-1] == ("ann", "prune", "jobs failed > 86400 s with undelivered ones", "a test")


def test_a_run_keeps_its_account_after_pruning(rd: Redrive, clock: VirtualClock) -> None:
    rd.run(SHOP, range(1, 11))
    clock.advance(2 * DAY)

    prune(rd.store, Retention(complete=DAY), ANN)

    report = rd.runs.report(1)
    assert (report.total, report.succeeded, report.open) == (10, 10, 0)


def test_a_job_that_was_brought_back_between_looking_and_deleting_stays(
    rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(rd, 2)
    clock.advance(2 * DAY)
    query = rd.store.query

    def late(call: Call[object]) -> list[object]:
        answer = query(call)
        if call.name == "prune_window" and answer:
            change_rows(
                rd, "UPDATE jobs SET status = 'queued', finished_at = NULL, result = NULL WHERE id = 1"
            )
        return answer

    monkeypatch.setattr(rd.store, "query", late)

    assert prune(rd.store, Retention(complete=DAY), ANN) == {"complete": 1}
    assert rd.job(1).status == "queued"
    assert len(rd.job(1).attempts()) == 2
