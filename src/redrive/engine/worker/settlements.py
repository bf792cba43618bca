# SPDX-License-Identifier: Apache-2.0
"""From what a stage did to what becomes of its job: the settlement of one dispatch.

Decide, and put the decision into the words of the store. Pure but for the redactor's knowledge of this process's secrets; running
stages and committing settlements is the worker's part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from redrive.core.decide import Cancel, DeadLetter, Decision, History, Hold, Reason, RetryAt, Standing, decide
from redrive.core.failure import Failure, SignalKind
from redrive.core.fingerprint import fingerprint
from redrive.core.lifecycle import JobState
from redrive.core.taxonomy import BUG_UNKNOWN
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.worker.dead_letter import FailedAttempt, letter_of, safe_message, safe_notes
from redrive.engine.worker.dispatch import Dispatch
from redrive.store.protocol import HOOK, Letter, Settlement

# Looked up once: every use of a member by its name goes through a hook of the enumeration.
_COMPLETE: Final = JobState.COMPLETE
_QUEUED: Final = JobState.QUEUED

REFUSED: Final = "the store refused to take what the stage returned or raised"
UNTOLD: Final = "its failure could not be told"


def settle_success(dispatch: Dispatch, output: bytes) -> Settlement:
    """Return the settlement of a stage that is done: its output is the next stage's input, or the job's result."""
    job, lane, context = dispatch.job, dispatch.lane, dispatch.context
    following = lane.following
    status = _COMPLETE if following is None else _QUEUED
    if context.is_cancelled and following is not None:
        status = JobState.CANCELLED
    return Settlement(
        job=job,
        status=status,
        lane=lane.id if following is None else following,
        run_at=dispatch.ended_at,
        value=output,
        attempt=job.attempt,
        snoozes=job.snoozes,
        codes=job.codes,
        outcome="ok",
        burned=True,
        started_at=dispatch.started_at,
        ended_at=dispatch.ended_at,
        reason="overran" if dispatch.overran else None,
        config=lane.stage.config,
        notes=safe_notes(context.notes, job) if context.notes else None,
        children=tuple(context.children),
    )


def settle_failure(
    dispatch: Dispatch, trouble: FailedAttempt, draw: float, standing: Standing | None = None
) -> Settlement:
    """Return the settlement of an attempt that failed, or of a wish the stage expressed by a signal."""
    stage, job = dispatch.lane.stage, dispatch.job
    codes: dict[str, int] = {} if job.codes is None else msgspec.json.decode(job.codes, type=dict[str, int])
    history = History(attempt=job.attempt, failures_by_code=codes, snoozes=job.snoozes)
    decision = decide(stage.retry, trouble.failure, history, dispatch.ended_at, draw, standing)
    settled = _decided(dispatch, trouble, decision, codes)
    if dispatch.context.is_cancelled and settled.status is JobState.QUEUED:
        return msgspec.structs.replace(settled, status=JobState.CANCELLED, outcome="cancelled", recipients=())
    return settled


def settle_cancelled(dispatch: Dispatch, reason: str) -> Settlement:
    """Return the settlement of a job that was cancelled before or while its stage ran."""
    plain = _plain(dispatch, outcome="cancelled")
    return msgspec.structs.replace(plain, status=JobState.CANCELLED, burned=False, reason=reason)


def settle_crash(dispatch: Dispatch, *, is_alone: bool) -> Settlement:
    """Return the settlement of a run whose process died: back to the queue, unburned, and under suspicion."""
    job = dispatch.job
    reason = "the process it ran in alone died" if is_alone else "the process it shared died"
    return msgspec.structs.replace(
        _plain(dispatch, outcome="crashed"),
        burned=False,
        reason=reason,
        suspects=job.suspects + 1,
        crashes=job.crashes + int(is_alone),
    )


def settle_cut_off(dispatch: Dispatch) -> Settlement:
    """Return the settlement of a run that its own worker cut off when it was stopped; what it had done may be done again."""
    plain = _plain(dispatch, outcome="crashed")
    return msgspec.structs.replace(plain, burned=False, reason="the worker was stopped while it ran")


def settle_untold(dispatch: Dispatch) -> Settlement:
    """Return the settlement of a run whose failure can not even be told: given up, in fixed texts, asking nobody anything."""
    job, lane, code = dispatch.job, dispatch.lane, BUG_UNKNOWN
    failure = Failure(
        code=code.name,
        category=code.category,
        retryable=False,
        severity=code.severity,
        message=UNTOLD,
        error_class="Exception",
        rule=UNTOLD,
        canonical=code.name,
    )
    return msgspec.structs.replace(
        _plain(dispatch, outcome="dead"),
        status=JobState.FAILED,
        code=failure.code,
        error_class=failure.error_class,
        message=UNTOLD,
        reason=Reason.PERMANENT,
        sentence=f"{UNTOLD}, and is not retried",
        letter=Letter(
            code=failure.code,
            category=failure.category,
            is_retryable=False,
            message=UNTOLD,
            error_class=failure.error_class,
            stack="",
            fingerprint=fingerprint(failure, lane.stage.name, ()),
            context=msgspec.json.encode(
                {"attempt": job.attempt, "dispatch": job.dispatch, "round": job.round}
            ),
            reason=Reason.PERMANENT,
        ),
        recipients=_recipients(lane.pipeline, "dead"),
    )


def settled_alone(settled: Settlement) -> Settlement:
    """Return a settlement without all that is written beside its job, in texts that fit anywhere: the last that can be tried."""
    letter = settled.letter
    return msgspec.structs.replace(
        settled,
        error_class=settled.error_class and _plain_class(settled.error_class),
        message=None if settled.message is None else REFUSED,
        sentence=None,
        notes=None,
        children=(),
        recipients=(),
        letter=None if letter is None else _reduced(letter),
    )


def _reduced(letter: Letter) -> Letter:
    error_class = _plain_class(letter.error_class)
    return msgspec.structs.replace(letter, message=REFUSED, error_class=error_class, stack="", context=b"{}")


def _plain_class(name: str) -> str:
    """Return the name of a class if any store can take it."""
    return name if name.isascii() else "Exception"


def _decided(
    dispatch: Dispatch, trouble: FailedAttempt, decision: Decision, codes: dict[str, int]
) -> Settlement:
    job, lane, failure = dispatch.job, dispatch.lane, trouble.failure
    if decision.burned:
        codes = {**codes, failure.code: codes.get(failure.code, 0) + 1}
    # A copy: a thread that was abandoned may go on to add to them.
    notes = safe_notes(dispatch.context.notes.copy(), job)
    status, outcome = _FATES[type(decision)]
    is_snooze = isinstance(decision, Hold) and failure.signal is SignalKind.SNOOZE
    # Built in one go: it has many fields, and every copy of it would copy them all.
    return Settlement(
        job=job,
        status=status,
        lane=job.lane,
        run_at=_comes_back_at(decision, dispatch.ended_at),
        value=None,
        attempt=job.attempt + (1 if isinstance(decision, RetryAt) else 0),
        snoozes=job.snoozes + (1 if is_snooze else 0),
        codes=msgspec.json.encode(codes) if codes else None,
        outcome=outcome,
        burned=decision.burned,
        started_at=dispatch.started_at,
        ended_at=dispatch.ended_at,
        code=failure.code,
        error_class=failure.error_class,
        message=safe_message(failure, job),
        http_status=failure.http_status,
        reason=decision.reason,
        sentence=decision.sentence,
        letter=letter_of(trouble, job, lane.stage.name, decision, notes) if outcome == "dead" else None,
        config=lane.stage.config,
        notes=notes,
        suspects=job.suspects,
        crashes=job.crashes,
        recipients=_recipients(lane.pipeline, outcome),
    )


_FATES: Final[Mapping[type[Decision], tuple[JobState, str]]] = {
    RetryAt: (JobState.QUEUED, "retry"),
    Hold: (JobState.QUEUED, "hold"),
    Cancel: (JobState.CANCELLED, "cancelled"),
    DeadLetter: (JobState.FAILED, "dead"),
}
"""What becomes of the job, and what its attempt's row calls that."""


def _comes_back_at(decision: Decision, ended_at: float) -> float:
    """Return when the job is due again; at once, or never, unless the decision names a time."""
    match decision:
        case RetryAt():
            return decision.at
        case Hold() if decision.until is not None:
            return decision.until
        case _:
            return ended_at


def _recipients(pipeline: Pipeline, outcome: str) -> tuple[str, ...]:
    """Return who is to hear of an outcome: the hook for it, and of a dead letter every sink."""
    hook = (HOOK,) if outcome in pipeline.hooks else ()
    return hook + tuple(sink.name for sink in pipeline.sinks) if outcome == "dead" else hook


def _plain(dispatch: Dispatch, *, outcome: str) -> Settlement:
    """Return the settlement that puts a job back as it was."""
    job = dispatch.job
    return Settlement(
        job=job,
        status=JobState.QUEUED,
        lane=job.lane,
        run_at=dispatch.ended_at,
        value=None,
        attempt=job.attempt,
        snoozes=job.snoozes,
        codes=job.codes,
        outcome=outcome,
        burned=True,
        started_at=dispatch.started_at,
        ended_at=dispatch.ended_at,
        config=dispatch.lane.stage.config,
        suspects=job.suspects,
        crashes=job.crashes,
    )
