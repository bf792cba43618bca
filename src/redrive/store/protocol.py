# SPDX-License-Identifier: Apache-2.0
"""The seam between the engine and a store: every method takes a batch and is one transaction.

The fence is (job id, lease token, dispatch): whatever a worker writes about a job carries all three, and a row that no longer
matches is refused for that job alone. Settling the outcomes of the last jobs and claiming the next ones is one method, because it
is one commit. Instants are seconds since the epoch on the clock of the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NewType, Protocol

from msgspec import Struct, json

from redrive.core.lifecycle import JobState

JobId = NewType("JobId", int)
LaneId = NewType("LaneId", int)
RunId = NewType("RunId", int)
Row = tuple[object, ...]

INLINE_MAX: Final = 4_096
"""Bytes of a value that are kept in the job's own row; larger ones stand beside it, so that moving the job stays cheap."""

HOOK: Final = "hook"
"""The recipient of a notice that stands for the pipeline's hooks; no sink may have this name."""


class NewJob(Struct, frozen=True, kw_only=True):
    """One job to be stored."""

    lane: LaneId
    payload: bytes
    run_at: float
    priority: int = 5
    key: str | None = None
    owner: str | None = None
    run: RunId | None = None
    ordinal: int | None = None
    """The place of the item in its run's source; a job of a run has one."""
    parent: JobId | None = None
    expires_at: float | None = None


class Child(Struct, frozen=True):
    """A job that a stage submitted; its lane is found, or made, when the stage's outcome is committed."""

    pipeline: str
    stages: tuple[str, ...]
    job: NewJob


class Submitted(Struct, frozen=True):
    """The result of a submission: the id of the job, and whether it is a duplicate: a job with the same key existed already."""

    id: JobId
    is_duplicate: bool


class Want(Struct, frozen=True):
    """What a worker can take: jobs of these lanes, the first lane first, so many in all."""

    lanes: tuple[LaneId, ...]
    limit: int
    limits: dict[LaneId, int] = {}
    """Of some lanes, fewer."""


class Claimed(Struct, frozen=True, gc=False):
    """One job in the hands of a worker."""

    id: JobId
    token: int
    dispatch: int
    lane: LaneId
    attempt: int
    round: int
    snoozes: int
    suspects: int
    """How many workers died while they held it, since its last completed stage."""
    crashes: int
    """How many processes died that ran it alone."""
    restarts: int
    """How often it began anew at its first stage."""
    cancel_asked: int
    expires_at: float | None
    codes: bytes | None
    """How many attempts of this round failed with each code, as JSON; None while none did."""
    input: bytes
    payload: bytes | None = None
    """What the job was submitted with; None when that is the input itself."""


class Letter(Struct, frozen=True, kw_only=True):
    """What a dead letter holds; already redacted."""

    code: str
    category: str
    is_retryable: bool
    message: str
    error_class: str
    stack: str
    fingerprint: str
    context: bytes
    reason: str


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of one dispatch: what becomes of the job, and the attempt's row."""

    job: Claimed
    status: JobState
    lane: LaneId
    run_at: float
    value: bytes | None
    """The next stage's input, or the result when the job is complete; None keeps the input as it is."""
    attempt: int
    snoozes: int
    codes: bytes | None
    outcome: str
    burned: bool
    started_at: float
    ended_at: float
    code: str | None = None
    error_class: str | None = None
    message: str | None = None
    http_status: int | None = None
    decision: str | None = None
    """What was decided, or how it ended, as JSON (`core.decide.Recorded`); None when it just succeeded."""
    letter: Letter | None = None
    config: str | None = None
    """A hash of the stage's settings."""
    notes: str | None = None
    suspects: int = 0
    crashes: int = 0
    children: tuple[Child, ...] = ()
    """Jobs that exist if and only if this settlement is taken."""
    recipients: tuple[str, ...] = ()
    """Who is to be told: the hook, and sinks by name."""

    @property
    def is_noticed(self) -> bool:
        """Whether the hook is to be told."""
        return HOOK in self.recipients


