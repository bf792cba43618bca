# SPDX-License-Identifier: Apache-2.0
"""Running one claimed job's stage, and turning what it did into a settlement.

Whatever a stage raises is a failure of its attempt, never of the worker. Its breaker hears of every outcome before the settlement
is decided, so that the failure which opens a breaker is held like those that follow it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import cast

from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import opens_at
from redrive.core.signals import Signal
from redrive.engine.classifier import Classifier
from redrive.engine.outcomes import Dispatch, Lane, settle_failure, settle_success
from redrive.engine.pipeline import Context, Stage
from redrive.engine.runtime import Runtime
from redrive.engine.shared_breakers import SharedBreakers
from redrive.errors import AttemptTimeoutError, BreakerOpenError, SerializationError, StoreUnavailableError
from redrive.store.protocol import Claimed, JobId, Settlement

logger = logging.getLogger("redrive.worker")

Elsewhere = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a blocking function away from the loop."""


class Runner:
    """What runs a worker's stages."""

    def __init__(
        self,
        breakers: SharedBreakers,
        runtime: Runtime,
        *,
        classifier: Classifier,
        ask_store: Elsewhere,
        run_stage: Elsewhere,
    ) -> None:
        self._breakers = breakers
        self._runtime = runtime
        self._classifier = classifier
        self._ask_store = ask_store
        self._run_stage = run_stage
        self._probes: dict[JobId, str] = {}

    def expect_probe(self, job: JobId, token: str) -> None:
        """Remember that this job goes out as the probe of its stage's breaker."""
        self._probes[job] = token

    async def run(self, job: Claimed, lane: Lane) -> Settlement:
        """Run the stage of a job and return the settlement."""
        started_at = self._now()
        try:
            output = lane.stage.output.encode(await self._call(job, lane))
        except Exception as exc:  # noqa: BLE001 - whatever a stage raises is a failure of its attempt.
            return await self._failed(Dispatch(job, lane, started_at, self._now()), exc)
        except BaseException:
            # A cancelled run says nothing about the dependency, but its probe must be given back.
            await self._tell_breaker(job, lane, Evidence.NOTHING)
            raise
        await self._tell_breaker(job, lane, Evidence.ALIVE)
        return settle_success(Dispatch(job, lane, started_at, self._now()), output)

    def unstorable(self, settled: Settlement, lane: Lane) -> Settlement:
        """Settle as a failure what the store could not take."""
        where = f"{lane.stage.name} (output)"
        error = SerializationError(where=where, kind="row", problem="the store refused it")
        dispatch = Dispatch(settled.job, lane, settled.started_at, settled.ended_at)
        failure = self._classifier.classify(error, stage=lane.stage.name)
        return settle_failure(dispatch, error, failure, self._runtime.chance.random())

    async def _failed(self, dispatch: Dispatch, exc: Exception) -> Settlement:
        stage = dispatch.lane.stage
        failure = self._classifier.classify(exc, idempotent=stage.is_idempotent, stage=stage.name)
        breaker, standing = stage.breaker, None
        if breaker is not None:
            # A wish of the stage, or a refusal by its breaker, says nothing about the dependency.
            is_silent = failure.asked is not None or isinstance(exc, BreakerOpenError)
            evidence = Evidence.NOTHING if is_silent else breaker.evidence_of(failure)
            await self._tell_breaker(dispatch.job, dispatch.lane, evidence)
            standing = self._breakers.standing(breaker)
        return settle_failure(dispatch, exc, failure, self._runtime.chance.random(), standing)

    async def _tell_breaker(self, job: Claimed, lane: Lane, evidence: Evidence) -> None:
        """Tell the stage's breaker what a run found; a failure at once, so that it may open before the next claim."""
        breaker, probe = lane.stage.breaker, self._probes.pop(job.id, None)
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

    async def _call(self, job: Claimed, lane: Lane) -> object:
        stage = lane.stage
        value = stage.input.check(job.input)
        if stage.breaker is not None and job.id not in self._probes:
            self._check(stage.breaker)
        call = functools.partial(stage.fn, value, **_context_of(job, lane))
        if stage.is_async:
            result = await _limited(stage, cast("Callable[[], Awaitable[object]]", call))
        else:
            result = await self._run_stage(call)
        if isinstance(result, Signal):
            raise result
        return result

    def _check(self, breaker: Breaker) -> None:
        """Refuse a job without running it when its breaker opened after it was claimed, or fails fast."""
        if self._breakers.is_closed(breaker):
            return
        opens = opens_at(breaker, self._breakers.standing(breaker).state)
        retry_at = None if opens is None else datetime.fromtimestamp(max(opens, self._now()), UTC)
        raise BreakerOpenError(breaker=breaker.name, retry_at=retry_at, reason="it is not closed")

    def _now(self) -> float:
        return self._runtime.clock.wall()


def _context_of(job: Claimed, lane: Lane) -> dict[str, Context]:
    if lane.stage.context_name is None:
        return {}
    context = Context(job_id=job.id, pipeline=lane.pipeline.name, stage=lane.stage.name, attempt=job.attempt)
    return {lane.stage.context_name: context}


async def _limited(stage: Stage[..., object], call: Callable[[], Awaitable[object]]) -> object:
    if stage.timeout is None:
        return await call()
    scope = asyncio.timeout(stage.timeout)
    try:
        async with scope:
            return await call()
    except TimeoutError as exc:
        if not scope.expired():
            raise
        raise AttemptTimeoutError(timeout=stage.timeout) from exc
