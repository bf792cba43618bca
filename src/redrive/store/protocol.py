# SPDX-License-Identifier: Apache-2.0
"""The interface between the engine and a store: every method takes a batch and is one transaction.

The fence is (job id, lease token, dispatch): whatever a worker writes about a job carries all three, and a row that no longer
matches is refused for that job alone. Settling the outcomes of the last jobs and claiming the next ones is one method, because it
is one commit. Instants are seconds since the epoch on the clock of the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, overload

from redrive.store.callers import CallerTransactions
from redrive.store.maintenance import Maintenance
from redrive.store.reader import Reader
from redrive.store.records import (
    Call,
    Exchange,
    ExchangeRequest,
    LaneId,
    NewJob,
    PhaseChange,
    Renewal,
    Step,
    SubmittedJob,
    UpcomingWork,
    WorkerFacts,
)

R = TypeVar("R")


class ChangeSignal(Protocol):
    """Something that an event loop can wait for until anybody changes the store."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when somebody, in any process, has changed the store."""
        ...

    def clear(self) -> None:
        """Make it unreadable until the next change."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class Store(Reader, Protocol):
    """Everything the engine asks of a store. Each method is atomic and safe to repeat."""

    @property
    def callers(self) -> CallerTransactions:
        """Transactions that hold more than what redrive writes."""
        ...

    def lanes(self, pipeline: str, stages: Sequence[str]) -> list[LaneId]:
        """Return the lane of each stage, making those that are new."""
        ...

    def submit(self, jobs: Sequence[NewJob], now: float) -> list[SubmittedJob]:
        """Store new jobs; durable when it returns. If a queued, processing or complete job has the key, that job is returned."""
        ...

    def start_worker(self, worker: str, now: float, lease: float, about: WorkerFacts = ...) -> None:
        """Make a worker known; its lease ends `lease` seconds from now unless it is renewed."""
        ...

    def renew(self, worker: str, now: float, lease: float) -> Renewal:
        """Extend the worker's lease; return which of its jobs to cancel."""
        ...

    def stop_worker(self, worker: str) -> None:
        """Return the jobs the worker still leases to the queue, unburned, and delete the worker."""
        ...

    def exchange(self, asked: ExchangeRequest) -> Exchange:
        """Settle what is done and claim what comes next, in one commit.

        A settlement is written only while the job's lease token and dispatch still match; one that was written before (the answer
        to an earlier commit was lost) counts as done. A job whose stage is done may be claimed for its next one in the same
        commit, if that lane is wanted. The dispatch of a claimed job is counted before the caller can run it. After a lost answer
        the caller repeats the call with the same token, and gets what that token had claimed already.
        """
        ...

    def reap(self, now: float) -> int:
        """Declare workers dead whose lease has ended, and return their jobs to the queue; return how many jobs that were."""
        ...

    def upcoming(self, lanes: Sequence[LaneId]) -> UpcomingWork:
        """Return what is still to be done in these lanes."""
        ...

    def breaker(self, name: str) -> bytes | None:
        """Return the state of a breaker; None when nobody has written one."""
        ...

    def swap_breaker(
        self, name: str, before: bytes | None, after: bytes, change: PhaseChange | None = None
    ) -> bool:
        """Change the state of a breaker if it is still `before`, and record the change of its phase; return whether it was."""
        ...

    @property
    def maintenance(self) -> Maintenance:
        """The file of the database, and a copy of it."""
        ...

    def reading(self) -> AbstractContextManager[Reader]:
        """Give one moment of the store, for many questions; no writer waits for it, and it waits for none."""
        ...

    @overload
    def apply(self, step: Call[R], /) -> list[list[R]] | None: ...
    @overload
    def apply(self, *steps: Step) -> list[list[Any]] | None: ...
    def apply(self, *steps: Step) -> list[list[Any]] | None:
        """Run several statements in one transaction; return their rows, or None when it was rolled back (see `Step.rows`)."""
        ...

    def change_counter(self) -> object:
        """Return a value that stays equal until somebody, in any process, changes the store; cheap."""
        ...

    def change_signal(self) -> ChangeSignal | None:
        """Return a signal for changes, to be closed by the caller; None where there is none: then compare the change counter."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...
