# SPDX-License-Identifier: Apache-2.0
"""The result of `run_inline`: values only, redacted as in a store."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.engine.pipeline.pipeline import Event
from redrive.store.records import Letter


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineAttempt:
    """One run of a stage."""

    stage: str
    attempt: int
    """The place in the stage's budget; a hold or a crash repeats the number."""
    outcome: str
    """ok, retry, hold, dead, crashed, cancelled or skipped."""
    burned: bool
    code: str | None
    message: str | None
    reason: str | None
    """The reason of the decision, in one word; `sentence` has it in full."""
    sentence: str | None
    waited: float
    """Virtual seconds from the end of this run until the next one was due."""
    notes: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineChild:
    """A job that a stage submitted with `ctx.submit`; it was not run."""

    pipeline: str
    payload: object
    """Decoded from JSON."""
    key: str | None
    owner: str | None
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineResult:
    """The outcome of a job."""

    status: str
    """complete, failed, cancelled or skipped; queued when it was still held or retried after `DISPATCHES_MAX` runs."""
    value: object
    """The output of the last stage, encoded and decoded as in `Job.result`; None unless complete."""
    error: BaseException | None
    """The exception of the last failed attempt, unredacted; None if none failed."""
    attempts: tuple[InlineAttempt, ...]
    letter: Letter | None
    """The dead letter of a failed job."""
    notes: dict[str, str]
    """Notes of all stages; of two with the same name, the later one."""
    children: tuple[InlineChild, ...]
    """Jobs that completed or skipping stages submitted; those of a failed attempt do not exist."""
    events: tuple[Event, ...]
    """What the hooks of the pipeline received."""
    elapsed: float
    """Virtual seconds from the first run to the end."""
