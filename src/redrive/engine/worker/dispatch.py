# SPDX-License-Identifier: Apache-2.0
"""One run of a stage, from its start to its end."""

from __future__ import annotations

from asyncio import TimerHandle

from msgspec import Struct

from redrive.engine.pipeline.context import Context
from redrive.engine.pipeline.lanes import Lane
from redrive.store.protocol import Claimed


class Dispatch(Struct, eq=False, gc=False):
    """One run of a stage, from its start to its end."""

    job: Claimed
    lane: Lane
    context: Context
    started_at: float
    ended_at: float = 0.0
    has_begun: bool = False
    """True when its task has run its first line."""
    is_ending: bool = False
    """True when the function has returned and its outcome is being settled; from now on nothing may stop it."""
    is_abandoned: bool = False
    """True when it overran and was settled while its thread runs on."""
    is_apart: bool = False
    """True when it runs in another process."""
    is_left_behind: bool = False
    """True when its task did not end although it was cancelled; it holds its place until it does."""
    is_settled: bool = False
    """True when its outcome is on its way to the store; what the function still does then counts no more."""
    overrun: TimerHandle | None = None
    """What will settle it if it overruns. It knows this run in turn, so whoever is done with it takes it from here."""

    @property
    def overran(self) -> bool:
        """Whether it took longer than its stage allows."""
        timeout = self.lane.stage.timeout
        return timeout is not None and self.ended_at - self.started_at > timeout
