# SPDX-License-Identifier: Apache-2.0
"""Burying one job that failed before it could be queued: its record, its attempt and its dead letter, in one transaction."""

from __future__ import annotations

from typing import Final

import msgspec

from redrive.core.decide import DeadLetter, Reason
from redrive.core.failure import Failure
from redrive.core.fingerprint import fingerprint
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.submission import new_job
from redrive.engine.replay.rules import record_entry
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.dead_letter import MESSAGE_MAX, literals_in
from redrive.errors import ConfigurationError
from redrive.ops.jobs.facts import get_job
from redrive.redaction.process import redact
from redrive.store.protocol import Store
from redrive.store.records import INLINE_MAX
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import settlement as settlement_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.store.statements.jobs import JobFacts

BURIER: Final = "submitter"
"""Stands for the worker in the attempt of a buried job."""


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
