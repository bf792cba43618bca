# SPDX-License-Identifier: Apache-2.0
"""A dead letter as a `DeadLetterTask`: without credentials, queries and header values, and with what is needed to replay it."""

from __future__ import annotations

from typing import Final, cast

import msgspec

from apps.fetchbox.dead_letters.deadletter_pb2 import DeadLetterTask
from apps.fetchbox.manifest import NO_TASK, Task
from apps.tracing import public_url
from redrive.sinks import SunkLetter

PUBLISHED_EVENTS: Final = frozenset({"born", "imported"})
"""The other changes of a letter are not news about a task."""
_NOTES: Final = ("proxy", "status")


def encode(letter: SunkLetter) -> bytes | None:
    """Return the message about a new dead letter; None for other changes of one."""
    if letter.event not in PUBLISHED_EVENTS:
        return None
    task = NO_TASK if letter.payload is None else msgspec.convert(letter.payload, Task)
    message = DeadLetterTask(
        job_id=task.job_id,
        task_id=task.task_id,
        url=public_url(task.url),
        header_names=sorted(task.headers),
        failure_code=letter.code,
        failure_message=letter.message,
        attempts=letter.attempts,
        failed_at_ms=int(letter.last_failure_at.timestamp() * 1000),
        metadata=_metadata(task, letter),
    )
    return bytes(message.SerializeToString())


def decode(body: bytes) -> DeadLetterTask:
    """Return a message; raises google.protobuf.message.DecodeError."""
    task: DeadLetterTask = DeadLetterTask.FromString(body)
    return task


def _metadata(task: Task, letter: SunkLetter) -> dict[str, str]:
    found = {
        "tenant": task.tenant,
        "type": task.type,
        "key": task.key,
        "trace_id": task.trace_id,
        "stage": letter.stage,
        "redrive_job": str(letter.job_id),
        "letter": str(letter.letter_id or ""),
        "is_retryable": str(letter.is_retryable).lower(),
        **{name: str(value) for name, value in notes_of(letter.sanitized_context).items() if name in _NOTES},
    }
    last = letter.history[-1].http_status if letter.history else None
    if last is not None:
        found["status"] = str(last)
    return {name: value for name, value in found.items() if value}


def notes_of(context: object) -> dict[str, object]:
    """Return the notes of the last attempt in a letter's context."""
    notes = cast("dict[str, object]", context).get("notes") if isinstance(context, dict) else None
    return cast("dict[str, object]", notes) if isinstance(notes, dict) else {}
