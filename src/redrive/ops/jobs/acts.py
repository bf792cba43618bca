# SPDX-License-Identifier: Apache-2.0
"""Acts on one job: cancel it, erase its values, free its key, or bury one that failed before it could be queued.

Each is one transaction, with its line of the operator log where an operator acts. Retrying is in `retry`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from redrive.core.decide import DeadLetter, Reason
from redrive.core.failure import Failure
from redrive.core.fingerprint import fingerprint
from redrive.core.units import instant
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.submission import new_job
from redrive.engine.replay.rules import record_entry
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.dead_letter import MESSAGE_MAX, literals_in
from redrive.errors import ConfigurationError, ReplayRefusedError
from redrive.ops.audit import Actor, Subject
from redrive.ops.jobs.facts import get_job
from redrive.ops.letters.job_values import values_of_job
from redrive.redaction.process import redact
from redrive.store.protocol import Store
from redrive.store.records import INLINE_MAX
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import settlement as settlement_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.store.statements.jobs import JobFacts

ENDED: Final = frozenset({"complete", "failed", "cancelled", "skipped"})
BURIER: Final = "submitter"
"""Stands for the worker in the attempt of a buried job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReport:
    """What became of the values of a job."""

    job: int
    erased_at: datetime
    is_new: bool
    """False when they had been erased before."""


def cancel_job(store: Store, job_id: int, by: Actor) -> JobFacts:
    """Cancel a job: at once while it is queued; a running one is asked to end, as its stage allows. Return its facts then.

    One that has ended stays as it is. Raises JobNotFoundError, whose hint names ids that are near.
    """
    facts = get_job(store, job_id)
    by = by.hiding(values_of_job(store, job_id, by.reason))
    ways = (
        (
            job_sql.cancel_queued(now=CURRENT.get().clock.wall(), job=job_id).touching(1),
            "queued",
            "cancelled",
        ),
        (job_sql.ask_to_cancel(job=job_id).touching(1), "processing", "asked to end"),
    )
    while facts.status not in ENDED:
        # Between the two a job may move either way, so both are tried until one succeeds.
        for way, before, after in ways:
            change = {"before": {"status": before}, "after": {"status": after}}
            if store.apply(way, by.log("cancel", Subject("job", job_id), change=change)) is not None:
                return get_job(store, job_id)
        facts = get_job(store, job_id)
    return facts


def check_erasable(store: Store, job_id: int) -> str:
    """Return the status of a job whose values may be erased; raises as `erase` would."""
    status = get_job(store, job_id).status
    if status not in ENDED:
        raise _refused(job_id, status)
    return status


def erase(store: Store, job_id: int, by: Actor) -> ErasureReport:
    """Wipe the payload, inputs, result, edits and hashes of a job that has ended; the record, attempts and letters stay.

    It cannot be replayed afterwards, and its values cannot be brought back. Twice changes nothing.

    Raises:
        JobNotFoundError: there is no such job; the hint names ids that are near.
        ReplayRefusedError: it has not ended yet.
    """
    get_job(store, job_id)
    now = CURRENT.get().clock.wall()
    # Read before they are gone: what is written about them stays.
    by = by.hiding(values_of_job(store, job_id, by.reason))
    steps = (
        job_sql.log_erase(act=by.line("erase", Subject("job", job_id)), job=job_id),
        job_sql.erase_values(job=job_id),
        job_sql.erase_edits(job=job_id),
        job_sql.erase_hashes(job=job_id),
    )
    is_new = store.apply(job_sql.erase_job(job=job_id, now=now).touching(1), *steps) is not None
    ((status, erased_at),) = store.query(job_sql.job_to_erase(job=job_id))
    if erased_at is None or status not in ENDED:
        raise _refused(job_id, status)
    return ErasureReport(job=job_id, erased_at=instant(erased_at), is_new=is_new)


def _refused(job_id: int, status: str) -> ReplayRefusedError:
    return ReplayRefusedError(
        subject=f"job {job_id}",
        problem=f"it is {status}, and its values are still needed",
        fix=f"Cancel it first: redrive job cancel {job_id}.",
    )


def free_key(store: Store, job_id: int, by: Actor) -> bool:
    """Free the key of a complete job whose effect is gone, so that the same work can be submitted anew.

    Return whether it had one; a job in another state keeps its key. Raises JobNotFoundError.
    """
    get_job(store, job_id)
    log = by.log("free-key", Subject("job", job_id))
    return store.apply(job_sql.free_key(job=job_id).touching(1), log) is not None


def bury(
    store: Store, pipeline: Pipeline, payload: object, failure: Failure, *, owner: str | None = None
) -> JobFacts:
    """Store a job that failed before it could be queued, with its dead letter; no worker ever sees it.

    `failure` is what `redrive.classify` returns, under the codes of the pipeline. The job has no key: a failed one holds none. Its
    attempt and its dead letter are those of any job that failed, so that it is counted, listed and grouped with them.

    Raises:
        ConfigurationError: the payload is large; such a job must be submitted.
    """
    record_entry(store, pipeline)
    lane = store.lanes(pipeline.name, [stage.name for stage in pipeline.stages])[0]
    job = new_job(pipeline, payload, lane=lane, owner=owner)
    if len(job.payload) > INLINE_MAX:
        raise ConfigurationError(
            field="bury(payload)",
            value=f"{len(job.payload)} bytes",
            rule=f"must have at most {INLINE_MAX} bytes",
            fix="Put what is large elsewhere, and its place into the payload.",
        )
    now = CURRENT.get().clock.wall()
    stage = pipeline.stages[0].name
    message = redact(failure.message, payload=literals_in(job.payload))[:MESSAGE_MAX]
    decision = DeadLetter(reason=Reason.PERMANENT, code=failure.code, attempt=1, max_attempts=1)
    known = fingerprint(msgspec.structs.replace(failure, message=message), stage)
    context = msgspec.json.encode({"stage": stage, "attempt": 1, "dispatch": 1, "round": 1})
    stored = store.apply(
        settlement_sql.touch_group(
            fingerprint=known,
            lane=lane,
            code=failure.code,
            category=failure.category,
            exception=failure.exception,
            now=now,
        ),
        job_sql.bury_job(lane=lane, now=now, owner=owner, payload=job.payload).touching(1),
        job_sql.bury_failure(now=now, code=failure.code, message=message).touching(1),
        job_sql.bury_attempt(
            worker=BURIER, exception=failure.exception, decision=msgspec.json.encode(decision).decode()
        ).touching(1),
        job_sql.bury_letter(fingerprint=known),
        transfer_sql.import_facts(
            code=failure.code,
            category=failure.category,
            is_retryable=failure.retryable,
            exception=failure.exception,
            reason=decision.reason,
            message=message,
            context=context,
            stack="",
        ).touching(1),
        job_sql.bury_notices(),
    )
    ((job_id,),) = [rows for rows in stored or [] if rows]
    return get_job(store, job_id)
