# SPDX-License-Identifier: Apache-2.0
"""Import of dead letters from another installation's export, to be inspected and replayed here.

Nothing in a line is trusted: texts are redacted again and cut, names and instants are checked, and a wrong line is refused by its
number while the rest continues. A letter is imported once, however often its line comes. One without values counts as erased until
an edit supplies them. Attempts made elsewhere are kept for display, and not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

import msgspec

from redrive.core.decide import Reason, Recorded
from redrive.core.failure import Category
from redrive.engine.pipeline.codec import storable
from redrive.engine.pipeline.stage import check_name
from redrive.engine.pipeline.submission import PAYLOAD_MAX, check_text
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.dead_letter import MESSAGE_MAX, STACK_MAX, literals_in
from redrive.errors import ConfigurationError, StoreRefusedError
from redrive.ops.audit import Actor, Subject
from redrive.ops.letters.document import deeper, too_deep
from redrive.ops.letters.exports import FORMAT, ExportedEdit, ExportedLine, unchanged
from redrive.ops.suggest import LAST_ID
from redrive.redaction.process import redact, redact_mapping, redact_start
from redrive.store.protocol import Store
from redrive.store.records import INLINE_MAX, Step
from redrive.store.statements import transfer as transfer_sql
from redrive.store.statements import triage as triage_sql

STEP: Final = 200
"""Letters per transaction."""
LINE_MAX: Final = 64 * 1024 * 1024
"""Bytes of a line."""
READ_MAX: Final = 2 * STACK_MAX
"""Characters of a text that are read; of what is longer, a part is kept anyway."""
CONTEXT_MAX: Final = 65_536
AHEAD_MAX: Final = 86_400.0
"""Seconds by which instants may lie in the future: clocks differ, but not by days."""
ACTOR_MAX: Final = 200
_FINGERPRINT: Final = re.compile(r"v\d{1,3}:[0-9a-f]{8,128}")
_ORIGIN: Final = re.compile(r"[0-9a-f]{16}")
_JOB_ORIGIN: Final = re.compile(r"[0-9a-f]{16}-[1-9][0-9]{0,18}")
_OTHERWISE: Final = "export it without its values, then supply one here with redrive dlq edit"
_OVER: Final = frozenset({"replaying", "resolved", "returned"})
_WORD: Final = re.compile(r"[\w.:-]{1,200}")
ATTEMPTS_MAX: Final = 100
"""Attempts that are kept of one job: the last ones."""
WORD_MAX: Final = 200
_TEXTS: Final = {
    **dict.fromkeys(("stage", "code", "reason"), WORD_MAX),
    **dict.fromkeys(("message", "sentence"), MESSAGE_MAX),
}
_OLD_REASONS: Final = {
    "told_delay": Reason.RETRY_AFTER,
    "cancelled on request": Reason.REQUESTED,
    "the worker died": Reason.WORKER_LOST,
    "the worker was stopped while it ran": Reason.WORKER_STOPPED,
    "the process it shared died": Reason.PROCESS_LOST,
    "the process it ran in alone died": Reason.OWN_PROCESS_LOST,
}
"""Reasons in exports that were made before decisions were values."""
_ENDED: Final = frozenset({*_OLD_REASONS.values(), Reason.OVERRAN} - {Reason.RETRY_AFTER})


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an attempt that is imported."""

    dispatch: int
    stage: str
    round: int
    attempt: int
    outcome: Literal["ok", "retry", "hold", "dead", "crashed", "cancelled", "skipped"]
    started_at: datetime
    ended_at: datetime
    code: str | None = None
    message: str | None = None
    http_status: int | None = None
    reason: str | None = None
    sentence: str | None = None
    decision: dict[str, object] | None = None


