# SPDX-License-Identifier: Apache-2.0
"""Dead letters for a program: the same use cases as `redrive dlq`.

Nothing is decided here: each method calls one function of `ops`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Unpack

from redrive.client.awaited import AsyncFace, Face, awaited
from redrive.client.options import ActorOptions, FilterOptions, actor_of, filter_of
from redrive.core.diagnosis import Diagnosis
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.ops.audit import Actor
from redrive.ops.letters import bulk_edit, edit, triage
from redrive.ops.letters.bulk_edit import BulkEdit
from redrive.ops.letters.details import EditHistory, LetterDetails, edit_history, letter_details
from redrive.ops.letters.edit import Change, EditResult
from redrive.ops.letters.exports import export
from redrive.ops.letters.freeze import FrozenSet, freeze
from redrive.ops.letters.groups import LetterGroup, list_groups
from redrive.ops.letters.imports import ImportResult, import_letters
from redrive.ops.letters.pages import Page, list_letters
from redrive.ops.letters.triage import ActResult
from redrive.ops.replay.validation import Validation, validate
from redrive.store.records import Part

STEP: Final = 200
"""Lines of an export that are fetched at once."""


class LetterValues(Face):
    """The values that replays of dead letters start with; an edit keeps the original."""

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
        by = None if dry_run else Actor(actor, reason)
        return bulk_edit.edit_many(self._store, chosen, by, **change)

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
        chosen = filter_of(self._store, which)
        return validate(self._store, chosen, pipelines=pipelines, from_start=from_start)


class Letters(LetterValues):
    """Dead letters. Acts take a frozen set, made by `choose`: what fails later is never part of it."""

    def list(self, *, before: str | None = None, limit: int = 50, **which: Unpack[FilterOptions]) -> Page:
        """Return letters, newest first; the cursor of the page is the `before` of the next one."""
        return list_letters(self._store, filter_of(self._store, which), before=before, limit=limit)

    def groups(self, **which: Unpack[FilterOptions]) -> Sequence[LetterGroup]:
        """Return groups of letters with one fingerprint, the most urgent first."""
        return list_groups(self._store, filter_of(self._store, which)).groups

    def show(self, letter: int) -> LetterDetails:
        """Return one letter in full."""
        return letter_details(self._store, letter)

    def choose(self, **which: Unpack[FilterOptions]) -> FrozenSet:
        """Freeze a set of letters, and count it exactly; changes nothing."""
        return freeze(self._store, filter_of(self._store, which))

    def triage(
        self, chosen: FrozenSet, *, diagnosis: Diagnosis | str, **by: Unpack[ActorOptions]
    ) -> ActResult:
        """Record what is wrong: transient, data, auth_config or code_defect."""
        return triage.triage(self._store, chosen, actor_of(by), diagnosis=diagnosis)

    def remediate(
        self,
        chosen: FrozenSet,
        *,
        evidence: str,
        is_safe: bool,
        diagnosis: Diagnosis | str | None = None,
        **by: Unpack[ActorOptions],
    ) -> ActResult:
        """Record what was done about the cause, and that running again does no harm: then the letters are ready."""
        return triage.remediate(
            self._store, chosen, actor_of(by), evidence=evidence, is_safe=is_safe, diagnosis=diagnosis
        )

    def discard(self, chosen: FrozenSet, **by: Unpack[ActorOptions]) -> ActResult:
        """Decide that nothing is to be done about letters."""
        return triage.discard(self._store, chosen, actor_of(by))

    def restore(self, chosen: FrozenSet, **by: Unpack[ActorOptions]) -> ActResult:
        """Open discarded letters again."""
        return triage.restore(self._store, chosen, actor_of(by))

    def assign(self, chosen: FrozenSet, *, assignee: str | None, **by: Unpack[ActorOptions]) -> ActResult:
        """Set the assignee of letters."""
        return triage.assign(self._store, chosen, actor_of(by), assignee=assignee)

    def note(self, chosen: FrozenSet, *, text: str, **by: Unpack[ActorOptions]) -> ActResult:
        """Add a note about letters."""
        return triage.note(self._store, chosen, actor_of(by), text=text)

    def export(
        self,
        *,
        with_values: bool = False,
        actor: str = "api",
        reason: str | None = None,
        **which: Unpack[FilterOptions],
    ) -> Iterator[bytes]:
        """Return letters as redacted JSON lines, one after the other; an export with values is logged."""
        return export(
            self._store, filter_of(self._store, which), Actor(actor, reason), with_values=with_values
        )

    def import_(self, lines: Iterable[bytes], **by: Unpack[ActorOptions]) -> ImportResult:
        """Import the lines of another installation's export; each letter once."""
        return import_letters(self._store, lines, actor_of(by))


class AsyncLetters(AsyncFace[Letters]):
    """Dead letters for async code; see `Letters`."""

    list = awaited(Letters.list)
    groups = awaited(Letters.groups)
    show = awaited(Letters.show)
    validate = awaited(Letters.validate)
    edit = awaited(Letters.edit)
    edit_many = awaited(Letters.edit_many)
    value = awaited(Letters.value)
    edits = awaited(Letters.edits)
    choose = awaited(Letters.choose)
    triage = awaited(Letters.triage)
    remediate = awaited(Letters.remediate)
    discard = awaited(Letters.discard)
    restore = awaited(Letters.restore)
    assign = awaited(Letters.assign)
    note = awaited(Letters.note)
    import_ = awaited(Letters.import_)

    async def export(
        self,
        *,
        with_values: bool = False,
        actor: str = "api",
        reason: str | None = None,
        **which: Unpack[FilterOptions],
    ) -> AsyncIterator[bytes]:
        """Yield letters as redacted JSON lines: `async for line in rd.letters.export()`."""
        lines = await asyncio.to_thread(
            self.face.export, with_values=with_values, actor=actor, reason=reason, **which
        )
        while some := await asyncio.to_thread(lambda: [*islice(lines, STEP)]):
            for line in some:
                yield line