class Exchange(Struct, frozen=True, kw_only=True):
    """What one commit brought: settlements that were refused or could not be stored, and the jobs claimed next."""

    lost: tuple[JobId, ...]
    """Their lease belongs to somebody else by now."""
    broken: tuple[JobId, ...]
    """The store could not take their row; they still belong to the worker."""
    claimed: tuple[Claimed, ...]
    is_known: bool = True
    """False when the worker was declared dead: nothing was claimed, and whatever it holds is not its own any more."""


class About(Struct, frozen=True, kw_only=True):
    """What a worker tells about itself, for whoever looks for it."""

    host: str = ""
    process: int = 0
    pipelines: tuple[str, ...] = ()
    concurrency: int = 0


class Renewal(Struct, frozen=True):
    """What a heartbeat brought back."""

    is_known: bool
    """False when the worker was declared dead, so that it must let go of everything."""
    cancel: tuple[JobId, ...] = ()
    """Jobs this worker holds that somebody asked to cancel."""


class Step(Struct, frozen=True):
    """One named statement of a change; with `rows`, the change is dropped as a whole unless it touches exactly so many."""

    name: str
    parameters: Row = ()
    rows: int | None = None


class Outlook(Struct, frozen=True, kw_only=True):
    """What is still to come in some lanes."""

    due: dict[LaneId, float]
    """When the next queued job of each lane is due; lanes without one are left out."""
    held: int
    """How many jobs are in the hands of workers."""
    paused: frozenset[LaneId]


class Store(Protocol):
    """Everything the engine asks of a store. Each method is atomic and safe to repeat."""

    def lanes(self, pipeline: str, stages: Sequence[str]) -> list[LaneId]:
        """Return the lane of each stage, making those that are new."""
        ...

    def submit(self, jobs: Sequence[NewJob], now: float) -> list[Submitted]:
        """Store new jobs; durable when it returns. If a queued, processing or complete job has the key, that job is returned."""
        ...

    def start_worker(self, worker: str, now: float, lease: float, about: About = ...) -> None:
        """Make a worker known; its lease ends `lease` seconds from now unless it is renewed."""
        ...

    def renew(self, worker: str, now: float, lease: float) -> Renewal:
        """Extend the worker's lease, and bring back what is asked of it."""
        ...

    def stop_worker(self, worker: str) -> None:
        """Give back whatever the worker still holds, unburned, and forget it."""
        ...

    def exchange(
        self, worker: str, done: Sequence[Settlement], want: Want, *, now: float, token: int
    ) -> Exchange:
        """Settle what is done and claim what comes next, in one commit; `token`, new for every call, marks what is claimed.

        A settlement is taken only while the job's lease token and dispatch still match; one that was taken before (the answer to an
        earlier commit was lost) counts as done. A job whose stage is done may be claimed for its next one in the same step, if that
        lane is wanted. Claimed jobs have their dispatch counted before the caller can run them. After a
        lost answer the same call is made again with the same token, and returns what that token had claimed already.
        """
        ...

    def reap(self, now: float) -> int:
        """Declare workers dead whose lease has ended, and give their jobs back; return how many jobs that were."""
        ...

    def outlook(self, lanes: Sequence[LaneId]) -> Outlook:
        """Return what is still to come in these lanes."""
        ...

    def breaker(self, name: str) -> bytes | None:
        """Return the state of a breaker; None when nobody has written one."""
        ...

    def swap_breaker(self, name: str, before: bytes | None, after: bytes) -> bool:
        """Change the state of a breaker if it is still `before`; say whether it was."""
        ...

    def query(self, name: str, *parameters: object) -> list[Row]:
        """Run a named query of the inspecting side."""
        ...

    def apply(self, *steps: Step) -> list[list[Row]] | None:
        """Make a change of several named statements, whole or not at all; return their rows, or None when it did not fit."""
        ...

    def stamp(self) -> object:
        """Return what is equal to the last one as long as nobody, here or elsewhere, has changed the store; cheap to ask."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...


def listed(values: object) -> str:
    """Return a list as named statements take one: as JSON."""
    return json.encode(values).decode()
