# SPDX-License-Identifier: Apache-2.0
"""The seam between the engine and a store: every method takes a batch and is one transaction.

The fence is (job id, lease token, dispatch): whatever a worker writes about a job carries all three, and a row that no longer
matches is refused for that job alone. Settling the outcomes of the last jobs and claiming the next ones is one method, because it
is one commit. Instants are seconds since the epoch on the clock of the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, Protocol

from msgspec import Struct

from redrive.core.lifecycle import JobState

JobId = NewType("JobId", int)
LaneId = NewType("LaneId", int)


class NewJob(Struct, frozen=True, kw_only=True):
    """One job to be stored."""

    lane: LaneId
    payload: bytes
    run_at: float
    priority: int = 5
    key: str | None = None
    owner: str | None = None


class Submitted(Struct, frozen=True):
    """What became of a new job: its id, and whether a twin with the same key was there already."""

    id: JobId
    is_twin: bool


class Want(Struct, frozen=True):
    """What a worker can take: jobs of these lanes, the first lane first, so many in all."""

    lanes: tuple[LaneId, ...]
    limit: int


class Claimed(Struct, frozen=True):
    """One job in the hands of a worker."""

    id: JobId
    token: int
    dispatch: int
    lane: LaneId
    attempt: int
    round: int
    snoozes: int
    codes: bytes | None
    """How many attempts of this round failed with each code, as JSON; None while none did."""
    input: bytes


class Letter(Struct, frozen=True, kw_only=True):
    """What a dead letter holds; already redacted."""

    code: str
    category: str
    message: str
    error_class: str
    stack: str
    fingerprint: str
    context: bytes
    reason: str


class Settlement(Struct, frozen=True, kw_only=True):
    """The outcome of one dispatch: what becomes of the job, and the attempt's row."""

    job: Claimed
    status: JobState
    lane: LaneId
    run_at: float
    value: bytes | None
    """The next stage's input, or the result when the job is complete; None keeps the input as it is."""
    attempt: int
    snoozes: int
    codes: bytes | None
    outcome: str
    burned: bool
    started_at: float
    ended_at: float
    code: str | None = None
    message: str | None = None
    http_status: int | None = None
    reason: str | None = None
    sentence: str | None = None
    letter: Letter | None = None


class Exchange(Struct, frozen=True, kw_only=True):
    """What one commit brought: settlements that were refused or could not be stored, and the jobs claimed next."""

    lost: tuple[JobId, ...]
    """Their lease belongs to somebody else by now."""
    broken: tuple[JobId, ...]
    """The store could not take their row; they still belong to the worker."""
    claimed: tuple[Claimed, ...]
    is_known: bool = True
    """False when the worker was declared dead: nothing was claimed, and whatever it holds is not its own any more."""


class Count(Struct, frozen=True):
    """How many jobs of a lane are in a state."""

    lane: LaneId
    status: str
    jobs: int


class Outlook(Struct, frozen=True):
    """What is still to come: when the next queued job is due (None without one), and how many jobs workers hold."""

    next_due_at: float | None
    held: int


class Store(Protocol):
    """Everything the engine asks of a store. Each method is atomic and safe to repeat."""

    def lanes(self, pipeline: str, stages: Sequence[str]) -> list[LaneId]:
        """Return the lane of each stage, making those that are new."""
        ...

    def submit(self, jobs: Sequence[NewJob], now: float) -> list[Submitted]:
        """Store new jobs; durable when it returns. A job whose key a queued, processing or complete one has is that twin."""
        ...

    def start_worker(self, worker: str, now: float, lease: float) -> None:
        """Make a worker known; its lease ends `lease` seconds from now unless it is renewed."""
        ...

    def renew(self, worker: str, now: float, lease: float) -> bool:
        """Extend the worker's lease; False when it was declared dead, so that it must let go of everything."""
        ...

    def stop_worker(self, worker: str) -> None:
        """Give back whatever the worker still holds, unburned, and forget it."""
        ...

    def exchange(
        self, worker: str, done: Sequence[Settlement], want: Want, *, now: float, token: int
    ) -> Exchange:
        """Settle what is done and claim what comes next, in one commit; `token`, new for every call, marks what is claimed.

        A settlement is taken only while the job's lease token and dispatch still match; one that was taken before (the answer to an
        earlier commit was lost) counts as done. Claimed jobs have their dispatch counted before the caller can run them. After a
        lost answer the same call is made again with the same token, and returns what that token had claimed already.
        """
        ...

    def reap(self, now: float) -> int:
        """Declare workers dead whose lease has ended, and give their jobs back; return how many jobs that were."""
        ...

    def counts(self) -> list[Count]:
        """Count the jobs of every lane by state."""
        ...

    def job(self, job: JobId) -> tuple[object, ...] | None:
        """Return id, pipeline, stage, status, attempt, error code and error message of a job; None when there is none."""
        ...

    def outlook(self, lanes: Sequence[LaneId]) -> Outlook:
        """Return what is still to come in these lanes."""
        ...

    def breaker(self, name: str) -> bytes | None:
        """Return the state of a breaker; None when nobody has written one."""
        ...

    def swap_breaker(self, name: str, before: bytes | None, after: bytes) -> bool:
        """Change the state of a breaker if it is still `before`; say whether it was."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...
