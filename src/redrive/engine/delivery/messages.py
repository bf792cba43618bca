# SPDX-License-Identifier: Apache-2.0
"""Build the message for a notice: an event for a hook, a change of a dead letter for a sink, or a change of a breaker for both.

Only reads. What was pruned or erased meanwhile is left out; if nothing is left, there is no message.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec

from redrive.core.breaker_state import change_text
from redrive.core.decide import Hold, RetryAt
from redrive.core.decision_text import decode_decision, reason_and_sentence
from redrive.core.taxonomy import CODES
from redrive.engine.clock import instant
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.pipeline.pipeline import Event
from redrive.redaction.process import redact, redact_mapping
from redrive.sinks.base import (
    EXCLUDE,
    INCLUDE,
    BreakerChange,
    Sink,
    SunkAttempt,
    SunkLetter,
    wanted_input,
    wants_payload,
)
from redrive.store.protocol import Store
from redrive.store.records import Row

HISTORY_MAX: Final = 20
"""How many attempts a letter carries: the last ones."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What decoding raises for a value that is not JSON, not text, or nested too deep."""


class Notice(msgspec.Struct, frozen=True):
    """One notice: a row of `notices_for`. It is about a breaker, a run, a letter, or a failed attempt."""

    id: int
    job: int | None
    dispatch: int | None
    attempt: int | None
    """None, as all that is the attempt's, when there is no attempt, or it was pruned."""
    outcome: str | None
    code: str | None
    message: str | None
    decision: str | None
    ended_at: float | None
    round: int | None
    run_at: float | None
    http_status: int | None
    notes: str | None
    key: str | None
    exception: str | None
    letter: int | None
    event: str | None
    state: str | None
    at: float
    change: int | None
    run: int | None
    tries: int


def event_of(store: Store, lane: Lane, notice: Notice) -> Event | None:
    """Return the event for a notice of a failed attempt; None when its job was pruned."""
    if notice.outcome is None or notice.ended_at is None:
        return None
    reason, sentence = reason_and_sentence(notice.decision)
    found = store.query("letter_for_sink", notice.letter) if notice.letter is not None else []
    letter = _letter_fields(found[0]) if found else {"category": category_of(lane, str(notice.code))}
    return Event(
        kind=notice.outcome,
        job_id=cast("int", notice.job),
        pipeline=lane.pipeline.name,
        stage=lane.stage.name,
        attempt=cast("int", notice.attempt),
        round=cast("int", notice.round),
        code=str(notice.code),
        message=str(notice.message),
        reason=str(reason),
        sentence=str(sentence),
        at=instant(notice.ended_at),
        due_at=instant(_due_at(notice)),
        http_status=notice.http_status,
        notes=_notes_of(notice.notes),
        key=notice.key,
        category=cast("str | None", letter["category"]),
        exception=_text(letter.get("exception", notice.exception)),
        stack=_text(letter.get("last_stack")),
        is_escalated=bool(letter.get("is_escalated")),
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


def breaker_members(row: Row) -> dict[str, object]:
    """Return the members of a change of a breaker, with its sentence; `row` is of `breaker_changes`."""
    id_, at, breaker, before, after, cause, code, actor, reason = row
    sentence = change_text(
        str(before),
        str(after),
        code=cast("str | None", code),
        operator=str(actor) if cause == "operator" else None,
        reason=cast("str | None", reason),
    )
    found: dict[str, object] = {"id": id_, "at": instant(at), "breaker": breaker, "before": before}
    found |= {"after": after, "cause": cause, "code": code, "actor": actor, "reason": reason}
    return {**found, "sentence": sentence}


def breaker_change(store: Store, notice: Notice, *, now: float) -> BreakerChange | None:
    """Return the change of a breaker for a notice; None when there were so many since that it was deleted."""
    rows = store.query("breaker_change", notice.change)
    if not rows:
        return None
    delivery = f"{store.query('installation')[0][0]}-breaker-{notice.change}"
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
    found = store.query("letter_for_sink", notice.letter)
    if not found and notice.outcome is None:
        return None
    job, dispatch = notice.job, notice.dispatch
    letter = _letter_fields(found[0]) if found else {**_BLANK, **_attempt_fields(lane, notice)}
    attempts = store.query("attempts_for_sink", job, dispatch, HISTORY_MAX)
    change = {
        "delivery": f"{store.query('installation')[0][0]}-{job}-{dispatch}-{notice.id}",
        "event": notice.event,
        "state": notice.state,
        "changed_at": instant(notice.at),
        "sent_at": instant(now),
        "job_id": job,
        "dispatch": dispatch,
    }
    history = {
        "attempts": cast("int", attempts[0][-1]) if attempts else 0,
        "history": tuple(_attempt_of(row) for row in reversed(attempts)),
        "payload": _value_of(store.query("payload_for_sink", job)) if wants_payload(sink) else None,
        "input": _input_of(store, (job, lane.id, letter["round"]), wanted_input(sink)),
    }
    return msgspec.convert({**change, **letter, **history}, SunkLetter)


def _attempt_fields(lane: Lane, notice: Notice) -> dict[str, object]:
    """Return what is known from the attempt about a letter that was pruned."""
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
    }


_BLANK: Final[dict[str, object]] = {
    "letter_id": None,
    "category": "",
    "is_retryable": False,
    "last_stack": "",
    "fingerprint": "",
    "sanitized_context": {},
    "is_escalated": False,
    "follows": None,
    "key": None,
    "owner": None,
    "diagnosis": None,
    "assignee": None,
    "evidence": None,
    "replay": None,
}


def _letter_fields(row: Row) -> dict[str, object]:
    """Return the fields from a letter's row."""
    letter_id, pipeline, stage, round_, code, category, is_retryable, exception, *texts = row
    message, stack, print_, reason, context, first_at, last_at, is_escalated, follows, *more = texts
    key, owner, diagnosis, assignee, evidence, replay = more
    return {
        "letter_id": letter_id,
        "pipeline": pipeline,
        "stage": stage,
        "round": round_,
        "code": _text(code),
        "category": _text(category),
        "is_retryable": bool(is_retryable),
        "error_class": _text(code),
        "exception": _text(exception),
        "message": _text(message),
        "last_stack": _text(stack),
        "fingerprint": _text(print_),
        "reason": _text(reason),
        "sanitized_context": _context_of(context),
        "first_failure_at": instant(first_at),
        "last_failure_at": instant(last_at),
        "is_escalated": bool(is_escalated),
        "follows": follows,
        # The submitter of the job set both; the store has them unredacted, because they are searched.
        "key": None if key is None else redact(str(key)),
        "owner": None if owner is None else redact(str(owner)),
        "diagnosis": diagnosis,
        "assignee": assignee,
        "evidence": evidence,
        "replay": replay,
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


def _input_of(store: Store, stage: Row, wanted: str) -> object | None:
    """Return the input of the stage that failed: of a job, a lane and a round."""
    if wanted == EXCLUDE:
        return None
    value = _value_of(store.query("input_for_sink", *stage))
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
