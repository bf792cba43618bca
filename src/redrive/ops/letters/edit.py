# SPDX-License-Identifier: Apache-2.0
"""Edits of the value a failed job starts with: its payload, or the input of the stage that failed.

The new value is given whole, by a JSON Patch or by a function. The original is kept; going back to it is one more edit. A replay
starts with the last edit of its part. A letter that was imported without values gets them by an edit. Whatever is shown or logged
is redacted; the raw value is returned only on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypedDict, Unpack, cast

from redrive.core.arguments import one_of
from redrive.core.lifecycle import JobState, LetterState
from redrive.engine.pipeline.codec import Codec, storable
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.replay.filter import FREE
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.dead_letter import MESSAGE_MAX, literals_in
from redrive.errors import ConfigurationError, ReplayRefusedError, SerializationError
from redrive.ops.audit import Actor, Subject, safe_text
from redrive.ops.letters.details import kept_edits
from redrive.ops.letters.document import (
    MARK,
    changed_places,
    difference,
    redacted_json,
    too_deep,
    unknown_fields,
)
from redrive.ops.letters.freeze import check_ids
from redrive.ops.letters.job_values import values_of_job
from redrive.ops.letters.new_value import FLATTER, NEW, EditFunction, bad_json, called, compact, patched
from redrive.ops.suggest import unknown
from redrive.redaction.process import redact
from redrive.store.protocol import Store
from redrive.store.records import INLINE_MAX, Part, Step
from redrive.store.statements import triage as triage_sql

PARTS: Final[tuple[Part, ...]] = ("payload", "input")
_NO_VALUES: Final = "it was imported without values"
_BESIDE: Final = {"payload": 0, "input": 1}
"""The dispatch under which a large value of an imported job is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The preview of an edit: checked, and not stored yet."""

    letter: int
    part: Part
    before: bytes | None
    after: bytes
    diff: str
    """A unified diff of both as indented JSON, redacted; its last line counts the changes that hides, and names their places."""
    unknown_fields: Sequence[str] = ()
    """Places that the type of the stage ignores; only known with the code of the pipeline."""
    is_original: bool = False
    """Whether it goes back to the value before all edits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditResult:
    """A stored edit."""

    id: int
    diff: str
    unknown_fields: Sequence[str] = ()
    """Places that the type of the stage ignores; only known with the code of the pipeline."""


class Change(TypedDict, total=False):
    """The options of an edit: the part (default `input`); value, patch, function or original; the code of the pipeline."""

    part: Part
    value: bytes | None
    patch: bytes | None
    function: EditFunction | None
    original: bool
    pipeline: Pipeline | None


def value_for_edit(store: Store, letter: int, part: Part = "input") -> str:
    """Return a value as it would be replayed now, as indented JSON, redacted; raises like `edit` if it cannot be edited."""
    return redacted_json(_editable(store, letter, part).present or b"null")


def draft(store: Store, letter: int, **change: Unpack[Change]) -> Draft:
    """Check an edit and return what it would change; changes nothing. See `edit`."""
    made = possible_draft(store, letter, **change)
    if made is None:
        part = change.get("part", "input")
        raise ConfigurationError(
            field=f"letter {letter}", value=part, rule="would not change", fix="Change something."
        )
    return made


def possible_draft(
    store: Store,
    letter: int,
    *,
    part: Part = "input",
    value: bytes | None = None,
    patch: bytes | None = None,
    function: EditFunction | None = None,
    original: bool = False,
    pipeline: Pipeline | None = None,
) -> Draft | None:
    """Do the same; None if it would change nothing."""
    values = _editable(store, letter, part)
    ways = (value is not None, patch is not None, function is not None, original)
    if sum(ways) != 1:
        raise ConfigurationError(
            field=f"edit of letter {letter}",
            value="several" if any(ways) else "none",
            rule="takes a whole value, a JSON Patch, a function or the original",
            fix="Give one of them.",
        )
    if original:
        after = _original(store, letter, values, part)
    elif value is not None:
        after = compact(NEW, value)
    elif values.present is None:
        raise _refused(letter, _NO_VALUES, "Give the whole value first.")
    elif function is not None:
        after = called(function, values.present)
    else:
        after = patched(values.present, cast("bytes", patch))
    if not original:
        # Placeholders and depth of the original are its own.
        _check_new(values.present, after)
    if values.present is not None and compact("value", values.present) == after:
        return None
    codec = None if pipeline is None else _checked_by(values, part, after, pipeline)
    return Draft(
        letter=letter,
        part=part,
        before=values.present,
        after=after,
        diff=difference(values.present, after, part),
        unknown_fields=[] if codec is None else unknown_fields(codec, after),
        is_original=original,
    )


