# SPDX-License-Identifier: Apache-2.0
"""From a failed attempt to what is written down about it, with every secret taken out first.

This is the write boundary: message, stack and context pass the redactor here, together with every longer string of the job's own
input, so that a value the stage merely mentioned does not come out on this side either. Local variables are never captured.
"""

from __future__ import annotations

import hashlib
import traceback
from typing import Final, cast

import msgspec

from redrive.core.decide import Decision
from redrive.core.failure import Failure
from redrive.core.fingerprint import fingerprint, frames_of
from redrive.redaction import redact
from redrive.store.protocol import Claimed, Letter

STACK_MAX: Final = 16_384
MESSAGE_MAX: Final = 2_048
LITERAL_MIN: Final = 8
"""Shorter strings of an input are too common in ordinary text to be taken for it."""
LITERALS_MAX: Final = 2_000


def safe_message(failure: Failure, job: Claimed) -> str:
    """Return what the failure says, fit to be written down."""
    return redact(failure.message, payload=literals_in(job.input))[:MESSAGE_MAX]


def letter_of(exc: BaseException, failure: Failure, job: Claimed, stage: str, decision: Decision) -> Letter:
    """Return the dead letter for the last failure of a job."""
    literals = literals_in(job.input)
    stack = "".join(traceback.format_exception(exc))
    context = {
        "stage": stage,
        "attempt": job.attempt,
        "dispatch": job.dispatch,
        "http_status": failure.http_status,
        "provider_code": failure.provider_code,
        "request_id": failure.request_id,
        "input_sha256": hashlib.sha256(job.input).hexdigest()[:16],
    }
    return Letter(
        code=failure.code,
        category=failure.category,
        message=redact(failure.message, payload=literals)[:MESSAGE_MAX],
        error_class=failure.error_class,
        stack=redact(stack, payload=literals)[-STACK_MAX:],
        fingerprint=fingerprint(failure, stage, frames_of(exc)),
        context=redact(msgspec.json.encode(context).decode(), payload=literals).encode(),
        reason=decision.reason,
    )


def literals_in(encoded: bytes) -> dict[str, str]:
    """Map every longer string of an input to a mark that says where it stood."""
    try:
        value: object = msgspec.json.decode(encoded)
    except msgspec.DecodeError:
        return {}
    literals: dict[str, str] = {}
    waiting: list[tuple[str, object]] = [("$", value)]
    while waiting and len(literals) < LITERALS_MAX:
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
