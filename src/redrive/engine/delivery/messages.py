# SPDX-License-Identifier: Apache-2.0
"""Build the message for a notice: an event for a hook, a change of a dead letter for a sink, or a change of a breaker for both.

Only reads. What was pruned or erased meanwhile is left out; if nothing is left, there is no message.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from redrive.core.breaker_state import change_text
from redrive.core.decide import Hold, RetryAt
from redrive.core.decision_text import decode_decision, reason_and_sentence
from redrive.core.taxonomy import CODES
from redrive.core.units import instant
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.pipeline.pipeline import Event
from redrive.redaction.process import redact, redact_mapping
from redrive.sinks.base import BreakerChange, Input, Sink, SunkLetter, wanted_input, wants_payload
from redrive.store.protocol import Store
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import outbox as outbox_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.store.statements import workers as worker_sql
from redrive.store.statements.letters import DeadLetter
from redrive.store.statements.outbox import Notice, SunkAttempt
from redrive.store.statements.statement import members_of

HISTORY_MAX: Final = 20
"""How many attempts a letter carries: the last ones."""
T = TypeVar("T")


def event_of(store: Store, lane: Lane, notice: Notice) -> Event | None:
    """Return the event for a notice of a failed attempt; None when its job was pruned."""
    if notice.job is None or notice.attempt is None or notice.round is None or notice.outcome is None:
        return None
    reason, sentence = reason_and_sentence(notice.decision)
    letter = _letter_of(store, notice)
    return Event(
        kind=notice.outcome,
        job_id=notice.job,
        pipeline=lane.pipeline.name,
        stage=lane.stage.name,
        attempt=notice.attempt,
        round=notice.round,
        code=str(notice.code),
        message=str(notice.message),
        reason=str(reason),
        sentence=str(sentence),
        at=instant(notice.ended_at),
        due_at=instant(_due_at(notice)),
        http_status=notice.http_status,
        notes={} if notice.notes is None else _decoded(notice.notes, dict[str, str]) or {},
        key=notice.key,
        category=category_of(lane, str(notice.code)) if letter is None else letter.category,
        exception=_text(notice.exception) if letter is None else letter.exception,
        stack="" if letter is None else letter.last_stack,
        is_escalated=letter is not None and letter.is_escalated,
    )


def _due_at(notice: Notice) -> float | None:
    """Return when the next attempt was due, as it was decided: by now the job may wait for a later one, or be paused."""
    match decode_decision(notice.decision):
        case RetryAt(at=at):
            return at
        case Hold(until=float(until)):
            return until
        case _:
            return notice.ended_at if notice.outcome == "dead" else notice.run_at


def breaker_members(row: worker_sql.StoredChange) -> dict[str, object]:
    """Return the members of a change of a breaker, with its sentence."""
    sentence = change_text(
        row.before,
        row.after,
        code=row.code,
        operator=row.actor if row.cause == "operator" else None,
        reason=row.reason,
    )
    return {**members_of(row), "sentence": sentence}


def breaker_change(store: Store, notice: Notice, *, now: float) -> BreakerChange | None:
    """Return the change of a breaker for a notice; None when there were so many since that it was deleted."""
    rows = [] if notice.change is None else store.query(worker_sql.breaker_change(change=notice.change))
    if not rows:
        return None
    delivery = f"{store.query(transfer_sql.installation())[0]}-breaker-{notice.change}"
    return msgspec.convert(
        {**breaker_members(rows[0]), "delivery": delivery, "sent_at": instant(now)}, BreakerChange
    )


def category_of(lane: Lane, code: str) -> str | None:
    """Return the category of a failure of which only the code is stored; None when the code does not determine it."""
    codes, known = lane.pipeline.codes, CODES.get(code)
    found = None if known is None else known.category
    if codes is not None and code in codes.names:
        found = codes.category_of(code)
    return None if found is None else found.value


def sunk_letter(store: Store, lane: Lane, notice: Notice, *, now: float, sink: Sink) -> SunkLetter | None:
    """Return the letter for a notice, with the values that the sink asks for; None when its job was pruned."""
    job, dispatch = notice.job, notice.dispatch
    if job is None or dispatch is None or notice.letter is None:
        return None
    found = _letter_of(store, notice)
    if found is None and notice.outcome is None:
        return None
    letter = _attempt_fields(lane, notice) if found is None else _letter_fields(found)
    attempts = store.query(outbox_sql.attempts_for_sink(job=job, dispatch=dispatch, limit=HISTORY_MAX))
    change = {
        "delivery": f"{store.query(transfer_sql.installation())[0]}-{job}-{dispatch}-{notice.id}",
        "event": notice.event,
        "state": notice.state,
        "changed_at": instant(notice.at),
        "sent_at": instant(now),
        "job_id": job,
        "dispatch": dispatch,
    }
    history = {
        "attempts": attempts[0].in_all if attempts else 0,
        "history": msgspec.convert(attempts[::-1], tuple[SunkAttempt, ...], from_attributes=True),
        "payload": _value_of(store.query(outbox_sql.payload_for_sink(job=job)))
        if wants_payload(sink)
        else None,
        "input": _input_of(store, job, lane.id, letter["round"], wanted_input(sink)),
    }
    return msgspec.convert({**letter, **change, **history}, SunkLetter)


def _attempt_fields(lane: Lane, notice: Notice) -> dict[str, object]:
    """Return what is known from the attempt about a letter that is not there."""
    return {
        "round": notice.round,
        "pipeline": lane.pipeline.name,
        "stage": lane.stage.name,
        "code": _text(notice.code),
        "message": _text(notice.message),
        "reason": _text(reason_and_sentence(notice.decision)[0]),
        "error_class": _text(notice.code),
        "exception": _text(notice.exception),
        "first_failure_at": instant(notice.ended_at),
        "last_failure_at": instant(notice.ended_at),
        **dict.fromkeys(("category", "last_stack", "fingerprint"), ""),
        **dict.fromkeys(("is_retryable", "is_escalated"), False),
        "sanitized_context": {},
        **dict.fromkeys(
            ("letter_id", "follows", "key", "owner", "diagnosis", "assignee", "evidence", "replay")
        ),
    }


def _letter_of(store: Store, notice: Notice) -> DeadLetter | None:
    """Return the letter of a notice; None if it has none, or it was pruned or cannot be decoded."""
    if notice.letter is None:
        return None
    try:
        return next(iter(store.query(letter_sql.letter(letter=notice.letter))), None)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _letter_fields(letter: DeadLetter) -> dict[str, object]:
    return {
        **members_of(letter),
        "letter_id": letter.id,
        "fingerprint": letter.group,
        # The submitter of the job set both; the store has them unredacted, because they are searched.
        "key": None if letter.key is None else redact(letter.key),
        "owner": None if letter.owner is None else redact(letter.owner),
    }


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _input_of(store: Store, job: int, lane: int, round_: object, wanted: Input) -> object | None:
    if wanted == "exclude" or not isinstance(round_, int):
        return None
    value = _value_of(store.query(outbox_sql.input_for_sink(job=job, lane=lane, round=round_)))
    return value if wanted == "include" else redact_mapping(value)


def _value_of(rows: list[bytes | None]) -> object | None:
    return None if not rows or rows[0] is None else _decoded(rows[0], object)


def _decoded(encoded: bytes | str, kind: type[T]) -> T | None:
    """Decode a value; None for one that is not JSON, not text, or nested too deep."""
    try:
        return msgspec.json.decode(encoded, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