def edit(store: Store, letter: int, by: Actor, **change: Unpack[Change]) -> EditResult:
    """Change the value a replay of this letter starts with: `value` is the whole of it as JSON, `patch` a JSON Patch (RFC 6902).

    `function` takes the value as plain JSON and returns the new one. `original` goes back to the value before all edits.
    With the code of its pipeline, the new value must fit the type of its stage.

    Raises:
        SerializationError: it is not JSON, is nested too deep, or does not fit; the problem names the path of the field.
        ConfigurationError: unknown letter, not exactly one of value, patch, function and original, a patch that cannot be
            applied, a function that raises or returns None, a placeholder in the value.
        ReplayRefusedError: the letter is closed or was never edited, its job runs or was erased, or somebody else edited it
            meanwhile.
    """
    return commit(store, draft(store, letter, **change), by)


def commit(store: Store, made: Draft, by: Actor) -> EditResult:
    """Store an edit; refused if the value has changed since the draft was made."""
    values = _editable(store, made.letter, made.part)
    if values.present != made.before:
        raise _refused(made.letter, "somebody else has edited it meanwhile", "Look at it again, then edit.")
    at, actor = CURRENT.get().clock.wall(), storable(by.text)
    add = triage_sql.add_edit(
        letter=made.letter,
        part=made.part,
        before=made.before,
        after=made.after,
        at=at,
        actor=actor,
        erased_at=values.erased_at,
        last_edit=values.edit,
    )
    # Both values are stored in the edit, where erasing finds them; the log is kept for ever, so it gets none of them.
    size = None if made.before is None else len(made.before)
    supply = _supply(values, made) if values.original is None else []
    changed = changed_places(made.before, made.after)
    own = values_of_job(store, values.job, by.reason, changed) | literals_in(made.after)
    after: dict[str, object] = {"bytes": len(made.after), "changed": safe_text(changed, own)}
    after |= {"is_original": True} if made.is_original else {}
    change = {"part": made.part, "before": {"bytes": size}, "after": after}
    log = by.hiding(own).log("edit", Subject("letter", made.letter), letters=1, change=change)
    lock = triage_sql.lock_letter(letter=made.letter)
    answer = store.apply(lock, add.touching(1), *supply, log)
    if answer is None:
        raise _refused(made.letter, "its state has changed meanwhile", "Look at it again, then edit.")
    return EditResult(id=answer[1][0], diff=made.diff, unknown_fields=made.unknown_fields)


def _supply(values: triage_sql.LetterValue, made: Draft) -> list[Step]:
    """Return the steps that give a job without values the one it starts with."""
    job, dispatch = values.job, _BESIDE[made.part]
    is_small = len(made.after) <= INLINE_MAX
    inline = made.after if is_small else None
    if made.part == "payload":
        supply = triage_sql.supply_payload(job=job, payload=inline)
    else:
        supply = triage_sql.supply_input(job=job, input=inline, input_from=0 if is_small else dispatch)
    if is_small:
        return [supply.touching(1)]
    beside = triage_sql.supply_value(job=job, dispatch=dispatch, value=made.after)
    return [beside.touching(1), supply.touching(1)]


