# SPDX-License-Identifier: Apache-2.0
"""Build the message for a notice: an event for a hook, or a dead letter for a sink.

Only reads, and always builds a message: what was pruned or erased meanwhile is left out.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec

from redrive.core.decision_text import reason_and_sentence
from redrive.core.taxonomy import CODES
from redrive.engine.clock import instant
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.pipeline.pipeline import Event
from redrive.redaction.process import redact, redact_mapping
from redrive.sinks.base import EXCLUDE, INCLUDE, Sink, SunkAttempt, SunkLetter, wanted_input, wants_payload
from redrive.store.protocol import Store
from redrive.store.records import Row

HISTORY_MAX: Final = 20
"""How many attempts a letter carries: the last ones."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What decoding raises for a value that is not JSON, not text, or nested too deep."""


def event_of(store: Store, lane: Lane, notice: Row) -> Event:
    """Return the event for a notice; `notice` is a row of `notices_for` whose attempt still exists."""
    _, job, _, attempt, outcome, code, message, decision, ended_at, round_, run_at, *more = notice
    http_status, notes, key, error_class, _ = more
    reason, sentence = reason_and_sentence(cast("str | None", decision))
    is_dead = outcome == "dead"
    found = store.query("letter_for_sink", job, round_) if is_dead else []
    letter = _letter_fields(found[0]) if found else {"category": category_of(lane, str(code))}
    return Event(
        kind=str(outcome),
        job_id=cast("int", job),
        pipeline=lane.pipeline.name,
        stage=lane.stage.name,
        attempt=cast("int", attempt),
        round=cast("int", round_),
        code=str(code),
        message=str(message),
        reason=str(reason),
        sentence=str(sentence),
        at=instant(ended_at),
        due_at=instant(ended_at if is_dead else run_at),
        http_status=cast("int | None", http_status),
        notes=_notes_of(notes),
        key=None if key is None else str(key),
        category=cast("str | None", letter["category"]),
        error_class=_text(letter.get("error_class", error_class)),
        stack=_text(letter.get("stack")),
    )


def category_of(lane: Lane, code: str) -> str | None:
    """Return the category of a failure of which only the code is stored; None when the code does not determine it."""
    codes, known = lane.pipeline.codes, CODES.get(code)
    found = None if known is None else known.category
    if codes is not None and code in codes.names:
        found = codes.category_of(code)
    return None if found is None else found.value


def sunk_letter(store: Store, lane: Lane, notice: Row, *, now: float, sink: Sink) -> SunkLetter:
    """Return the letter for a notice, with the values that the sink asks for; `notice` is as for `event_of`."""
    _, job, dispatch, _, _, code, message, decision, ended_at, round_, *_, error_class, _ = notice
    found = store.query("letter_for_sink", job, round_)
    attempts = store.query("attempts_for_sink", job, dispatch, HISTORY_MAX)
    ids = {
        "delivery": f"{store.query('installation')[0][0]}-{job}-{dispatch}",
        "sent_at": instant(now),
        "job_id": job,
        "dispatch": dispatch,
        "round": round_,
    }
    left = {
        "pipeline": lane.pipeline.name,
        "stage": lane.stage.name,
        "code": _text(code),
        "message": _text(message),
        "reason": _text(reason_and_sentence(cast("str | None", decision))[0]),
        "error_class": _text(error_class),
        "first_failure_at": instant(ended_at),
        "last_failure_at": instant(ended_at),
    }
    history = {
        "attempts": cast("int", attempts[0][-1]) if attempts else 0,
        "history": tuple(_attempt_of(row) for row in reversed(attempts)),
        "payload": _value_of(store.query("payload_for_sink", job)) if wants_payload(sink) else None,
        "input": _input_of(store, lane, notice, wanted_input(sink)),
    }
    letter = _letter_fields(found[0]) if found else {**_BLANK, **left}
    return msgspec.convert({**ids, **letter, **history}, SunkLetter)


_BLANK: Final[dict[str, object]] = {
    "letter_id": None,
    "category": "",
    "is_retryable": False,
    "stack": "",
    "fingerprint": "",
    "context": {},
    "is_escalated": False,
    "follows": None,
    "key": None,
    "owner": None,
}


def _letter_fields(row: Row) -> dict[str, object]:
    """Return the fields from a letter's row."""
    letter_id, pipeline, stage, _, code, category, is_retryable, error_class, *texts = row
    message, stack, print_, reason, context, first_at, last_at, is_escalated, follows, key, owner = texts
    return {
        "letter_id": letter_id,
        "pipeline": pipeline,
        "stage": stage,
        "code": _text(code),
        "category": _text(category),
        "is_retryable": bool(is_retryable),
        "error_class": _text(error_class),
        "message": _text(message),
        "stack": _text(stack),
        "fingerprint": _text(print_),
        "reason": _text(reason),
        "context": _context_of(context),
        "first_failure_at": instant(first_at),
        "last_failure_at": instant(last_at),
        "is_escalated": bool(is_escalated),
        "follows": follows,
        # The submitter of the job set both; the store has them unredacted, because they are searched.
        "key": None if key is None else redact(str(key)),
        "owner": None if owner is None else redact(str(owner)),
    }


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _notes_of(encoded: object) -> dict[str, str]:
    try:
        return {} if encoded is None else msgspec.json.decode(str(encoded), type=dict[str, str])
    except UNREADABLE:
        return {}


def _context_of(encoded: object) -> dict[str, object]:
    if not isinstance(encoded, bytes):
        return {}
    try:
        return msgspec.json.decode(encoded, type=dict[str, object])
    except UNREADABLE:
        return {}


def _input_of(store: Store, lane: Lane, notice: Row, wanted: str) -> object | None:
    if wanted == EXCLUDE:
        return None
    value = _value_of(store.query("input_for_sink", notice[1], lane.id, notice[9]))
    return value if wanted == INCLUDE else redact_mapping(value)


def _value_of(rows: list[Row]) -> object | None:
    if not rows or not isinstance(rows[0][0], bytes):
        return None
    try:
        return cast("object", msgspec.json.decode(rows[0][0]))
    except UNREADABLE:
        return None


def _attempt_of(row: Row) -> SunkAttempt:
    dispatch, stage, round_, attempt, outcome, code, http_status, started_at, ended_at, _ = row
    return SunkAttempt(
        dispatch=cast("int", dispatch),
        stage=str(stage),
        round=cast("int", round_),
        attempt=cast("int", attempt),
        outcome=str(outcome),
        code=None if code is None else str(code),
        http_status=cast("int | None", http_status),
        started_at=instant(started_at),
        ended_at=instant(ended_at),
    )
