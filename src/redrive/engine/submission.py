# SPDX-License-Identifier: Apache-2.0
"""From a payload to a job that can be stored: encoded, checked against the first stage's type, and within bounds."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from redrive.engine.codec import storable
from redrive.engine.pipeline import Pipeline
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError, SerializationError
from redrive.store.protocol import LaneId, NewJob

PAYLOAD_MAX: Final = 16 * 1024 * 1024
"""Bytes of one payload; larger things belong into an object store, with their address in the payload."""
KEY_MAX: Final = 500
NO_LANE: Final = LaneId(0)
"""Stands in a job whose pipeline's lanes have not been looked up yet."""


def new_job(
    pipeline: Pipeline,
    payload: object,
    *,
    lane: LaneId = NO_LANE,
    key: str | None = None,
    run_at: datetime | None = None,
    priority: int = 5,
    owner: str | None = None,
    expires_at: datetime | None = None,
) -> NewJob:
    """Return the job, or refuse what is wrong with it by name."""
    if isinstance(priority, bool) or priority not in range(10):
        raise ConfigurationError(
            field="priority", value=priority, rule="must be a whole number from 0 to 9", fix="0 goes first."
        )
    for field, text in (("key", key), ("owner", owner)):
        if text is not None and (
            not isinstance(text, str) or not 0 < len(text) <= KEY_MAX or text != storable(text)
        ):
            raise ConfigurationError(
                field=field,
                value=text,
                rule=f"must be a text of 1 to {KEY_MAX} characters",
                fix="Hash what is longer.",
            )
    now = CURRENT.get().clock.wall()
    return NewJob(
        lane=lane,
        payload=encoded_payload(pipeline, payload),
        run_at=instant("run_at", run_at, now),
        priority=priority,
        key=key,
        owner=owner,
        expires_at=None if expires_at is None else instant("expires_at", expires_at, now),
    )


def encoded_payload(pipeline: Pipeline, payload: object) -> bytes:
    """Return a payload as the first stage of a pipeline takes it; what does not fit is refused naming the field."""
    codec = pipeline.stages[0].input
    encoded = codec.encode(payload)
    codec.check(encoded)
    if len(encoded) > PAYLOAD_MAX:
        raise SerializationError(
            where=f"{pipeline.name} (payload)",
            kind=f"{len(encoded)} bytes",
            problem=f"the limit is {PAYLOAD_MAX} bytes",
        )
    return encoded


def instant(field: str, at: datetime | None, now: float) -> float:
    """Return an aware point in time as seconds; now if there is none."""
    if at is None:
        return now
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise ConfigurationError(
            field=field, value=at, rule="must carry its time zone", fix="datetime.now(UTC) + timedelta(...)."
        )
    return at.timestamp()
