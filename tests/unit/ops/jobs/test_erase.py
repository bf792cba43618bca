# SPDX-License-Identifier: Apache-2.0
"""Erasing the values of a job: nothing of them is left, and the record stays."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from redrive import Pipeline, Redrive, RetryPolicy, stage
from redrive.engine.replay.release import batch_of, obstacle_to, start_value
from redrive.errors import JobNotFoundError, ReplayRefusedError
from redrive.ops import audit
from redrive.ops.audit import Actor
from redrive.ops.jobs import inspect
from redrive.ops.jobs.erase import check_erasable, erase
from redrive.ops.letters.edit import edit
from redrive.store.statements import release as release_sql
from tests.embedded import table_rows

ANN = Actor("ann", "asked to")
SECRET = "the-quick-brown-fox"


@stage
def longer(text: str) -> str:
    return text * 300


@stage(retry=RetryPolicy(1))
def check(text: str) -> str:
    if text.startswith("bad"):
        raise KeyError(1)
    return text


SHOP = Pipeline("shop", [longer, check])


def work(rd: Redrive, text: str) -> int:
    job = rd.submit(SHOP, text)
    rd.work([SHOP], until_idle=True)
    return job.id


def kept(rd: Redrive) -> str:
    tables = ("jobs", "job_values", "edits", "dead_letters", "letter_facts", "attempts", "operations")
    return "".join(str(table_rows(rd, table)) for table in tables)


@pytest.mark.parametrize("start", ["good ", "bad "])
def test_nothing_of_the_values_is_left_and_the_record_stays(rd: Redrive, start: str) -> None:
    job = work(rd, start + SECRET)
    if start == "bad ":
        edit(rd.store, 1, ANN, part="payload", value=f'"other {SECRET}"'.encode())
    before = inspect.job_details(rd.store, job)
    assert SECRET in kept(rd)

    done = erase(rd.store, job, ANN)

    assert done.is_new
    assert SECRET not in kept(rd)
    after = inspect.job_details(rd.store, job)
    assert after.facts.erased_at is not None
    assert replace(after.facts, erased_at=None) == before.facts
    assert after.attempts == before.attempts
    for letter in before.letters:
        assert cast("dict[str, object]", letter.sanitized_context).pop("input_sha256")
    assert after.letters == before.letters
    assert [(each.verb, each.reason) for each in audit.operations(rd.store)][-1] == ("erase", "asked to")


def test_erasing_twice_changes_nothing(rd: Redrive) -> None:
    job = work(rd, SECRET)
    first = erase(rd.store, job, ANN)

    second = erase(rd.store, job, ANN)

    assert (first.is_new, second.is_new) == (True, False)
    assert first.erased_at == second.erased_at
    assert len(audit.operations(rd.store)) == 1


def test_a_cancelled_job_can_be_erased_and_a_waiting_one_cannot(rd: Redrive) -> None:
    job = rd.submit(SHOP, SECRET).id

    with pytest.raises(ReplayRefusedError, match="it is queued, and its values are still needed") as refused:
        erase(rd.store, job, ANN)
    assert f"redrive job cancel {job}" in refused.value.hint
    with pytest.raises(ReplayRefusedError):
        check_erasable(rd.store, job)
    assert SECRET in kept(rd)

    rd.jobs.cancel(job)
    assert check_erasable(rd.store, job) == "cancelled"
    assert erase(rd.store, job, ANN).is_new
    assert SECRET not in kept(rd)


def test_an_erased_job_cannot_be_replayed(rd: Redrive) -> None:
    job = work(rd, f"bad {SECRET}")
    edit(rd.store, 1, ANN, value=b'"good"')
    erase(rd.store, job, ANN)

    (candidate,) = batch_of(
        rd.store.query(release_sql.replay_candidates(ids=[1], from_start=False))
    ).candidates

    obstacle = obstacle_to(candidate, start_value(rd.store, candidate), SHOP, from_start=False)
    assert obstacle is not None
    assert obstacle.kind == "erased"


def test_an_unknown_job_is_refused_with_ids_that_are_near(rd: Redrive) -> None:
    work(rd, SECRET)

    with pytest.raises(JobNotFoundError) as refused:
        erase(rd.store, 3, ANN)
    assert "Close to it are: 1" in refused.value.hint
