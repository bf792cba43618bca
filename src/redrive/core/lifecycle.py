# SPDX-License-Identifier: Apache-2.0
"""The transition tables of jobs and dead letters; nothing moves otherwise.

Operators' acts on letters look here. Jobs are moved by statements of the store, each of which names the state it moves from; a test
watches every change of a job's status.
`docs/concepts/lifecycle.md` is generated from these tables. "Retrying" and "held" are not states: such a job is `queued` with
a reason and a time at which it is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar


class JobState(StrEnum):
    """The states of a job."""

    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class LetterState(StrEnum):
    """The states of a dead letter."""

    OPEN = "open"
    TRIAGED = "triaged"
    READY = "ready"
    REPLAYING = "replaying"
    RESOLVED = "resolved"
    RETURNED = "returned"
    DISCARDED = "discarded"


State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Move(Generic[State]):
    """One transition: its verb, source, target, and when it happens. Without a source it creates the thing."""

    verb: str
    source: State | None
    target: State
    why: str


_Q, _P, _C, _F, _X, _S = JobState

JOB_MOVES: Final[tuple[Move[JobState], ...]] = (
    Move("submit", None, _Q, "the job is durable and waits for a worker"),
    Move("claim", _Q, _P, "a worker took a lease on it"),
    Move("checkpoint", _P, _Q, "the stage succeeded; the next one waits for a worker"),
    Move("complete", _P, _C, "the last stage succeeded, or an earlier one finished the job"),
    Move("skip", _P, _S, "the stage skipped it, with a reason; neither a success nor a failure"),
    Move("retry", _P, _Q, "the attempt failed and will be retried later"),
    Move("hold", _P, _Q, "a dependency is down or the stage snoozed; no attempt is burned"),
    Move("reap", _P, _Q, "the worker died or lost its lease; no attempt is burned"),
    Move(
        "bury",
        _P,
        _F,
        "the failure is permanent, the attempts are spent or the job expired; a dead letter is written",
    ),
    Move("cancel", _Q, _X, "it was cancelled before it started, or its run was aborted"),
    Move("stop", _P, _X, "an operator, or the stage itself, cancelled it while it ran"),
    Move("replay", _F, _Q, "the cause is fixed; it starts again at the stage that failed"),
)

_O, _T, _R, _REPLAYING, _RESOLVED, _RETURNED, _DISCARDED = LetterState

LETTER_MOVES: Final[tuple[Move[LetterState], ...]] = (
    Move("bury", None, _O, "its job failed for good"),
    Move("triage", _O, _T, "an operator recorded the diagnosis"),
    Move("triage", _T, _T, "an operator corrected the diagnosis"),
    Move("triage", _R, _T, "an operator corrected the diagnosis; the evidence must be recorded again"),
    Move("remediate", _T, _R, "evidence of the fix and confirmation that a replay is safe are recorded"),
    Move("replay", _R, _REPLAYING, "a replay, or a retry of the job, took it"),
    Move("retry", _O, _REPLAYING, "the pipeline's replay rules require no evidence"),
    Move("retry", _T, _REPLAYING, "the pipeline's replay rules require no evidence"),
    Move("resolve", _REPLAYING, _RESOLVED, "the replayed job completed, was skipped or was cancelled"),
    Move(
        "return",
        _REPLAYING,
        _RETURNED,
        "the job failed again: a new letter is open, escalated if the code is permanent",
    ),
    Move("discard", _O, _DISCARDED, "an operator decided that nothing needs to be done"),
    Move("discard", _T, _DISCARDED, "an operator decided that nothing needs to be done"),
    Move("discard", _R, _DISCARDED, "an operator decided that nothing needs to be done"),
    Move("restore", _DISCARDED, _O, "the discard was a mistake"),
)


def can_move(source: LetterState, verb: str) -> bool:
    """Return whether a dead letter in this state can be moved by this verb."""
    return any(move.verb == verb and move.source == source for move in LETTER_MOVES)
