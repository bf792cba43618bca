# SPDX-License-Identifier: Apache-2.0
"""Gathering the claimed jobs of a batch stage until there are enough for a call, or the first of them has waited long enough.

A job that waits here holds no slot. There is a timer only while a job waits for others, and it is on the worker's clock. A job that
is suspected of killing workers is a call of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import cast

import msgspec

from redrive.core.batch import Batch
from redrive.engine.clock import Clock
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.dispatch import SUSPECT_MIN, Dispatch
from redrive.store.records import ClaimedJob, JobId


class Call:
    """One call of a batch function, for some jobs of a lane."""

    def __init__(self, gathering: Gathering, *jobs: ClaimedJob) -> None:
        self.gathering = gathering
        self.lane = gathering.lane
        self.jobs = jobs
        self.dispatches: list[Dispatch] = []
        """One for each job; empty until it has a slot."""
        self.parts: list[list[Dispatch]] = []
        """What is still to be called, the next part last; after a split there are several."""
        self.current: list[Dispatch] = []
        """The part that a thread is called with."""
        self.left = len(jobs)
        """How many of its jobs have not been settled."""
        self.is_split = False
        self.is_orphan = False
        """Whether its leases were given up while it ran."""


class Gathering:
    """The jobs of one batch lane that wait for their call. Belongs to the worker's loop."""

    def __init__(
        self,
        lane: Lane,
        batch: Batch,
        clock: Clock,
        *,
        on_call: Callable[[Call], None],
        on_due: Callable[[], None],
    ) -> None:
        self.lane = lane
        self._size = batch.size
        self._wait = cast("float", batch.wait)
        self._clock = clock
        self._on_call = on_call
        self._on_due = on_due
        self._jobs: deque[ClaimedJob] = deque()
        self._suspects: deque[ClaimedJob] = deque()
        self._since = 0.0
        """Since when, by the monotonic clock, the first job has waited for others."""
        self._timer: asyncio.Task[None] | None = None
        self._calls = 0
        """Calls that wait for a slot or run."""

    @property
    def waiting(self) -> int:
        """How many jobs wait here."""
        return len(self._jobs) + len(self._suspects)

    def jobs(self) -> list[ClaimedJob]:
        """Return the jobs that wait here."""
        return [*self._suspects, *self._jobs]

    @property
    def calls(self) -> int:
        """How many calls wait for a slot or run, with those that the waiting jobs will make; may be read from any thread."""
        # In this order: a job that becomes a call meanwhile counts twice, and not never.
        return len(self._suspects) - (-len(self._jobs) // self._size) + self._calls

    def room(self, slots: int) -> int:
        """Return how many more jobs can be claimed for so many free slots."""
        most = self.lane.stage.concurrency
        calls = slots if most is None else min(slots, most - self._calls)
        return max(0, calls * self._size - self.waiting)

    def add(self, job: ClaimedJob) -> None:
        """Take a claimed job; `form` puts it into a call."""
        if job.suspects >= SUSPECT_MIN:
            self._suspects.append(job)
            return
        if not self._jobs:
            self._since = self._clock.monotonic()
        self._jobs.append(job)

    def form(self) -> None:
        """Hand over every call that is due, as far as the stage's own limit allows; set a timer for the rest."""
        while self._suspects and self._may_call():
            self._hand_over(self._suspects, 1)
        while self._jobs and self._may_call() and (len(self._jobs) >= self._size or self._due_in() <= 0):
            self._hand_over(self._jobs, min(self._size, len(self._jobs)))
            self._since = self._clock.monotonic() if self._wait else self._since
        if not self._jobs:
            self._stop_timer()
        elif self._timer is None and self._due_in() > 0:
            self._timer = asyncio.ensure_future(self._wake())

    def call_ended(self) -> None:
        """Note that a call has ended, or will not be made; another one may be due."""
        self._calls -= 1
        self.form()

    def cancel(self, asked: Collection[JobId]) -> None:
        """Mark the jobs that somebody asked to cancel."""
        for waiting in (self._jobs, self._suspects):
            for place, job in enumerate(waiting):
                waiting[place] = marked(job, asked)

    def drop(self) -> list[ClaimedJob]:
        """Forget the jobs that wait, and return them."""
        dropped = self.jobs()
        self._suspects.clear()
        self._jobs.clear()
        self._stop_timer()
        return dropped

    def _may_call(self) -> bool:
        most = self.lane.stage.concurrency
        return most is None or self._calls < most

    def _hand_over(self, waiting: deque[ClaimedJob], count: int) -> None:
        self._calls += 1
        self._on_call(Call(self, *(waiting.popleft() for _ in range(count))))

    def _due_in(self) -> float:
        return self._since + self._wait - self._clock.monotonic()

    async def _wake(self) -> None:
        # Calls that were formed meanwhile have moved the time on.
        while (left := self._due_in()) > 0:
            await self._clock.asleep(left)
        self._timer = None
        self.form()
        self._on_due()

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


def marked(job: ClaimedJob, asked: Collection[JobId]) -> ClaimedJob:
    """Return a job as one that somebody asked to cancel, if it is one of these."""
    return msgspec.structs.replace(job, cancel_asked=1) if job.id in asked else job
