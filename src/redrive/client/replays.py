# SPDX-License-Identifier: Apache-2.0
"""Replays for a program: retrying one job, replaying many dead letters, editing and erasing values.

Nothing is decided here: each method calls one function of `ops`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Unpack

from redrive.client.awaited import AsyncFace, awaited
from redrive.client.job import Job, awaited_job
from redrive.client.letters import ActorOptions, FilterOptions, actor_of, filter_of
from redrive.core.replay import CANARY, plan_of
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.replay.release import by_name
from redrive.ops.audit import Actor
from redrive.ops.jobs import erase
from redrive.ops.jobs.retry import retry_job
from redrive.ops.letters import edit
from redrive.ops.letters.edit import Change, EditResult
from redrive.ops.letters.edit_history import EditHistory, edit_history
from redrive.ops.replay import replays
from redrive.ops.replay.progress import ReplayReport, report_of
from redrive.ops.replay.validation import Validation, validate
from redrive.store.protocol import Store


class Replays:
    """Retry one job, or start a replay of many dead letters, which workers drive."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def retry(
        self,
        job: int,
        *,
        from_start: bool = False,
        owner: str | None = None,
        pipelines: Iterable[Pipeline] = (),
        **by: Unpack[ActorOptions],
    ) -> Job:
        """Send a failed job back to the stage that failed; `owner` acts for somebody who may touch only their own jobs.

        With the code of its pipeline in `pipelines`, the value it starts with is checked against the present types first.
        """
        known = by_name(pipelines)
        retry_job(self._store, job, actor_of(by), from_start=from_start, owner=owner, pipelines=known)
        return Job(self._store, job)

    def validate(
        self, *, pipelines: Iterable[Pipeline] = (), from_start: bool = False, **which: Unpack[FilterOptions]
    ) -> Validation:
        """Return the obstacles to a replay; changes nothing."""
        known: Mapping[str, Pipeline] = by_name(pipelines)
        return validate(self._store, filter_of(self._store, which), pipelines=known, from_start=from_start)

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
        return self.report(replays.start(self._store, chosen, Actor(actor, reason), plan=plan).id)

    def report(self, replay: int) -> ReplayReport:
        """Return the report of a replay."""
        return report_of(self._store, replay)

    def list(self, *, pipeline: str | None = None, limit: int = 50) -> Sequence[ReplayReport]:
        """Return replays, newest first."""
        found = replays.list_replays(self._store, pipeline=pipeline, limit=limit)
        return [self.report(each.id) for each in found]

    def pause(self, replay: int, **by: Unpack[ActorOptions]) -> ReplayReport:
        """Release nothing more until it is resumed."""
        return self.report(replays.pause(self._store, replay, actor_of(by)).id)

    def resume(self, replay: int, **by: Unpack[ActorOptions]) -> ReplayReport:
        """Continue a replay that was paused or stopped itself."""
        return self.report(replays.resume(self._store, replay, actor_of(by)).id)

    def cancel(self, replay: int, **by: Unpack[ActorOptions]) -> ReplayReport:
        """End a replay; letters that were not released are free again."""
        return self.report(replays.cancel(self._store, replay, actor_of(by)).id)

    def close(self, replay: int, *, note: str, **by: Unpack[ActorOptions]) -> ReplayReport:
        """Close a replay that has ended, with a note on how it was resolved."""
        return self.report(replays.close(self._store, replay, actor_of(by), note=note).id)

    def edit(
        self, letter: int, *, actor: str = "api", reason: str | None = None, **change: Unpack[Change]
    ) -> EditResult:
        """Change what a replay of a letter starts with: the whole JSON, a JSON Patch, or back to the original, which is kept."""
        return edit.edit(self._store, letter, Actor(actor, reason), **change)

    def edits(self, letter: int) -> EditHistory:
        """Return the edits of a letter and the original; redacted."""
        return edit_history(self._store, letter)

    def erase(self, job: int, **by: Unpack[ActorOptions]) -> None:
        """Erase the values of a job that has ended; the record stays, and it can never be replayed."""
        erase.erase(self._store, job, actor_of(by))


class AsyncReplays(AsyncFace[Replays]):
    """Replays for async code; see `Replays`."""

    validate = awaited(Replays.validate)
    start = awaited(Replays.start)
    report = awaited(Replays.report)
    list = awaited(Replays.list)
    pause = awaited(Replays.pause)
    resume = awaited(Replays.resume)
    cancel = awaited(Replays.cancel)
    close = awaited(Replays.close)
    edit = awaited(Replays.edit)
    edits = awaited(Replays.edits)
    erase = awaited(Replays.erase)
    retry = awaited_job(Replays.retry)
