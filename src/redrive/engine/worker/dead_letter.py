# SPDX-License-Identifier: Apache-2.0
"""From a failed attempt to what is written down about it, with every secret taken out first.

A failure may have happened in another process: then its stack came along as text.

This is the write boundary: message, stack and context pass the redactor here, together with every longer string of the job's own
input, so that a value the stage merely mentioned does not come out on this side either. Local variables are never captured.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from typing import Final, cast

import msgspec

from redrive.core import classify
from redrive.core.decide import Decision
from redrive.core.failure import Failure
from redrive.core.fingerprint import Frame, fingerprint, frames_of
from redrive.core.normalise import short_values, without_values
from redrive.engine.pipeline.codec import storable
from redrive.engine.pipeline.context import NOTE_MAX, SAID_MAX
from redrive.engine.worker.tracebacks import stack_of
from redrive.redaction.literals.prefilter import Sought
from redrive.redaction.process import redact, redact_end, redact_mapping, redact_start
from redrive.store.protocol import Claimed, Letter

STACK_MAX: Final = 16_384
MESSAGE_MAX: Final = 2_048
STACK_READ: Final = 2 * STACK_MAX
"""So much of the end of a stack is read at most; see `redact_end`."""
MESSAGE_READ: Final = classify.MESSAGE_MAX
"""So much of the beginning of a message is read at most: a longer one was cut there by the classifier."""

_INPUT: Final = re.compile(r"input_value=.*?(?=, input_type=|\n|\Z)")
LITERAL_MIN: Final = 8
"""Shorter strings of an input are too common in ordinary text to be taken for it."""
_RUN: Final = re.compile(r'(?:[^"\\\ufffd]|\\.)+', re.DOTALL)
_NOWHERE: Final = "<payload:*>"
"""Stands for a text of a value whose places are not known."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A classified failure with where it came from: the exception itself, or its stack from another process."""

    failure: Failure
    exc: BaseException | None = None
    stack: str = ""
    frames: tuple[Frame, ...] = ()

    def told(self) -> tuple[str, tuple[Frame, ...]]:
        """Return the stack as text and as frames; made only now, because most failures never need them."""
        if self.exc is None:
            return self.stack, self.frames
        return stack_of(self.exc), frames_of(self.exc)


class StageEndingError(RuntimeError):
    """A stage tried to end the program. What it raised is no cause of this error: it would be classified as what it is."""

    def __init__(self, message: str, ending: BaseException) -> None:
        super().__init__(message)
        self.ending = ending


def as_failure(exc: BaseException) -> Exception:
    """Return what a stage raised as an ordinary failure: a stage that ends the program has failed, and the worker goes on."""
    if isinstance(exc, Exception):
        return exc
    what = f"raised {type(exc).__name__}"
    if isinstance(exc, SystemExit):
        # Whatever was passed to it may refuse to be shown.
        with suppress(BaseException):
            what = f"called sys.exit({exc.code!r})"
    return StageEndingError(f"the stage {what}", exc).with_traceback(exc.__traceback__)


def safe_message(failure: Failure, job: Claimed) -> str:
    """Return what the failure says, fit to be written down."""
    return _message(failure, literals_of(job))[:MESSAGE_MAX]


def _message(failure: Failure, literals: dict[str, str]) -> str:
    return redact_start(failure.message, literals, read=MESSAGE_READ, prepare=_fit)


def _fit(text: str) -> str:
    """Return a text as the store can take it, without the inputs that are quoted in it."""
    return storable(_unquoted(text))


def _unquoted(text: str) -> str:
    """Take out the inputs that pydantic quotes, cut short: a part of a value is not known for one."""
    return _INPUT.sub("input_value=<payload>", text) if "input_value=" in text else text


def safe_text(text: str, literals: dict[str, str]) -> str:
    """Return a short text a stage said, fit to be written down; cut last, because half a secret is not known for one."""
    return _said(text, literals)[:NOTE_MAX]


def _said(text: str, literals: dict[str, str]) -> str:
    # One that is as long as any may be has been cut.
    return redact_start(text, literals, read=SAID_MAX - 1, prepare=storable)


def safe_notes(notes: Mapping[str, str], job: Claimed) -> str | None:
    """Return a stage's notes as JSON, fit to be written down; None without any."""
    if not notes:
        return None
    literals = literals_of(job)
    told: dict[str, str] = {}
    # A copy, because a stage that was given up may go on noting things on its thread.
    for name, text in dict(notes).items():
        told[_unused(_said(name[:SAID_MAX], literals), told)] = _said(text, literals)
    clean: dict[str, str] = {}
    for shown, value in cast("dict[str, object]", redact_mapping(told, payload=literals)).items():
        clean[_unused(shown, clean)] = str(value)[:NOTE_MAX]
    return msgspec.json.encode(clean).decode()


