# SPDX-License-Identifier: Apache-2.0
"""The settlement of one dispatch: what becomes of its job, as the store writes it.

One function per way an attempt can end; for a failure the core decides. Pure but for what the redactor knows of this process:
nothing here runs a stage or commits a settlement.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Final

import msgspec

from redrive.core.decide import (
    BreakerStatus,
    Cancel,
    DeadLetter,
    Decision,
    Finish,
    History,
    Hold,
    NoDecision,
    OldDecision,
    Reason,
    RetryAt,
    Skip,
    decide,
)
from redrive.core.decision_text import decode_decision, encode_decision
from redrive.core.failure import Failure, SignalKind
from redrive.core.fingerprint import fingerprint
from redrive.core.lifecycle import JobState
from redrive.core.taxonomy import BUG_UNKNOWN
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.worker.dead_letter import (
    LARGE_BYTES,
    MESSAGE_MAX,
    FailedAttempt,
    JobRedactor,
    letter_of,
    safe_notes,
)
from redrive.engine.worker.dispatch import Dispatch
from redrive.redaction.process import redact
from redrive.store.records import HOOK, ClaimedJob, Letter, Settlement

# Looked up once: access to a member by its name goes through a hook of the enumeration.
_COMPLETE: Final = JobState.COMPLETE
_QUEUED: Final = JobState.QUEUED

REFUSED: Final = "the store refused to take what the stage returned or raised"
HIDDEN_CODE: Final = "FAIL_WITH_A_HIDDEN_CODE"
"""Stands for a code that a stage made of a value of its job."""
UNREADABLE: Final = "its failure could not be read"
_OVERRAN: Final = encode_decision(NoDecision(Reason.OVERRAN))
_REQUESTED: Final = encode_decision(NoDecision(Reason.REQUESTED))


def settlement_of_success(dispatch: Dispatch, output: bytes) -> Settlement:
    """Return the settlement of a stage that succeeded: its output is the next stage's input, or the job's result."""
    job, lane, context = dispatch.job, dispatch.lane, dispatch.context
    following = None if dispatch.is_finish else lane.following
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
        decision=_decision_of_success(dispatch) if dispatch.overran or dispatch.is_finish else None,
        config=lane.stage.config,
        notes=safe_notes(context.notes, JobRedactor(job, dispatch.call)) if context.notes else None,
        children=tuple(context.children),
    )


def _decision_of_success(dispatch: Dispatch) -> str | None:
    """Return what is recorded of a success that was no plain one; finishing at the last stage is one."""
    left = dispatch.lane.stages_left if dispatch.is_finish else 0
    if left:
        return encode_decision(Finish(stages_left=left))
    return _OVERRAN if dispatch.overran else None


def settlement_of_failure(
    dispatch: Dispatch, failed: FailedAttempt, draw: float, standing: BreakerStatus | None = None
) -> Settlement:
    """Return the settlement of an attempt that failed, or of a signal the stage raised or returned."""
    redactor = JobRedactor(dispatch.job, dispatch.call, secret=dispatch.lane.installation.secret)
    failed = _with_safe_names(failed, redactor)
    history = _history_of(dispatch.job)
    retry, ended_at = dispatch.lane.stage.retry, dispatch.ended_at
    decision = decide(retry, failed.failure, history, ended_at, draw, standing)
    settlement = _settlement_of_decision(dispatch, failed, decision, history.failures_by_code, redactor)
    if dispatch.context.is_cancelled and settlement.status is JobState.QUEUED:
        return msgspec.structs.replace(
            settlement, status=JobState.CANCELLED, outcome="cancelled", decision=_REQUESTED, recipients=()
        )
    return settlement


def is_large(dispatch: Dispatch) -> bool:
    """Return whether the values of a failure have to be read on a thread; see `decide_failure`."""
    if dispatch.call is not None:
        return dispatch.call.size > LARGE_BYTES
    job = dispatch.job
    return len(job.input) + len(job.payload or b"") > LARGE_BYTES


async def decide_failure(
    dispatch: Dispatch, failed: FailedAttempt, draw: float, standing: BreakerStatus | None = None
) -> Settlement:
    """As `settlement_of_failure`, on a thread if the job's values are large: all of them are read, to hide them in the letter."""
    decide = functools.partial(settlement_of_failure, dispatch, failed, draw, standing)
    return await asyncio.to_thread(decide) if is_large(dispatch) else decide()


