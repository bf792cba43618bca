# SPDX-License-Identifier: Apache-2.0
"""Replays for a program: the same use cases as `redrive replay`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from redrive.client.awaited import AsyncFace, Face, awaited
from redrive.client.options import ActorOptions, FilterOptions, actor_of, filter_of
from redrive.core.replay import CANARY, plan_of
from redrive.ops.audit import Actor
from redrive.ops.replay import replays
from redrive.ops.replay.progress import ReplayReport, report_of


class Replays(Face):
    """Replays of many dead letters, which workers drive."""

    def start(
        self,
        *,
        canary: Sequence[int] = CANARY,
        rate: float | None = None,
        from_start: bool = False,
        actor: str = "api",
        reason: str | None = None,
        **which: Unpack[FilterOptions],
    ) -> ReplayReport:
        """Start a replay of the letters that match now: the canaries first, no faster than `rate` per second."""
        plan = plan_of(tuple(canary), rate, from_start=from_start)
        chosen = filter_of(self._store, which)
        return self.status(replays.start(self._store, chosen, Actor(actor, reason), plan=plan).id)

    def status(self, replay: int) -> ReplayReport:
        """Return the report of a replay."""
        return report_of(self._store, replay)

    def list(
        self, *, pipeline: str | None = None, before: int | None = None, limit: int = 50
    ) -> Sequence[ReplayReport]:
        """Return replays, newest first; the id of the last one is the `before` of the next page."""
        found = replays.list_replays(self._store, pipeline=pipeline, before=before, limit=limit)
        return [self.status(each.id) for each in found]

    def pause(self, replay: int, **by: Unpack[ActorOptions]) -> ReplayReport:
        """Release nothing more until it is resumed."""
        return self.status(replays.pause(self._store, replay, actor_of(by)).id)

    def resume(self, replay: int, **by: Unpack[ActorOptions]) -> ReplayReport:
        """Continue a replay that was paused or stopped itself."""
        return self.status(replays.resume(self._store, replay, actor_of(by)).id)

    def cancel(self, replay: int, **by: Unpack[ActorOptions]) -> ReplayReport:
        """End a replay; letters that were not released are free again."""
        return self.status(replays.cancel(self._store, replay, actor_of(by)).id)

    def close(self, replay: int, *, note: str, **by: Unpack[ActorOptions]) -> ReplayReport:
        """Close a replay that has ended, with a note on how it was resolved."""
        return self.status(replays.close(self._store, replay, actor_of(by), note=note).id)


class AsyncReplays(AsyncFace[Replays]):
    """Replays for async code; see `Replays`."""

    start = awaited(Replays.start)
    status = awaited(Replays.status)
    list = awaited(Replays.list)
    pause = awaited(Replays.pause)
    resume = awaited(Replays.resume)
    cancel = awaited(Replays.cancel)
    close = awaited(Replays.close)
