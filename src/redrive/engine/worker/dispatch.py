# SPDX-License-Identifier: Apache-2.0
"""A dispatch: one start of a stage for one claimed job, and the states it goes through.

    STARTING ---> RUNNING ------> ENDING ---> SETTLED      the usual way
        |            `-> ABANDONED --^                     overran: settled while its thread still runs
        `------> IN_PROCESS ---------^                     runs in another process

The jobs of a batch go through them together, each with a dispatch of its own.
A job that is refused or cancelled goes from STARTING to ENDING; one whose decision needs no store skips ENDING. Every state
before SETTLED may become DROPPED (its lease was given up) or LEFT_BEHIND (so was its lease, but its task ignores the cancellation
and keeps its slot). Only the event loop changes a state; threads just read it.
"""

from __future__ import annotations

from asyncio import TimerHandle
from enum import IntEnum
from typing import Final

from msgspec import Struct

from redrive.engine.observers import AttemptFacts, AttemptObserver
from redrive.engine.pipeline.context import Context
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.dead_letter import CallValues
from redrive.store.records import ClaimedJob

SUSPECT_MIN: Final = 2
"""So many workers must have died while they ran a job before it runs alone."""


class State(IntEnum):
    """How far a dispatch is. The order counts: nothing stops a dispatch from ENDING on, and from SETTLED on it is over."""

    STARTING = 0
    """It has a slot, but its task has not run its first line."""
    RUNNING = 1
    """Its function runs, on the loop or on a thread. Only on the loop can it be cancelled."""
    IN_PROCESS = 2
    """Its function runs in another process, where it cannot be cancelled."""
    ABANDONED = 3
    """It overran and will be settled as a timeout; whatever its thread returns is ignored."""
    ENDING = 4
    """Its function has returned, or was never called, and its settlement is being decided."""
    SETTLED = 5
    """Its settlement is in the journal."""
    DROPPED = 6
    """Its lease was given up while it ran; whatever it returns is ignored."""
    LEFT_BEHIND = 7
    """As DROPPED, but its task has not ended although it was cancelled; it keeps its slot until it does."""


# Looked up once: access to a member by its name goes through a hook of the enumeration.
STARTING, RUNNING, IN_PROCESS, ABANDONED, ENDING, SETTLED, DROPPED, LEFT_BEHIND = State


class Dispatch(Struct, eq=False, gc=False):
    """One start of a stage."""

    job: ClaimedJob
    lane: Lane
    context: Context
    started_at: float
    ended_at: float = 0.0
    is_finish: bool = False
    """Whether the stage finished the job: its output is the job's result."""
    state: State = STARTING
    observing: tuple[AttemptObserver, ...] | None = None
    """Who observes it; None until its function is called, and empty when nobody wants to."""
    overrun: TimerHandle | None = None
    """The timer that abandons it. It refers to this dispatch in turn, so it is removed as soon as the stage has ended."""
    call: CallValues | None = None
    """The values of all jobs of its call, if there are several."""
    shared_by: int = 1
    """How many jobs its function was called for."""

    def facts(self) -> AttemptFacts:
        """Return what observers may know of it."""
        return AttemptFacts(
            job_id=self.job.id,
            pipeline=self.lane.pipeline.name,
            stage=self.lane.stage.name,
            attempt=self.job.attempt,
            dispatch=self.job.dispatch,
            round=self.job.round,
            started_at=self.started_at,
            trace=self.job.trace,
        )

    @property
    def overran(self) -> bool:
        """Whether it took longer than its stage allows."""
        timeout = self.lane.stage.timeout
        return timeout is not None and self.ended_at - self.started_at > timeout

    def cancel_overrun(self) -> None:
        """Cancel the timer: until it fires it would keep this dispatch, with input and payload, alive."""
        if self.overrun is not None:
            self.overrun.cancel()
            self.overrun = None
