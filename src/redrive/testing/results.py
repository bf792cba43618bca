# SPDX-License-Identifier: Apache-2.0
"""What `run_inline` found out: values only, and as redacted as what a store would have been given."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.engine.pipeline.pipeline import Event
from redrive.store.protocol import Letter


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineAttempt:
    """One run of a stage."""

    stage: str
    attempt: int
    """The place in the stage's budget; a hold or a crash repeats the number."""
    outcome: str
    """ok, retry, hold, dead, crashed or cancelled."""
    burned: bool
    code: str | None
    message: str | None
    reason: str | None
    """Why it was decided so, in a word; `sentence` says it in full."""
    sentence: str | None
    waited: float
    """Virtual seconds from the end of this run until the next one was due."""
    notes: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineChild:
    """A job that a stage submitted with `ctx.submit`; it was not run."""

    pipeline: str
    payload: object
    """As JSON has it."""
    key: str | None
    owner: str | None
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineResult:
    """What became of a job."""

    status: str
    """complete, failed or cancelled; queued when it was still held or retried after `DISPATCHES_MAX` runs."""
    value: object
    """What the last stage returned, encoded and decoded as `Job.result` would; None unless complete."""
    error: BaseException | None
    """What the last run that failed raised, unredacted, to look at or to raise again; None when none failed."""
    attempts: tuple[InlineAttempt, ...]
    letter: Letter | None
    """The dead letter of a failed job."""
    notes: dict[str, str]
    """What stages noted; where two used one name, the later."""
    children: tuple[InlineChild, ...]
    """What completed stages submitted; what a failed attempt submitted does not exist."""
    events: tuple[Event, ...]
    """What the pipeline's hooks were told."""
    elapsed: float
    """Virtual seconds from the first run to the end."""
