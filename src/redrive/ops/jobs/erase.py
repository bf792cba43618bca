# SPDX-License-Identifier: Apache-2.0
"""Erasing the values of a job: payload, inputs, result, edits and hashes are wiped; the record, its attempts and its letters stay.

For a job that has ended only. It cannot be replayed afterwards, and cannot be brought back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from redrive.engine.clock import instant
from redrive.engine.runtime import CURRENT
from redrive.errors import ReplayRefusedError
from redrive.ops.audit import Actor
from redrive.ops.jobs.facts import get_job
from redrive.ops.letters.job_values import values_of_job
from redrive.store.protocol import Store
from redrive.store.records import Step

_RUNNING: Final = frozenset({"queued", "processing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReport:
    """What became of the values of a job."""

    job: int
    erased_at: datetime
    is_new: bool
    """False when they had been erased before."""


def check_erasable(store: Store, job_id: int) -> str:
    """Return the status of a job whose values may be erased; raises as `erase` would."""
    get_job(store, job_id)
    status = str(store.query("job_to_erase", job_id)[0][0])
    if status in _RUNNING:
        raise _refused(job_id, status)
    return status


def erase(store: Store, job_id: int, by: Actor) -> ErasureReport:
    """Wipe every value of a job that has ended, in one transaction with its line of the operator log; twice changes nothing.

    Raises:
        JobNotFoundError: there is no such job; the hint names ids that are near.
        ReplayRefusedError: it has not ended yet.
    """
    get_job(store, job_id)
    now = CURRENT.get().clock.wall()
    # Read before they are gone: what is written about them stays.
    by = by.hiding(values_of_job(store, job_id, by.reason))
    steps = (
        Step("log_erase", (*by.line("erase", f"job {job_id}"), job_id)),
        Step("erase_values", (job_id,)),
        Step("erase_edits", (job_id,)),
        Step("erase_hashes", (job_id,)),
    )
    is_new = store.apply(Step("erase_job", (job_id, now), rows=1), *steps) is not None
    ((status, erased_at),) = store.query("job_to_erase", job_id)
    if erased_at is None or str(status) in _RUNNING:
        raise _refused(job_id, str(status))
    return ErasureReport(job=job_id, erased_at=instant(erased_at), is_new=is_new)


def _refused(job_id: int, status: str) -> ReplayRefusedError:
    return ReplayRefusedError(
        subject=f"job {job_id}",
        problem=f"it is {status}, and its values are still needed",
        fix=f"Cancel it first: redrive job cancel {job_id}.",
    )
