# SPDX-License-Identifier: Apache-2.0
"""Skipping a job, which is neither a success nor a failure, and finishing one early, with success."""

from __future__ import annotations

import pytest

from redrive import Breaker, Context, Finish, Pipeline, Redrive, ReplayRules, RetryPolicy, Skip, stage
from redrive.engine.retention import Retention
from redrive.errors import JobSkippedError
from redrive.ops.audit import Actor
from redrive.ops.checkup.doctor import examine
from redrive.ops.jobs.explain import explain
from redrive.ops.jobs.inspect import JobFilter, counts, list_jobs
from redrive.ops.jobs.timeline import timeline
from redrive.ops.reports.reports import Scope, account, stage_reliability
from redrive.ops.upkeep.prune import prune
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock, run_inline
from tests.unit.build import attempts, jobs, letters, work

from .process_stages import SIFTING
from .test_processes import work_apart


@stage
def keep(text: str) -> str:
    return text


OTHERS = Pipeline("others", [keep])


@stage(retry=RetryPolicy(1))
def sift(text: str, ctx: Context) -> object:
    ctx.submit(OTHERS, text)
    match text:
        case "skip, raised":
            raise Skip(f"nothing in {text}")
        case "skip, returned":
            return Skip("nothing")
        case "finish, raised":
            raise Finish(2)
        case "finish, returned":
            return Finish(2)
        case "finish, wrong":
            return Finish("two")
        case "skip in a group":
            raise ExceptionGroup("several", [Skip("nothing")])
        case _:
            return text


@stage
async def sift_later(text: object) -> object:
    match text:
        case "skip later":
            raise Skip("nothing")
        case "finish later":
            raise Finish(3)
        case _:
            return text


@stage
def measure(text: str) -> int:
    return len(text)


SAMPLES = Pipeline("samples", [sift, sift_later, measure])


@pytest.mark.parametrize("text", ["skip, raised", "skip, returned", "skip later", "skip in a group"])
def test_a_skipped_job_has_ended_with_a_reason_and_is_no_failure(
    store: SqliteStore, rd: Redrive, text: str
) -> None:
    job = rd.submit(SAMPLES, text)
    work(store, SAMPLES)

    assert job.status == "skipped"
    assert attempts(store, "outcome, code, exception, decision ->> '$.kind'")[-1] == (
        "skipped",
        None,
        None,
        "skip",
    )
    assert letters(store) == []
    with pytest.raises(JobSkippedError, match=r"nothing|several"):
        job.result(0)


def test_the_reason_of_a_skip_is_redacted(store: SqliteStore, rd: Redrive) -> None:
    job = rd.submit(SAMPLES, "skip, raised")
    work(store, SAMPLES)

    assert attempts(store, "message") == [("nothing in <payload:$>",)]
    with pytest.raises(JobSkippedError) as skipped:
        job.result(0)
    assert skipped.value.reason == "nothing in <payload:$>"


def test_children_of_a_skipping_stage_are_there_as_for_a_success(store: SqliteStore, rd: Redrive) -> None:
    rd.submit(SAMPLES, "skip, raised")
    work(store, SAMPLES)

    assert jobs(store, "pipeline, parent_id, status") == [
        ("samples", None, "skipped"),
        ("others", 1, "queued"),
    ]


