# SPDX-License-Identifier: Apache-2.0
"""Values of dead letters for a program: the part of `rd.letters` that edits and checks what a replay starts with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from redrive.client.awaited import Face
from redrive.client.options import ActorOptions, FilterOptions, actor_of, filter_of
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.replay.release import by_name
from redrive.ops.audit import Actor
from redrive.ops.letters import bulk_edit, edit
from redrive.ops.letters.bulk_edit import BulkEdit
from redrive.ops.letters.edit import Change, EditResult
from redrive.ops.letters.edit_history import EditHistory, edit_history
from redrive.ops.letters.freeze import FrozenSet
from redrive.ops.replay.validation import Validation, validate
from redrive.store.records import Part


class LetterValues(Face):
    """The values of dead letters; an edit keeps the original."""

    def edit(
        self, letter: int, *, actor: str = "api", reason: str | None = None, **change: Unpack[Change]
    ) -> EditResult:
        """Change what a replay of a letter starts with: the whole JSON, a JSON Patch, a function of the value, or the original."""
        return edit.edit(self._store, letter, Actor(actor, reason), **change)

    def edit_many(
        self,
        chosen: FrozenSet,
        *,
        dry_run: bool = False,
        actor: str = "api",
        reason: str | None = None,
        **change: Unpack[Change],
    ) -> BulkEdit:
        """Edit every letter of a frozen set by a JSON Patch, a function of the value, or the original; one transaction each.

        Letters whose new value does not fit are left alone and counted; `dry_run` only counts. The same edit again does the rest.
        """
        if dry_run:
            return bulk_edit.preview_edits(self._store, chosen, **change)
        return bulk_edit.edit_many(self._store, chosen, Actor(actor, reason), **change)

    def value(self, letter: int, *, part: Part = "input", **by: Unpack[ActorOptions]) -> bytes:
        """Return what a replay of a letter would start with as JSON, not redacted; who read it, and why, is logged."""
        return edit.read_letter_value(self._store, letter, part, actor_of(by))

    def edits(self, letter: int) -> EditHistory:
        """Return the edits of a letter and the original; redacted."""
        return edit_history(self._store, letter)

    def validate(
        self, *, pipelines: Iterable[Pipeline] = (), from_start: bool = False, **which: Unpack[FilterOptions]
    ) -> Validation:
        """Return the obstacles to a replay, letter by letter; changes nothing."""
        known, chosen = by_name(pipelines), filter_of(self._store, which)
        return validate(self._store, chosen, pipelines=known, from_start=from_start)
