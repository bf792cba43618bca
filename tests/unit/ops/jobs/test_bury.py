# SPDX-License-Identifier: Apache-2.0
"""Jobs that failed before they could be queued, keys that are wanted again, and the jobs of an owner."""

from __future__ import annotations

import pytest

import redrive
from redrive import CodeSet, Fail, OwnCode, Pipeline, Redrive, ReplayRules, RetryPolicy, stage
from redrive.core.failure import Failure
from redrive.errors import ConfigurationError, JobNotFoundError, NotOwnerError, ReplayRefusedError
from redrive.ops.audit import Actor
from redrive.ops.checkup.doctor import examine
from redrive.ops.jobs.facts import job_facts
from redrive.ops.jobs.retry import retry_job
from redrive.testing import VirtualClock

CODES = CodeSet("uploads", [OwnCode("NOT_PDF", line="Only PDF files.")], otherwise=OwnCode("UNKNOWN"))
ANN = Actor("ann", "a test")


@stage(retry=RetryPolicy(1))
def convert(name: str) -> str:
    if name.startswith("bad"):
        raise Fail("UNKNOWN", "no")
    return name.upper()


FLOW = Pipeline("uploads", [convert], codes=CODES, replay=ReplayRules(evidence="optional", owner_retry=True))


def refused(message: str = "it is no PDF") -> Failure:
    return redrive.classify(Fail("NOT_PDF", message), codes=CODES, stage="convert")


def test_a_buried_job_is_failed_with_its_letter_attempt_and_event_and_no_worker_sees_it(rd: Redrive) -> None:
    buried = rd.jobs.bury(FLOW, "photo.jpg", refused(), owner="ann")

    assert (buried.status, buried.error_code, buried.owner, buried.dispatch) == (
        "failed",
        "NOT_PDF",
        "ann",
        1,
    )
    assert buried.last_attempt_at == buried.finished_at
    assert rd.work([FLOW], until_idle=True) == "idle"
    job = rd.job(buried.id)
    assert job.facts == buried
    (attempt,) = job.attempts()
    assert (attempt.outcome, attempt.code) == ("dead", "NOT_PDF")
    assert job.events()[-1].event == "failed"
    (letter,) = rd.letters.list().letters
    assert (letter.job, letter.code, letter.owner) == (buried.id, "NOT_PDF", "ann")
    assert [finding for finding in examine(rd.store, is_deep=True) if finding.level == "problem"] == []


def test_buried_jobs_of_one_cause_are_one_group_and_are_counted(rd: Redrive) -> None:
    for name in ("a.jpg", "b.jpg"):
        rd.jobs.bury(FLOW, name, refused())

    assert [group.letters for group in rd.letters.groups()] == [2]
    assert rd.jobs.counts() == {"failed": 2}


def test_what_a_buried_job_says_is_redacted(rd: Redrive) -> None:
    buried = rd.jobs.bury(FLOW, "private-name.jpg", refused("private-name.jpg is no PDF"))

    assert "private-name" not in (buried.error_message or "")


def test_a_large_payload_is_not_buried(rd: Redrive) -> None:
    with pytest.raises(ConfigurationError, match="at most"):
        rd.jobs.bury(FLOW, "x" * 100_000, refused())


def test_a_complete_job_gives_its_key_back_once_and_then_the_work_is_new(rd: Redrive) -> None:
    first = rd.submit(FLOW, "a.pdf", key="a")
    assert not rd.jobs.free_key(first.id)
    rd.work([FLOW], until_idle=True)

    assert rd.jobs.free_key(first.id)
    assert not rd.jobs.free_key(first.id)

    second = rd.submit(FLOW, "a.pdf", key="a")
    assert (second.is_duplicate, first.facts.key, second.facts.key) == (False, None, "a")
    with pytest.raises(JobNotFoundError):
        rd.jobs.free_key(99)


def test_the_jobs_of_an_owner_come_newest_first_and_page_by_page(rd: Redrive) -> None:
    mine = [rd.submit(FLOW, f"{n}.pdf", owner="ann").id for n in range(3)]
    rd.submit(FLOW, "other.pdf", owner="bob")
    rd.submit(FLOW, "nobody.pdf")

    page = rd.jobs.of_owner("ann", "uploads", limit=2)
    rest = rd.jobs.of_owner("ann", "uploads", before=page[-1].id)

    assert [job.id for job in (*page, *rest)] == mine[::-1]
    assert page[0] == rd.job(page[0].id).facts
    assert rd.jobs.of_owner("ann", "other") == []


def test_retries_by_hand_are_counted_and_replays_are_not(rd: Redrive, clock: VirtualClock) -> None:
    job = rd.submit(FLOW, "bad.pdf", owner="ann")
    rd.work([FLOW], until_idle=True)

    retry_job(rd.store, job.id, ANN, owner="ann")
    rd.work([FLOW], until_idle=True)
    rd.replays.start(pipeline="uploads")
    rd.work([FLOW], until_idle=True)
    clock.advance(60)
    rd.work([FLOW], until_idle=True)

    facts = job_facts(rd.store, job.id)
    assert (facts.round, facts.manual_retries) == (3, 1)


def test_a_job_that_has_not_failed_is_refused_for_that_before_its_owner_is_looked_at(rd: Redrive) -> None:
    job = rd.submit(FLOW, "a.pdf", owner="ann")
    with pytest.raises(ReplayRefusedError, match="it is queued") as why:
        retry_job(rd.store, job.id, ANN, owner="bob")
    assert not isinstance(why.value, NotOwnerError)

    failed = rd.jobs.bury(FLOW, "a.jpg", refused(), owner="ann")
    with pytest.raises(NotOwnerError):
        retry_job(rd.store, failed.id, ANN, owner="bob")
