# SPDX-License-Identifier: Apache-2.0
"""Reading the values of a job: its payload, or its result.

Values stay out of everything that redrive writes about a job. Whoever reads one asks for it by name, and that is recorded in the
operator log, in the transaction before the value is returned.
"""

from __future__ import annotations

from typing import Literal, cast

import msgspec

from redrive.errors import (
    JobCancelledError,
    JobErasedError,
    JobFailedError,
    JobSkippedError,
    WaitTimeoutError,
)
from redrive.ops.audit import Actor
from redrive.ops.jobs.facts import JobFacts, get_job
from redrive.ops.letters.job_values import values_of_job
from redrive.store.protocol import Store

Part = Literal["payload", "result"]


def read_value(store: Store, job_id: int, part: Part, by: Actor) -> msgspec.Raw:
    """Return the payload or the result of a job, as JSON, and log who read it.

    Raises:
        JobNotFoundError: there is no such job; the hint names ids that are near.
        JobErasedError: its values were erased.
        JobFailedError, JobCancelledError, JobSkippedError: it has no result.
        WaitTimeoutError: it has no result yet.
    """
    facts = get_job(store, job_id)
    if part == "result":
        _require_complete(store, facts)
    rows = store.query("result" if part == "result" else "exported_values", job_id)
    value = cast("bytes | None", rows[0][1 if part == "result" else 0])
    if value is None:
        raise JobErasedError(job_id=job_id)
    by = by.hiding(values_of_job(store, job_id, by.reason))
    store.apply(by.log(f"read {part}", f"job {job_id}"))
    return msgspec.Raw(value)


def _require_complete(store: Store, facts: JobFacts) -> None:
    """Refuse a job that has no result, with the reason."""
    match facts.status:
        case "complete":
            return
        case "failed":
            raise JobFailedError(
                job_id=facts.id, error_code=facts.error_code or "", message=facts.error_message or ""
            )
        case "cancelled":
            raise JobCancelledError(job_id=facts.id)
        case "skipped":
            message = store.query("attempts", facts.id)[-1][7]
            raise JobSkippedError(job_id=facts.id, reason=str(message))
        case _:
            raise WaitTimeoutError(job_id=facts.id, status=facts.status, timeout=0.0)
