# SPDX-License-Identifier: Apache-2.0
"""Pipelines: paused and resumed on record, and what is said about stages that are gone."""

from __future__ import annotations

import pytest

from redrive import ConfigurationError, Pipeline, Redrive, stage
from redrive.engine.replay.filter import LetterFilter
from redrive.ops import audit
from redrive.ops.audit import Actor
from redrive.ops.letters.filter import check_filter
from redrive.ops.pipelines import known_pipeline, lane_names, pause, pipelines, resume, stale_lanes
from redrive.store.records import Call

ANN = Actor("ann", "a test")
DAY = 86_400.0


@stage
def fetch(number: int) -> int:
    return 10 // number


@stage
def store(number: int) -> int:
    return number


SHOP = Pipeline("shop", [fetch, store])


def log(rd: Redrive) -> list[tuple[str, str, str, str | None]]:
    return [(each.actor, each.verb, each.subject, each.reason) for each in audit.operations(rd.store)]


def test_pausing_and_resuming_are_on_record(rd: Redrive) -> None:
    rd.submit(SHOP, 1)

    assert pause(rd.store, "shop", ANN)
    assert not pause(rd.store, "shop", ANN)
    (paused,) = pipelines(rd.store)
    assert resume(rd.store, "shop", Actor("bob"))

    assert paused.paused_at is not None
    assert (paused.queued, paused.processing, paused.workers) == (1, 0, 0)
    assert log(rd)[-1] == ("bob", "resume", "pipeline shop", None)
    assert rd.work([SHOP], until_idle=True) == "idle"


def test_a_stage_that_the_code_no_longer_has_is_found_by_its_waiting_jobs(rd: Redrive) -> None:
    rd.submit(SHOP, 1)
    renamed = Pipeline("shop", [store])

    assert [(lane.stage, lane.queued) for lane in stale_lanes(rd.store, [renamed])] == [("fetch", 1)]
    assert stale_lanes(rd.store, [SHOP]) == []
    assert stale_lanes(rd.store, []) == []


def test_a_worker_does_not_end_as_idle_while_jobs_wait_in_a_stage_that_is_gone(
    rd: Redrive, caplog: pytest.LogCaptureFixture
) -> None:
    rd.submit(SHOP, 1)
    rd.submit(SHOP, 2)

    assert rd.work([Pipeline("shop", [store])], until_idle=True) == "held"

    assert "2 jobs queued in shop.fetch, a stage the pipeline no longer has" in caplog.text
    assert rd.work([SHOP], until_idle=True) == "idle"


def test_only_stages_that_exist_or_have_jobs_are_listed(rd: Redrive) -> None:
    rd.submit(SHOP, 1)
    rd.work([Pipeline("shop", [store])], until_idle=True)
    assert [[lane.stage for lane in each.lanes] for each in pipelines(rd.store)] == [["fetch", "store"]]

    rd.work([SHOP], until_idle=True)
    rd.work([Pipeline("shop", [store])], until_idle=True)

    assert [[lane.stage for lane in each.lanes] for each in pipelines(rd.store)] == [["store"]]


def test_stages_that_were_at_one_place_are_listed_in_the_order_of_their_first_use(rd: Redrive) -> None:
    for stages in ([fetch, store], [store], [store, fetch], [fetch]):
        rd.work([Pipeline("shop", stages)], until_idle=True)

    assert list(lane_names(rd.store)) == [("shop", "fetch"), ("shop", "store")]


def test_checking_a_name_counts_no_jobs(rd: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    rd.submit(SHOP, 1)
    asked: list[str] = []
    query = rd.store.query

    def noted(call: Call[object]) -> object:
        asked.append(call.name)
        return query(call)

    monkeypatch.setattr(rd.store, "query", noted)

    known_pipeline(rd.store, "shop")
    check_filter(rd.store, LetterFilter(pipeline="shop", stage="fetch"))
    with pytest.raises(ConfigurationError, match="Did you mean shop"):
        known_pipeline(rd.store, "shpo")

    assert set(asked) == {"lane_names"}
