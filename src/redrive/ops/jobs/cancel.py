# SPDX-License-Identifier: Apache-2.0
"""Cancelling one job: at once while it is queued; a running one is asked to end, as its stage allows."""

from __future__ import annotations

from typing import Final

from redrive.engine.runtime import CURRENT
from redrive.ops.audit import Actor, Subject
from redrive.ops.jobs.facts import get_job
from redrive.ops.letters.job_values import values_of_job
from redrive.store.protocol import Store
from redrive.store.statements import jobs as job_sql
from redrive.store.statements.jobs import JobFacts

ENDED: Final = frozenset({"complete", "failed", "cancelled", "skipped"})
"""The states of a job that has ended."""


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
