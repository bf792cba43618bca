# SPDX-License-Identifier: Apache-2.0
"""What operators do about a run from any process, what its driver makes of it, and its dead letters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive import Backoff, ConfigurationError, Pipeline, Redrive, ReplayRules, RetryPolicy, RunReport, stage
from redrive.engine.replay.driver import ReplayDriver
from redrive.engine.runs.ending import RunStatusDriver
from redrive.engine.runs.runs import RunOptions
from redrive.errors import RunError
from redrive.ops.audit import operations
from redrive.ops.jobs.inspect import JobFilter, list_jobs
from redrive.store.protocol import Store
from redrive.store.statements import jobs as job_sql
from redrive.testing import VirtualClock
from tests.embedded import change_rows
from tests.inline import at_once
from tests.unit.build import bounded, jobs, rows, work


@stage(retry=RetryPolicy(1, Backoff.fixed(1)))
def fetch(number: int) -> int:
    if number < 0:
        raise PermissionError(13, "denied")
    return number


@stage
def store_it(number: int) -> int:
    return number


SHOP = Pipeline("shop", [fetch, store_it], replay=ReplayRules(evidence="optional"))


def decide(store: Store, clock: VirtualClock) -> int:
    async def scene() -> int:
        return RunStatusDriver(store, clock, ask_store=at_once).decide()

    return bounded(scene())


def verbs(store: Store) -> list[tuple[object, ...]]:
    return [
        (each.verb, each.subject, each.actor, each.reason, (each.change or {})["after"])
        for each in operations(store)
    ]


def test_a_paused_run_starts_nothing_until_it_is_resumed(
    store: Store, rd: Redrive, clock: VirtualClock
) -> None:
    run = rd.runs.open(SHOP, [1, 2]).id
    paused = rd.runs.pause(run, actor="ann", reason="maintenance")
    work(store, SHOP, hold_max=1)
    waiting = jobs(store, "status, waiting")
    resumed = rd.runs.resume(run, actor="bob")
    work(store, SHOP)
    decide(store, clock)

    assert (paused.status, paused.reason, paused.open) == ("paused", "paused by ann", 2)
    assert waiting == [("queued", "paused")] * 2
    assert (resumed.status, resumed.reason) == ("running", None)
    assert rd.runs.report(run).status == "completed"
    assert verbs(store) == [
        ("pause", f"run {run}", "ann", "maintenance", {"status": "paused"}),
        ("resume", f"run {run}", "bob", None, {"status": "running"}),
    ]


def test_items_in_a_stage_finish_it_and_wait_before_the_next(
    store: Store, rd: Redrive, clock: VirtualClock
) -> None:
    run = rd.runs.open(SHOP, [1]).id

    async def scene() -> None:
        endings = RunStatusDriver(store, clock, ask_store=at_once)
        # Claimed, and then the run is paused while it is in its stage.
        change_rows(
            store,
            "UPDATE jobs SET status = 'processing', lease_token = 1, worker_id = 'w0', dispatch = 1, last_attempt_at = 0",
        )
        rd.runs.pause(run)
        endings.decide()
        change_rows(store, "UPDATE jobs SET status = 'queued', lease_token = NULL, worker_id = NULL")
        endings.decide()

    bounded(scene())

    assert jobs(store, "status, waiting, run_at > 1e12") == [("queued", "paused", True)]


def test_a_cancelled_run_ends_when_its_running_items_have(
    store: Store, rd: Redrive, clock: VirtualClock
) -> None:
    run = rd.runs.open(SHOP, range(2_500)).id
    cancelled = rd.runs.cancel(run, actor="ann", reason="wrong file")
    decide(store, clock)

    assert (cancelled.status, cancelled.cancelled, cancelled.open) == ("cancelled", 2_500, 0)
    assert rows(store, "status, ended_at", "runs") == [("cancelled", clock.wall())]
    assert verbs(store) == [("cancel", f"run {run}", "ann", "wrong file", {"status": "cancelled"})]


def test_a_run_that_has_no_more_items_to_come_is_cancelled_while_paused_too(
    store: Store, rd: Redrive, clock: VirtualClock
) -> None:
    run = rd.runs.open(SHOP, [1]).id
    rd.runs.pause(run)
    rd.runs.cancel(run)

    assert decide(store, clock) == 1
    assert rd.runs.report(run).status == "cancelled"


def test_what_is_not_possible_now_is_refused_and_not_logged(
    store: Store, rd: Redrive, clock: VirtualClock
) -> None:
    run = rd.runs.open(SHOP, [1]).id
    unfed = rd.runs.add("shop", RunOptions(), 0.0)
    with pytest.raises(RunError, match="is running and cannot be resumed"):
        rd.runs.resume(run)
    with pytest.raises(RunError, match="cannot be resumed like this"):
        rd.runs.resume(unfed)
    work(store, SHOP)
    decide(store, clock)
    for act, what in ((rd.runs.pause, "paused"), (rd.runs.cancel, "cancelled"), (rd.runs.resume, "resumed")):
        with pytest.raises(RunError, match=f"is completed and cannot be {what}"):
            act(run)
        with pytest.raises(RunError, match="no such run"):
            act(99)

    assert verbs(store) == []


def test_a_label_is_changed_and_logged(store: Store, rd: Redrive) -> None:
    run = rd.runs.open(SHOP, [1], label="before").id

    assert rd.runs.label(run, "after", actor="ann").label == "after"
    assert verbs(store) == [("label", f"run {run}", "ann", None, {"label": "after"})]
    with pytest.raises(ConfigurationError, match="label"):
        rd.runs.label(run, "")
    with pytest.raises(RunError):
        rd.runs.label(99, "x")


@pytest.mark.parametrize(("act", "status"), [("pause", "paused"), ("cancel", "cancelled")])
def test_the_process_that_drives_a_run_obeys_and_ends(filed: Redrive, act: str, status: str) -> None:
    asked: list[int] = []

    def endless() -> Iterator[int]:
        for number in range(1_000_000):
            asked.append(number)
            yield number

    def stop(report: RunReport) -> None:
        if report.succeeded and filed.runs.report(report.id).status == "running":
            getattr(filed.runs, act)(report.id, actor="ann")

    report = filed.run(SHOP, endless(), on_progress=stop)

    assert (report.status, report.reason) == (status, f"{status} by ann")
    assert len(asked) < 1_000_000
    if act == "cancel":
        assert report.open == 0
    else:
        assert (report.dead, report.cancelled, report.skipped) == (0, 0, 0)
        assert (
            filed.store.query(
                job_sql.list_queued(which=job_sql.JobTerms(1 << 60, "queued", None, None, report.id, None, 1))
            )[0].waiting
            == "paused"
        )


def test_dead_letters_and_jobs_are_found_by_their_run(store: Store, rd: Redrive, clock: VirtualClock) -> None:
    rd.submit(SHOP, -9)
    one, two = rd.runs.open(SHOP, [-1, 1, -2]).id, rd.runs.open(SHOP, [-3]).id
    work(store, SHOP)

    def found(run: int | None) -> list[int]:
        options = {} if run is None else {"run": run}
        return [letter.job for letter in rd.letters.list(**options).letters]  # type: ignore[arg-type]

    assert (sorted(found(one)), found(two), len(found(None))) == ([2, 4], [5], 4)
    assert [group.states for group in rd.letters.groups(run=one)] == [{"open": 2}]
    assert [line.id for line in list_jobs(store, JobFilter(run=one))] == [4, 3, 2]
    assert [line.id for line in list_jobs(store, JobFilter(run=one), before=4)] == [3, 2]
    assert [line.id for line in list_jobs(store, JobFilter(run=one), before=3, limit=1)] == [2]
    chosen = rd.letters.choose(run=one)
    assert chosen.count == 2
    replay = rd.replays.start(run=one, actor="ann")
    assert replay.letters == 2


def test_a_replay_of_the_letters_of_a_run_takes_only_those(
    store: Store, rd: Redrive, clock: VirtualClock
) -> None:
    one, _ = rd.runs.open(SHOP, [-1, -2]).id, rd.runs.open(SHOP, [-3]).id
    work(store, SHOP)
    replay = rd.replays.start(run=one, actor="ann").id

    async def scene() -> None:
        driver = ReplayDriver(store, [SHOP], clock, name=lambda: "w1", ask_store=at_once)
        while rd.replays.status(replay).status == "marking":
            driver.drive()

    bounded(scene())
    marked = {each.id for each in rd.letters.list().letters if each.replay == replay}
    assert marked == {each.id for each in rd.letters.list(run=one).letters}
    assert len(marked) == 2
