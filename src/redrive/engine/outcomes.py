# SPDX-License-Identifier: Apache-2.0
"""From what a stage did to what becomes of its job: the settlement of one dispatch.

Classify, decide, and put the decision into the words of the store. Pure but for the redactor's knowledge of this process's secrets;
running stages and committing settlements is the worker's part.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from redrive.core.decide import Cancel, DeadLetter, Decision, History, Hold, RetryAt, Standing, decide
from redrive.core.failure import Asked, Failure
from redrive.core.lifecycle import JobState
from redrive.engine.letters import letter_of, safe_message
from redrive.engine.pipeline import Pipeline, Stage
from redrive.store.protocol import Claimed, LaneId, Settlement


@dataclass(frozen=True, slots=True)
class Lane:
    """A stage of a pipeline as a worker serves it."""

    id: LaneId
    pipeline: Pipeline
    stage: Stage[..., object]
    following: LaneId | None
    """The lane of the next stage; None after the last."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One run of a stage, from its start to its end."""

    job: Claimed
    lane: Lane
    started_at: float
    ended_at: float


def settle_success(dispatch: Dispatch, output: bytes) -> Settlement:
    """Return the settlement of a stage that is done: its output is the next stage's input, or the job's result."""
    following = dispatch.lane.following
    return _settlement(
        dispatch,
        status=JobState.COMPLETE if following is None else JobState.QUEUED,
        lane=dispatch.lane.id if following is None else following,
        value=output,
        outcome="ok",
    )


def settle_failure(
    dispatch: Dispatch, exc: BaseException, failure: Failure, draw: float, standing: Standing | None = None
) -> Settlement:
    """Return the settlement of an attempt that failed, or of a wish the stage expressed by a signal."""
    stage, job = dispatch.lane.stage, dispatch.job
    codes: dict[str, int] = {} if job.codes is None else msgspec.json.decode(job.codes, type=dict[str, int])
    history = History(attempt=job.attempt, failures_by_code=codes, snoozes=job.snoozes)
    decision = decide(stage.retry, failure, history, dispatch.ended_at, draw, standing)
    return _decided(dispatch, exc, failure, decision, codes)


def _decided(
    dispatch: Dispatch, exc: BaseException, failure: Failure, decision: Decision, codes: dict[str, int]
) -> Settlement:
    job = dispatch.job
    if decision.burned:
        codes = {**codes, failure.code: codes.get(failure.code, 0) + 1}
    plain = msgspec.structs.replace(
        _settlement(dispatch, status=JobState.QUEUED, lane=job.lane, value=None, outcome="retry"),
        burned=decision.burned,
        codes=msgspec.json.encode(codes) if codes else None,
        code=failure.code,
        message=safe_message(failure, job),
        http_status=failure.http_status,
        reason=decision.reason,
        sentence=decision.sentence,
    )
    match decision:
        case RetryAt():
            return msgspec.structs.replace(plain, run_at=decision.at, attempt=job.attempt + 1)
        case Hold():
            snoozes = job.snoozes + (1 if failure.asked is Asked.SNOOZE else 0)
            until = dispatch.ended_at if decision.until is None else decision.until
            return msgspec.structs.replace(plain, outcome="hold", run_at=until, snoozes=snoozes)
        case Cancel():
            return msgspec.structs.replace(plain, outcome="cancelled", status=JobState.CANCELLED)
        case DeadLetter():
            letter = letter_of(exc, failure, job, dispatch.lane.stage.name, decision)
            return msgspec.structs.replace(plain, outcome="dead", status=JobState.FAILED, letter=letter)


def _settlement(
    dispatch: Dispatch, *, status: JobState, lane: LaneId, value: bytes | None, outcome: str
) -> Settlement:
    job = dispatch.job
    return Settlement(
        job=job,
        status=status,
        lane=lane,
        run_at=dispatch.ended_at,
        value=value,
        attempt=job.attempt,
        snoozes=job.snoozes,
        codes=job.codes,
        outcome=outcome,
        burned=True,
        started_at=dispatch.started_at,
        ended_at=dispatch.ended_at,
    )
