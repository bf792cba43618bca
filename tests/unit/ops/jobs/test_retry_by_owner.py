# SPDX-License-Identifier: Apache-2.0
"""Whoever says that they own a job is told why that is refused, before anybody is asked about it."""

from __future__ import annotations

import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, stage
from redrive.errors import EvidenceMissingError, NotOwnerError
from redrive.ops.jobs.retry import check_retry


@stage(retry=RetryPolicy(1))
def store_it(file: str) -> str:
    raise PermissionError("no room")


OWNED = Pipeline("uploads", [store_it], replay=ReplayRules(owner_retry=True))
STRICT = Pipeline("ledger", [store_it])


@pytest.fixture(autouse=True)
def _three_failed_uploads(rd: Redrive) -> None:
    rd.submit(OWNED, "a.txt", owner="session-1")
    rd.submit(OWNED, "b.txt")
    rd.submit(STRICT, "c.txt", owner="session-1")
    rd.work([OWNED, STRICT], until_idle=True)


def test_whoever_is_not_the_owner_is_refused_without_being_told_who_is(rd: Redrive) -> None:
    with pytest.raises(NotOwnerError, match="is not owned by 'session-2'") as refused:
        rd.jobs.retry(1, owner="session-2")

    assert "session-1" not in f"{refused.value} {refused.value.hint}"


def test_a_job_of_nobody_has_no_owner_who_could_retry_it(rd: Redrive) -> None:
    with pytest.raises(NotOwnerError, match="it has no owner, so") as refused:
        rd.jobs.retry(2, owner="session-1")

    assert "submitted without an owner" in refused.value.hint
    assert "redrive job retry 2, without --as-owner" in refused.value.hint


def test_an_operator_without_evidence_hears_that_the_owner_needs_none(rd: Redrive) -> None:
    for job, is_told in ((1, True), (2, False), (3, False)):
        with pytest.raises(EvidenceMissingError) as refused:
            rd.jobs.retry(job)

        assert ("--as-owner" in refused.value.hint) is is_told


def test_an_owner_hears_that_the_pipeline_does_not_let_owners_retry(rd: Redrive) -> None:
    with pytest.raises(EvidenceMissingError, match=r"of its owner as well: .*owner_retry=True"):
        rd.jobs.retry(3, owner="session-1")
    with pytest.raises(EvidenceMissingError) as plain:
        rd.jobs.retry(3)

    assert "owner_retry" not in str(plain.value)


def test_a_check_refuses_what_a_retry_would_and_changes_nothing(rd: Redrive) -> None:
    with pytest.raises(NotOwnerError):
        check_retry(rd.store, 1, owner="session-2")

    assert check_retry(rd.store, 1, owner="session-1").status == "failed"
    assert rd.job(1).status == "failed"
