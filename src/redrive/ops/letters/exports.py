# SPDX-License-Identifier: Apache-2.0
"""Export of dead letters as JSON lines, for other installations and programs: one line per letter, with its job and history.

Texts are redacted once more. The values of jobs and edits are included only if the code of their pipeline allows it, and only on
request. Reading is in small steps, so a million letters need no more memory than a hundred.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from redrive.core.units import instant
from redrive.engine.pipeline.context import origin_of
from redrive.engine.pipeline.lanes import Installation, installation_of
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.rules import rules_of
from redrive.errors import ConfigurationError
from redrive.ops.audit import Actor, Subject, acts_on, bounds_of_replay, in_order
from redrive.ops.jobs.facts import job_attempts
from redrive.ops.letters.freeze import FrozenSet, freeze, frozen_steps
from redrive.ops.letters.job_values import values_of_set
from redrive.redaction.process import redact, redact_mapping
from redrive.store.protocol import Store
from redrive.store.records import Part
from redrive.store.statements import operations as operation_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.store.statements.letters import DeadLetter
from redrive.store.statements.operations import Operation
from redrive.store.statements.statement import members_of

FORMAT: Final = 1
"""The version of the format; a reader refuses versions it does not know."""
STEP: Final = 200
"""Letters that are in memory at once."""
_NOTHING: Final = msgspec.Raw()


class ExportedLetter(Struct, frozen=True, kw_only=True):
    """A dead letter in a line of an export."""

    id: int
    code: str
    category: str
    is_retryable: bool
    exception: str
    """The Python class."""
    fingerprint: str
    reason: str
    message: str
    last_stack: str
    sanitized_context: dict[str, object]
    first_failure_at: datetime
    last_failure_at: datetime
    round: int = 1
    state: str = "open"
    diagnosis: str | None = None
    evidence: str | None = None
    assignee: str | None = None
    outcome: str | None = None
    is_escalated: bool = False
    error_class: str = ""
    """The stable identifier to group by: the code."""


class ExportedJob(Struct, frozen=True, kw_only=True):
    """The job of a letter in a line of an export."""

    id: int
    pipeline: str
    stage: str
    position: int
    """The place of the stage in its pipeline."""
    created_at: datetime
    status: str = "failed"
    priority: int = 5
    key: str | None = None
    owner: str | None = None
    origin: str | None = None
    """Where it was first submitted, and its id there; with `restarts`, what its idempotency keys are made of."""
    restarts: int = 0


class ExportedEdit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An edit, with both values."""

    part: Part
    after: msgspec.Raw
    at: datetime
    actor: str
    before: msgspec.Raw = _NOTHING
    """Absent if the job was imported without values, and this was the first edit."""


