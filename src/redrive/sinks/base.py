# SPDX-License-Identifier: Apache-2.0
"""What a sink is, and what it is given: one dead letter at a time, redacted as it stands in the store.

A letter is delivered at least once, after its failure was committed: a sink must take the same letter twice without harm, and
`SunkLetter.delivery` is how it knows. What a sink raises is logged and tried again later; it never changes what became of a job.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Final, Literal, Protocol

import msgspec
from msgspec import Struct

from redrive.core.arguments import one_of

Payload = Literal["exclude", "include"]
"""Whether a sink gets what the job was submitted with. It is not redacted: `include` sends it as it is."""

Input = Literal["exclude", "redacted", "include"]
"""Whether a sink gets what the stage that failed was given: redacted, or as it is."""

INCLUDE: Final = "include"
REDACTED: Final = "redacted"
EXCLUDE: Final = "exclude"


class SunkAttempt(Struct, frozen=True, kw_only=True):
    """One run of a stage, in short."""

    dispatch: int
    stage: str
    round: int
    attempt: int
    outcome: str
    code: str | None
    http_status: int | None
    started_at: datetime
    ended_at: datetime


class SunkLetter(Struct, frozen=True, kw_only=True):
    """One dead letter on its way out. Every text is redacted; only the values a sink asked for are what they were."""

    delivery: str
    """The same whenever this letter is delivered, and different for every other one, of other databases too."""
    sent_at: datetime
    """When this delivery began, on the worker's clock; another one each time."""
    letter_id: int | None
    """None when the letter was pruned before it could be delivered; then texts that only it had are empty."""
    job_id: int
    dispatch: int
    pipeline: str
    stage: str
    round: int
    key: str | None
    owner: str | None
    code: str
    category: str
    is_retryable: bool
    error_class: str
    message: str
    stack: str
    fingerprint: str
    reason: str
    """Why it was given up, in a word."""
    context: dict[str, object]
    """The sanitized context: ids of the request, the upstream's status, attempt, hash of the input, notes."""
    first_failure_at: datetime
    last_failure_at: datetime
    attempts: int
    """How many runs of its stages the job had until then."""
    history: tuple[SunkAttempt, ...]
    """The last of them, the oldest first."""
    is_escalated: bool
    """True when a replay failed with the permanent code it was meant to cure."""
    follows: int | None
    """The letter of the round before."""
    payload: object | None = None
    """What the job was submitted with; only for a sink that asked for it, and None when it was erased."""
    input: object | None = None
    """What the stage that failed was given; only for a sink that asked for it, and None when it was erased or has run again."""


class Sink(Protocol):
    """Where dead letters go. A sync `deliver` is called on a thread; both kinds have half a minute.

    An attribute `payload` that says "include" asks for the job's payload, and an attribute `input` for what the stage that failed
    was given: "redacted", or "include" for what it was.
    """

    @property
    def name(self) -> str:
        """What it is called in the store; a letter waits for the sink of this name, so it should not change."""
        ...

    def deliver(self, letter: SunkLetter) -> Awaitable[None] | None:
        """Take one letter, durably; whatever is raised means that it was not taken."""
        ...


def wants_payload(sink: Sink) -> bool:
    """Say whether a sink asks for payloads; only the exact word does."""
    return getattr(sink, "payload", EXCLUDE) == INCLUDE


def wanted_input(sink: Sink) -> Input:
    """Return how a sink asks for inputs; only the exact words do."""
    asked: object = getattr(sink, "input", EXCLUDE)
    return INCLUDE if asked == INCLUDE else REDACTED if asked == REDACTED else EXCLUDE


def wants_values(sink: Sink) -> bool:
    """Say whether a sink gets values as they are, so that what it raises may quote them."""
    return wants_payload(sink) or wanted_input(sink) == INCLUDE


def checked_payload(field: str, value: Payload) -> Payload:
    """Return the choice, or refuse what is none."""
    one_of(field, value, (EXCLUDE, INCLUDE))
    return value


def checked_input(field: str, value: Input) -> Input:
    """Return the choice, or refuse what is none."""
    one_of(field, value, (EXCLUDE, REDACTED, INCLUDE))
    return value


def as_members(letter: SunkLetter) -> dict[str, object]:
    """Return a letter as what JSON can hold; without the members `payload` and `input` when there are none."""
    members: dict[str, object] = msgspec.to_builtins(letter)
    for name in ("payload", "input"):
        if members[name] is None:
            del members[name]
    return members


def as_json(letter: SunkLetter) -> bytes:
    """Return a letter as JSON."""
    return msgspec.json.encode(as_members(letter))
