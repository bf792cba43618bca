# SPDX-License-Identifier: Apache-2.0
"""What a program does about dead letters and replays: the use cases of operators, gathered behind a connection.

The commands of the command line are the same functions. Who acts is `actor`, and `reason` says why; both go into the operator log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypedDict, Unpack

from redrive.core.diagnosis import Diagnosis
from redrive.core.replay import CANARY, plan_of
from redrive.engine.job import Job
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.release import by_name
from redrive.ops.audit import Actor
from redrive.ops.jobs import erase
from redrive.ops.jobs.retry import retry_job
from redrive.ops.letters import edit, triage
from redrive.ops.letters.details import LetterDetails, letter_details
from redrive.ops.letters.edit import Edited
from redrive.ops.letters.edit_history import EditHistory, Part, edit_history
from redrive.ops.letters.exports import export
from redrive.ops.letters.freeze import FrozenSet, freeze
from redrive.ops.letters.groups import LetterGroup, list_groups, resolve_group
from redrive.ops.letters.imports import Imported, import_letters
from redrive.ops.letters.pages import Page, list_letters
from redrive.ops.letters.triage import ActResult
from redrive.ops.replay import replays
from redrive.ops.replay.progress import ReplayReport, report_of
from redrive.ops.replay.validation import Validation, validate
from redrive.ops.suggest import unknown
from redrive.store.protocol import Store


class Which(TypedDict, total=False):
    """Which dead letters are meant; what is left out does not matter."""

    pipeline: str
    stage: str
    code: str
    category: str
    group: str
    state: str
    owner: str
    key: str
    since: datetime
    until: datetime
    ids: Sequence[int]


class Doing(TypedDict, total=False):
    """Who acts, and why."""

    actor: str
    reason: str | None


class DeadLetters:
    """What failed for good. Acts take a frozen set, made by `choose`: what fails later is never part of it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self, *, before: str | None = None, limit: int = 50, **which: Unpack[Which]) -> Page:
        """Return letters, newest first; the cursor of the page is the `before` of the next one."""
        return list_letters(self._store, self._filter(which), before=before, limit=limit)

    def groups(self, **which: Unpack[Which]) -> Sequence[LetterGroup]:
        """Return the causes: letters with one fingerprint, the most urgent group first."""
        return list_groups(self._store, self._filter(which))

    def show(self, letter: int) -> LetterDetails:
        """Return everything that is known about one letter."""
        return letter_details(self._store, letter)

    def choose(self, **which: Unpack[Which]) -> FrozenSet:
        """Freeze a set of letters, and count it exactly; changes nothing."""
        return freeze(self._store, self._filter(which))

    def triage(self, chosen: FrozenSet, *, diagnosis: Diagnosis | str, **doing: Unpack[Doing]) -> ActResult:
        """Record what is wrong: transient, data, auth_config or code_defect."""
        return triage.triage(self._store, chosen, _by(doing), diagnosis=diagnosis)

    def remediate(
        self,
        chosen: FrozenSet,
        *,
        evidence: str,
        is_safe: bool,
        diagnosis: Diagnosis | str | None = None,
        **doing: Unpack[Doing],
    ) -> ActResult:
        """Record what was done about the cause, and that running again does no harm: then the letters are ready."""
        return triage.remediate(
            self._store, chosen, _by(doing), evidence=evidence, is_safe=is_safe, diagnosis=diagnosis
        )

    def discard(self, chosen: FrozenSet, **doing: Unpack[Doing]) -> ActResult:
        """Decide that nothing is to be done about letters."""
        return triage.discard(self._store, chosen, _by(doing))

    def restore(self, chosen: FrozenSet, **doing: Unpack[Doing]) -> ActResult:
        """Open discarded letters again."""
        return triage.restore(self._store, chosen, _by(doing))

    def assign(self, chosen: FrozenSet, *, assignee: str | None, **doing: Unpack[Doing]) -> ActResult:
        """Say who looks after letters."""
        return triage.assign(self._store, chosen, _by(doing), assignee=assignee)

    def note(self, chosen: FrozenSet, *, text: str, **doing: Unpack[Doing]) -> ActResult:
        """Write something down about letters."""
        return triage.note(self._store, chosen, _by(doing), text=text)

    def export(
        self,
        *,
        with_values: bool = False,
        actor: str = "api",
        reason: str | None = None,
        **which: Unpack[Which],
    ) -> Iterator[bytes]:
        """Return letters as redacted JSON lines, one after the other; that values leave is on record."""
        return export(self._store, self._filter(which), Actor(actor, reason), with_values=with_values)

    def take_in(self, lines: Iterable[bytes], **doing: Unpack[Doing]) -> Imported:
        """Take in the lines of another installation's export; each letter once."""
        return import_letters(self._store, lines, _by(doing))

    def _filter(self, which: Which) -> LetterFilter:
        return filter_of(self._store, which)


