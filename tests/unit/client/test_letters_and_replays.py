# SPDX-License-Identifier: Apache-2.0
"""Dead letters and replays from a program, and what the doctor says about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, connect, stage
from redrive.engine.pipeline.pipeline import Event
from redrive.errors import ConfigurationError, EvidenceMissingError, JobNotFoundError, ReplayRefusedError
from redrive.ops.audit import operations
from redrive.ops.checkup.doctor import examine
from redrive.testing import VirtualClock
from tests.databases import Address
from tests.embedded import changing


@stage(retry=RetryPolicy(1))
def pay(order: dict[str, int]) -> int:
    if order["amount"] < 0:
        raise PermissionError("no credit")
    return order["amount"]


SHOP = Pipeline("shop", [pay], replay=ReplayRules())


@pytest.fixture(autouse=True)
def _two_failed_orders(rd: Redrive) -> None:
    rd.submit_many(SHOP, [{"amount": -1}, {"amount": -2}, {"amount": 3}])
    rd.work([SHOP], until_idle=True, concurrency=1)


def test_the_whole_way_back_from_a_program(rd: Redrive) -> None:
    (group,) = rd.letters.groups(pipeline="shop")
    chosen = rd.letters.choose(group=group.fingerprint[:10], since=datetime(2000, 1, 1, tzinfo=UTC))
    with pytest.raises(EvidenceMissingError):
        rd.replays.start(pipeline="shop")

    rd.letters.triage(chosen, diagnosis="data", actor="ann")
    rd.letters.assign(chosen, assignee="bob")
    rd.letters.note(chosen, text="signs were turned")
    rd.letters.remediate(chosen, evidence="amounts are corrected", is_safe=True)
    for letter in (1, 2):
        rd.letters.edit(letter, value=b'{"amount": 7}', pipeline=SHOP)
    assert rd.letters.validate(pipelines=[SHOP], pipeline="shop").is_fine
    begun = rd.replays.start(pipeline="shop", canary=(1,), rate=1_000.0, actor="ann", reason="corrected")
    rd.work([SHOP], until_idle=True, concurrency=1)
    closed = rd.replays.close(begun.id, note="all paid")

    assert (closed.recovered, closed.status, closed.note) == (2, "done", "all paid")
    assert [each.id for each in rd.replays.list(pipeline="shop")] == [begun.id]
    assert rd.jobs.counts() == {"complete": 3}
    assert rd.letters.show(1).letter.outcome == "completed"
    assert rd.letters.list(state="open").letters == []


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ({"state": "openn"}, "Did you mean open"),
        ({"code": "IO_DENEID"}, "Did you mean IO_DENIED"),
        ({"category": "networkk"}, "Did you mean network"),
        ({"since": "2h"}, r"must be a datetime, or a timedelta before now, got '2h'"),
        ({"until": 7}, r"timedelta\(hours=2\)"),
        ({"stat": "open"}, "Did you mean state"),
    ],
)
def test_a_mistyped_filter_is_refused_with_the_nearest_name(
    rd: Redrive, which: dict[str, Any], words: str
) -> None:
    for ask in (rd.letters.list, rd.letters.groups, rd.letters.choose, rd.letters.validate):
        with pytest.raises(ConfigurationError, match=words):
            ask(**which)


def test_a_filter_takes_a_time_before_now_and_a_code_that_no_letter_has_yet(
    rd: Redrive, clock: VirtualClock
) -> None:
    clock.advance(7_200)

    assert rd.letters.list(since=timedelta(hours=1)).letters == []
    assert len(rd.letters.list(since=timedelta(hours=3)).letters) == 2
    assert rd.letters.list(code="SHOP_CLOSED").letters == []


def test_an_escalation_is_logged_told_to_the_hook_and_chosen(
    rd: Redrive, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    shop = Pipeline("shop", [pay], replay=ReplayRules(evidence="optional"), on_dead=heard.append)
    rd.work([shop], until_idle=True, concurrency=1)
    rd.jobs.retry(1)
    rd.work([shop], until_idle=True, concurrency=1)

    assert "dead letter 3 is escalated" in caplog.text
    assert [event.is_escalated for event in heard] == [True]
    assert rd.letters.choose(escalated=True).count == 1
    assert [each.id for each in rd.letters.list(escalated=True).letters] == [3]


def test_the_letters_of_an_assignee_are_frozen_although_assignees_change(rd: Redrive) -> None:
    rd.letters.assign(rd.letters.choose(ids=[1]), assignee="ann")
    chosen = rd.letters.choose(assignee="ann")
    rd.letters.assign(rd.letters.choose(ids=[2]), assignee="ann")

    done = rd.letters.discard(chosen)

    assert (chosen.count, done.changed) == (1, 1)
    assert [each.state for each in rd.letters.list().letters] == ["open", "discarded"]


def test_a_program_asks_why_a_job_failed_and_what_attempts_add_up_to(rd: Redrive) -> None:
    told = rd.jobs.explain(1)
    moments = rd.jobs.timeline(1)
    (error,) = rd.reports.errors(pipeline="shop")
    (each,) = rd.reports.stages(stage="pay")
    account = rd.reports.account(pipeline="shop")

    assert (told.status, told.letter, told.attempts[0].code) == ("failed", 1, error.code)
    assert [moment.what for moment in moments][-1] == "failed"
    assert (error.failures, error.jobs) == (2, 2)
    assert (each.ok, each.dead) == (1, 2)
    assert [bucket.jobs for bucket in rd.reports.retries()] == [3, 0, 0, 0]
    assert (account.succeeded, account.dead, account.adds_up) == (1, 2, True)


def test_a_report_about_what_is_not_known_names_what_is(rd: Redrive) -> None:
    with pytest.raises(JobNotFoundError, match="99"):
        rd.jobs.explain(99)
    with pytest.raises(ConfigurationError, match="Did you mean shop"):
        rd.reports.errors(pipeline="shp")
    with pytest.raises(ConfigurationError, match="needs a run or a pipeline"):
        rd.reports.account()


def test_discarded_letters_come_back_and_jobs_are_erased_and_moved(rd: Redrive, address: Address) -> None:
    chosen = rd.letters.choose(ids=[1])
    rd.letters.discard(chosen)
    with pytest.raises(ReplayRefusedError, match="discarded"):
        rd.jobs.retry(1)
    rd.letters.restore(rd.letters.choose(ids=[1]))
    lines = list(rd.letters.export(pipeline="shop"))
    rd.jobs.erase(2)

    with connect(address("elsewhere")) as there:
        assert there.letters.import_(lines).made == 2
        assert there.jobs.counts() == {"failed": 2}


def test_values_leave_a_program_on_record(address: Address) -> None:
    free = Pipeline("shop", [pay], replay=ReplayRules(export="include"))
    with connect(address("jobs")) as rd:
        rd.submit(free, {"amount": -1})
        rd.work([free], until_idle=True, concurrency=1)

        lines = list(rd.letters.export(with_values=True, actor="ann", reason="a copy for the tests"))

        (done,) = operations(rd.store)
        assert len(lines) == 1
        assert (done.actor, done.verb, done.reason) == ("ann", "export", "a copy for the tests")


def test_a_replay_is_paused_resumed_and_cancelled_from_a_program(rd: Redrive) -> None:
    rd.letters.remediate(
        rd.letters.choose(pipeline="shop"), evidence="none really", is_safe=True, diagnosis="transient"
    )
    begun = rd.replays.start(pipeline="shop")
    waiting = findings(rd, "replays")
    rd.work([SHOP], until_idle=True, concurrency=1)
    stopped = findings(rd, "replays")

    assert rd.replays.resume(begun.id).status == "running"
    assert rd.replays.pause(begun.id).status == "paused"
    assert rd.replays.cancel(begun.id).status == "cancelled"
    assert "waits for a worker" in waiting[0]
    assert "waits for an operator to resume or cancel it" in stopped[0]
    assert findings(rd, "replays") == ["no replay is in progress"]


@pytest.mark.parametrize(
    ("wrong", "told"), [({"pipeline_": "shop"}, "Did you mean pipeline"), ({"whatever": 1}, "Known here: ")]
)
def test_a_filter_that_is_mistyped_never_means_all_letters(
    rd: Redrive, wrong: dict[str, Any], told: str
) -> None:
    acts = (rd.letters.choose, rd.letters.list, rd.letters.validate, rd.replays.start)
    for act in acts:
        with pytest.raises(ConfigurationError, match=told):
            act(**wrong)


def test_a_mistyped_actor_is_refused(rd: Redrive) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean actor"):
        rd.letters.discard(rd.letters.choose(pipeline="shop"), actr="ann")  # type: ignore[call-arg]


def findings(rd: Redrive, about: str) -> list[str]:
    return [finding.sentence for finding in examine(rd.store, is_deep=True) if finding.about == about]


def test_the_doctor_finds_counters_and_letters_that_are_wrong(rd: Redrive) -> None:
    assert findings(rd, "letter counters") == ["every counter of dead letters equals its recount"]
    assert findings(rd, "letters")[0].startswith("every failed job has exactly one dead letter")
    with changing(rd) as db:
        db.execute("UPDATE letter_tallies SET letters = 9")
        db.execute("INSERT INTO letter_tallies VALUES (4, 7, 'ready', 2, 0)")
        db.execute("DELETE FROM dead_letters WHERE id = 1")
        db.execute("DELETE FROM letter_facts WHERE letter_id = 2")

    (counters,), (letters,) = findings(rd, "letter counters"), findings(rd, "letters")
    assert "counter 8, recount 1" in counters
    assert "replay 4: counter 2, recount 0" in counters
    assert letters.endswith(": 1, 2")
