# SPDX-License-Identifier: Apache-2.0
"""The batch lanes of a worker: which jobs wait for their call, which calls run, and how many slots they share.

A call has one slot from the start of its function until its last job is settled. Whatever is not about a batch is in `slots`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from redrive.engine.clock import Clock
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.batches.gathering import Call, Gathering
from redrive.engine.worker.dead_letter import CallValues
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.runner import Runner
from redrive.store.records import JobId, LaneId


class BatchLanes:
    """The lanes of one worker whose jobs share slots. Belongs to its loop."""

    def __init__(
        self,
        lanes: Mapping[LaneId, Lane],
        clock: Clock,
        *,
        on_call: Callable[[Call], None],
        on_due: Callable[[], None],
    ) -> None:
        self.gatherings = {
            lane.id: Gathering(lane, lane.stage.batch, clock, on_call=on_call, on_due=on_due)
            for lane in lanes.values()
            if lane.stage.batch is not None
        }
        self.call_of: dict[JobId, Call] = {}
        """The calls that run, by each of their jobs."""
        self.shared = 0
        """How many of the running jobs have a slot only because others of their call have it."""

    def begin(self, call: Call, runner: Runner, running: dict[JobId, Dispatch]) -> None:
        """Give a slot to a call: each of its jobs has a dispatch among those that run."""
        dispatches = [runner.begin(job, call.lane) for job in call.jobs]
        values = CallValues(*call.jobs) if len(call.jobs) > 1 else None
        for dispatch in dispatches:
            dispatch.call = values
            running[dispatch.job.id] = dispatch
            self.call_of[dispatch.job.id] = call
        call.dispatches = dispatches
        self.shared += call.left - 1

    def undo(self, call: Call, running: dict[JobId, Dispatch]) -> None:
        """Undo the start of a call that could not be started."""
        if call.dispatches:
            self.shared -= call.left - 1
        for dispatch in call.dispatches:
            del running[dispatch.job.id], self.call_of[dispatch.job.id]
        call.dispatches = []

    def settled(self, dispatch: Dispatch) -> None:
        """Free the slot of a call with the last of its jobs."""
        call = self.call_of.pop(dispatch.job.id, None)
        if call is None:
            return
        call.left -= 1
        if call.left:
            self.shared -= 1
        else:
            self.ended(call)

    def ended(self, call: Call) -> None:
        """Note that a call has ended, or will not be made."""
        self.gatherings[call.lane.id].call_ended()

    def keeps_slot(self, dispatch: Dispatch) -> bool:
        """Return whether what still runs keeps a slot of its own; of the jobs of a call only the first one does."""
        call = self.call_of.pop(dispatch.job.id, None)
        if call is None:
            return True
        is_first, call.is_orphan = not call.is_orphan, True
        self.shared -= 0 if is_first else 1
        return is_first
