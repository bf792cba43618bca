# SPDX-License-Identifier: Apache-2.0
"""Reading the values of a job: its payload, or its result.

Values stay out of everything that redrive writes about a job. Whoever reads one asks for it by name, and that is recorded in the
operator log, in the transaction before the value is returned.
"""

from __future__ import annotations

from typing import Final, Literal

from redrive.core.arguments import one_of
from redrive.errors import (
    JobCancelledError,
    JobErasedError,
    JobFailedError,
    JobSkippedError,
    WaitTimeoutError,
)
from redrive.ops.audit import Actor, Subject
from redrive.ops.jobs.facts import get_job, job_attempts
from redrive.ops.letters.job_values import values_of_job
from redrive.store.protocol import Store
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.store.statements.jobs import JobFacts

Part = Literal["payload", "result"]
PARTS: Final[tuple[Part, ...]] = ("payload", "result")


def read_value(store: Store, job_id: int, part: Part, by: Actor) -> bytes:
    """Return the payload or the result of a job, as JSON, and log who read it.

    Raises:
        JobNotFoundError: there is no such job; the hint names ids that are near.
        JobErasedError: its values were erased.
        JobFailedError, JobCancelledError, JobSkippedError: it has no result.
        WaitTimeoutError: it has no result yet.
    """
    one_of("part", part, PARTS)
    facts = get_job(store, job_id)
    value = stored_result(store, facts) if part == "result" else _payload(store, job_id)
    by = by.hiding(values_of_job(store, job_id, by.reason))
    store.apply(by.log(f"read {part}", Subject("job", job_id)))
    return value


def stored_result(store: Store, facts: JobFacts) -> bytes:
    """Return the result of a job as JSON; refuse one that has none, with the reason. Raises as `read_value` does."""
    match facts.status:
        case "complete":
            return _present(facts.id, store.query(job_sql.result(job=facts.id))[0].value)
        case "failed":
            raise JobFailedError(
                job_id=facts.id, error_code=facts.error_code or "", message=facts.error_message or ""
            )
        case "cancelled":
            raise JobCancelledError(job_id=facts.id)
        case "skipped":
            raise JobSkippedError(job_id=facts.id, reason=str(job_attempts(store, facts.id)[-1].message))
        case _:
            raise WaitTimeoutError(job_id=facts.id, status=facts.status, timeout=0.0)


def _payload(store: Store, job_id: int) -> bytes:
    return _present(job_id, store.query(transfer_sql.exported_values(job=job_id))[0].payload)


def _present(job_id: int, value: bytes | None) -> bytes:
    if value is None:
        raise JobErasedError(job_id=job_id)
    return value
