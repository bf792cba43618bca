# SPDX-License-Identifier: Apache-2.0
"""The records that pass between the engine and a store.

Instants are seconds since the epoch on the clock of the caller. (job id, lease token, dispatch) is the fence: whatever a worker
writes about a job carries all three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, NewType, TypeVar, cast

from msgspec import Struct, json

from redrive.core.lifecycle import JobState
from redrive.errors import ConfigurationError

JobId = NewType("JobId", int)
LaneId = NewType("LaneId", int)
RunId = NewType("RunId", int)
Row = tuple[object, ...]
Part = Literal["payload", "input"]
"""Which value of a job."""
R_co = TypeVar("R_co", covariant=True)
_Upcoming = tuple[LaneId, float | None, int, str, float | None]

INLINE_MAX: Final = 4_096
"""Bytes of a value that are kept in the job's own row; larger ones are kept apart, so that changing the job stays cheap."""

HOOK: Final = "hook"
"""The recipient of notices for the pipeline's hooks; no sink may have this name."""


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
    """The position of the item in its run's source; a job of a run has one."""
    parent: JobId | None = None
    expires_at: float | None = None
    trace: str | None = None
    """Where it was submitted, as a W3C traceparent; None when nobody traces."""


class Child(Struct, frozen=True):
    """A job that a stage submitted; its lane is found, or made, when the stage's outcome is committed."""

    pipeline: str
    stages: tuple[str, ...]
    job: NewJob
    joins_run: bool = False
    """Whether it belongs to the run of the job whose stage submitted it, if that has one."""
    stored: list[JobId] = []
    """Its id, once it is committed; empty before."""

    def entry(self, known: Mapping[str, tuple[LaneId, int]]) -> LaneId | None:
        """Return where it enters its pipeline, of which these stages are known with their lanes and positions; None for a new one.

        Raises:
            ConfigurationError: its first stage is a later one for the workers: its jobs would skip those before.
        """
        lane, position = known.get(self.stages[0], (None, 0))
        if position:
            raise ConfigurationError(
                field=f"Pipeline({self.pipeline}).stages",
                value=self.stages[0],
                rule="must begin with the stage that is the first one for the workers of this database",
                fix="Submit with the pipeline that the workers have; start a worker first if that has changed.",
            )
        return lane


class SubmittedJob(Struct, frozen=True):
    """The result of a submission: the id of the job, and whether it is a duplicate: a job with the same key existed already."""

    id: JobId
    is_duplicate: bool


class ClaimRequest(Struct, frozen=True):
    """What a worker can claim: jobs of these lanes, the first lane first, at most `limit` in all."""

    lanes: tuple[LaneId, ...]
    limit: int
    limits: dict[LaneId, int] = {}
    """Lower limits of single lanes."""
    keys: dict[LaneId, dict[str, int]] = {}
    """Lanes whose jobs have keys: how many of which key, the first key first; others of these lanes are not claimed."""
    slots: int | None = None
    """At most so many jobs of all lanes that are not in `batched`; None for `limit`."""
    batched: frozenset[LaneId] = frozenset()
    """Lanes whose jobs share a slot, and so take none of `slots`."""
    job: JobId | None = None
    """Only this job, if it is due in one of the lanes."""


class ClaimedJob(Struct, frozen=True, gc=False):
    """One job that is leased to a worker."""

    id: JobId
    token: int
    dispatch: int
    lane: LaneId
    attempt: int
    round: int
    snoozes: int
    suspects: int
    """How many workers died while they leased it, since its last completed stage."""
    crashes: int
    """How many processes died that ran it alone."""
    restarts: int
    """How often it started again at its first stage."""
    cancel_asked: int
    expires_at: float | None
    codes: bytes | None
    """How many attempts of this round failed with each code, as JSON; None while none did."""
    input: bytes
    payload: bytes | None = None
    """What the job was submitted with; None when that is the input itself."""
    about: bytes | None = None
    """Its key, its owner, its run and its origin, as JSON; None for a job without any of them."""
    trace: str | None = None
    """What was stored of it, if the worker traces: a claim itself does not read it."""


class Letter(Struct, frozen=True, kw_only=True):
    """The content of a dead letter; already redacted."""

    code: str
    category: str
    is_retryable: bool
    message: str
    exception: str
    stack: str
    fingerprint: str
    context: bytes
    reason: str


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of one dispatch: what becomes of the job, and the attempt's row."""

    job: ClaimedJob
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
    exception: str | None = None
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
    """Jobs that are created if and only if this settlement is committed."""
    recipients: tuple[str, ...] = ()
    """Who receives a notice: the hook, and sinks by name."""

    @property
    def is_noticed(self) -> bool:
        """Whether the hook receives a notice."""
        return HOOK in self.recipients


