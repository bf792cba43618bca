# SPDX-License-Identifier: Apache-2.0
"""Running the stage of one claimed job, and deciding its settlement.

Whatever a stage raises is a failure of its attempt, never of the worker. Every outcome is reported to the stage's breaker before
the settlement is decided, so that the failure which opens a breaker is held like those that follow it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import Final, cast

from redrive.core.batch import evidence_of_call
from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import opens_at
from redrive.core.decide import BreakerStatus
from redrive.core.signals import Finish, Signal
from redrive.core.units import instant
from redrive.engine.classifier import Classifier
from redrive.engine.limits.limits import SharedLimits
from redrive.engine.observers import Observers
from redrive.engine.pipeline.context import Context
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.runtime import Runtime
from redrive.engine.worker.dead_letter import FailedAttempt, as_failure
from redrive.engine.worker.dispatch import ABANDONED, Dispatch
from redrive.engine.worker.job_logging import CURRENT_JOB
from redrive.engine.worker.probes import Probes
from redrive.engine.worker.settlements import (
    UNREADABLE,
    decide_failure,
    is_large,
    settlement_of_cancel,
    settlement_of_crash,
    settlement_of_failure,
    settlement_of_success,
    settlement_of_unreadable_failure,
)
from redrive.engine.worker.threads import AskStore
from redrive.errors import (
    AttemptTimeoutError,
    BreakerOpenError,
    JobExpiredError,
    SerializationError,
    StoreUnavailableError,
    WorkerCrashError,
)
from redrive.store.records import ClaimedJob, Settlement

logger = logging.getLogger("redrive.worker")

NOT_CALLED: Final = (BreakerOpenError, JobExpiredError, WorkerCrashError)
"""Failures of jobs whose dependency was never called."""
GRACE_SECONDS: Final = 5.0
"""How long a cancelled stage may take to clean up before a warning is logged."""


class Runner:
    """Runs a worker's stages and decides what becomes of their jobs."""

    def __init__(
        self,
        probes: Probes,
        runtime: Runtime,
        *,
        classifier: Classifier,
        ask_store: AskStore,
        observers: Observers | None = None,
        limits: SharedLimits | None = None,
    ) -> None:
        self.limits = limits if limits is not None and limits.is_needed else None
        self._breakers = probes.breakers
        self.probes = probes
        self.runtime = runtime
        self._now = runtime.clock.wall
        self._classifier = classifier
        self._ask_store = ask_store
        self._observers = observers or Observers()
        self._is_observed = bool(self._observers.of_attempts)

    def begin(self, job: ClaimedJob, lane: Lane) -> Dispatch:
        """Start the clock of one attempt."""
        now = self._now()
        timeout = lane.stage.timeout
        context = Context(
            job_id=job.id,
            pipeline=lane.pipeline.name,
            stage=lane.stage.name,
            attempt=job.attempt,
            round=job.round,
            restarts=job.restarts,
            deadline=None if timeout is None else instant(now + timeout),
            is_cancelled=bool(job.cancel_asked),
            limits=lane.limit_names,
            about=job.about,
            installations=lane.installation.ids,
            payload=job.input if job.payload is None else job.payload,
        )
        return Dispatch(job, lane, context, now)

    def refusal(self, dispatch: Dispatch) -> Exception | None:
        """Return why a job must not be run after all: it expired, or its breaker opened or fails fast."""
        job, breaker = dispatch.job, self._breaker_of(dispatch)
        if job.expires_at is not None and dispatch.started_at > job.expires_at:
            return JobExpiredError(late=dispatch.started_at - job.expires_at)
        if self.limits is not None and (error := self.limits.error_of(job.id)) is not None:
            return error
        if breaker is None or self._breakers.standing(breaker).is_closed or self.probes.is_probe(job.id):
            return None
        opens = opens_at(breaker, self._breakers.standing(breaker).state)
        retry_at = None if opens is None else instant(max(opens, self._now()))
        return BreakerOpenError(breaker=breaker.name, retry_at=retry_at, reason="it is not closed")

    def run_sync(self, dispatch: Dispatch) -> bytes | Exception:
        """Run a sync stage, on whatever thread this is; return its encoded output or what it raised.

        What was dropped or abandoned before there was a thread for it is not run: the job may be elsewhere by now.
        """
        if dispatch.state >= ABANDONED:
            return b""
        stage = dispatch.lane.stage
        token = CURRENT_JOB.set(dispatch.context)
        if self._is_observed:
            dispatch.observing = self._observers.start_attempt(dispatch.facts())
        try:
            value, extras = stage.input.check(dispatch.job.input), _extras(dispatch)
            result = stage.fn(value, **extras) if extras else stage.fn(value)
            if isinstance(result, Signal):
                return signalled(dispatch, result)
            return stage.output.seal(result)
        except BaseException as exc:  # noqa: BLE001 - whatever a stage raises is a failure of its attempt.
            return signalled(dispatch, exc)
        finally:
            if dispatch.observing:
                self._observers.end_call(dispatch.observing)
            CURRENT_JOB.reset(token)
            if dispatch.state < ABANDONED:
                # Now, because the loop takes the result a little later.
                dispatch.ended_at = self._now()

    async def run_async(self, dispatch: Dispatch) -> bytes | Exception:
        """Run an async stage; a cancellation of this task is raised."""
        stage = dispatch.lane.stage
        CURRENT_JOB.set(dispatch.context)
        if self._is_observed:
            dispatch.observing = self._observers.start_attempt(dispatch.facts())
        try:
            value, extras = stage.input.check(dispatch.job.input), _extras(dispatch)
            call = cast("Awaitable[object]", stage.fn(value, **extras) if extras else stage.fn(value))
            result = await (call if stage.timeout is None else limited(stage.name, stage.timeout, call))
            if isinstance(result, Signal):
                return signalled(dispatch, result)
            return stage.output.seal(result)
        except asyncio.CancelledError as exc:
            # Perhaps a task that the stage waited for was cancelled; only a cancellation of this one is meant for us.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return as_failure(exc)
        except GeneratorExit:
            raise
        except BaseException as exc:  # noqa: BLE001 - whatever a stage raises is a failure of its attempt.
            return signalled(dispatch, exc)
        finally:
            if dispatch.observing:
                self._observers.end_call(dispatch.observing)

    def decide_now(self, dispatch: Dispatch, ended: bytes | Exception) -> Settlement | None:
        """Decide what becomes of a job after its attempt; None for a stage with a breaker, or large values: see `decide`."""
        if dispatch.lane.stage.breaker is not None or (not isinstance(ended, bytes) and is_large(dispatch)):
            return None
        dispatch.ended_at = dispatch.ended_at or self._now()
        if isinstance(ended, bytes):
            self._report_to_limits(dispatch)
            return settlement_of_success(dispatch, ended)
        failed = self.classify(dispatch, ended)
        self._report_to_limits(dispatch, failed)
        return settlement_of_failure(dispatch, failed, self.runtime.chance.random())

    async def decide(self, dispatch: Dispatch, ended: bytes | Exception | FailedAttempt) -> Settlement:
        """Report the outcome to the stage's breaker, then decide what becomes of the job."""
        dispatch.ended_at = dispatch.ended_at or self._now()
        if isinstance(ended, bytes):
            self._report_to_limits(dispatch)
            await self._report_to_breaker(dispatch, Evidence.ALIVE)
            return settlement_of_success(dispatch, ended)
        failed = (
            self._as_timeout(dispatch, ended)
            if isinstance(ended, FailedAttempt)
            else self.classify(dispatch, ended)
        )
        self._report_to_limits(dispatch, failed)
        breaker, standing = self._breaker_of(dispatch), None
        if breaker is not None:
            await self._report_to_breaker(dispatch, _evidence_of(breaker, failed), failed.failure.code)
            standing = self._breakers.standing(breaker)
        return await decide_failure(dispatch, failed, self.runtime.chance.random(), standing)

    async def report_call(
        self, part: Sequence[Dispatch], failures: Iterable[FailedAttempt | None]
    ) -> BreakerStatus | None:
        """Report the call of a batch to the limits, and to the stage's breaker, once; return how that stands.

        None is an item that came through.
        """
        breaker, found = part[0].lane.stage.breaker, tuple(failures)
        for dispatch, failed in zip(part, found, strict=True):
            self._report_to_limits(dispatch, failed)
        if breaker is None:
            return None
        evidence = evidence_of_call(
            Evidence.ALIVE if failed is None else _evidence_of(breaker, failed) for failed in found
        )
        code = next((failed.failure.code for failed in found if failed is not None), None)
        probe = next((each for each in part if self.probes.is_probe(each.job.id)), part[0])
        await self._report_to_breaker(probe, evidence, code)
        return self._breakers.standing(breaker)

    def decide_cancelled(self, dispatch: Dispatch) -> Settlement:
        """Decide what becomes of a job that somebody cancelled; its attempt proves nothing about the dependency."""
        self._end_without_evidence(dispatch)
        return settlement_of_cancel(dispatch)

    async def decide_crashed(
        self, dispatch: Dispatch, *, is_alone: bool, exit_code: int | None
    ) -> Settlement:
        """Decide what becomes of a job whose process died: it is queued again; if it ran alone, the crash counts against it."""
        crashes, lane = dispatch.job.crashes + int(is_alone), dispatch.lane
        if crashes >= lane.pipeline.crash_max:
            error = WorkerCrashError(stage=lane.stage.name, exit_code=exit_code, crashes=crashes)
            return await self.decide(dispatch, error)
        self._end_without_evidence(dispatch)
        return settlement_of_crash(dispatch, is_alone=is_alone)

    def decide_broken(self, dispatch: Dispatch, error: BaseException) -> Settlement:
        """Decide what becomes of a job whose stage or decision broke, for example in a rule of the user."""
        self._end_without_evidence(dispatch)
        if dispatch.context.is_cancelled:
            return settlement_of_cancel(dispatch)
        try:
            exc = as_failure(error)
            # The user's own rules may be what broke.
            failure = Classifier().classify(exc, stage=dispatch.lane.stage.name)
            draw = self.runtime.chance.random()
            return settlement_of_failure(dispatch, FailedAttempt(failure, exc), draw)
        except BaseException as worse:  # noqa: BLE001 - a failure may raise anything when it is examined.
            return _decide_unreadable(dispatch, worse)

    def decide_refused(
        self, settlement: Settlement, lane: Lane, why: Exception | FailedAttempt | None = None
    ) -> Settlement:
        """Decide, as a failure of its attempt, what becomes of a job whose settlement the store refused, or could not commit."""
        where = f"{lane.stage.name} (output)"
        error = why or SerializationError(where=where, kind="row", problem="the store refused it")
        dispatch = self.begin(settlement.job, lane)
        dispatch.started_at, dispatch.ended_at = settlement.started_at, settlement.ended_at
        try:
            failed = error if isinstance(error, FailedAttempt) else self.classify(dispatch, error)
            return settlement_of_failure(dispatch, failed, self.runtime.chance.random())
        except Exception as worse:  # noqa: BLE001 - without a settlement the job would stay here for good.
            return _decide_unreadable(dispatch, worse)

    def _end_without_evidence(self, dispatch: Dispatch) -> None:
        self.probes.drop(dispatch.job.id, dispatch.lane.stage.breaker)
        self._report_to_limits(dispatch)
        dispatch.ended_at = self._now()

    def _report_to_limits(self, dispatch: Dispatch, failed: FailedAttempt | None = None) -> None:
        """Report to the stage's limits what an attempt used, and what the dependency asked for, if it was called."""
        if self.limits is not None:
            is_silent = failed is None or isinstance(failed.exc, NOT_CALLED)
            self.limits.ended(dispatch, None if is_silent or failed is None else failed.failure)

    def classify(self, dispatch: Dispatch, exc: Exception) -> FailedAttempt:
        """Classify what a stage raised; an error that came too late is a timeout."""
        stage = dispatch.lane.stage
        if (
            stage.timeout is not None
            and dispatch.overran
            and not isinstance(exc, Signal | AttemptTimeoutError)
        ):
            late = AttemptTimeoutError(timeout=stage.timeout)
            late.__cause__ = exc
            exc = late
        codes = dispatch.lane.pipeline.codes
        failure = self._classifier.classify(
            exc, idempotent=stage.is_idempotent, stage=stage.name, codes=codes
        )
        return FailedAttempt(failure, exc)

    def _as_timeout(self, dispatch: Dispatch, failed: FailedAttempt) -> FailedAttempt:
        """Make a timeout of a failure from another process if it came too late; it keeps its own stack."""
        stage = dispatch.lane.stage
        if stage.timeout is None or not dispatch.overran or failed.failure.signal is not None:
            return failed
        late = AttemptTimeoutError(timeout=stage.timeout)
        failure = self._classifier.classify(late, stage=stage.name, codes=dispatch.lane.pipeline.codes)
        return FailedAttempt(failure, stack=failed.stack, frames=failed.frames)

    def _breaker_of(self, dispatch: Dispatch) -> Breaker | None:
        return self._breakers.of(dispatch.job.id, dispatch.lane.stage.breaker)

    async def _report_to_breaker(
        self, dispatch: Dispatch, evidence: Evidence, code: str | None = None
    ) -> None:
        """Report what an attempt found; a failure at once, so that the breaker may open before the next claim."""
        breaker, token = self._breaker_of(dispatch), self.probes.token_of(dispatch.job.id)
        if breaker is None:
            return
        try:
            if token is not None:
                await self._ask_store(lambda: self.probes.end(breaker, self._now(), token, evidence, code))
                return
            self._breakers.note(breaker, evidence, code)
            if evidence is Evidence.DOWN:
                await self._ask_store(lambda: self._breakers.flush(self._now()))
        except StoreUnavailableError as error:
            # What was noted is written with the next commit; the breaker forgets a probe without a result after a timeout.
            logger.warning("breaker %s: the store did not answer: %s", breaker.name, error)