def _with_safe_names(failed: FailedAttempt, redactor: JobRedactor) -> FailedAttempt:
    """Return a failure without values of the job, or secrets, in its code and in the name of its class."""
    failure = failed.failure
    if failure.signal is not SignalKind.FAIL and "." not in failure.exception:
        return failed
    names: dict[str, str] = {}
    if failure.signal is SignalKind.FAIL and _is_changed(failure.code, redactor):
        names = {"code": HIDDEN_CODE}
    # A name without a module is one of Python's own.
    if "." in failure.exception and _is_changed(failure.exception, redactor):
        names |= {"exception": "Exception"}
    if not names:
        return failed
    return msgspec.structs.replace(failed, failure=msgspec.structs.replace(failure, **names))


def _is_changed(name: str, redactor: JobRedactor) -> bool:
    """Return whether redaction finds something in a name; a letter or digit beside a value does not hide it there."""
    return any(each in name for each in redactor.values.literals) or redact(name) != name


def gives_up(dispatch: Dispatch, failed: FailedAttempt, standing: BreakerStatus | None) -> bool:
    """Return whether a job would be given up because of this failure."""
    retry, history = dispatch.lane.stage.retry, _history_of(dispatch.job)
    return isinstance(decide(retry, failed.failure, history, dispatch.ended_at, 0.0, standing), DeadLetter)


def _history_of(job: ClaimedJob) -> History:
    codes: dict[str, int] = {} if job.codes is None else msgspec.json.decode(job.codes, type=dict[str, int])
    return History(attempt=job.attempt, failures_by_code=codes, snoozes=job.snoozes)


def settlement_of_cancel(dispatch: Dispatch) -> Settlement:
    """Return the settlement of a job that was cancelled before or while its stage ran."""
    requeued = _requeued(dispatch, NoDecision(Reason.REQUESTED), outcome="cancelled")
    return msgspec.structs.replace(requeued, status=JobState.CANCELLED)


def settlement_of_crash(dispatch: Dispatch, *, is_alone: bool) -> Settlement:
    """Return the settlement of an attempt whose process died: queued again, unburned, and under suspicion."""
    job = dispatch.job
    reason = Reason.OWN_PROCESS_LOST if is_alone else Reason.PROCESS_LOST
    return msgspec.structs.replace(
        _requeued(dispatch, NoDecision(reason), outcome="crashed"),
        suspects=job.suspects + 1,
        crashes=job.crashes + int(is_alone),
    )


def settlement_of_stop(dispatch: Dispatch) -> Settlement:
    """Return the settlement of an attempt that was cancelled because its worker stopped; the stage may run again."""
    return _requeued(dispatch, NoDecision(Reason.WORKER_STOPPED), outcome="crashed")


def settlement_of_unreadable_failure(dispatch: Dispatch) -> Settlement:
    """Return the settlement of an attempt whose failure cannot even be read: given up, in fixed texts, without reading anything."""
    job, lane, code = dispatch.job, dispatch.lane, BUG_UNKNOWN
    failure = Failure(
        code=code.name,
        category=code.category,
        retryable=False,
        severity=code.severity,
        message=UNREADABLE,
        exception="Exception",
        rule=UNREADABLE,
        canonical=code.name,
    )
    decision = DeadLetter(
        reason=Reason.PERMANENT,
        code=failure.code,
        attempt=job.attempt,
        max_attempts=lane.stage.retry.max_attempts,
        rule=UNREADABLE,
    )
    return msgspec.structs.replace(
        _requeued(dispatch, decision, outcome="dead"),
        status=JobState.FAILED,
        burned=True,
        code=failure.code,
        exception=failure.exception,
        message=UNREADABLE,
        letter=Letter(
            code=failure.code,
            category=failure.category,
            is_retryable=False,
            message=UNREADABLE,
            exception=failure.exception,
            stack="",
            fingerprint=fingerprint(failure, lane.stage.name, ()),
            context=msgspec.json.encode(
                {"attempt": job.attempt, "dispatch": job.dispatch, "round": job.round}
            ),
            reason=Reason.PERMANENT,
        ),
        recipients=_recipients(lane.pipeline, "dead"),
    )


