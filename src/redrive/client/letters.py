# SPDX-License-Identifier: Apache-2.0
"""Dead letters for a program: the same use cases as `redrive dlq`. `actor` and `reason` go into the operator log.

Nothing is decided here: each method calls one function of `ops`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, TypedDict, Unpack

from redrive.client.awaited import AsyncFace, awaited
from redrive.core.arguments import one_of
from redrive.core.diagnosis import Diagnosis
from redrive.core.failure import Category
from redrive.engine.replay.filter import STATES, LetterFilter
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError
from redrive.ops.audit import Actor
from redrive.ops.letters import triage
from redrive.ops.letters.details import LetterDetails, letter_details
from redrive.ops.letters.exports import export
from redrive.ops.letters.freeze import FrozenSet, check_code, freeze
from redrive.ops.letters.groups import LetterGroup, list_groups, resolve_group
from redrive.ops.letters.imports import ImportResult, import_letters
from redrive.ops.letters.pages import Page, list_letters
from redrive.ops.letters.triage import ActResult
from redrive.ops.suggest import unknown
from redrive.store.protocol import Store

STEP: Final = 200
"""Lines of an export that are fetched at once."""


class FilterOptions(TypedDict, total=False):
    """A filter over dead letters, as keyword arguments; what is left out matches all."""

    pipeline: str
    stage: str
    code: str
    category: str
    group: str
    state: str
    owner: str
    key: str
    since: datetime | timedelta
    until: datetime | timedelta
    ids: Sequence[int]
    escalated: bool
    assignee: str


class ActorOptions(TypedDict, total=False):
    """Who acts, and why."""

    actor: str
    reason: str | None


class DeadLetters:
    """Dead letters. Acts take a frozen set, made by `choose`: what fails later is never part of it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self, *, before: str | None = None, limit: int = 50, **which: Unpack[FilterOptions]) -> Page:
        """Return letters, newest first; the cursor of the page is the `before` of the next one."""
        return list_letters(self._store, self._filter(which), before=before, limit=limit)

    def groups(self, **which: Unpack[FilterOptions]) -> Sequence[LetterGroup]:
        """Return groups of letters with one fingerprint, the most urgent first."""
        return list_groups(self._store, self._filter(which)).groups

    def show(self, letter: int) -> LetterDetails:
        """Return one letter in full."""
        return letter_details(self._store, letter)

    def choose(self, **which: Unpack[FilterOptions]) -> FrozenSet:
        """Freeze a set of letters, and count it exactly; changes nothing."""
        return freeze(self._store, self._filter(which))

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
        return export(self._store, self._filter(which), Actor(actor, reason), with_values=with_values)

    def take_in(self, lines: Iterable[bytes], **by: Unpack[ActorOptions]) -> ImportResult:
        """Import the lines of another installation's export; each letter once."""
        return import_letters(self._store, lines, actor_of(by))

    def _filter(self, which: FilterOptions) -> LetterFilter:
        return filter_of(self._store, which)


class AsyncDeadLetters(AsyncFace[DeadLetters]):
    """Dead letters for async code; see `DeadLetters`."""

    list = awaited(DeadLetters.list)
    groups = awaited(DeadLetters.groups)
    show = awaited(DeadLetters.show)
    choose = awaited(DeadLetters.choose)
    triage = awaited(DeadLetters.triage)
    remediate = awaited(DeadLetters.remediate)
    discard = awaited(DeadLetters.discard)
    restore = awaited(DeadLetters.restore)
    assign = awaited(DeadLetters.assign)
    note = awaited(DeadLetters.note)
    take_in = awaited(DeadLetters.take_in)

    async def export(
        self,
        *,
        with_values: bool = False,
        actor: str = "api",
        reason: str | None = None,
        **which: Unpack[FilterOptions],
    ) -> AsyncIterator[bytes]:
        """Yield letters as redacted JSON lines: `async for line in rd.dead_letters.export()`."""
        lines = await asyncio.to_thread(
            self.face.export, with_values=with_values, actor=actor, reason=reason, **which
        )
        while some := await asyncio.to_thread(lambda: [*islice(lines, STEP)]):
            for line in some:
                yield line


def filter_of(store: Store, which: FilterOptions) -> LetterFilter:
    """Return the filter from keyword arguments; a prefix of a fingerprint becomes the whole.

    Raises:
        ConfigurationError: an unknown name, state, category or code: ignored, it would match all letters, or none.
    """
    _check_names(which, FilterOptions)
    ids, group = which.get("ids"), which.get("group")
    state, category = which.get("state"), which.get("category")
    if (code := which.get("code")) is not None:
        check_code(store, code, may_be_new=True)
    return LetterFilter(
        pipeline=which.get("pipeline"),
        stage=which.get("stage"),
        code=code,
        category=None if category is None else one_of("category", category, tuple(Category)),
        group=None if group is None else resolve_group(store, group),
        state=None if state is None else one_of("state", state, STATES),
        owner=which.get("owner"),
        key=which.get("key"),
        since=_instant("since", which.get("since")),
        until=_instant("until", which.get("until")),
        ids=None if ids is None else tuple(ids),
        escalated=True if which.get("escalated") else None,
        assignee=which.get("assignee"),
    )


def _instant(field: str, value: object) -> float | None:
    """Return an instant in seconds since the epoch: a datetime, or a timedelta before now; refuse anything else."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        return CURRENT.get().clock.wall() - value.total_seconds()
    if not isinstance(value, datetime):
        raise ConfigurationError(
            field=field,
            value=value,
            rule="must be a datetime, or a timedelta before now",
            fix="timedelta(hours=2), for example.",
        )
    return value.timestamp()


def _check_names(given: Mapping[str, object], known: type[FilterOptions | ActorOptions]) -> None:
    """Refuse unknown keyword arguments."""
    for name in given:
        if name not in known.__annotations__:
            raise unknown(name, known.__annotations__, kind="argument", otherwise="")


def actor_of(by: ActorOptions) -> Actor:
    """Return who acts, and why; raises ConfigurationError for an unknown argument."""
    _check_names(by, ActorOptions)
    return Actor(by.get("actor", "api"), by.get("reason"))
