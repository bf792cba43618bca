# SPDX-License-Identifier: Apache-2.0
"""The dead letter of a failed attempt, and whatever else is written about an attempt, with every secret taken out first.

This is the write boundary: message, stack, notes and context pass the redactor here, together with every longer string of the job's
own input, so that a value that a stage merely mentioned is not stored either. Local variables are never captured.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain, count
from typing import Final, cast

import msgspec

from redrive.core import classify
from redrive.core.decide import Decision
from redrive.core.failure import Failure
from redrive.core.fingerprint import Frame, fingerprint, frames_of
from redrive.core.normalise import short_values, without_values
from redrive.engine.error_text import traceback_text
from redrive.engine.pipeline.codec import storable
from redrive.engine.pipeline.context import NOTE_MAX, TEXT_MAX
from redrive.redaction.literals.prefilter import LiteralIndex
from redrive.redaction.process import redact, redact_end, redact_mapping, redact_start
from redrive.store.records import ClaimedJob, Letter

STACK_MAX: Final = 16_384
MESSAGE_MAX: Final = 2_048
STACK_READ: Final = 2 * STACK_MAX
"""At most so much of the end of a stack is read; see `redact_end`."""
MESSAGE_READ: Final = classify.MESSAGE_MAX
"""At most so much of the beginning of a message is read: the classifier cuts longer ones there."""

_INPUT: Final = re.compile(r"input_value=.*?(?=, input_type=|\n|\Z)")
LARGE_BYTES: Final = 1 << 18
"""Reading more takes so long that it would be noticed on the loop."""
LITERAL_MIN: Final = 8
"""Shorter strings of an input are too common in ordinary text to be recognised in it."""
_RUN: Final = re.compile(r'(?:[^"\\\ufffd]|\\.)+', re.DOTALL)
_FIELD_NAME: Final = re.compile("[A-Za-z_-]+")
"""A key of words is the name of a field and stays readable in messages; any other key may be a value."""
_NOT_JSON: Final = object()
_UNKNOWN_PATH: Final = "<payload:*>"
"""Stands for a string of a value whose paths are not known."""


class FailedAttempt(msgspec.Struct, frozen=True):
    """A classified failure with the exception itself or, from another process, with its stack as text."""

    failure: Failure
    exc: BaseException | None = None
    stack: str = ""
    frames: tuple[Frame, ...] = ()

    def traceback(self) -> tuple[str, tuple[Frame, ...]]:
        """Return the stack as text and as frames; made on demand, because most failures never need them."""
        if self.exc is None:
            return self.stack, self.frames
        return traceback_text(self.exc), frames_of(self.exc)


class StageEndingError(RuntimeError):
    """A stage tried to end the program. What it raised is not the `__cause__`: that would be classified instead of this."""

    def __init__(self, message: str, ending: BaseException) -> None:
        super().__init__(message)
        self.ending = ending


def as_failure(exc: BaseException) -> Exception:
    """Return what a stage raised as an ordinary failure: a stage that ends the program has failed, and the worker continues."""
    try:
        if isinstance(exc, Exception):
            return exc
        what = f"raised {type(exc).__name__}"
        if isinstance(exc, SystemExit):
            # The repr of whatever was passed to it may raise.
            with suppress(BaseException):
                what = f"called sys.exit({exc.code!r}); a stage returns its output, or raises redrive.Fail to give the job up"
        return StageEndingError(f"the stage {what}", exc).with_traceback(exc.__traceback__)
    except BaseException:  # noqa: BLE001 - a foreign exception may raise anything when it is read.
        return StageEndingError("the stage raised something that cannot be read", exc)


class CallValues:
    """The values of the jobs that share a call: its failure may mention any of them. Decoded only once, if at all."""

    __slots__ = ("_decoded", "_jobs", "_literals")

    def __init__(self, *jobs: ClaimedJob) -> None:
        self._jobs = jobs
        self._decoded: list[tuple[bytes, object]] | None = None
        self._literals: LiteralIndex | None = None

    @property
    def size(self) -> int:
        """How many bytes they have."""
        return sum(len(job.input) + len(job.payload or b"") for job in self._jobs)

    @property
    def decoded(self) -> list[tuple[bytes, object]]:
        """Payloads and stage inputs, each as it is stored and decoded."""
        if self._decoded is None:
            stored = (each for job in self._jobs for each in (job.payload, job.input))
            self._decoded = [(each, _decoded(each)) for each in stored if each is not None]
        return self._decoded

    @property
    def literals(self) -> LiteralIndex:
        """Every longer string of the values, with a placeholder that has its path."""
        if self._literals is None:
            found: dict[str, str] = {}
            for encoded, value in self.decoded:
                found |= _literals(encoded, value)
            self._literals = LiteralIndex(found)
        return self._literals


class JobRedactor:
    """Redacts what is written about one attempt of a job; its message is redacted only once."""

    __slots__ = ("_message", "job", "secret", "values")

    def __init__(self, job: ClaimedJob, call: CallValues | None = None, *, secret: bytes = b"") -> None:
        self.job = job
        self.secret = secret
        self.values = CallValues(job) if call is None else call
        """Payload and stage input; in a batch, those of all its jobs."""
        self._message: str | None = None

    def message(self, failure: Failure) -> str:
        """Return the message of the attempt's failure, redacted but not cut."""
        if self._message is None:
            literals = self.values.literals
            self._message = redact_start(failure.message, literals, read=MESSAGE_READ, prepare=_prepared)
        return self._message