def read_letter_value(store: Store, letter: int, part: Part, by: Actor) -> bytes:
    """Return a value as it would be replayed now, as JSON, and log who read it.

    Raises:
        LetterNotFoundError: there is no such letter.
        ReplayRefusedError: its job has not failed, or has no values.
    """
    values = _replayable(store, letter, part)
    if values.present is None:
        raise _refused(letter, _NO_VALUES, "redrive dlq edit gives it one.")
    by = by.hiding(values_of_job(store, values.job, by.reason))
    store.apply(by.log(f"read {part}", Subject("letter", letter)))
    return values.present


def _editable(store: Store, letter: int, part: Part) -> triage_sql.LetterValue:
    """Return the part to edit; raises ReplayRefusedError if it must not be edited."""
    values = _replayable(store, letter, part)
    if values.state == LetterState.DISCARDED:
        raise _refused(letter, "it is discarded", f"redrive dlq restore {letter} brings it back.")
    return values


def _replayable(store: Store, letter: int, part: Part) -> triage_sql.LetterValue:
    """Return a part of a letter that waits or is discarded; raises ReplayRefusedError if a replay can never start with it."""
    one_of("part", part, PARTS)
    check_ids(store, (letter,))
    rows = store.query(triage_sql.letter_values(letter=letter, part=part))
    if not rows:
        raise _refused(letter, "its job was pruned", "There is nothing left to edit.")
    values = rows[0]
    if part == "payload" and values.edited is None and (past := kept_edits(store, values.job, letter, part)):
        # A restart would start with the edit of an earlier round, too.
        values = values._replace(edited=past[-1].after)
    if values.state not in {*FREE, LetterState.DISCARDED} or values.status != JobState.FAILED:
        raise _refused(
            letter,
            f"it is {values.state}, and its job {values.job} is {values.status}",
            "Only the values of a failed job can be read and edited, before it runs again.",
        )
    if values.present is None and not values.may_be_supplied:
        raise _refused(
            letter, f"the values of its job {values.job} were erased", "They cannot be brought back."
        )
    return values


def _original(store: Store, letter: int, values: triage_sql.LetterValue, part: Part) -> bytes:
    """Return a part as it was before its first edit."""
    past = kept_edits(store, values.job, letter, part)
    if not past:
        raise _refused(letter, "it was never edited", "It is the original.")
    if past[0].before is None:
        raise _refused(letter, _NO_VALUES, "There is no original to go back to.")
    return compact("the original", past[0].before)


def _check_new(before: bytes | None, after: bytes) -> None:
    """Refuse what is nested too deep, and placeholders of the redacted view: saving them would overwrite the real values."""
    if (problem := too_deep(after)) is not None:
        raise bad_json(NEW, f"{problem}: {FLATTER}")
    known = set(MARK.findall("" if before is None else before.decode()))
    fresh = [mark for mark in MARK.findall(after.decode()) if mark not in known]
    if fresh:
        raise ConfigurationError(
            field="value",
            value=fresh[0],
            rule="still has a placeholder of the redacted view",
            fix="Write the real value there, use a JSON Patch for the rest, or edit the raw value.",
        )


def _checked_by(values: triage_sql.LetterValue, part: Part, after: bytes, pipeline: Pipeline) -> Codec:
    """Return the codec of the stage a value is for; refuse a value that does not fit."""
    if pipeline.name != values.pipeline:
        raise ConfigurationError(
            field="pipeline",
            value=pipeline.name,
            rule=f"is not the one of this letter, {values.pipeline}",
            fix="Name the code of that pipeline.",
        )
    named = {stage.name: stage.input for stage in pipeline.stages}
    stage = pipeline.stages[0].name if part == "payload" else values.stage
    if stage not in named:
        raise unknown(stage, named, kind="stage", otherwise="The pipeline has no stages.")
    try:
        named[stage].check(after)
    except SerializationError as error:
        # The message often quotes the value, which must stay hidden.
        problem = redact(storable(error.problem), payload=literals_in(after))[:MESSAGE_MAX]
        raise SerializationError(where=f"{pipeline.name}.{stage}", kind=NEW, problem=problem) from None
    return named[stage]


def _refused(letter: int, problem: str, fix: str) -> ReplayRefusedError:
    return ReplayRefusedError(subject=f"letter {letter}", problem=problem, fix=fix)
