# SPDX-License-Identifier: Apache-2.0
"""Dead letters made of a message and the values of a job, and what of a secret shows in them."""

from __future__ import annotations

import random
import string

import msgspec

from redrive.core.decide import DeadLetter, Reason
from redrive.engine.classifier import DEFAULT
from redrive.engine.worker.dead_letter import FailedAttempt, JobRedactor, letter_of
from redrive.store.records import ClaimedJob, JobId, LaneId, Letter

SHOWN_MIN = 12
"""So many characters in a row of a secret are a part of it that shows."""
KEY = "".join(random.Random(5).choices(string.ascii_letters + string.digits, k=48))
DECISION = DeadLetter(reason=Reason.PERMANENT, code="BUG_CODE", attempt=1, max_attempts=1)


def claimed(*values: str) -> ClaimedJob:
    return ClaimedJob(
        id=JobId(1),
        token=1,
        dispatch=1,
        lane=LaneId(1),
        attempt=1,
        round=1,
        snoozes=0,
        suspects=0,
        crashes=0,
        restarts=0,
        cancel_asked=0,
        expires_at=None,
        codes=None,
        input=msgspec.json.encode(values),
    )


def prose(seed: int, length: int, alphabet: str = string.ascii_lowercase) -> str:
    """Make words that stand nowhere else."""
    draw = random.Random(seed)
    return "".join(draw.choices(alphabet + "   ", k=length))


def letter_for(message: str, job: ClaimedJob) -> Letter:
    try:
        raise ValueError(message)
    except ValueError as exc:
        return letter_of(FailedAttempt(DEFAULT.classify(exc), exc), JobRedactor(job), "fetch", DECISION, None)


def shown_of(secret: str, text: str) -> list[str]:
    """Return the parts of a secret that stand in a text."""
    grams = {text[at : at + SHOWN_MIN] for at in range(len(text) - SHOWN_MIN + 1)}
    parts = (secret[at : at + SHOWN_MIN] for at in range(len(secret) - SHOWN_MIN + 1))
    return [part for part in parts if part in grams]
