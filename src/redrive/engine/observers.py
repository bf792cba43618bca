# SPDX-License-Identifier: Apache-2.0
"""Observers: they are called about what the workers of this process do, such as metrics, traces and the worker's own log.

They get values that they cannot change, and what they raise is logged once and otherwise ignored: no observer can change what
becomes of a job. Without any, a worker pays for one test per commit and per attempt. The engine knows no library for telemetry.
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, ParamSpec, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from redrive.engine.error_text import error_text
from redrive.engine.pipeline.lanes import Lane
from redrive.store import records
from redrive.store.protocol import Store
from redrive.store.statements import jobs as job_sql

logger = logging.getLogger("redrive.worker")

P = ParamSpec("P")
T = TypeVar("T")
Page = Callable[[], tuple[str, bytes]]
"""Returns the content type and the body of an answer."""


class CommitFacts(Struct, frozen=True, kw_only=True, eq=False):
    """One commit: what was settled, what was refused, and how long the store took."""

    batch: Sequence[records.Settlement]
    answer: records.Exchange
    lanes: Mapping[records.LaneId, Lane]
    seconds: float

    def settled(self) -> Iterable[records.Settlement]:
        """Return the settlements that were written."""
        if not (self.answer.lost or self.answer.broken):
            return self.batch
        refused = {*self.answer.lost, *self.answer.broken}
        return [one for one in self.batch if one.job.id not in refused]


class AttemptFacts(Struct, frozen=True, kw_only=True):
    """One attempt, as it starts."""

    job_id: records.JobId
    pipeline: str
    stage: str
    attempt: int
    dispatch: int
    round: int
    started_at: float
    trace: str | None
    """The trace that was stored with the job."""


class AttemptObserver(Protocol):
    """Observes one attempt."""

    def returned(self) -> None:
        """Note that the function has returned; called where it ran."""
        ...

    def settled(self, outcome: str, code: str | None) -> None:
        """Note what was decided; `crashed` also when its lease was given up. Called on the worker's loop."""
        ...


class Observer:
    """Observes workers. Every method may be left out. They are called on the worker's loop unless they name another thread."""

    process_setup: str | None = None
    """`module:function` that installs an observer like this one in a process that runs stages; None if none is needed there."""

    def worker_started(self, name: str, facts: records.WorkerFacts) -> None:
        """Note that a worker starts."""

    def worker_ended(self, ending: str) -> None:
        """Note that a worker has ended: idle, held, stopped or cancelled, or the class of the error that ended it."""

    def committed(self, commit: CommitFacts) -> None:
        """Note a commit."""

    def limited(self, lanes: Sequence[Lane]) -> None:
        """Note that a claim left these lanes out, because their own limit was used up. Called on the store's thread."""

    def declared_dead(self, runs: int) -> None:
        """Note that the worker was declared dead, and how many of its attempts were dropped."""

    def reaped(self, jobs: int) -> None:
        """Note that so many jobs of dead workers were queued again. Called on the heartbeat's thread."""

    def attempt_started(self, facts: AttemptFacts) -> AttemptObserver | None:
        """Note that a stage's function is about to be called; called where it will run, in its own context."""

    def trace_of_caller(self) -> str | None:
        """Return the trace to be stored with a job that is submitted here and now; None without one."""

    def trace_resumed(self, trace: str) -> Callable[[], None] | None:
        """Continue a trace in a process that runs a stage; return what ends that."""

    def health_page(self, path: str) -> Page | None:
        """Return what makes the answer of the health port to this path, on a thread; None for the usual one."""


_installed: Final[list[Observer]] = []


def install(observer: Observer) -> None:
    """Let an observer see every worker of this process that starts from now on, and every submission."""
    if observer not in _installed:
        _installed.append(observer)


def uninstall(observer: Observer) -> None:
    """Undo `install`."""
    if observer in _installed:
        _installed.remove(observer)


def installed(*others: Observer) -> Observers:
    """Return those that are installed now, and others besides."""
    return Observers((*_installed, *others))


def trace_of_caller() -> str | None:
    """Return the trace to be stored with a job that is submitted here and now; None without one."""
    return installed().trace_of_caller() if _installed else None


class Observers:
    """Forwards each call to every observer; truthy if there is any."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._all = tuple(observers)
        self.of_attempts = tuple(each for each in self._all if _observes_attempts(each))
        """Those that observe single attempts."""
        self._failed: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._all)

    def report(self, call: Callable[[Observer], None]) -> None:
        """Call every observer: `report(lambda each: each.reaped(3))`."""
        for each in self._all:
            self._guarded(each, call, each)

    def start_attempt(self, facts: AttemptFacts) -> tuple[AttemptObserver, ...]:
        """Return the observers of this attempt."""
        started = (self._guarded(each, each.attempt_started, facts) for each in self.of_attempts)
        return tuple(each for each in started if each is not None)

    def end_call(self, observing: Iterable[AttemptObserver]) -> None:
        """Report to those that observe an attempt that its function has returned."""
        for each in observing:
            self._guarded(each, each.returned)

    def end_attempt(self, observing: Iterable[AttemptObserver], outcome: str, code: str | None) -> None:
        """Report to those that observe an attempt what was decided."""
        for each in observing:
            self._guarded(each, each.settled, outcome, code)

    def trace_of_caller(self) -> str | None:
        """See `Observer`; the first answer counts."""
        traces = (self._guarded(each, each.trace_of_caller) for each in self._all)
        return next((trace for trace in traces if trace is not None), None)

    def resume_trace(self, trace: str | None) -> list[Callable[[], None]]:
        """Continue a trace in this process; return what ends that."""
        if trace is None:
            return []
        ends = [self._guarded(each, each.trace_resumed, trace) for each in self._all]
        return [end for end in ends if end is not None]

    def health_page(self, path: str) -> Page | None:
        """See `Observer`; the first answer counts."""
        pages = (self._guarded(each, each.health_page, path) for each in self._all)
        return next((page for page in pages if page is not None), None)

    def setups(self) -> list[str]:
        """Return what installs these observers in a process that runs stages."""
        return [each.process_setup for each in self._all if each.process_setup is not None]

    def with_traces(self, store: Store, answer: records.Exchange) -> records.Exchange:
        """Return an exchange whose claimed jobs have the traces that were stored with them. Called on the store's thread."""
        traces = dict(store.query(job_sql.traces(ids=[job.id for job in answer.claimed])))
        if not traces:
            return answer
        traced = (
            msgspec.structs.replace(job, trace=traces[job.id]) if job.id in traces else job
            for job in answer.claimed
        )
        return msgspec.structs.replace(answer, claimed=tuple(traced))

    def _guarded(self, observer: object, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T | None:
        """Call an observer; what it raises is logged once for its class."""
        try:
            return call(*args, **named)
        except Exception as error:  # noqa: BLE001 - an observer must not hurt a job.
            name = type(observer).__name__
            if name not in self._failed:
                self._failed.add(name)
                logger.error("observer %s failed; logged only once: %s", name, error_text(error))  # noqa: TRY400 - redacted.
            return None


def set_up_process(setups: Iterable[str]) -> None:
    """Install observers in a process that runs stages."""
    for setup in setups:
        cast("Callable[[], None]", pkgutil.resolve_name(setup))()


def _observes_attempts(observer: Observer) -> bool:
    return type(observer).attempt_started is not Observer.attempt_started