@dataclass(slots=True, kw_only=True)
class ImportResult:
    """The result of an import."""

    made: int = 0
    known: int = 0
    """Letters that were here already."""
    over: dict[str, int] = field(default_factory=dict[str, int])
    """Letters with nothing to replay, by their state where they come from: replaying, resolved or returned."""
    refused: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Wrong lines: their numbers, and why."""

    @property
    def lines(self) -> int:
        """How many lines there were."""
        return self.made + self.known + sum(self.over.values()) + len(self.refused)


class _WrongLineError(ValueError):
    """A line cannot be imported."""

    def __init__(self, *, why: str) -> None:
        super().__init__(why)


def import_letters(store: Store, lines: Iterable[bytes], by: Actor) -> ImportResult:
    """Make a failed job and an open letter for every line of an export that is not here yet.

    A few hundred lines are one transaction, with its line of the operator log; stopping in the middle leaves whole ones behind, and
    the same lines again import the rest. Letters whose replay has ended where they come from are skipped, and counted by state.
    """
    imported = ImportResult()
    waiting: dict[tuple[str, int], tuple[int, ExportedLine]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            read = _read(line)
        except _WrongLineError as error:
            imported.refused.append((number, redact(storable(str(error)))[:MESSAGE_MAX]))
            continue
        mark = (read.origin, read.letter.id)
        if (state := read.letter.state) in _OVER:
            imported.over[state] = imported.over.get(state, 0) + 1
        elif mark in waiting:
            imported.known += 1
        else:
            waiting[mark] = (number, read)
        if len(waiting) >= STEP:
            _import(store, list(waiting.values()), by, imported=imported)
            waiting.clear()
    if waiting:
        _import(store, list(waiting.values()), by, imported=imported)
    return imported


def _import(
    store: Store, read: Sequence[tuple[int, ExportedLine]], by: Actor, *, imported: ImportResult
) -> None:
    """Import what is not here yet, all at once; if the store refuses, one by one."""
    fresh = [(number, line) for number, line in read if not _is_known(store, line)]
    imported.known += len(read) - len(fresh)
    problem = _refusal(store, [line for _, line in fresh], by) if fresh else None
    if problem is None:
        imported.made += len(fresh)
    elif len(fresh) > 1:
        for one in fresh:
            _import(store, [one], by, imported=imported)
    elif _is_known(store, fresh[0][1]):
        # Somebody else has imported it just now.
        imported.known += 1
    else:
        imported.refused.append((fresh[0][0], problem))


def _refusal(store: Store, fresh: Sequence[ExportedLine], by: Actor) -> str | None:
    """Store letters in one transaction; return why the store refused them, None if it did not."""
    origins = " ".join(sorted({line.origin for line in fresh}))
    log = by.log(
        "import",
        Subject("origin", origins),
        letters=len(fresh),
        change={"before": {}, "after": {"state": "open"}},
    )
    try:
        answer = store.apply(*(step for line in fresh for step in _steps_of(line, by)), log)
    except StoreRefusedError as error:
        return f"the store refused it: {error.cause}"
    return "the store refused it: a part of it did not fit" if answer is None else None


def _is_known(store: Store, line: ExportedLine) -> bool:
    """Return whether a letter was imported before, or was exported from here and still exists."""
    letter = [line.letter.id]
    if _is_from_here(store, line) and store.query(triage_sql.existing_letters(ids=letter)):
        return True
    return bool(store.query(transfer_sql.known_imports(origin=line.origin, ids=letter)))


def _is_from_here(store: Store, line: ExportedLine) -> bool:
    """Return whether a letter was written here, or in the database of which this is a copy, before the copy was made."""
    end = LAST_ID
    for installation in store.query(transfer_sql.installations()):
        if line.origin == installation.id:
            return installation.first_letter <= line.letter.id < end
        end = installation.first_letter
    return False


def _read(line: bytes) -> ExportedLine:
    """Return a line decoded and checked; raises _WrongLineError."""
    if len(line) > LINE_MAX:
        raise _WrongLineError(why=f"it has {len(line):,} bytes; {LINE_MAX:,} is the most")
    try:
        read = msgspec.json.decode(line, type=ExportedLine)
    except RecursionError:
        raise _WrongLineError(why=f"it is not a line of an export: {deeper(line)}: {_OTHERWISE}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _WrongLineError(why=f"it is not a line of an export: {error}") from None
    if read.redrive_export != FORMAT:
        raise _WrongLineError(why=f"its format is {read.redrive_export}, and this redrive reads {FORMAT}")
    try:
        check_name("job.pipeline", read.job.pipeline)
        check_name("job.stage", read.job.stage)
        check_text("job.key", read.job.key or None)
        check_text("job.owner", read.job.owner or None)
    except ConfigurationError as error:
        raise _WrongLineError(why=str(error)) from None
    for name, value in _values_in(read):
        if len(value) > PAYLOAD_MAX:
            raise _WrongLineError(why=f"{name}: it has {len(value):,} bytes; {PAYLOAD_MAX:,} is the most")
        if (problem := too_deep(value)) is not None:
            raise _WrongLineError(why=f"{name}: {problem}: {_OTHERWISE}")
    for name, is_right in _rules(read).items():
        if not is_right:
            raise _WrongLineError(why=f"{name} is not valid")
    if (problem := _attempts_problem(read.attempts)) is not None:
        raise _WrongLineError(why=problem)
    return read


def _values_in(read: ExportedLine) -> Iterator[tuple[str, bytes]]:
    """Yield the values in a line, with their places."""
    if read.values is None:
        return
    yield "values.payload", bytes(read.values.payload)
    yield "values.input", bytes(read.values.input)
    for place, edit in enumerate(read.values.edits):
        yield f"values.edits[{place}].before", bytes(edit.before)
        yield f"values.edits[{place}].after", bytes(edit.after)


def _rules(read: ExportedLine) -> dict[str, bool]:
    """Return the checks of a line beyond its types."""
    letter, job = read.letter, read.job
    return {
        "origin": _ORIGIN.fullmatch(read.origin) is not None,
        "letter.id": 0 < letter.id < LAST_ID,
        "job.id": 0 < job.id < LAST_ID,
        "letter.fingerprint": _FINGERPRINT.fullmatch(letter.fingerprint) is not None,
        "letter.code": _WORD.fullmatch(letter.code) is not None,
        "letter.category": letter.category in set(Category),
        "letter.first_failure_at": _is_past(letter.first_failure_at),
        "letter.last_failure_at": _is_past(letter.last_failure_at),
        "job.created_at": _is_past(job.created_at),
        "values": read.values is None or (_is_json(read.values.payload) and _is_json(read.values.input)),
        "values.edits": read.values is None or all(map(_is_edit, read.values.edits)),
        "job.origin": job.origin is None or _JOB_ORIGIN.fullmatch(job.origin) is not None,
        "job.restarts": 0 <= job.restarts < 1_000_000,
        "job.priority": 0 <= job.priority <= 9,
        "job.position": 0 <= job.position < 10_000,
    }


def _is_past(at: datetime) -> bool:
    """Return whether an instant is plausible: after the epoch, and not in the future."""
    return at.tzinfo is not None and 0 <= at.timestamp() <= CURRENT.get().clock.wall() + AHEAD_MAX


def _steps_of(line: ExportedLine, by: Actor) -> list[Step]:
    """Return the steps that add a failed job and its open letter."""
    letter, job, values = line.letter, line.job, line.values
    payload = None if values is None else _value(values.payload)
    given = None if values is None else _value(values.input)
    edits = [] if values is None else [_edit_row(each) for each in values.edits]
    literals: dict[str, str] = {}
    for value in (payload, given, *(value for edit in edits for value in (edit.before, edit.after))):
        literals |= {} if value is None else literals_in(value)
    attempts = [_kept_attempt(each, literals) for each in line.attempts[-ATTEMPTS_MAX:]]
    mark = transfer_sql.ImportMark(line.origin, letter.id)
    now = CURRENT.get().clock.wall()
    message = _clean(letter.message, MESSAGE_MAX, literals)
    failed_at, exception = letter.last_failure_at.timestamp(), _clean(letter.exception, 200, literals)
    first_at = min(letter.first_failure_at.timestamp(), failed_at)
    return [
        *_job_steps(line, payload, given, now),
        transfer_sql.import_mark(
            mark=mark,
            now=now,
            actor=redact(storable(by.text)),
            job=job.id,
            attempts=msgspec.json.encode(attempts).decode(),
        ).touching(1),
        transfer_sql.import_failure(
            mark=mark, code=letter.code, message=message, failed_at=failed_at
        ).touching(1),
        *(
            transfer_sql.import_value(mark=mark, dispatch=dispatch, value=value).touching(1)
            for dispatch, value in ((0, payload), (1, given))
            if value is not None and len(value) > INLINE_MAX
        ),
        transfer_sql.import_group(
            pipeline=job.pipeline,
            stage=job.stage,
            fingerprint=letter.fingerprint,
            code=letter.code,
            category=letter.category,
            exception=exception,
            first_at=first_at,
            last_at=failed_at,
        ),
        transfer_sql.import_letter(
            mark=mark, fingerprint=letter.fingerprint, first_at=first_at, failed_at=failed_at
        ).touching(1),
        transfer_sql.import_facts(
            code=letter.code,
            category=letter.category,
            is_retryable=letter.is_retryable,
            exception=exception,
            reason=_clean(letter.reason, MESSAGE_MAX, literals),
            message=message,
            context=_context(line, literals),
            stack=_clean(letter.last_stack, STACK_MAX, literals),
        ).touching(1),
        transfer_sql.import_notices(mark=mark),
        *(transfer_sql.import_edit(mark=mark, edit=edit).touching(1) for edit in edits),
    ]


def _job_steps(line: ExportedLine, payload: bytes | None, given: bytes | None, now: float) -> list[Step]:
    """Return the steps that add the job of a letter, in its lane."""
    job = line.job
    key, owner = (unchanged(storable(each)) if each else None for each in (job.key, job.owner))
    return [
        transfer_sql.import_lane(pipeline=job.pipeline, stage=job.stage, position=job.position),
        transfer_sql.import_job(
            pipeline=job.pipeline,
            stage=job.stage,
            priority=job.priority,
            run_at=now,
            key=key,
            owner=owner,
            payload=_inline(payload),
            input=_inline(given),
            input_from=int(given is not None and len(given) > INLINE_MAX),
            created_at=job.created_at.timestamp(),
            erased_at=now if payload is None and given is None else None,
            origin=job.origin or f"{line.origin}-{job.id}",
            restarts=job.restarts,
        ).touching(1),
    ]


def _clean(given: str, most: int, literals: dict[str, str]) -> str:
    """Return a text redacted, then cut: half a secret would not be found."""
    return redact_start(given[:READ_MAX], literals, read=READ_MAX - 1, prepare=storable)[:most]


def _value(raw: msgspec.Raw) -> bytes | None:
    """Return a value as it is stored, without blanks; None if there is none."""
    given = bytes(raw)
    return msgspec.json.format(given, indent=-1) if given else None


def _is_json(raw: msgspec.Raw) -> bool:
    """Return whether a value can be decoded: reading the line has skipped it."""
    try:
        msgspec.json.decode(bytes(raw) or b"null")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _is_edit(edit: ExportedEdit) -> bool:
    return bool(bytes(edit.after)) and _is_json(edit.after) and _is_json(edit.before) and _is_past(edit.at)


def _edit_row(edit: ExportedEdit) -> transfer_sql.ImportedEdit:
    """Return the row of an edit; the actor is redacted again, and cut."""
    actor = redact(storable(edit.actor))[:ACTOR_MAX]
    before, after = _value(edit.before), _value(edit.after)
    return transfer_sql.ImportedEdit(edit.part, before, after, edit.at.timestamp(), actor)


def _inline(value: bytes | None) -> bytes | None:
    return value if value is not None and len(value) <= INLINE_MAX else None


def _context(line: ExportedLine, literals: dict[str, str]) -> bytes:
    """Return the context of a letter, with its origin."""
    source = {
        "origin": line.origin,
        "letter": line.letter.id,
        "job": line.job.id,
        "round": line.letter.round,
        "attempts": len(line.attempts),
    }
    given = line.letter.sanitized_context
    if len(msgspec.json.encode(given)) > CONTEXT_MAX:
        given = {}
    context = redact_mapping(given, payload=literals)
    encoded = msgspec.json.encode({**context, "imported": source})
    return encoded if len(encoded) <= CONTEXT_MAX else msgspec.json.encode({"imported": source})


def _attempts_problem(attempts: Sequence[dict[str, object]]) -> str | None:
    """Return what is wrong with the attempts of a line; None if nothing is."""
    for place, given in enumerate(attempts):
        try:
            read = msgspec.convert(given, _Attempt)
        except msgspec.ValidationError as error:
            return f"attempts[{place}]: {error}"
        if not (_is_past(read.started_at) and _is_past(read.ended_at)):
            return f"attempts[{place}]: its instants are not valid"
    return None


def _kept_attempt(given: dict[str, object], literals: dict[str, str]) -> dict[str, object]:
    """Return an attempt of a valid line as it is stored."""
    read = msgspec.convert(given, _Attempt)
    kept: dict[str, object] = msgspec.structs.asdict(read)
    for name, most in _TEXTS.items():
        text = kept[name]
        kept[name] = _clean(text, most, literals) if isinstance(text, str) else None
    reason = kept["reason"] = _OLD_REASONS.get(read.reason or "", kept["reason"])
    decision = read.decision
    if decision is None and reason is not None:
        is_ended = read.sentence is None and reason in _ENDED
        decision = {"kind": "ended" if is_ended else "old", "reason": reason, "text": read.sentence}
    kept["decision"] = None if decision is None else _kept_decision(decision, literals)
    start, end = read.started_at.timestamp(), read.ended_at.timestamp()
    return kept | {"started_at": start, "ended_at": end, "duration": max(end - start, 0.0)}


def _kept_decision(given: dict[str, object], literals: dict[str, str]) -> object:
    """Return a decision with its texts cleaned; None for one that this version cannot read."""
    most = {"text": MESSAGE_MAX}
    cleaned = {
        name: _clean(text, most.get(name, WORD_MAX), literals) if isinstance(text, str) else text
        for name, text in given.items()
    }
    if isinstance(reason := cleaned.get("reason"), str):
        cleaned["reason"] = _OLD_REASONS.get(reason, reason)
    try:
        return msgspec.to_builtins(msgspec.convert(cleaned, Recorded))
    except msgspec.ValidationError:
        return None