def _prepared(text: str) -> str:
    """Return a text as the store can take it, without the inputs that pydantic quotes: cut short, they are not recognised."""
    return storable(_INPUT.sub("input_value=<payload>", text) if "input_value=" in text else text)


def safe_text(text: str, literals: dict[str, str]) -> str:
    """Return a short text of a stage, redacted; cut last, because half a secret is not recognised."""
    return _redacted(text, literals)[:NOTE_MAX]


def _redacted(text: str, literals: dict[str, str]) -> str:
    # A text of the greatest length has been cut.
    return redact_start(text, literals, read=TEXT_MAX - 1, prepare=storable)


def safe_notes(notes: Mapping[str, str], redactor: JobRedactor) -> str | None:
    """Return a stage's notes as JSON, redacted; None without any."""
    if not notes:
        return None
    literals = redactor.values.literals
    redacted: dict[str, str] = {}
    # A copy, because an abandoned stage may still add notes on its thread.
    for name, text in dict(notes).items():
        redacted[_unused(_redacted(name[:TEXT_MAX], literals), redacted)] = _redacted(text, literals)
    clean: dict[str, str] = {}
    for name, value in redact_mapping(redacted, payload=literals).items():
        clean[_unused(name, clean)] = str(value)[:NOTE_MAX]
    return msgspec.json.encode(clean).decode()


def _unused(name: str, taken: Mapping[str, str]) -> str:
    """Return a name as it is kept; names that became equal when they were redacted or cut are numbered."""
    numbered = (f"{name[: NOTE_MAX - 5]} ({number})" for number in count(2))
    return next(each for each in chain((name[:NOTE_MAX],), numbered) if each not in taken)


def letter_of(
    failed: FailedAttempt, redactor: JobRedactor, stage: str, decision: Decision, notes: str | None
) -> Letter:
    """Return the dead letter for the last failure of a job."""
    literals = redactor.values.literals
    failure = failed.failure
    stack, frames = failed.traceback()
    message = redactor.message(failure)
    redacted = redact_end(_prepared(stack), literals, read=STACK_READ)
    return Letter(
        code=failure.code,
        category=failure.category,
        is_retryable=failure.retryable,
        message=message[:MESSAGE_MAX],
        exception=failure.exception,
        stack=redacted[-STACK_MAX:],
        fingerprint=fingerprint(_without_values(failure, message, redactor), stage, frames),
        context=msgspec.json.encode(_context_of(failure, redactor, stage, notes)),
        reason=decision.reason,
    )


