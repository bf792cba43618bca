# SPDX-License-Identifier: Apache-2.0
"""The payload and the result of a job, for whoever asks by name; the log has who and why."""

from __future__ import annotations

from typing import Any, cast

import pytest

from redrive import ConfigurationError, Pipeline, Redrive, RetryPolicy, Skip, stage
from redrive.errors import (
    JobCancelledError,
    JobErasedError,
    JobFailedError,
    JobNotFoundError,
    JobSkippedError,
    WaitTimeoutError,
)


@stage(retry=RetryPolicy(1))
def halve(number: int) -> float:
    if number == 1:
        raise Skip("odd")
    return 10 / number


FLOW = Pipeline("halves", [halve])


def test_a_value_is_returned_as_json_and_who_read_it_is_logged(rd: Redrive) -> None:
    job = rd.submit(FLOW, 4).id
    rd.work([FLOW], until_idle=True)

    read = (
        rd.jobs.value(job, part="payload", actor="ann", reason="support"),
        rd.jobs.value(job, part="result"),
    )

    assert read == (b"4", b"2.5")
    log = [(each.actor, each.verb, each.subject, each.reason) for each in rd.events.operations()]
    assert log == [("ann", "read payload", "job 1", "support"), ("api", "read result", "job 1", None)]


@pytest.mark.parametrize("kind", ["value", "handle"])
def test_a_job_without_a_result_raises_the_same_from_both(rd: Redrive, kind: str) -> None:
    failed, skipped, erased = (rd.submit(FLOW, number).id for number in (0, 1, 2))
    rd.work([FLOW], until_idle=True)
    rd.jobs.erase(erased)
    waiting, cancelled = rd.submit(FLOW, 3).id, rd.submit(FLOW, 4)
    cancelled.cancel()
    before = len(rd.events.operations())

    def result(job: int) -> object:
        return rd.jobs.value(job, part="result") if kind == "value" else rd.job(job).result(0)

    for job, error in {
        failed: JobFailedError,
        skipped: JobSkippedError,
        erased: JobErasedError,
        waiting: WaitTimeoutError,
        cancelled.id: JobCancelledError,
        99: JobNotFoundError,
    }.items():
        with pytest.raises(error):
            result(job)
    with pytest.raises(JobSkippedError, match="odd"):
        result(skipped)
    assert len(rd.events.operations()) == before


def test_an_unknown_part_and_an_erased_payload_are_refused(rd: Redrive) -> None:
    job = rd.submit(FLOW, 4).id
    rd.work([FLOW], until_idle=True)
    rd.jobs.erase(job)

    with pytest.raises(JobErasedError):
        rd.jobs.value(job, part="payload")
    with pytest.raises(ConfigurationError, match="part"):
        rd.jobs.value(job, part=cast("Any", "input"))
