# SPDX-License-Identifier: Apache-2.0
"""The interface of a sink, and what it receives: every change of a dead letter, one at a time, redacted as in the store.

A change is delivered at least once, after its commit, and the changes of one letter in order: a sink must accept the same change
twice without harm, and recognises it by `SunkLetter.delivery`. If a sink raises, that is logged and the delivery is tried again
later; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Literal, Protocol, get_args

import msgspec
from msgspec import Struct

from redrive.core.arguments import one_of
from redrive.store.statements.outbox import SunkAttempt

Payload = Literal["exclude", "include"]
"""Whether a sink gets the payload of the job. It is not redacted: `include` sends it unchanged."""

Input = Literal["exclude", "redacted", "include"]
"""Whether a sink gets the input of the stage that failed: redacted, or unchanged."""


class SunkLetter(Struct, frozen=True, kw_only=True):
    """A change of one dead letter as a sink receives it, with the whole letter.

    Every text is redacted; only the values a sink asked for are unchanged.
    """

    delivery: str
    """The same whenever this change is delivered; different for every other change, also of other letters and databases."""
    event: str
    """What happened: born, imported, triaged, ready, assigned, escalated, replaying, resolved, returned, discarded or restored."""
    state: str
    """The state of the letter since then."""
    changed_at: datetime
    sent_at: datetime
    """When this delivery began, on the worker's clock; different each time."""
    letter_id: int | None
    """None if the letter was pruned before it was delivered, or cannot be read; texts that only the letter had are then empty."""
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
    """The stable identifier to group by: the code."""
    exception: str
    """The Python class."""
    message: str
    last_stack: str
    fingerprint: str
    reason: str
    """The reason for the dead letter, as one word."""
    sanitized_context: dict[str, object]
    """Ids of the request, status of the upstream, attempt, hash of the input, notes."""
    first_failure_at: datetime
    last_failure_at: datetime
    attempts: int
    """How many attempts the job had until then, over all its stages."""
    history: tuple[SunkAttempt, ...]
    """The last of them, the oldest first."""
    is_escalated: bool
    """True if a replay failed again with a permanent code."""
    follows: int | None
    """The letter of the round before."""
    diagnosis: str | None
    assignee: str | None
    """Who is responsible for it."""
    evidence: str | None
    """What was done about the cause."""
    replay: int | None
    """The replay that has marked or released it."""
    payload: object | None = None
    """The payload of the job; only for a sink that asks for it, and None if it was erased."""
    input: object | None = None
    """The input of the stage that failed; only for a sink that asks for it, and None if it was erased or has run again."""

    @property
    def identity(self) -> str:
        """The same for every change of this letter, and different for every other letter, of other databases too."""
        return self.delivery.rpartition("-")[0]

    @property
    def sequence(self) -> int:
        """A number that rises with every change of a letter."""
        return int(self.delivery.rpartition("-")[2])


class BreakerChange(Struct, frozen=True, kw_only=True):
    """A change of a breaker as a hook and a sink receive it; redacted."""

    delivery: str
    """The same whenever this change is delivered; different for every other change, of other databases too."""
    sent_at: datetime
    breaker: str
    before: str
    """closed, open, half_open or isolated, as `after`."""
    after: str
    at: datetime
    cause: str
    """`failures`, `probe` or `operator`."""
    code: str | None
    """The code of the failure that caused it."""
    actor: str
    """The worker that made it, or the operator."""
    reason: str | None
    """The operator's."""
    sentence: str


class Sink(Protocol):
    """A receiver of dead letters. A sync `deliver` is called on a thread; sync and async ones have half a minute.

    A sink with a function `deliver_breaker` also receives changes of the pipeline's breakers, each as a `BreakerChange`.
    One with a function `close` is closed when the worker ends, and may be used again.
    An attribute `payload` with the value "include" asks for the payload of the job, and an attribute `input` for the input of the
    stage that failed: "redacted", or "include" for the unchanged one.
    """

    @property
    def name(self) -> str:
        """Return the name in the outbox; a change waits for the sink of this name, so it should not change."""
        ...

    def deliver(self, letter: SunkLetter) -> Awaitable[str | None] | str | None:
        """Receive one change of a letter, durably; an exception means that it was not received.

        A text that it returns is the receipt, such as the place of the message in a stream: it is kept with the letter, redacted,
        until a later change brings another one.
        """
        ...


def wants_payload(sink: Sink) -> bool:
    """Return whether a sink asks for payloads: only if its `payload` is exactly "include"."""
    return getattr(sink, "payload", None) == "include"


def wanted_input(sink: Sink) -> Input:
    """Return how a sink asks for inputs, by one of the exact words."""
    asked: object = getattr(sink, "input", None)
    return "include" if asked == "include" else "redacted" if asked == "redacted" else "exclude"


def wants_values(sink: Sink) -> bool:
    """Return whether a sink gets unredacted values, so that its exceptions may quote them."""
    return wants_payload(sink) or wanted_input(sink) == "include"


def check_values(where: str, payload: Payload, input_: Input) -> None:
    """Refuse an unknown value of a sink's `payload` or `input`."""
    one_of(f"{where}.payload", payload, get_args(Payload))
    one_of(f"{where}.input", input_, get_args(Input))


def as_members(letter: SunkLetter) -> dict[str, object]:
    """Return a letter as members for JSON; without `payload` and `input` if there are none."""
    members: dict[str, object] = msgspec.to_builtins(letter)
    for name in ("payload", "input"):
        if members[name] is None:
            del members[name]
    return members


def hears_breakers(sink: Sink) -> bool:
    """Return whether a sink receives changes of breakers."""
    return callable(getattr(sink, "deliver_breaker", None))