def test_skipped_jobs_are_in_every_account(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    for text in ("skip, raised", "skip later", "all right"):
        rd.submit(SAMPLES, text)
    work(store, SAMPLES, OTHERS)

    found = account(store, Scope(pipeline="samples"))
    assert (found.total, found.succeeded, found.skipped, found.open) == (3, 1, 2, 0)
    assert found.adds_up
    assert counts(store)["samples", "sift"] == {"skipped": 1}
    first, second, _ = stage_reliability(store, Scope(pipeline="samples"))
    assert (first.skipped, first.cancelled, first.success) == (1, 0, 1.0)
    assert (second.skipped, second.attempts) == (1, 2)
    assert [line.id for line in list_jobs(store, JobFilter(status="skipped"))] == [2, 1]
    assert not [one for one in examine(store, is_deep=True) if one.level == "problem"]
    clock.advance(10)
    assert prune(store, Retention(skipped=1), Actor("ann")) == {"skipped": 2}


def test_a_skip_is_explained_and_part_of_the_timeline(store: SqliteStore, rd: Redrive) -> None:
    job = rd.submit(SAMPLES, "skip later")
    work(store, SAMPLES)

    text = " ".join(explain(store, job.id).sentences)
    assert "is skipped at stage 'sift_later'" in text
    assert "It was skipped: neither a success nor a failure. Why: the stage itself asked for it." in text
    assert "Nothing is to be done." in text
    assert [entry.what for entry in timeline(store, job.id)][-1] == "skipped"
    assert job.events()[-1].event == "skipped"


def test_a_replayed_job_that_skips_resolves_its_letter(store: SqliteStore, rd: Redrive) -> None:
    answers: list[Exception] = [KeyError("bug"), Skip("not wanted any more")]

    @stage
    def act(number: int) -> int:
        raise answers.pop(0)

    flow = Pipeline("flow", [act], replay=ReplayRules(evidence="optional"))
    job = rd.submit(flow, 1)
    work(store, flow)
    rd.jobs.retry(job.id)
    work(store, flow)

    assert job.status == "skipped"
    assert letters(store, "state, outcome") == [("resolved", "completed")]
    assert "its replay completed" in " ".join(explain(store, job.id).sentences)


@pytest.mark.parametrize(
    ("text", "result", "stages", "left"),
    [("finish, raised", 2, 1, 2), ("finish, returned", 2, 1, 2), ("finish later", 3, 2, 1)],
)
def test_a_finished_job_is_complete_and_its_later_stages_do_not_run(
    store: SqliteStore, rd: Redrive, text: str, result: int, stages: int, left: int
) -> None:
    job = rd.submit(SAMPLES, text)
    work(store, SAMPLES)

    assert job.result(0) == result
    assert attempts(store) == [("ok",)] * stages
    assert attempts(store, "decision ->> '$.kind', decision ->> '$.stages_left'")[-1] == ("finish", left)
    assert job.events()[-1].event == "complete"
    why = job.attempts()[-1].sentence
    assert str(why).startswith("the stage finished the job")
    assert str(why) in " ".join(explain(store, job.id).sentences)


def test_a_result_that_is_not_of_the_last_stages_type_fails_the_attempt(
    store: SqliteStore, rd: Redrive
) -> None:
    job = rd.submit(SAMPLES, "finish, wrong")
    work(store, SAMPLES)

    assert job.status == "failed"
    ((code, message),) = letters(store, "code, message")
    assert code == "BUG_CODE"
    assert "measure (output)" in str(message)


def test_finishing_at_the_last_stage_is_a_plain_success(store: SqliteStore, rd: Redrive) -> None:
    @stage
    def last(number: int) -> int:
        return Finish(number + 1)  # type: ignore[return-value]

    flow = Pipeline("flow", [last])
    job = rd.submit(flow, 1)
    work(store, flow)

    assert job.result(0) == 2
    assert attempts(store, "outcome, decision") == [("ok", None)]


@pytest.mark.parametrize("signal", [Skip("nothing"), Finish(1)])
def test_a_stage_behind_a_breaker_may_skip_and_finish(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, signal: Exception
) -> None:
    @stage(breaker=Breaker("api", consecutive=1))
    def ask(number: int) -> int:
        raise signal

    flow = Pipeline("flow", [ask])
    job = rd.submit(flow, 1)
    work(store, flow)

    assert job.status == ("skipped" if isinstance(signal, Skip) else "complete")


def test_in_another_process_both_mean_the_same(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    rd.submit_many(SIFTING, ["skip", "return", "raise", "wrong"])
    work_apart(store, SIFTING, limit=1)

    assert jobs(store, "status, error_code")[:4] == [
        ("skipped", None),
        ("complete", None),
        ("complete", None),
        ("failed", "BUG_CODE"),
    ]
    assert rd.job(2).result(0) == rd.job(3).result(0) == "early"
    assert jobs(store, "pipeline, parent_id")[4:] == [("children", 1), ("children", 2), ("children", 3)]


def test_a_pipeline_in_a_test_knows_both() -> None:
    skipped = run_inline(SAMPLES, "skip, raised")
    finished = run_inline(SAMPLES, "finish, raised")

    assert (skipped.status, skipped.value, skipped.attempts[-1].outcome) == ("skipped", None, "skipped")
    assert (skipped.attempts[-1].sentence, len(skipped.children)) == ("the stage skipped it", 1)
    assert (finished.status, finished.value, len(finished.attempts)) == ("complete", 2, 1)
