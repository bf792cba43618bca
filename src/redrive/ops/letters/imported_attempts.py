# SPDX-License-Identifier: Apache-2.0
"""The attempts in a line of an export: what is kept of them, so that an imported job can tell how it failed where it comes from.

They are told, and never counted: reports are about what was done here. What others wrote is checked, redacted again and cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from redrive.engine.worker.dead_letter import MESSAGE_MAX

ATTEMPTS_MAX: Final = 100
"""Attempts that are kept of one job: the last ones."""
WORD_MAX: Final = 200
_TEXTS: Final = {
    **dict.fromkeys(("stage", "code", "reason"), WORD_MAX),
    **dict.fromkeys(("message", "sentence"), MESSAGE_MAX),
}

Clean = Callable[[str, int], str]
"""Makes a text of a line fit to be stored: redacted, then cut."""


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of an attempt; the rest of it stays in the export."""

    dispatch: int
    stage: str
    round: int
    attempt: int
    outcome: Literal["ok", "retry", "hold", "dead", "crashed", "cancelled"]
    started_at: datetime
    ended_at: datetime
    code: str | None = None
    message: str | None = None
    http_status: int | None = None
    reason: str | None = None
    sentence: str | None = None


def problem_in(attempts: Sequence[dict[str, object]], is_past: Callable[[datetime], bool]) -> str | None:
    """Say what is wrong with the attempts of a line; None when nothing is."""
    for place, given in enumerate(attempts):
        try:
            read = msgspec.convert(given, _Attempt)
        except msgspec.ValidationError as error:
            return f"attempts[{place}]: {error}"
        if not (is_past(read.started_at) and is_past(read.ended_at)):
            return f"attempts[{place}]: its instants are not what they can be"
    return None


def kept_attempts(attempts: Sequence[dict[str, object]], clean: Clean) -> str:
    """Return attempts as they are kept, as JSON; only of a line in which nothing is wrong."""
    return msgspec.json.encode([_kept(given, clean) for given in attempts[-ATTEMPTS_MAX:]]).decode()


def _kept(given: dict[str, object], clean: Clean) -> dict[str, object]:
    read = msgspec.convert(given, _Attempt)
    told: dict[str, object] = msgspec.structs.asdict(read)
    for name, most in _TEXTS.items():
        text = told[name]
        told[name] = clean(text, most) if isinstance(text, str) else None
    start, end = read.started_at.timestamp(), read.ended_at.timestamp()
    return told | {"started_at": start, "ended_at": end, "duration": max(end - start, 0.0)}
