# SPDX-License-Identifier: Apache-2.0
"""Values of dead letters for a program: the part of `rd.letters` that edits and checks what a replay starts with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from redrive.client.options import FilterOptions, filter_of
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.replay.release import by_name
from redrive.ops.audit import Actor
from redrive.ops.letters import edit
from redrive.ops.letters.edit import Change, EditResult
from redrive.ops.letters.edit_history import EditHistory, edit_history
from redrive.ops.replay.validation import Validation, validate
from redrive.store.protocol import Store


class LetterValues:
    """The values of dead letters; an edit keeps the original."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def edit(
        self, letter: int, *, actor: str = "api", reason: str | None = None, **change: Unpack[Change]
    ) -> EditResult:
        """Change what a replay of a letter starts with: the whole JSON, a JSON Patch, or back to the original, which is kept."""
        return edit.edit(self._store, letter, Actor(actor, reason), **change)

    def edits(self, letter: int) -> EditHistory:
        """Return the edits of a letter and the original; redacted."""
        return edit_history(self._store, letter)

    def validate(
        self, *, pipelines: Iterable[Pipeline] = (), from_start: bool = False, **which: Unpack[FilterOptions]
    ) -> Validation:
        """Return the obstacles to a replay, letter by letter; changes nothing."""
        known, chosen = by_name(pipelines), filter_of(self._store, which)
        return validate(self._store, chosen, pipelines=known, from_start=from_start)