def _unused(name: str, taken: Mapping[str, str]) -> str:
    """Return a name as it is kept; names that came to be the same, redacted or cut, are numbered."""
    numbered = (f"{name[: NOTE_MAX - 5]} ({number})" for number in count(2))
    return next(each for each in chain((name[:NOTE_MAX],), numbered) if each not in taken)


def letter_of(
    trouble: FailedAttempt, job: Claimed, stage: str, decision: Decision, notes: str | None
) -> Letter:
    """Return the dead letter for the last failure of a job."""
    literals = literals_of(job)
    failure = trouble.failure
    stack, frames = trouble.told()
    message = _message(failure, literals)
    told = redact_end(_fit(stack), literals, read=STACK_READ)
    return Letter(
        code=failure.code,
        category=failure.category,
        is_retryable=failure.retryable,
        message=message[:MESSAGE_MAX],
        error_class=failure.error_class,
        stack=told[-STACK_MAX:],
        fingerprint=fingerprint(_unquoting(failure, message, job), stage, frames),
        context=msgspec.json.encode(_context_of(failure, job, stage, notes, literals)),
        reason=decision.reason,
    )


def _unquoting(failure: Failure, message: str, job: Claimed) -> Failure:
    """Return a failure as it would be if its message quoted nothing of the job: what one job holds tells no causes apart."""
    values = _short_in(job.input)
    if job.payload is not None:
        values |= _short_in(job.payload)
    return msgspec.structs.replace(failure, message=without_values(message, values))


def _short_in(encoded: bytes) -> set[str]:
    """Return the strings of a value that are too short to be hidden in messages; which they are, nobody knows in no JSON."""
    try:
        value: object = msgspec.json.decode(encoded)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return set()
    return short_values(value, shorter_than=LITERAL_MIN)


def _context_of(
    failure: Failure, job: Claimed, stage: str, notes: str | None, literals: dict[str, str]
) -> dict[str, object]:
    """Return the circumstances of a failure; what others said is redacted, our own names and numbers are left alone."""
    said = {
        "provider_code": None if failure.provider_code is None else storable(failure.provider_code),
        "request_id": None if failure.request_id is None else storable(failure.request_id),
        "notes": None if notes is None else msgspec.json.decode(notes),
    }
    if any(value is not None for value in said.values()):
        clean = cast("dict[str, object]", redact_mapping(said, payload=literals))
        # A payload may hold the name of one of these, and the name is no secret.
        said = dict(zip(said, clean.values(), strict=True))
    return {
        "stage": redact(stage, payload=literals),
        "attempt": job.attempt,
        "dispatch": job.dispatch,
        "http_status": failure.http_status,
        "provider_code": said["provider_code"],
        "request_id": said["request_id"],
        "round": job.round,
        "notes": said["notes"],
        "input_sha256": hashlib.sha256(job.input).hexdigest()[:16],
    }


def literals_of(job: Claimed) -> Sought:
    """Map every longer string of a job's payload and of its stage's input to a mark that says where it stood."""
    found = literals_in(job.input)
    return Sought(found if job.payload is None else {**literals_in(job.payload), **found})


def literals_in(encoded: bytes) -> dict[str, str]:
    """Map every longer string of a value to a mark that says where it stood."""
    try:
        value: object = msgspec.json.decode(encoded)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _runs_in(encoded.decode("utf-8", "replace"))
    literals: dict[str, str] = {}
    waiting: list[tuple[str, object]] = [("$", value)]
    while waiting:
        path, current = waiting.pop()
        if isinstance(current, str):
            if len(current) >= LITERAL_MIN:
                literals.setdefault(current, f"<payload:{path}>")
        elif isinstance(current, dict):
            # Keys may themselves be secret, so a place is named by its number among its neighbours.
            members = cast("dict[str, object]", current)
            waiting += [(f"{path}.{place}", member) for place, member in enumerate(members.values())]
        elif isinstance(current, list):
            items = cast("list[object]", current)
            waiting += [(f"{path}[{place}]", item) for place, item in enumerate(items)]
    return literals


def _runs_in(text: str) -> dict[str, str]:
    """Map every longer run without a quote, as it is and as JSON means it: which of them are strings, nobody knows in no JSON."""
    literals: dict[str, str] = {}
    for run in _RUN.findall(text):
        for one in (run, _meant(run)) if "\\" in run else (run,):
            if len(bare := one.strip()) >= LITERAL_MIN:
                literals[bare] = _NOWHERE
    return literals


def _meant(run: str) -> str:
    try:
        return msgspec.json.decode(f'"{run}"', type=str)
    except msgspec.DecodeError:
        return run
