# SPDX-License-Identifier: Apache-2.0
"""Which rows a settlement becomes, and the statement that takes each: the same for every store. How to write them is its own.

A value is passed as a bytearray, because `sqlite3` looks for an adapter of bytes each time.
"""

from __future__ import annotations

import logging
from typing import Final

from redrive.core.lifecycle import JobState
from redrive.store.plan import Continuation
from redrive.store.records import INLINE_MAX, Letter, Row, Settlement

logger = logging.getLogger("redrive.store")

IN_PLACE: Final = frozenset({"continue_in_place", "retry_in_place"})
"""The updates of jobs that continue in place."""


class NotAtOnceError(Exception):
    """A batch holds a row that was lost or does not fit; what was written of it has to be rolled back."""


def is_large(one: Settlement) -> bool:
    """Return whether its value is kept in job_values, under the dispatch whose output it is."""
    return one.value is not None and len(one.value) > INLINE_MAX


def is_plain_success(one: Settlement) -> bool:
    """Return whether the attempt just succeeded: nothing was decided or noted."""
    return one.outcome == "ok" and one.burned and one.decision is None and one.notes is None


def update_of(one: Settlement, in_place: Continuation) -> tuple[str, Row]:
    """Return the name of the update for this settlement, and its row; a job that can continue in place is taken for it."""
    job, status = one.job, one.status
    fence = (job.id, job.token, job.dispatch)
    match status:
        case JobState.COMPLETE if is_large(one):
            return "complete_large", (*fence, one.ended_at)
        case JobState.COMPLETE:
            return "complete", (*fence, one.ended_at, _inline(one))
        case JobState.FAILED:
            return "bury", (*fence, one.code, one.message, one.ended_at, _codes_of(one))
        case JobState.CANCELLED | JobState.SKIPPED:
            return "end", (*fence, one.ended_at, status.value)
        case _:
            return _update_of_queued(one, fence, in_place)


def _update_of_queued(one: Settlement, fence: Row, in_place: Continuation) -> tuple[str, Row]:
    if one.outcome == "ok":
        row = (*fence, one.lane, _inline(one))
        return ("continue_in_place", row) if in_place.take(one) else ("advance", (*row, one.run_at))
    counts = (one.attempt, one.snoozes, _codes_of(one))
    if in_place.take(one):
        return "retry_in_place", (*fence, *counts)
    return "requeue", (*fence, one.run_at, *counts, one.outcome, one.suspects, one.crashes, one.ended_at)


def terms_of(statement: str, in_place: Continuation) -> Row:
    """Return what an update takes besides its rows: of jobs that continue in place, their new lease."""
    return in_place.terms if statement in IN_PLACE else ()


def _codes_of(one: Settlement) -> bytearray | None:
    return None if one.codes is None else bytearray(one.codes)


def plain_attempt(one: Settlement) -> Row:
    """Return the row of an attempt that just succeeded."""
    job = one.job
    return (job.id, job.dispatch, job.lane, job.round, job.attempt, one.config, one.started_at, one.ended_at)


def full_attempt(one: Settlement) -> Row:
    """Return the row of any attempt."""
    failure = (one.code, one.exception, one.message, one.http_status or 0)
    return (*plain_attempt(one), one.outcome, int(one.burned), *failure, one.decision, one.notes or "")


def letter_row(one: Settlement, letter: Letter) -> Row:
    """Return the row of a letter, without its facts."""
    job = one.job
    fingerprint, is_retryable = letter.fingerprint, int(letter.is_retryable)
    return (job.id, job.lane, job.round, fingerprint, one.ended_at, is_retryable, letter.code)


def facts_row(letter: Letter) -> Row:
    """Return the row of the facts of a letter: how its job failed."""
    return (
        letter.code,
        letter.category,
        int(letter.is_retryable),
        letter.exception,
        letter.reason,
        letter.message,
        letter.context,
        letter.stack,
    )


def log_escalation(one: Settlement, letter: Letter, id_: int | None) -> None:
    """Log that a job failed after its replay as it did before."""
    logger.warning(
        "job %s failed again with %s after its replay; dead letter %s is escalated",
        one.job.id,
        letter.code,
        id_,
    )


def _inline(one: Settlement) -> bytearray | None:
    """Return the value for its job's own row."""
    return None if one.value is None or is_large(one) else bytearray(one.value)