def reduced_settlement(settlement: Settlement) -> Settlement:
    """Return a settlement without what is written beside its job, in fixed texts that every store takes: the last resort."""
    letter = settlement.letter
    if letter is not None:
        plain = _plain_class(letter.exception)
        letter = msgspec.structs.replace(letter, message=REFUSED, exception=plain, stack="", context=b"{}")
    return msgspec.structs.replace(
        settlement,
        exception=settlement.exception and _plain_class(settlement.exception),
        message=None if settlement.message is None else REFUSED,
        decision=_reduced_decision(settlement.decision),
        notes=None,
        children=(),
        recipients=(),
        letter=letter,
    )


def _reduced_decision(text: str | None) -> str | None:
    """Return a decision without codes, rules and breakers, whose names come from the application."""
    decision = decode_decision(text)
    if decision is None or isinstance(decision, NoDecision | Cancel | Skip | Finish):
        return text
    return encode_decision(OldDecision(decision.reason))


def _plain_class(name: str) -> str:
    """Return the name of a class if every store can take it."""
    return name if name.isascii() else "Exception"


def _settlement_of_decision(
    dispatch: Dispatch,
    failed: FailedAttempt,
    decision: Decision,
    codes: Mapping[str, int],
    redactor: JobRedactor,
) -> Settlement:
    job, lane, failure = dispatch.job, dispatch.lane, failed.failure
    if decision.burned:
        codes = {**codes, failure.code: codes.get(failure.code, 0) + 1}
    notes = safe_notes(dispatch.context.notes, redactor)
    status, outcome = _OUTCOMES[type(decision)]
    is_skip = isinstance(decision, Skip)
    is_snooze = isinstance(decision, Hold) and failure.signal is SignalKind.SNOOZE
    # Built in one go: it has many fields, and every copy of it would copy them all.
    return Settlement(
        job=job,
        status=status,
        lane=job.lane,
        run_at=_due_at(decision, dispatch.ended_at),
        value=None,
        attempt=job.attempt + (1 if isinstance(decision, RetryAt) else 0),
        snoozes=job.snoozes + (1 if is_snooze else 0),
        codes=msgspec.json.encode(codes) if codes else None,
        outcome=outcome,
        burned=decision.burned,
        started_at=dispatch.started_at,
        ended_at=dispatch.ended_at,
        # A skip is no failure: it has a reason, but neither a code nor an exception.
        code=None if is_skip else failure.code,
        exception=None if is_skip else failure.exception,
        message=redactor.message(failure)[:MESSAGE_MAX],
        http_status=failure.http_status,
        decision=encode_decision(decision),
        letter=letter_of(failed, redactor, lane.stage.name, decision, notes) if outcome == "dead" else None,
        config=lane.stage.config,
        notes=notes,
        suspects=job.suspects,
        crashes=job.crashes,
        children=tuple(dispatch.context.children) if is_skip else (),
        recipients=_recipients(lane.pipeline, outcome),
    )


_OUTCOMES: Final[Mapping[type[Decision], tuple[JobState, str]]] = {
    RetryAt: (JobState.QUEUED, "retry"),
    Hold: (JobState.QUEUED, "hold"),
    Cancel: (JobState.CANCELLED, "cancelled"),
    Skip: (JobState.SKIPPED, "skipped"),
    DeadLetter: (JobState.FAILED, "dead"),
}
"""The job's next state, and the outcome in its attempt's row."""


def _due_at(decision: Decision, ended_at: float) -> float:
    """Return when the job is due again; at once, or never, unless the decision names a time."""
    match decision:
        case RetryAt():
            return decision.at
        case Hold() if decision.until is not None:
            return decision.until
        case _:
            return ended_at


def _recipients(pipeline: Pipeline, outcome: str) -> tuple[str, ...]:
    """Return who receives an outcome: the hook for it, and for a dead letter every sink."""
    hook = (HOOK,) if outcome in pipeline.hooks else ()
    return hook + tuple(sink.name for sink in pipeline.sinks) if outcome == "dead" else hook


def _requeued(dispatch: Dispatch, decision: NoDecision | DeadLetter, *, outcome: str) -> Settlement:
    """Return the settlement that puts a job back as it was; no attempt is burned."""
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
        burned=False,
        started_at=dispatch.started_at,
        ended_at=dispatch.ended_at,
        decision=encode_decision(decision),
        config=dispatch.lane.stage.config,
        suspects=job.suspects,
        crashes=job.crashes,
    )