class Replays:
    """The way back for what failed: one job, or many in a replay that workers drive."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def retry(
        self,
        job: int,
        *,
        from_start: bool = False,
        owner: str | None = None,
        pipelines: Iterable[Pipeline] = (),
        **doing: Unpack[Doing],
    ) -> Job:
        """Send a failed job back to the stage that failed; `owner` acts for somebody who may touch only their own jobs.

        With the code of its pipeline in `pipelines`, the value it starts with is checked against the present types first.
        """
        known = by_name(pipelines)
        return retry_job(self._store, job, _by(doing), from_start=from_start, owner=owner, pipelines=known)

    def validate(
        self, *, pipelines: Iterable[Pipeline] = (), from_start: bool = False, **which: Unpack[Which]
    ) -> Validation:
        """Say what a replay would meet; changes nothing."""
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
        **which: Unpack[Which],
    ) -> ReplayReport:
        """Begin to replay the letters that are there now: the canaries first, no faster than `rate` per second."""
        plan = plan_of(tuple(canary), rate, from_start=from_start)
        chosen = filter_of(self._store, which)
        return self.report(replays.start(self._store, chosen, Actor(actor, reason), plan=plan).id)

    def report(self, replay: int) -> ReplayReport:
        """Return how a replay stands, and what it came to."""
        return report_of(self._store, replay)

    def list(self, *, pipeline: str | None = None, limit: int = 50) -> Sequence[ReplayReport]:
        """Return replays, newest first."""
        found = replays.list_replays(self._store, pipeline=pipeline, limit=limit)
        return [self.report(each.id) for each in found]

    def pause(self, replay: int, **doing: Unpack[Doing]) -> ReplayReport:
        """Release nothing more until it is resumed."""
        return self.report(replays.pause(self._store, replay, _by(doing)).id)

    def resume(self, replay: int, **doing: Unpack[Doing]) -> ReplayReport:
        """Go on with a replay that was paused or stopped itself."""
        return self.report(replays.resume(self._store, replay, _by(doing)).id)

    def cancel(self, replay: int, **doing: Unpack[Doing]) -> ReplayReport:
        """End a replay; letters that were not released are free again."""
        return self.report(replays.cancel(self._store, replay, _by(doing)).id)

    def close(self, replay: int, *, note: str, **doing: Unpack[Doing]) -> ReplayReport:
        """Close a replay that has ended, with a note on how it was resolved."""
        return self.report(replays.close(self._store, replay, _by(doing), note=note).id)

    def edit(
        self,
        letter: int,
        *,
        part: Part = "input",
        value: bytes | None = None,
        patch: bytes | None = None,
        original: bool = False,
        pipeline: Pipeline | None = None,
        **doing: Unpack[Doing],
    ) -> Edited:
        """Change what a replay of a letter starts with: the whole JSON, a JSON Patch, or back to the original, which is kept."""
        change: edit.Change = {
            "part": part,
            "value": value,
            "patch": patch,
            "original": original,
            "pipeline": pipeline,
        }
        return edit.edit(self._store, letter, _by(doing), **change)

    def edits(self, letter: int) -> EditHistory:
        """Return what was edited of a letter, by whom and when, and what it was before; redacted."""
        return edit_history(self._store, letter)

    def erase(self, job: int, **doing: Unpack[Doing]) -> None:
        """Wipe the values of a job that has ended; the record stays, and it can never be replayed."""
        erase.erase(self._store, job, _by(doing))


def filter_of(store: Store, which: Which) -> LetterFilter:
    """Return what keyword arguments mean; the beginning of a fingerprint becomes the whole.

    Raises:
        ConfigurationError: a name that is none of a filter: left out of it, it would mean all letters.
    """
    _check_names(which, Which)
    since, until, ids, group = which.get("since"), which.get("until"), which.get("ids"), which.get("group")
    return LetterFilter(
        pipeline=which.get("pipeline"),
        stage=which.get("stage"),
        code=which.get("code"),
        category=which.get("category"),
        group=None if group is None else resolve_group(store, group),
        state=which.get("state"),
        owner=which.get("owner"),
        key=which.get("key"),
        since=None if since is None else since.timestamp(),
        until=None if until is None else until.timestamp(),
        ids=None if ids is None else tuple(ids),
    )


def _check_names(given: Mapping[str, object], known: type[Which | Doing]) -> None:
    """Refuse keyword arguments that mean nothing."""
    for name in given:
        if name not in known.__annotations__:
            raise unknown(name, known.__annotations__, kind="argument", otherwise="")


def _by(doing: Doing) -> Actor:
    _check_names(doing, Doing)
    return Actor(doing.get("actor", "api"), doing.get("reason"))
