# SPDX-License-Identifier: Apache-2.0
"""Erasing what a job that has ended holds: its values, or its key.

Each is one transaction, with its line of the operator log. The record, the attempts and the letters stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from redrive.core.units import instant
from redrive.engine.runtime import CURRENT
from redrive.errors import ReplayRefusedError
from redrive.ops.audit import Actor, Subject
from redrive.ops.jobs.cancel import ENDED
from redrive.ops.jobs.facts import get_job
from redrive.ops.letters.job_values import values_of_job
from redrive.store.protocol import Store
from redrive.store.statements import jobs as job_sql


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReport:
    """What became of the values of a job."""

    job: int
    erased_at: datetime
    is_new: bool
    """False when they had been erased before."""


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