class ExportedValues(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The values of a job; empty ones are absent."""

    payload: msgspec.Raw = _NOTHING
    input: msgspec.Raw = _NOTHING
    """Of the stage that failed; absent while that is the payload."""
    edits: list[ExportedEdit] = []
    """Oldest first; a replay starts with the last one of its part."""


class ExportedLine(Struct, frozen=True, kw_only=True):
    """One line of an export."""

    redrive_export: int
    """The version of the format."""
    origin: str
    """The installation it comes from."""
    letter: ExportedLetter
    job: ExportedJob
    attempts: list[dict[str, object]] = []
    operations: list[dict[str, object]] = []
    values: ExportedValues | None = None


def export(
    store: Store, which: LetterFilter, by: Actor | None = None, *, with_values: bool = False
) -> Iterator[bytes]:
    """Return the letters that match a filter as JSON lines, each with its newline; the set is frozen and checked at once.

    An export with values is in the operator log before the first line is yielded.

    Raises:
        ConfigurationError: values were requested, and the rules of a pipeline do not allow that.
    """
    frozen = freeze(store, which)
    if with_values:
        _check_rules(store, frozen)
        return _logged(store, frozen, by or Actor("api"))
    return _lines(store, frozen, with_values=False)


def _logged(store: Store, frozen: FrozenSet, by: Actor) -> Iterator[bytes]:
    """Yield lines with values; when the first one is taken, the export of all of them is logged, in one transaction."""
    by = by.hiding(values_of_set(store, frozen, by.reason))
    change = {"before": {"values": "kept"}, "after": {"values": "exported"}}
    is_one = frozen.which.ids is not None and len(frozen.which.ids) == 1
    store.apply(
        *(
            by.log("export", frozen.subject, letters=len(ids), change=change, ids=() if is_one else ids)
            for ids in frozen_steps(store, frozen)
        )
    )
    yield from _lines(store, frozen, with_values=True)


def _lines(store: Store, frozen: FrozenSet, *, with_values: bool) -> Iterator[bytes]:
    installation = installation_of(store)
    for ids in frozen_steps(store, frozen, step=STEP):
        with store.reading() as moment:
            rows = moment.query(transfer_sql.exported_letters(ids=ids))
            jobs = {job.letter: job for job in moment.query(transfer_sql.exported_jobs(ids=ids))}
        acts: dict[int, list[Operation]] = {row.id: [] for row in rows}
        # Acts on many letters are read once per step: letter by letter, all of them would be read for each.
        for act in store.query(operation_sql.acts_with_letters(ids=ids, first=ids[0], last=ids[-1])):
            acts.setdefault(act.letter, []).append(msgspec.convert(act, Operation, from_attributes=True))
        bounds = functools.cache(functools.partial(bounds_of_replay, store))
        for row in rows:
            acts[row.id] += [] if row.replay is None else bounds(row.replay)
            line = _line_of(store, installation, row, jobs[row.id], acts[row.id], with_values=with_values)
            yield msgspec.json.encode(line) + b"\n"


def _line_of(
    store: Store,
    here: Installation,
    row: DeadLetter,
    of_job: transfer_sql.JobOfLetter,
    many: list[Operation],
    *,
    with_values: bool,
) -> ExportedLine:
    letter, job = row.id, row.job
    facts = members_of(row) | of_job._asdict()
    facts |= {"fingerprint": row.group, "created_at": instant(of_job.created_at)}
    named = (*acts_on(store, Subject("letter", letter)), *acts_on(store, Subject("job", job)))
    acts = in_order([*named, *many])
    safe = _redacted({**facts, "key": None, "owner": None})
    safe |= {"key": unchanged(row.key), "owner": unchanged(row.owner)}
    safe["origin"] = of_job.origin or origin_of(job, here.ids)
    values = _values_of(store, job, letter) if with_values and of_job.erased_at is None else None
    return ExportedLine(
        redrive_export=FORMAT,
        origin=here.ids[0][0],
        letter=msgspec.convert(safe, ExportedLetter, strict=False),
        job=msgspec.convert({**safe, "id": job}, ExportedJob, strict=False),
        attempts=[_redacted(each) for each in msgspec.to_builtins(job_attempts(store, job))],
        operations=[_redacted(each) for each in msgspec.to_builtins(acts)],
        values=values,
    )


def unchanged(text: str | None) -> str | None:
    """Return a name that redaction does not change, else None: half a name would be taken for a whole one."""
    return text if text is not None and redact(text) == text else None


def _values_of(store: Store, job: int, letter: int) -> ExportedValues:
    ((payload, given),) = store.query(transfer_sql.exported_values(job=job))
    edits = [
        ExportedEdit(
            part=row.part,
            before=_raw(row.before),
            after=_raw(row.after),
            at=instant(row.at),
            actor=redact(row.actor),
        )
        for row in store.query(transfer_sql.exported_edits(job=job, letter=letter))
    ]
    return ExportedValues(payload=_raw(payload), input=_raw(given), edits=edits)


def _raw(value: bytes | None) -> msgspec.Raw:
    return _NOTHING if value is None else msgspec.Raw(value)


def _redacted(facts: dict[str, object]) -> dict[str, object]:
    """Return facts with their texts redacted. Numbers and times are redrive's own, and redacting them would cost a lot."""
    texts: dict[str, object] = {
        name: fact
        for name, fact in facts.items()
        if isinstance(fact, str | dict | list) and not name.endswith("_at")
    }
    return {**facts, **redact_mapping(texts)}


def _check_rules(store: Store, frozen: FrozenSet) -> None:
    """Refuse an export with values unless the rules of every pipeline allow it."""
    for ids in frozen_steps(store, frozen):
        for pipeline in store.query(transfer_sql.pipelines_of_letters(ids=ids)):
            if rules_of(store, pipeline).export != "include":
                raise ConfigurationError(
                    field=f"ReplayRules.export of {pipeline}",
                    value="redacted",
                    rule="does not allow an export of the values of its jobs",
                    fix='Export without values, or set Pipeline(..., replay=ReplayRules(export="include")) in its code.',
                )