def _without_values(failure: Failure, message: str, redactor: JobRedactor) -> Failure:
    """Return a failure without the job's values in its message: they do not distinguish causes.

    Only those that are too short to be redacted: the others are no longer there.
    """
    short = (short_values(value, shorter_than=LITERAL_MIN) for _, value in redactor.values.decoded)
    return msgspec.structs.replace(failure, message=without_values(message, set[str]().union(*short)))


def _context_of(failure: Failure, redactor: JobRedactor, stage: str, notes: str | None) -> dict[str, object]:
    """Return the circumstances of a failure; texts of others are redacted, our own names and numbers are not."""
    job, literals = redactor.job, redactor.values.literals
    foreign = {
        "provider_code": None if failure.provider_code is None else storable(failure.provider_code),
        "request_id": None if failure.request_id is None else storable(failure.request_id),
        "notes": None if notes is None else msgspec.json.decode(notes),
    }
    if any(value is not None for value in foreign.values()):
        clean = redact_mapping(foreign, payload=literals)
        # The names are our own and no secrets, even if a payload contains one of them.
        foreign = dict(zip(foreign, clean.values(), strict=True))
    return {
        "stage": redact(stage, payload=literals),
        "attempt": job.attempt,
        "dispatch": job.dispatch,
        "http_status": failure.http_status,
        "provider_code": foreign["provider_code"],
        "request_id": foreign["request_id"],
        "round": job.round,
        "notes": foreign["notes"],
        # Distinguishes inputs; keyed, because a short input could be found by trying all of them.
        "input_sha256": hmac.digest(redactor.secret, job.input, "sha256").hex()[:16],
    }


def literals_of(job: ClaimedJob) -> LiteralIndex:
    """Map every longer string of a job's payload and of its stage's input to a placeholder with its path."""
    return CallValues(job).literals


def literals_in(encoded: bytes) -> dict[str, str]:
    """Map every longer string, number and key of a value to a placeholder with its path."""
    return _literals(encoded, _decoded(encoded))


def _decoded(encoded: bytes) -> object:
    """Return a decoded value; `_NOT_JSON` for one that cannot be decoded."""
    try:
        return msgspec.json.decode(encoded)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _NOT_JSON


def _literals(encoded: bytes, value: object) -> dict[str, str]:
    if value is _NOT_JSON:
        return _texts_in(encoded.decode("utf-8", "replace"))
    literals: dict[str, str] = {}
    waiting: list[tuple[str, object]] = [("$", value)]
    while waiting:
        path, current = waiting.pop()
        if isinstance(current, str):
            if len(current) >= LITERAL_MIN:
                literals.setdefault(current, f"<payload:{path}>")
        elif isinstance(current, dict):
            # Keys may themselves be secret, so a path has the number of each key instead.
            members = cast("dict[str, object]", current)
            for place, key in enumerate(members):
                if len(key) >= LITERAL_MIN and not _FIELD_NAME.fullmatch(key):
                    literals.setdefault(key, f"<payload:{path}.{place}>")
            waiting += [(f"{path}.{place}", member) for place, member in enumerate(members.values())]
        elif isinstance(current, list):
            items = cast("list[object]", current)
            waiting += [(f"{path}[{place}]", item) for place, item in enumerate(items)]
        elif isinstance(current, (int, float)) and len(number := str(current)) >= LITERAL_MIN:
            literals.setdefault(number, f"<payload:{path}>")
    return literals


def _texts_in(text: str) -> dict[str, str]:
    """Map every longer text between quotes of a value that is not JSON, as it is and unescaped: any of them may be a string."""
    literals: dict[str, str] = {}
    for run in _RUN.findall(text):
        for one in (run, _unescaped(run)) if "\\" in run else (run,):
            if len(text := one.strip()) >= LITERAL_MIN:
                literals[text] = _UNKNOWN_PATH
    return literals


def _unescaped(run: str) -> str:
    try:
        return msgspec.json.decode(f'"{run}"', type=str)
    except msgspec.DecodeError:
        return run