class PhaseChange(Struct, frozen=True, kw_only=True):
    """A change of a breaker's phase, with its cause: `failures` or `probe` for one by a worker, or `operator`."""

    at: float
    breaker: str
    before: str
    after: str
    cause: str
    actor: str
    """The worker that made it, or the operator."""
    code: str | None = None
    """The code of the failure that caused it."""
    reason: str | None = None


class StateChange(NamedTuple):
    """What calls have found about a dependency: the state of its breaker becomes `after`, if it is still `before`."""

    after: bytes
    name: str
    before: bytes


class ExchangeRequest(Struct, frozen=True):
    """What a worker commits at once: the outcomes that are done, and what it claims next."""

    worker: str
    done: Sequence[Settlement]
    want: ClaimRequest
    now: float
    token: int
    """New for every call; marks what is claimed."""
    breakers: Sequence[StateChange] = ()
    """Changes of breakers, as far as nobody else has changed them or is about to: nobody waits for their rows."""


class Exchange(Struct, frozen=True, kw_only=True):
    """The result of one commit: settlements that were refused or could not be stored, and the jobs claimed next."""

    lost: tuple[JobId, ...] = ()
    """Their lease belongs to another worker by now."""
    broken: tuple[JobId, ...] = ()
    """The store could not take their row; they still belong to the worker."""
    claimed: tuple[ClaimedJob, ...] = ()
    why: dict[JobId, ConfigurationError] = {}
    """Why some of the broken ones could not be stored, where the application can do something about it."""
    is_known: bool = True
    """False when the worker was declared dead: nothing was claimed, and its leases are void."""
    swapped: tuple[str, ...] = ()
    """The breakers whose state was changed as asked."""
    cancel: tuple[JobId, ...] = ()
    """Jobs leased to this worker, when the commit began, that somebody asked to cancel."""


class WorkerFacts(Struct, frozen=True, kw_only=True):
    """What a worker reports about itself, for lists of workers."""

    host: str = ""
    process: int = 0
    pipelines: tuple[str, ...] = ()
    concurrency: int = 0


class Renewal(Struct, frozen=True):
    """The answer to a heartbeat."""

    is_known: bool
    """False when the worker was declared dead, so that it must stop all its attempts."""
    cancel: tuple[JobId, ...] = ()
    """Jobs leased to this worker that somebody asked to cancel."""


class DoesNotFitError(Exception):
    """A step touched other rows than it should have."""


class Step(Struct, frozen=True):
    """One named statement of a change; with `rows`, the whole change is rolled back unless it touches exactly so many."""

    name: str
    parameters: Row = ()
    rows: int | None = None

    def decode(self, rows: list[Row]) -> list[Any]:
        """Return its rows as what the statement was declared to return; as they are without a declaration."""
        return rows

    def answer(self, rows: list[Row], touched: int) -> list[Any]:
        """Return its rows, decoded; raises DoesNotFitError if it has touched another number of rows than it must."""
        if self.rows not in {None, touched}:
            raise DoesNotFitError
        return self.decode(rows)


class Call(Step, Generic[R_co], frozen=True, kw_only=True):
    """A declared statement with its parameters: a query, or a step of a change."""

    decoder: Callable[[list[Row]], list[R_co]]

    def decode(self, rows: list[Row]) -> list[R_co]:
        """Return its rows as what the statement was declared to return."""
        return self.decoder(rows)

    def touching(self, rows: int) -> Call[R_co]:
        """Return the same, with which the whole change is rolled back unless it touches exactly so many rows."""
        return Call(self.name, self.parameters, rows, decoder=self.decoder)


class UpcomingWork(Struct, frozen=True, kw_only=True):
    """What is still to come in some lanes."""

    due: dict[LaneId, float]
    """When the next queued job of each lane is due; lanes without one are left out."""
    leased: int
    """How many jobs are leased to workers."""
    paused: frozenset[LaneId]


def json_list(values: object) -> str:
    """Return a list as named statements take it: as JSON."""
    return json.encode(values).decode()


def upcoming_work(rows: Sequence[Row]) -> UpcomingWork:
    """Return the rows of the statement `upcoming` as one value."""
    due: dict[LaneId, float] = {}
    leased, paused = 0, "[]"
    for lane, free, held, paused_lanes, keyed in cast("Sequence[_Upcoming]", rows):
        leased, paused = leased + held, paused_lanes
        if ats := [at for at in (free, keyed) if at is not None]:
            due[lane] = min(ats)
    stopped = json.decode(paused, type=list[LaneId])
    return UpcomingWork(due=due, leased=leased, paused=frozenset(stopped))


def lanes_in_order(known: Mapping[str, tuple[LaneId, int]], stages: Sequence[str]) -> list[LaneId] | None:
    """Return the lanes of stages, by the lane and the position of each that is known; None unless all are there, in this order."""
    found = [known.get(stage) for stage in stages]
    lanes = [each[0] for place, each in enumerate(found) if each is not None and each[1] == place]
    return lanes if len(lanes) == len(stages) else None
