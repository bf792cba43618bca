# SPDX-License-Identifier: Apache-2.0
"""Running one claimed job's stage, and turning what it did into a settlement.

Whatever a stage raises is a failure of its attempt, never of the worker. Its breaker hears of every outcome before the settlement
is decided, so that the failure which opens a breaker is held like those that follow it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Final, cast

from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import opens_at
from redrive.core.signals import Signal
from redrive.engine.classifier import Classifier
from redrive.engine.pipeline.context import Context
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.runtime import Runtime
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.dead_letter import FailedAttempt, StageEndingError, as_failure
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.job_logging import CURRENT_JOB
from redrive.engine.worker.settlements import (
    settle_cancelled,
    settle_crash,
    settle_failure,
    settle_success,
    settle_untold,
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
from redrive.store.protocol import Claimed, JobId, Settlement

logger = logging.getLogger("redrive.worker")

UNASKED: Final = (BreakerOpenError, JobExpiredError, WorkerCrashError)
"""What happens to a job without anybody having been called."""
GRACE_SECONDS: Final = 5.0
"""How long a cancelled stage may take to clean up before the log says that it does not."""


class Runner:
    """What runs a worker's stages."""

    def __init__(
        self,
        breakers: SharedBreakers,
        runtime: Runtime,
        *,
        classifier: Classifier,
        ask_store: AskStore,
    ) -> None:
        self._breakers = breakers
        self._runtime = runtime
        self._now = runtime.clock.wall
        self._classifier = classifier
        self._ask_store = ask_store
        self._probes: dict[JobId, str] = {}

    def expect_probe(self, job: JobId, token: str) -> None:
        """Remember that this job goes out as the probe of its stage's breaker."""
        self._probes[job] = token

    def begin(self, job: Claimed, lane: Lane) -> Dispatch:
        """Start the clock of one run."""
        now = self._now()
        timeout = lane.stage.timeout
        context = Context(
            job_id=job.id,
            pipeline=lane.pipeline.name,
            stage=lane.stage.name,
            attempt=job.attempt,
            round=job.round,
            restarts=job.restarts,
            deadline=None if timeout is None else datetime.fromtimestamp(now + timeout, UTC),
            is_cancelled=bool(job.cancel_asked),
        )
        return Dispatch(job, lane, context, now)

    def refusal(self, dispatch: Dispatch) -> Exception | None:
        """Say why a job must not be run after all: it expired, or its breaker opened or fails fast."""
        job, breaker = dispatch.job, dispatch.lane.stage.breaker
        if job.expires_at is not None and dispatch.started_at > job.expires_at:
            return JobExpiredError(late=dispatch.started_at - job.expires_at)
        if breaker is None or job.id in self._probes or self._breakers.is_closed(breaker):
            return None
        return self._refused_by(breaker)

    def call(self, dispatch: Dispatch) -> bytes | Exception:
        """Run a sync stage, on whatever thread this is; return its encoded output or what it raised.

        What was let go or abandoned before there was a thread for it is not run: the job may be elsewhere by now.
        """
        if dispatch.is_settled or dispatch.is_abandoned:
            return b""
        stage = dispatch.lane.stage
        token = CURRENT_JOB.set(dispatch.context)
        try:
            value, extras = stage.input.check(dispatch.job.input), _extras(dispatch)
            result = stage.fn(value, **extras) if extras else stage.fn(value)
            if isinstance(result, Signal):
                return result
            return stage.output.seal(result)
        except BaseException as exc:  # noqa: BLE001 - whatever a stage raises is a failure of its attempt.
            return failure_of(exc)
        finally:
            CURRENT_JOB.reset(token)
            if not dispatch.is_abandoned:
                # The loop hears of it a little later.
                dispatch.ended_at = self._now()

    async def acall(self, dispatch: Dispatch) -> bytes | Exception:
        """Run an async stage; a cancellation from outside goes through."""
        stage = dispatch.lane.stage
        CURRENT_JOB.set(dispatch.context)
        try:
            value, extras = stage.input.check(dispatch.job.input), _extras(dispatch)
            call = cast("Awaitable[object]", stage.fn(value, **extras) if extras else stage.fn(value))
            result = await (call if stage.timeout is None else _limited(stage.name, stage.timeout, call))
            if isinstance(result, Signal):
                return result
            return stage.output.seal(result)
        except asyncio.CancelledError as exc:
            # A task the stage waited for may have been cancelled by somebody; only a cancellation of this one is meant for us.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return failure_of(exc)
        except GeneratorExit:
            raise
        except BaseException as exc:  # noqa: BLE001 - whatever a stage raises is a failure of its attempt.
            return failure_of(exc)

    def settled_at_once(self, dispatch: Dispatch, ended: bytes | Exception) -> Settlement | None:
        """Return the settlement of what needs no question to the store, because no breaker has to hear of it."""
        if dispatch.lane.stage.breaker is not None:
            return None
        dispatch.ended_at = dispatch.ended_at or self._now()
        if isinstance(ended, bytes):
            return settle_success(dispatch, ended)
        return settle_failure(dispatch, self._trouble(dispatch, ended), self._runtime.chance.random())

    async def settled(self, dispatch: Dispatch, ended: bytes | Exception | FailedAttempt) -> Settlement:
        """Return the settlement of a run, once its breaker has heard of it."""
        dispatch.ended_at = dispatch.ended_at or self._now()
        if isinstance(ended, bytes):
            await self._tell_breaker(dispatch, Evidence.ALIVE)
            return settle_success(dispatch, ended)
        trouble = (
            self._late(dispatch, ended)
            if isinstance(ended, FailedAttempt)
            else self._trouble(dispatch, ended)
        )
        breaker, standing = dispatch.lane.stage.breaker, None
        if breaker is not None:
            # A wish of the stage, or what happened without asking the dependency, says nothing about it.
            is_silent = trouble.failure.signal is not None or isinstance(trouble.exc, UNASKED)
            evidence = Evidence.NOTHING if is_silent else breaker.evidence_of(trouble.failure)
            await self._tell_breaker(dispatch, evidence)
            standing = self._breakers.standing(breaker)
        return settle_failure(dispatch, trouble, self._runtime.chance.random(), standing)

    def cancelled(self, dispatch: Dispatch) -> Settlement:
        """Return the settlement of a job that was cancelled by somebody; its run says nothing about the dependency."""
        self.drop_probe(dispatch.job, dispatch.lane)
        dispatch.ended_at = self._now()
        return settle_cancelled(dispatch, "cancelled on request")

    def crashed(self, dispatch: Dispatch, *, is_alone: bool) -> Settlement:
        """Return the settlement of a job whose process died; it comes back, and if it ran alone, that counts against it."""
        self.drop_probe(dispatch.job, dispatch.lane)
        dispatch.ended_at = self._now()
        return settle_crash(dispatch, is_alone=is_alone)

    def broken_off(self, dispatch: Dispatch, error: BaseException | None) -> Settlement:
        """Return the settlement of a run whose own settling broke: by a rule of the user's, or before it had begun."""
        dispatch.ended_at = self._now()
        self.drop_probe(dispatch.job, dispatch.lane)
        if dispatch.context.is_cancelled:
            return settle_cancelled(dispatch, "cancelled on request")
        try:
            exc = failure_of(error or asyncio.CancelledError())
            # The user's own rules may be what broke.
            failure = Classifier().classify(exc, stage=dispatch.lane.stage.name)
            return settle_failure(dispatch, FailedAttempt(failure, exc), self._runtime.chance.random())
        except BaseException as worse:  # noqa: BLE001 - a failure may raise anything when it is asked what it is.
            return _untold(dispatch, worse)

    def drop_probe(self, job: Claimed, lane: Lane) -> None:
        """Give back, with the next commit, the probe of a job that will not be run."""
        breaker, probe = lane.stage.breaker, self._probes.pop(job.id, None)
        if breaker is not None and probe is not None:
            self._breakers.release_later(breaker, probe)

    def _trouble(self, dispatch: Dispatch, exc: Exception) -> FailedAttempt:
        """Classify what a stage raised; a late error is a timeout, whatever it says."""
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

    def _late(self, dispatch: Dispatch, trouble: FailedAttempt) -> FailedAttempt:
        """Make a timeout of a late error from another process; it keeps its own stack."""
        stage = dispatch.lane.stage
        if stage.timeout is None or not dispatch.overran or trouble.failure.signal is not None:
            return trouble
        late = AttemptTimeoutError(timeout=stage.timeout)
        failure = self._classifier.classify(late, stage=stage.name, codes=dispatch.lane.pipeline.codes)
        return FailedAttempt(failure, stack=trouble.stack, frames=trouble.frames)

    def unstorable(self, settled: Settlement, lane: Lane) -> Settlement:
        """Settle as a failure what the store could not take."""
        where = f"{lane.stage.name} (output)"
        error = SerializationError(where=where, kind="row", problem="the store refused it")
        dispatch = self.begin(settled.job, lane)
        dispatch.started_at, dispatch.ended_at = settled.started_at, settled.ended_at
        try:
            return settle_failure(dispatch, self._trouble(dispatch, error), self._runtime.chance.random())
        except Exception as worse:  # noqa: BLE001 - without an outcome the job would stay here for good.
            return _untold(dispatch, worse)

    async def _tell_breaker(self, dispatch: Dispatch, evidence: Evidence) -> None:
        """Tell the stage's breaker what a run found; a failure at once, so that it may open before the next claim."""
        breaker, probe = dispatch.lane.stage.breaker, self._probes.pop(dispatch.job.id, None)
        if breaker is None:
            return
        try:
            if probe is not None:
                await self._ask_store(lambda: self._breakers.end_probe(breaker, self._now(), probe, evidence))
                return
            self._breakers.note(breaker, evidence)
            if evidence is Evidence.DOWN:
                await self._ask_store(lambda: self._breakers.flush(self._now()))
        except StoreUnavailableError as error:
            # What was noted is written with the next commit; a probe that could not report is void after its timeout.
            logger.warning("breaker %s: the store did not answer: %s", breaker.name, error)

    def _refused_by(self, breaker: Breaker) -> BreakerOpenError:
        opens = opens_at(breaker, self._breakers.standing(breaker).state)
        retry_at = None if opens is None else datetime.fromtimestamp(max(opens, self._now()), UTC)
        return BreakerOpenError(breaker=breaker.name, retry_at=retry_at, reason="it is not closed")


def failure_of(exc: BaseException) -> Exception:
    """Return what a stage raised as an ordinary failure, whatever comes out when it is asked what it is."""
    try:
        return as_failure(exc)
    except BaseException:  # noqa: BLE001 - what it was given to say may raise anything.
        return StageEndingError("the stage raised what cannot be shown", exc)


def _untold(dispatch: Dispatch, worse: BaseException) -> Settlement:
    """Settle a run whose failure cannot be told; what came out instead is not shown, because nothing redacts it."""
    logger.error(
        "job %s: its failure could not be told, because of %s; it is given up",
        dispatch.job.id,
        type(worse).__name__,
    )
    return settle_untold(dispatch)


def _extras(dispatch: Dispatch) -> dict[str, object]:
    name = dispatch.lane.stage.context_name
    if name is None:
        return dispatch.lane.resources
    return {**dispatch.lane.resources, name: dispatch.context}


async def _limited(name: str, limit: float, call: Awaitable[object]) -> object:
    """Await a call for so long; then it is cancelled, and waited for until it has let go, so that no two runs overlap."""
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