def _evidence_of(breaker: Breaker, failed: FailedAttempt) -> Evidence:
    """Return what a failure proves: a signal of the stage, or a failure without a call, proves nothing about the dependency."""
    is_silent = failed.failure.signal is not None or isinstance(failed.exc, NOT_CALLED)
    return Evidence.NOTHING if is_silent else breaker.evidence_of(failed.failure)


def _decide_unreadable(dispatch: Dispatch, worse: BaseException) -> Settlement:
    """Give up a job whose failure cannot be read; the error that came up instead is not logged, because nothing redacts it."""
    logger.error(
        "job %s: %s, because of %s; it becomes a dead letter",
        dispatch.job.id,
        UNREADABLE,
        type(worse).__name__,
    )
    return settlement_of_unreadable_failure(dispatch)


def signalled(dispatch: Dispatch, raised: BaseException) -> bytes | Exception:
    """Return what a stage raised, or a signal it returned; a finish as the job's result, if it is one of the last stage's type."""
    if not isinstance(raised, Finish):
        return as_failure(raised)
    try:
        output = dispatch.lane.pipeline.stages[-1].output.seal(raised.result)
    except BaseException as exc:  # noqa: BLE001 - a value that cannot be stored is a failure of its attempt.
        return as_failure(exc)
    dispatch.is_finish = True
    return output


def _extras(dispatch: Dispatch) -> dict[str, object]:
    name = dispatch.lane.stage.context_name
    if name is None:
        return dispatch.lane.resources
    return {**dispatch.lane.resources, name: dispatch.context}


async def limited(name: str, limit: float, call: Awaitable[object]) -> object:
    """Await a call for at most `limit` seconds; then cancel it and wait until it has ended, so that no two attempts overlap."""
    scope = asyncio.timeout(limit)
    stubborn = asyncio.get_running_loop().call_later(
        limit + GRACE_SECONDS,
        logger.warning,
        "stage %s was cancelled after %g s and still runs",
        name,
        limit,
    )
    try:
        async with scope:
            return await call
    except TimeoutError as exc:
        if not scope.expired():
            raise
        raise AttemptTimeoutError(timeout=limit) from exc
    finally:
        stubborn.cancel()
